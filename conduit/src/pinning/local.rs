//! Own memory outside of segments, in a job whose segments are pinned as a whole. Sources of puts, destinations of gets and
//! payloads of Longs are pinned by units that stay pinned, if the program has promised to say which memory it unmaps
//! ([`Conduit::promise_to_forget`]). No peer takes part in it.
//!
//! | local memory | is registered |
//! |---|---|
//! | copied through a chunk | no |
//! | in one unit, or cut where its units end | with its units, which stay |
//! | the payload of a Long reply that no one unit holds, or no room: a handler cannot wait | for the message; units that nobody uses make room |
//! | that cannot be pinned, as constants | for the message |
//! | on the stack of the thread that calls, which goes with the thread and unsaid | for the message |

use super::elsewhere::Elsewhere;
use super::home::Home;
use super::maps::Maps;
use super::units::For;
use crate::conduit::Conduit;
use crate::core::Core;
use crate::error::AmError;
use crate::matchbits::Category;
use crate::memory::{Source, UserMem};
use crate::rma::segments::{Kept, Segments};
use crate::rma::{Completion, Rma};
use crate::segment::SegInfo;
use ::firehose::{LEAST_VICTIMS, LimitError, Limits, Unit, Wishes};

/// What is kept pinned where nothing else is said, bytes, if there is so much: as GASNet's portals-conduit does.
const KEPT: u64 = 128 << 20;

/// A fabric with a limit registers a segment for each of its uses: what peers put and get, payloads, own sources, own
/// destinations.
pub(crate) const SEGMENT_USES: u64 = 4;

impl Core {
    /// What this rank may keep pinned beside a segment of `segment` bytes; 0 where memory is pinned for each message.
    pub(crate) fn pinnable_beside(&self, segment: usize, promised: bool) -> u64 {
        if self.kept_beside(promised) == Kept::Nothing {
            return 0;
        }
        let times = if self.ni.capabilities().pinnable.is_some() {
            SEGMENT_USES
        } else {
            1
        };
        let segment = (segment as u64).saturating_mul(times);
        self.pinnable().saturating_sub(segment)
    }

    /// What stays pinned beside a segment that is pinned as a whole, wherever it is.
    fn kept_beside(&self, promised: bool) -> Kept {
        Segments::Fast.kept(SegInfo::default(), self.env.firehose.local, promised)
    }

    /// Starts to keep memory pinned, of which there may be `pinnable` bytes.
    pub(crate) fn keep_pinned(
        &mut self,
        pinnable: u64,
        promised: bool,
        elsewhere: Elsewhere,
    ) -> Result<(), LimitError> {
        let f = &self.env.firehose;
        let shape = f.shape();
        let too_little = pinnable / shape.unit_len() < u64::from(LEAST_VICTIMS);
        let kept = self.kept_beside(promised);
        if kept == Kept::Nothing || f.max_victim.is_none() && too_little {
            return Ok(());
        }
        let least = u64::from(LEAST_VICTIMS) * shape.unit_len();
        let limits = Limits::plan(&Wishes {
            pinnable,
            prepinned: 0,
            m: None,
            max_victim: f.max_victim.or(Some(pinnable.min(KEPT.max(least)))),
            nodes: self.ranks.count(),
            remote: false,
            shape,
            per_message: 0,
        })?;
        let whose = (&self.ni, self.ranks.count());
        let home = Home::new(
            whose,
            limits,
            Maps::new(false),
            For::OwnTransfers,
            (kept, elsewhere),
        );
        self.pinning.home = Some(home);
        Ok(())
    }

    /// Pins all of local memory, if it lies in one unit and nothing has to be waited for.
    pub(crate) fn pin_now(&mut self, memory: &UserMem) -> Option<Unit> {
        let home = self.pinning.home.as_mut()?;
        let len = memory.len() as u64;
        if !home.keeps(memory.addr(), len) {
            home.leave_own_stack();
            return None;
        }
        let (unit, n) = home.take(memory.addr(), len).ok()??;
        if n == len {
            return Some(unit);
        }
        home.release(unit);
        None
    }

    /// Local memory is about to be registered for a message: units that nobody uses go if the fabric has no room beside them.
    pub(crate) fn make_room(&mut self, memory: &UserMem) {
        let len = memory.len() as u64;
        if let Some(home) = &mut self.pinning.home
            && self
                .ni
                .capabilities()
                .pinnable
                .is_some_and(|room| room < len)
        {
            home.clear();
        }
    }

    /// A message needs a unit no more.
    pub(crate) fn release_unit(&mut self, unit: Unit) {
        if let Some(home) = &mut self.pinning.home {
            home.release(unit);
        }
    }
}

impl Conduit {
    /// For threads that take memory away and may not use the conduit.
    pub fn elsewhere(&self) -> Elsewhere {
        self.elsewhere.clone()
    }

    /// Whether the fabric pins the memory of messages, and the environment lets it stay pinned: then
    /// [`Conduit::promise_to_forget`] is of use.
    pub fn keeps_pinned(&self) -> bool {
        let core = self.core.borrow();
        core.ni.capabilities().pins && core.env.firehose.local
    }

    /// Sends a checked Long request whose payload, outside of the own segment, is longer than one unit: it is put, by pieces,
    /// and the header follows. `None`: it is no such request.
    pub(crate) fn long_by_units(
        &self,
        (node, handler): (u32, u8),
        memory: UserMem,
        dest: (u64, u64),
        args: &[i32],
    ) -> Option<Result<(), AmError>> {
        let (addr, len) = (memory.addr(), memory.len() as u64);
        {
            let core = self.core.borrow();
            let home = core.pinning.home.as_ref()?;
            let whole = core.env.packs(memory.len()) || home.limits.shape.reach(addr, len).1 == len;
            if node == self.mynode() || whole || !home.keeps(addr, len) {
                return None;
            }
        }
        let source = Source::User(memory);
        let put = Rma::put(node, dest.0, source, Completion::Explicit);
        let put = self.rma(&put).ok()?;
        self.wait_done(put);
        let placed = Source::Placed { len: memory.len() };
        let m = self.message(Category::Long, handler, args, placed, dest);
        Some(m.map(|m| self.request(node, &m, true)))
    }
}
