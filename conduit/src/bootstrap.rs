//! Start-up: the one place that knows of the job and of fabrics.
//!
//! ```text
//!  init    join the job, open the fabric, make all descriptors but the segment's
//!          meet through the launcher: from here on every rank can take messages
//!  attach  map the segment, make its descriptors, exchange addresses over Portals, meet
//! ```
//!
//! After `init` nothing asks the launcher: a rank that exits reaches the others wherever they are.

use crate::am::HandlerEntry;
use crate::chunks::Chunks;
use crate::conduit::{Conduit, Scope};
use crate::core::{Attached, Core};
use crate::credits::{BUFFER_BYTES, Plan};
use crate::descriptors::Descriptors;
use crate::dissemination::distances;
use crate::env::{Env, Sharing};
use crate::error::{AttachError, InitError};
use crate::exchange::{Exchange, ExchangeError};
use crate::fault::{Fault, refused};
use crate::frames::{self, Neighbours};
use crate::matchbits::{SysMsg, select};
use crate::ranks::Ranks;
use crate::rma::Near;
use crate::rma::segments::Segments;
use crate::segment::SegInfo;
use crate::trace::Tracer;
use portals_shim::fabric::{self, FabricConfig, Opened};
use portals_shim::job::Job;
use portals_shim::{AckRequest, Region};
use std::sync::Arc;

/// Message formats have 16 bits for a rank.
const MAX_NODES: u32 = 65_535;
/// Bytes that one rank contributes to the start-up exchange: its segment, which handlers it has, what it may pin.
const BLOCK: usize = 32;
/// Of these, bytes of the segment.
const SEGMENT: usize = 16;
/// Bytes of each of the others.
const WORD: usize = 8;
/// Times that a segment is pinned when it is attached: for puts and gets of the peers, and for payloads.
const OPENED: u64 = 2;

/// See [`Conduit::segment_room`].
fn segment_room(limits: &portals_shim::MemoryLimits, nodes: u32, shared: bool) -> u64 {
    let nodes = u64::from(nodes.max(1));
    let part = |bytes: u64, of: u64| bytes / 4 * 3 / of;
    let memory = part(limits.memory(), nodes);
    // All segments have a place in each process, or the own one alone, which then is private memory.
    let mapped = if shared { nodes } else { 1 };
    let addresses = limits.addresses.map(|left| part(left, mapped));
    let data = limits.data.filter(|_| !shared).map(|left| part(left, 1));
    [addresses, data]
        .into_iter()
        .flatten()
        .fold(memory, u64::min)
}

impl Conduit {
    /// Joins the job this process was started in, over the fabric that the environment names.
    /// Collective.
    pub fn init() -> Result<Self, InitError> {
        let job = Job::from_env()?;
        let config = FabricConfig::from_env()?;
        let opened = fabric::open(&job, &config)?;
        let conduit = Self::with(Box::new(job), opened)?;
        conduit.catch_signals();
        conduit.freeze_if_asked();
        Ok(conduit)
    }

    /// Starts the conduit for a job and an interface that exist. Collective.
    pub fn with(job: Box<dyn Exchange>, opened: Opened) -> Result<Self, InitError> {
        Self::with_env(job, opened, Env::from_env()?)
    }

    pub(crate) fn with_env(
        job: Box<dyn Exchange>,
        opened: Opened,
        env: Env,
    ) -> Result<Self, InitError> {
        let Opened {
            interface: ni,
            peers,
        } = opened;
        let (me, nodes) = (job.rank(), job.size());
        if nodes > MAX_NODES {
            return Err(InitError::TooManyNodes {
                nodes,
                max: MAX_NODES,
            });
        }
        let given = peers.len();
        let ranks = Ranks::new(me, peers).filter(|ranks| ranks.count() == nodes);
        let ranks = ranks.ok_or_else(|| ExchangeError {
            reason: format!("rank {me} of {nodes} was given {given} addresses"),
        })?;
        if me == 0 {
            for note in &env.notes {
                crate::say(format_args!("{note}"));
            }
        }
        let plan = Plan::new(nodes, env.credits)?;
        let reqsb = Chunks::new(env.sb_chunks)?;
        let rplsb = Chunks::new(env.rpl_chunks)?;
        let reqrb = (0..plan.buffers)
            .map(|_| Region::new(BUFFER_BYTES))
            .collect::<Result<_, _>>()?;
        let boot_len = nodes as usize * BLOCK;
        // No request is under way before the exchange has ended, so its blocks can lie where requests will.
        let boot = if boot_len <= reqsb.bytes() {
            reqsb.region().clone()
        } else {
            Region::new(boot_len)?
        };
        let boot = (boot, boot_len);
        let descriptors = Descriptors::new(&ni, &env, &plan, nodes, (&reqsb, &rplsb), reqrb, boot)
            .map_err(|r| InitError::Setup {
                what: r.what,
                error: r.error,
            })?;
        // Nobody sends before everybody can receive. The fence is outside the fabric, where
        // simulated time must be allowed to pass for ranks that are not there yet.
        ni.outside(|| job.fence())
            .map_err(|error| InitError::Setup {
                what: "the meeting of all ranks",
                error,
            })??;
        let tracer = Tracer::open(&env.trace, me, nodes, &ni);
        let core = Core::new(ni, ranks, env, &plan, descriptors, reqsb, rplsb);
        let mut conduit = Self::assemble(core, job);
        conduit.tracer = tracer.map(Arc::new);
        Ok(conduit)
    }

    /// Registers handlers and maps a segment of at least `segment_size` bytes (whole pages; 0 for
    /// none). Collective; returns the handlers' indexes in the order given. Ranks register equal
    /// lists.
    pub fn attach(
        &self,
        handlers: Vec<HandlerEntry>,
        segment_size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        if self.gate.is_some() {
            return Err(AttachError::Shared);
        }
        self.attach_entries(handlers, segment_size)
    }

    pub(crate) fn attach_entries(
        &self,
        handlers: Vec<HandlerEntry>,
        segment_size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        if self.is_attached() {
            return Err(AttachError::Attached);
        }
        let promised = self.forgets.get();
        let pinnable = self.core.borrow().pinnable_beside(segment_size, promised);
        let ni = self.interface();
        if let Some(left) = ni.capabilities().exposable
            && segment_size as u64 > left / OPENED
        {
            let size = segment_size;
            return Err(AttachError::Pin { size, left });
        }
        let region = ni
            .new_region(segment_size)
            .map_err(|source| AttachError::Segment {
                size: segment_size,
                source,
            })?;
        let size = if segment_size == 0 { 0 } else { region.len() };
        let indexes = self.handlers.borrow_mut().register(handlers)?;
        let rarsrc = {
            let core = self.core.borrow();
            core.descriptors
                .attach_segment(&core.ni, &region, size)
                .map_err(|r| AttachError::Setup {
                    what: r.what,
                    error: r.error,
                })?
        };
        let own = Segments::Fast.named(SegInfo {
            addr: region.addr(),
            size: size as u64,
        });
        let told = self.exchange(own, pinnable);
        // Every rank keeps to what the poorest may pin, so that all of them start or none.
        let pinnable = told.iter().map(|t| t.1).min().unwrap_or(0);
        self.core
            .borrow_mut()
            .keep_pinned(pinnable, promised, self.elsewhere())
            .map_err(AttachError::Firehose)?;
        let segments: Vec<_> = told.into_iter().map(|t| t.0).collect();
        let mut windows: Vec<_> = vec![None; segments.len()];
        windows[self.mynode() as usize] = Some((region.clone(), 0));
        self.core.borrow_mut().attached = Some(Attached {
            region,
            rarsrc,
            segments,
            near: windows,
        });
        // By the exchange all ranks have made their descriptors.
        self.look_around();
        let near = frames::offer(&self.core.borrow());
        self.meet();
        if let Some(near) = near {
            let neighbours = Neighbours::new(near, &self.core.borrow());
            let _ = self.neighbours.set(Arc::new(neighbours));
        }
        self.say_what_is_idle();
        if let Some(t) = &self.tracer {
            t.introduce();
        }
        Ok(indexes)
    }

    /// Rank 0 says which variables change nothing in a job such as this one.
    fn say_what_is_idle(&self) {
        if self.mynode() > 0 {
            return;
        }
        let mut others = (0..self.nodes()).filter(|node| *node != self.mynode());
        let near = self.neighbours.get();
        let near = near.is_some_and(|n| others.all(|node| n.find(node).is_some()));
        let core = self.core.borrow();
        let pins = core.ni.capabilities().pins;
        for line in core.env.idle(Sharing { near, pins }) {
            crate::say(format_args!("WARNING: {line}"));
        }
    }

    /// The segments that are memory of this process; none before `attach`.
    pub fn near(&self) -> Near {
        let core = self.core.borrow();
        let attached = core.attached.as_ref();
        attached.map_or_else(Near::default, |a| Near::new(&a.segments, &a.near))
    }

    /// Maps the segments of ranks that share memory with this one.
    fn look_around(&self) {
        let mut core = self.core.borrow_mut();
        for node in 0..self.nodes() {
            let to = core.rar_target(node, select::RAR, 0);
            let window = (node != self.mynode()).then(|| core.ni.window(&to));
            let Some((window, a)) = window.flatten().zip(core.attached.as_mut()) else {
                continue;
            };
            let at = node as usize;
            if a.segments
                .get(at)
                .is_some_and(|s| s.size == window.len as u64)
            {
                a.near[at] = Some((window.region, window.offset));
            }
        }
    }

    /// The largest segment whose every use can be pinned, bytes; `None` where that is not limited.
    pub fn pinned_segment(&self) -> Option<u64> {
        Some(self.interface().capabilities().exposable? / crate::pinning::SEGMENT_USES)
    }

    /// The largest segment that makes sense where nothing else is said, bytes. It is this rank's part, as if all ranks were on this
    /// machine, of three quarters of the memory of its control group or of the machine, and of the addresses that the process
    /// may still map. `shared`: ranks of one machine map each other's segments, if the fabric can.
    pub fn segment_room(&self, shared: bool) -> u64 {
        let limits = portals_shim::MemoryLimits::now();
        segment_room(
            &limits,
            self.nodes(),
            shared && self.interface().capabilities().shares,
        )
    }

    /// The least of the values that all ranks give. Collective; once, before [`Conduit::attach`]. In round `k` a rank tells the
    /// one `2^k` above it what it has heard, so that all know of twice as many after it; a value that comes twice, or early,
    /// changes nothing.
    pub fn least(&self, own: u64) -> u64 {
        let mut known = self.core.borrow_mut().start_up.add_least(own);
        let sender = self.mynode();
        for (round, distance) in (0u8..).zip(distances(self.nodes())) {
            let message = SysMsg::Least {
                round,
                value: known,
                sender,
            };
            let to = (sender + distance) % self.nodes();
            let sent = self.core.borrow().send_sys(to, message);
            self.check("the exchange of limits", sent);
            known = self.wait_in("the exchange of limits", Scope::Safe, |c| {
                c.start_up.least_after(round)
            });
        }
        known
    }

    /// Every rank's segment and what it may pin, by rank. Block `i` of the buffer is that of rank `me + i`; in round `k`
    /// a rank sends all it has to the one `2^k` below it, which doubles what that one has.
    pub(crate) fn exchange(&self, own: SegInfo, pinnable: u64) -> Vec<(SegInfo, u64)> {
        let handlers = self.handlers.borrow().fingerprint().to_le_bytes();
        let written = {
            let core = self.core.borrow();
            let boot = &core.descriptors.boot;
            let segment = boot.write(0, &own.encode());
            segment
                .and_then(|()| boot.write(SEGMENT, &handlers))
                .and_then(|()| boot.write(SEGMENT + WORD, &pinnable.to_le_bytes()))
                .map_err(Fault::from)
        };
        self.check("start-up exchange", written);
        for (round, distance) in (0u32..).zip(distances(self.nodes())) {
            let sent = self.core.borrow().send_blocks(round, distance);
            self.check("start-up exchange", sent);
            self.wait_in("start-up exchange", Scope::Safe, |c| {
                c.start_up.has_blocks(round).then_some(())
            });
        }
        let core = self.core.borrow();
        let mut all = vec![(SegInfo::default(), 0); core.ranks.count() as usize];
        for i in 0..core.ranks.count() as usize {
            let (mut segment, mut theirs, mut pins) = ([0; SEGMENT], [0; WORD], [0; WORD]);
            let boot = &core.descriptors.boot;
            let read = boot.read(i * BLOCK, &mut segment);
            let read = read.and_then(|()| boot.read(i * BLOCK + SEGMENT, &mut theirs));
            let read = read.and_then(|()| boot.read(i * BLOCK + SEGMENT + WORD, &mut pins));
            self.check("start-up exchange", read.map_err(Fault::from));
            let at = (core.ranks.me() as usize + i) % core.ranks.count() as usize;
            if theirs != handlers {
                let node = at as u32;
                self.fatal("attach", &Fault::Handlers { node });
            }
            all[at] = (SegInfo::decode(&segment), u64::from_le_bytes(pins));
        }
        all
    }
}

/// What messages of the start-up have said so far.
#[derive(Debug)]
pub(crate) struct StartUp {
    /// Rounds of [`Conduit::exchange`] whose blocks are here, a bit each.
    blocks: u32,
    /// The least value of [`Conduit::least`] that was heard of, and its rounds that have come, a bit each.
    least: u64,
    least_rounds: u32,
}

impl Default for StartUp {
    fn default() -> Self {
        Self {
            blocks: 0,
            least: u64::MAX,
            least_rounds: 0,
        }
    }
}

impl StartUp {
    /// The blocks of a round are here. A round that there is not is none.
    pub(crate) fn handle_blocks(&mut self, round: u64) {
        let bit = u32::try_from(round).ok().and_then(|r| 1u32.checked_shl(r));
        self.blocks |= bit.unwrap_or(0);
    }

    fn has_blocks(&self, round: u32) -> bool {
        self.blocks >> round & 1 != 0
    }

    /// What a rank knows in a round; `None` if there is no such round. What is heard early is a value of the job too.
    pub(crate) fn handle_least(&mut self, round: u8, value: u64) -> Option<()> {
        self.least_rounds |= 1u32.checked_shl(round.into())?;
        self.add_least(value);
        Some(())
    }

    /// The least that is known, with one value more.
    fn add_least(&mut self, value: u64) -> u64 {
        self.least = self.least.min(value);
        self.least
    }

    /// The least that is known, if this round has come.
    pub(crate) fn least_after(&self, round: u8) -> Option<u64> {
        (self.least_rounds >> round & 1 != 0).then_some(self.least)
    }
}

impl Core {
    fn send_blocks(&self, round: u32, distance: u32) -> Result<(), Fault> {
        let blocks = distance.min(self.ranks.count() - distance) as usize;
        let to = self.ranks.below(distance);
        let offset = u64::from(distance) * BLOCK as u64;
        let target = self.am_target(to, select::BOOT, offset);
        self.ni
            .put_region(
                self.descriptors.boot_source,
                (0, (blocks * BLOCK) as u64),
                AckRequest::NoAck,
                target,
                u64::from(round),
            )
            .map_err(refused("PtlPutRegion of addresses"))
    }
}

#[cfg(test)]
mod tests {
    use super::{StartUp, segment_room};
    use portals_shim::MemoryLimits;

    #[test]
    fn a_round_counts_once_and_no_other_one_does() {
        let mut s = StartUp::default();
        for round in [2, 2, 32, u64::MAX] {
            s.handle_blocks(round);
        }
        let here: Vec<_> = (0..32).filter(|round| s.has_blocks(*round)).collect();
        assert_eq!(here, [2]);
    }

    #[test]
    fn the_least_of_early_rounds_counts() {
        let mut s = StartUp::default();
        assert_eq!(s.handle_least(1, 5), Some(()));
        assert_eq!(s.handle_least(32, 1), None);
        assert_eq!(s.add_least(7), 5);
        assert_eq!((s.least_after(0), s.least_after(1)), (None, Some(5)));
        assert_eq!(s.handle_least(0, 6), Some(()));
        assert_eq!(s.least_after(0), Some(5));
    }

    #[test]
    fn the_segment_keeps_to_the_least_limit() {
        let mut limits = MemoryLimits {
            machine: 16 << 30,
            group: None,
            addresses: None,
            data: None,
        };
        assert_eq!(segment_room(&limits, 2, true), 6 << 30);
        limits.group = Some(800 << 20);
        assert_eq!(segment_room(&limits, 2, true), 300 << 20);
        assert_eq!(segment_room(&limits, 0, false), 600 << 20);
        // Where segments are shared each process maps all of them.
        limits.addresses = Some(400 << 20);
        assert_eq!(segment_room(&limits, 2, true), 150 << 20);
        assert_eq!(segment_room(&limits, 2, false), 300 << 20);
        limits.data = Some(100 << 20);
        assert_eq!(segment_room(&limits, 2, true), 150 << 20);
        assert_eq!(segment_room(&limits, 2, false), 75 << 20);
        limits.data = Some(0);
        assert_eq!(segment_room(&limits, 2, false), 0);
    }
}
