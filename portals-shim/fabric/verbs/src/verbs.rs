//! The state of a rank over verbs, and how it makes progress.
//!
//! | part | owns |
//! |---|---|
//! | `verbs/peers.rs` | who there is, and the peer behind an index, an id, a queue pair |
//! | `verbs/adapter.rs` | device and port |
//! | `verbs/queues.rs` | completions and receive buffers |
//! | `verbs/conn.rs` | what connections are made with |
//! | `verbs/work.rs` | records of what is under way |
//! | `proto/offload/table.rs`, `proto/get_by_am/table.rs`, `proto/eager_ring/rings.rs`, `onesided/published.rs` | offloaded requests, gets by active message, rings, advertised lists |
//! | `memory.rs` | registrations |

mod adapter;
mod conn;
mod peers;
mod queues;
mod work;

use crate::memory::{self, Registry, Staged};
use crate::onesided::Published;
use crate::proto::eager_ring::Rings;
use crate::proto::get_by_am::AmGets;
use crate::proto::offload::Offloaded;
use crate::proto::select::Thresholds;
use crate::trusted::MEMORY;
use crate::witness::Witness;
pub(crate) use adapter::Adapter;
pub(crate) use conn::Conn;
use fabric_api::nal::Nal;
use fabric_api::region::Region;
use host::awake::Awake;
pub(crate) use peers::{NOBODY, Peers};
use portals_core::{Ni, ProcessId};
pub(crate) use queues::{BATCH, Queues};
use slab::Slab;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs_backend::BufferPool;
pub(crate) use work::{After, Counters, Record, RndvSend, StagedRead, Work};

/// The fabric below one interface.
#[derive(Debug)]
pub struct Verbs {
    pub(crate) id: ProcessId,
    pub(crate) peers: Peers,
    pub(crate) adapter: Adapter,
    pub(crate) queues: Queues,
    pub(crate) conn: Conn,
    pub(crate) send_pool: BufferPool,
    pub(crate) records: Slab<Record>,
    pub(crate) offloaded: Offloaded,
    pub(crate) am_gets: AmGets,
    pub(crate) rndv_sends: Slab<RndvSend>,
    pub(crate) registry: Registry,
    pub(crate) published: Published,
    pub(crate) rings: Rings,
    /// Where a request has had its effect only when a read behind it is done.
    pub(crate) witness: Option<Arc<Witness>>,
    pub(crate) thresholds: Thresholds,
    pub(crate) due: Due,
    pub(crate) counters: Counters,
    /// A thread makes progress while the program computes.
    pub(crate) thread: bool,
    /// More ranks than cores are on this machine.
    pub(crate) crowded: bool,
    pub(crate) closed: bool,
    /// The device does not work any more.
    pub(crate) gone: bool,
}

/// What has to be done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due {
    /// Descriptors may have gone since registrations were last looked through.
    pub(crate) prune: bool,
    /// A peer waits for a confirmation, so that somebody has to poll although the program computes.
    pub(crate) look: bool,
    /// Something was sent or has completed since [`Verbs::pump`].
    pub(crate) pump: bool,
    /// A withdrawal waits for reads, perhaps.
    pub(crate) confirm: bool,
}

/// Progress of another part of the fabric, which a wait of this one must not hold up.
pub(crate) type Beside<'a> = &'a mut dyn FnMut(&mut Ni);

impl Verbs {
    /// The index of another process.
    #[inline]
    pub(crate) fn rank_of(&self, to: ProcessId) -> Option<usize> {
        self.peers.rank_of(to).or_else(|| self.index_of(to))
    }

    /// A contiguous copy of `segments`, registered for `purpose`.
    pub(crate) fn stage(
        &self,
        segments: &[portals_core::Segment],
        len: u64,
        purpose: memory::Use,
        fill: bool,
    ) -> Option<Staged> {
        let region = Region::new(usize::try_from(len).ok()?).ok()?;
        if fill {
            let mut data = Vec::new();
            MEMORY.gather(segments, &mut data);
            region.write(0, &data).ok()?;
        }
        let mr = self.registry.of_buffer(&region, purpose).ok()?;
        Some(Staged { mr, region })
    }

    /// Posts what waits.
    pub(crate) fn pump(&mut self) {
        self.due.pump = false;
        let (pool, pending) = (&self.send_pool, &mut self.conn.pending);
        self.peers.each(|peer| {
            if peer.sq.wants_pump() {
                peer.sq.pump(pool);
                *pending += usize::from(peer.sq.is_broken());
            }
        });
        if self.due.confirm {
            self.confirm_withdrawn();
        }
    }

    /// Makes progress, here and by `beside`, or rests if there was nothing to do: `idle` counts such rests, of which later
    /// ones sleep.
    pub(crate) fn progress_or_rest(&mut self, ni: &mut Ni, idle: &mut u32, beside: Beside<'_>) {
        beside(ni);
        if self.look_everywhere(ni) | self.tend(ni) {
            *idle = 0;
            return;
        }
        *idle += 1;
        if *idle < 1000 || !self.arm().rings || self.look_everywhere(ni) {
            std::thread::yield_now();
        } else {
            // Takes the event of the arming.
            if let Err(error) = self.queues.wait(Duration::from_millis(5)) {
                tracing::debug!(%error, "no sleep");
            }
        }
    }

    /// Makes progress until `done`, for at most `limit`; `false` when the limit came first.
    pub(crate) fn progress_until(
        &mut self,
        ni: &mut Ni,
        limit: Duration,
        beside: Beside<'_>,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let mut left = Awake::new(limit);
        let mut idle = 0;
        while !done(self) {
            if left.is_over() && idle > 0 {
                return false;
            }
            self.progress_or_rest(ni, &mut idle, beside);
        }
        true
    }
}

/// What a fabric that is made of this and another one needs.
impl Verbs {
    /// Shows the portals of this set to the others, as they are.
    #[inline]
    pub(crate) fn tell_peers(&mut self, ni: &mut Ni, portals: u64, beside: Beside<'_>) {
        if portals != 0 || self.due.prune {
            self.tell_all(ni, portals, beside);
        }
    }

    fn tell_all(&mut self, ni: &mut Ni, portals: u64, beside: Beside<'_>) {
        self.publish_portals(ni, portals, beside);
        if std::mem::take(&mut self.due.prune) {
            self.prune(ni);
            self.due.prune = self.registry.has_former();
        }
    }

    /// Whether nothing is under way to others, and nobody has still to read memory of this rank.
    pub(crate) fn is_drained(&mut self) -> bool {
        let unread = self.rndv_sends.iter().next().is_some();
        self.all_is_sent() && !unread
    }

    /// Whether all that was to be sent has arrived; has it said of what ends silently.
    pub(crate) fn all_is_sent(&mut self) -> bool {
        self.read_unanswered();
        let mut all = true;
        self.peers.each(|peer| {
            if peer.is_unused() && peer.sq.is_connected() {
                peer.sq.mark();
            }
            all &= peer.is_drained();
        });
        all
    }

    /// How long a close may wait for that.
    pub(crate) fn closing_time(&self) -> Duration {
        self.conn.patience.min(PATIENCE)
    }
}

/// How long a peer that neither answers nor fails can hold up a withdrawal or the close.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

impl Verbs {
    /// Waits until what was sent has left, and tells the peers.
    pub(crate) fn farewell(&mut self, ni: &mut Ni) {
        let drained = Self::is_drained;
        // Connections that are being mended get their time; new failures are final from here on.
        let whole = self.progress_until(ni, self.closing_time(), &mut |_| {}, drained);
        if !whole {
            tracing::warn!("closed although something was under way");
        }
        self.closed = true;
        self.say_bye(whole);
        let said = Instant::now() + BYE;
        while self.conn.mail.outstanding() > 0 && !self.gone && Instant::now() < said {
            self.tend(ni);
        }
    }

    /// Ends the connections.
    pub(crate) fn end(&mut self, ni: &mut Ni) {
        for rank in 0..self.peers.len() {
            self.fail_peer(ni, rank, &"the interface closes");
        }
        self.peers.clear();
        self.rings.clear();
        self.registry.clear();
        let counters = self.counters;
        tracing::info!(?counters, "connections");
        if self.peers.own() == 0 && fabric_api::protocol::is_wanted() {
            host::say(format_args!("verbs, carried by: {}", counters.protocols));
        }
        if std::env::var_os("PORTOLAN_CONNECTION_STATS").is_some() {
            host::say(format_args!(
                "rank {}: connections: {counters:?}",
                self.peers.own()
            ));
        }
    }
}

/// How long the last datagrams may take to leave.
const BYE: Duration = Duration::from_millis(20);
