//! Portals over RDMA verbs: a reliable connection to each rank that was talked to.
//!
//! ```text
//!   put, get ──► advertised descriptor at the peer?
//!                 ├─ yes, and nothing of ours is under way there:
//!                 │     RDMA WRITE or READ; its completion makes SEND_END, ACK, REPLY   onesided.rs
//!                 │     a short get: a question, where the peer is quicker than that    asked.rs
//!                 ├─ one with events, a put of 2 to 8 KiB: RDMA WRITE, then the header   written.rs
//!                 └─ no: frame in the peer's shared receive queue, matched there        send.rs
//!                        ├─ up to 8 KiB: the data travels with the header
//!                        └─ more: the header says where the data is, and the target
//!                           reads it straight into the matched descriptor             receive.rs
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `connect.rs` | device, queues, the exchange of addresses |
//! | `directory.rs` | how ranks find each other |
//! | `endpoint.rs`, `endpoint/` | endpoints that belong to no job, and how they find each other |
//! | `plan.rs` | how much each connection gets of the device |
//! | `settings.rs` | what users may set |
//! | `handshake.rs` | what two processes say to each other to connect |
//! | `mail.rs` | what carries that |
//! | `cm.rs` | connections that the connection manager makes |
//! | `witness.rs` | ends of requests where the adapter's own say too little: iWARP |
//! | `link.rs` | connections that are made, broken, mended and given up |
//! | `events.rs` | what the device tells, and when somebody has to look |
//! | `watch.rs` | requests that the adapter forgets |
//! | `nal.rs` | the fabric's methods |
//! | `protocols.rs` | which protocol carries a message |
//! | `send.rs` | the path of an outgoing message |
//! | `written.rs` | puts whose data the adapters place, and whose events the owner posts |
//! | `reach.rs` | the short path of one that the adapters serve alone |
//! | `alone.rs` | what the ends of those do |
//! | `asked.rs`, `asked/` | short gets that the peer's library answers, where that is quicker |
//! | `completion.rs` | what the end of a request does |
//! | `receive.rs` | what a frame from a peer does |
//! | `ring.rs`, `ring/` | short frames that are written where a polling receiver looks |
//! | `onesided.rs` | which descriptors peers may reach, and their withdrawal |
//! | `peer.rs`, `peer/` | order, credits, send queue of one connection |
//! | `memory.rs` | registration, requests on descriptor memory |
//! | `frame.rs` | the bytes of a frame |
//! | `channel.rs` | connections, datagrams or both: the switch |
//! | `datagram/` | Portals over reliable datagrams instead |
//! | `auto/` | datagrams first, connections to the peers that are worth one |
//!
//! # Ordering
//!
//! A reliable connection keeps the order of what is posted, but a frame has its effect when the
//! target's library handles it, while an RDMA operation has its at once. Therefore a one-sided
//! operation is used only when every earlier request to that peer has had its effect
//! (`Peer::is_settled`); otherwise it goes the two-sided way (rule 24).

mod alone;
mod asked;
pub mod auto;
pub mod channel;
mod cm;
mod completion;
mod connect;
pub mod datagram;
mod directory;
pub mod endpoint;
mod events;
mod frame;
mod handshake;
mod link;
mod mail;
mod memory;
mod nal;
mod onesided;
mod peer;
mod plan;
pub mod protocols;
mod reach;
mod receive;
mod ring;
mod send;
mod settings;
mod trusted;
mod watch;
mod witness;
mod written;

use crate::trusted::MEMORY;
use alone::Alone;
use asked::Asks;
use fabric_api::bell::Bell;
use fabric_api::call::Paths;
use fabric_api::call::RemoteKey;
use fabric_api::nal::Nal;
use fabric_api::place::Placement;
use fabric_api::region::Region;
use memory::{Registry, Staged};
use onesided::Published;
use peer::Peer;
use plan::Plan;
use portals_core::{Header, InPlace, Ni, OpId, ProcessId, Segments};
use ring::Rings;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs_backend::{Buffer, BufferPool, Completion, Cq, Device, Route, Srq};

pub(crate) use connect::Directory;
pub use connect::PREFETCH;
use connect::unusable_device;
pub use connect::{check, chosen_gid, in_threads, in_threads_of};

/// Whether bytes of a peer are a frame; for the fuzz target of the parser.
#[doc(hidden)]
pub fn is_frame(bytes: &[u8]) -> bool {
    frame::is_frame(bytes)
}

/// What the end of an RDMA operation, or a peer's answer, completes.
#[derive(Debug)]
enum Work {
    /// A one-sided put; the ack that the target would have sent.
    Write {
        op: Option<OpId>,
        ack: Option<InPlace>,
        _staged: Option<Box<Staged>>,
    },
    /// A one-sided get; the reply that the target would have sent, whose data is in place.
    Read(InPlace),
    /// Announced data being read into a descriptor.
    Fetch {
        op: OpId,
        token: u32,
        request: bool,
        staged: Option<Box<Fetched>>,
    },
}

/// Announced data that is read into a stand-in, and where it goes from there.
#[derive(Debug)]
struct Fetched {
    staged: Staged,
    segments: Segments,
    len: u64,
}

/// A record of [`Work`]: for whom, and how many requests of it are still under way.
#[derive(Debug)]
struct Record {
    peer: usize,
    left: usize,
    failed: bool,
    work: Work,
}

/// Data of ours that a peer was told to read.
#[derive(Debug)]
struct Announced {
    peer: usize,
    after: After,
    /// The message that the data belongs to.
    header: Header,
    /// Keeps a stand-in alive until the peer has read it.
    _staged: Option<Staged>,
}

#[derive(Clone, Copy, Debug)]
enum After {
    Send(Option<OpId>),
    Reply(OpId),
}

/// What is counted here and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Frames that could not be read, or claimed to come from somebody else.
    bad_frames: u64,
    /// Frames taken out of rings.
    ring_frames: u64,
    paths: Paths,
}

/// Records by index, reused.
#[derive(Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The number that what is inserted next gets.
    #[inline]
    fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.slots.len())
    }

    #[inline]
    fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some(value);
                at
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() - 1
            }
        }
    }

    fn get(&self, at: usize) -> Option<&T> {
        self.slots.get(at)?.as_ref()
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slots.get_mut(at)?.as_mut()
    }

    /// Forgets a record that is there.
    #[inline]
    fn clear(&mut self, at: usize) {
        self.slots[at] = None;
        self.free.push(at);
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let value = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        Some(value)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, s)| Some((i, s.as_ref()?)))
    }
}

/// Ranks by the queue pairs of their connections.
#[derive(Debug, Default)]
struct QpTable {
    all: BTreeMap<u32, usize>,
    /// The one asked for last; completions of a queue pair come in rows.
    last: Option<(u32, usize)>,
}

impl QpTable {
    #[inline]
    fn rank(&mut self, qpn: u32) -> Option<usize> {
        match self.last {
            Some((last, rank)) if last == qpn => Some(rank),
            _ => self.find(qpn),
        }
    }

    fn find(&mut self, qpn: u32) -> Option<usize> {
        let rank = *self.all.get(&qpn)?;
        self.last = Some((qpn, rank));
        Some(rank)
    }

    fn insert(&mut self, qpn: u32, rank: usize) {
        self.last = None;
        self.all.insert(qpn, rank);
    }

    fn remove(&mut self, qpn: u32) {
        self.last = None;
        self.all.remove(&qpn);
    }
}

/// The fabric below one interface.
#[derive(Debug)]
pub struct Verbs {
    rank: usize,
    id: ProcessId,
    /// Own user and job.
    who: (u32, u32),
    place: Placement,
    /// By rank.
    ids: Vec<ProcessId>,
    /// The rank that a message went to last, which is likely to be the next one; the own rank at first.
    latest: usize,
    cq: Cq,
    srq: Srq,
    send_pool: BufferPool,
    /// By rank; none for the own one and those never talked to.
    peers: Vec<Option<Box<Peer>>>,
    /// The ranks that have a peer.
    met: Vec<usize>,
    by_qpn: QpTable,
    records: Slab<Record>,
    alone: Alone,
    asks: Asks,
    announced: Slab<Announced>,
    registry: Registry,
    /// Reaches the memory that the message being sent is for.
    aimed: Option<RemoteKey>,
    /// Shortest put that is written into a descriptor with an event queue.
    write_from: usize,
    /// Descriptors may have gone since registrations were last looked through.
    prune_due: bool,
    published: Published,
    /// Longest message of the port, bytes.
    max_message: u64,
    counters: Counters,
    /// Receive buffers to be given back to the queue.
    spare: Vec<Buffer>,
    rings: Rings,
    /// Where completions are polled into.
    slots: Box<[Completion; BATCH]>,
    closed: bool,

    device: Device,
    port: u8,
    gid_index: Option<u8>,
    route: Route,
    plan: Plan,
    patience: Duration,
    /// A thread makes progress while the program computes.
    thread: bool,
    mail: mail::Mail,
    /// Where connections are made by the connection manager.
    joiner: Option<cm::Joiner>,
    /// Where a request has had its effect only when a read behind it is done.
    witness: Option<Arc<witness::Witness>>,
    directory: Directory,
    /// Instead, for an endpoint that belongs to no job; its indices are what ranks are in one.
    vector: Option<Box<endpoint::AddressVector>>,
    /// What others must know to talk to this process.
    token: u64,
    /// Number of the last attempt to connect.
    attempts: u32,
    /// A peer waits for a confirmation, so that somebody has to poll although the program computes.
    look: bool,
    /// More ranks than cores are on this machine.
    crowded: bool,
    /// Something was sent or has completed since [`Verbs::pump`].
    stirred: bool,
    /// A withdrawal waits for reads, perhaps.
    unripe: bool,
    /// Peers that are being connected, mended or given up; those that have just broken may be missing.
    pending: usize,
    /// Polls that found the completion queue empty, modulo 2^32; and how many there had been when it was last armed.
    empty_polls: u32,
    armed_at: Option<u32>,
    /// When connections were last looked at for forgotten requests, and the empty polls up to then.
    looked: (Instant, u32),
    /// Connections that there are receive slots for.
    slots_for: u32,
    /// Wakes the thread that looks after connections.
    bell: Arc<Bell>,
    /// The device does not work any more.
    gone: bool,
    /// Peers that were given up, for a fabric that has datagrams too.
    lost: Option<Vec<usize>>,
}

/// Progress of another part of the fabric, which a wait of this one must not hold up.
type Beside<'a> = &'a mut dyn FnMut(&mut Ni);

/// Completions taken in one go.
const BATCH: usize = 16;
/// Receive buffers kept back before they are posted again; credits for them are kept back too.
const REPOST_AT: usize = 16;

impl Verbs {
    /// The rank of another process of the job.
    #[inline]
    fn rank_of(&self, to: ProcessId) -> Option<usize> {
        if self.ids.get(self.latest) == Some(&to) && self.latest != self.rank {
            return Some(self.latest);
        }
        self.look_up(to)
    }

    fn look_up(&self, to: ProcessId) -> Option<usize> {
        self.place
            .find(to, |rank| self.ids.get(rank) == Some(&to))
            .filter(|rank| *rank != self.rank)
            .or_else(|| self.index_of(to))
    }

    /// A contiguous copy of `segments`, registered for `purpose`.
    fn stage(
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
    fn pump(&mut self) {
        self.stirred = false;
        for rank in &self.met {
            if let Some(peer) = self.peers[*rank].as_deref_mut()
                && peer.wants_pump()
            {
                peer.pump(&self.send_pool);
                self.pending += usize::from(peer.broken);
            }
        }
    }

    /// Makes progress, here and by `beside`, or rests if there was nothing to do: `idle` counts such rests, of which later
    /// ones sleep.
    fn progress_or_rest(&mut self, ni: &mut Ni, idle: &mut u32, beside: Beside<'_>) {
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
            self.armed_at = None;
            if let Err(error) = self.cq.wait(Some(Duration::from_millis(5))) {
                tracing::debug!(%error, "no sleep");
            }
        }
    }

    /// Makes progress until `done`, for at most `limit`; `false` when the limit came first.
    fn progress_until(
        &mut self,
        ni: &mut Ni,
        limit: Duration,
        beside: Beside<'_>,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end = Instant::now() + limit;
        let mut idle = 0;
        while !done(self) {
            if idle > 0 && Instant::now() >= end {
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
        if portals != 0 || self.prune_due {
            self.tell_all(ni, portals, beside);
        }
    }

    fn tell_all(&mut self, ni: &mut Ni, portals: u64, beside: Beside<'_>) {
        self.publish_portals(ni, portals, beside);
        if std::mem::take(&mut self.prune_due) {
            self.prune(ni);
            self.prune_due = self.registry.has_former();
        }
    }

    /// Whether nothing is under way to others, and nobody has still to read memory of this rank.
    pub(crate) fn is_drained(&mut self) -> bool {
        let unread = self.announced.iter().next().is_some();
        self.all_is_sent() && !unread
    }

    /// Whether all that was to be sent has arrived; has it said of what ends silently.
    fn all_is_sent(&mut self) -> bool {
        self.ask_no_more();
        let mut all = true;
        for peer in self.peers.iter_mut().flatten() {
            if peer.is_unused() && peer.is_connected() {
                peer.mark();
            }
            all &= peer.is_drained();
        }
        all
    }

    /// How long a close may wait for that.
    pub(crate) fn closing_time(&self) -> Duration {
        self.patience.min(PATIENCE)
    }
}

/// How long a peer that neither answers nor fails can hold up a withdrawal or the close.
const PATIENCE: Duration = Duration::from_secs(5);

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
        while self.mail.outstanding() > 0 && !self.gone && Instant::now() < said {
            self.tend(ni);
        }
    }

    /// Ends the connections.
    pub(crate) fn end(&mut self, ni: &mut Ni) {
        for rank in 0..self.peers.len() {
            self.fail_peer(ni, rank, &"the interface closes");
        }
        self.by_qpn = QpTable::default();
        self.peers.clear();
        self.met.clear();
        self.rings.clear();
        self.registry.clear();
        let counters = self.counters;
        tracing::info!(?counters, "connections");
        if std::env::var_os("PORTOLAN_CONNECTION_STATS").is_some() {
            host::say(format_args!(
                "rank {}: connections: {counters:?}",
                self.rank
            ));
        }
    }
}

/// How long the last datagrams may take to leave.
const BYE: Duration = Duration::from_millis(20);

#[cfg(test)]
pub(crate) mod tests;
