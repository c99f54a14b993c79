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
use fabric_api::call::RemoteKey;
use fabric_api::call::{Paths, Target};
use fabric_api::nal::{Attendance, Awaiting, LOOKS, Nal};
use fabric_api::place::Placement;
use fabric_api::region::Region;
use memory::{Registry, Staged};
use onesided::Published;
use peer::Peer;
use plan::Plan;
use portals_core::{
    Error, Header, InPlace, Landing, MdHandle, Ni, OpId, ProcessId, Segment, Segments, Transmit,
};
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
        if self.progress(ni) | self.tend(ni) {
            *idle = 0;
            return;
        }
        *idle += 1;
        if *idle < 1000 || !self.arm() || self.progress(ni) {
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

/// What a fabric that is made of this and another one needs, and [`Nal`] here.
impl Verbs {
    /// Shows the portals of this set to the others, as they are.
    #[inline]
    pub(crate) fn tell_peers(&mut self, ni: &mut Ni, portals: u64, beside: Beside<'_>) {
        if portals != 0 || self.prune_due {
            self.tell_all(ni, portals, beside);
        }
    }

    fn tell_all(&mut self, ni: &mut Ni, portals: u64, beside: Beside<'_>) {
        self.publish(ni, portals, beside);
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

impl Nal for Verbs {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        self.stirred = true;
        self.ask_no_more();
        self.send_message(ni, tx);
    }

    #[inline]
    fn send_now(&mut self, header: &Header, payload: &[Segment]) -> bool {
        self.ask_no_more();
        // Whoever has the key of the memory says where it goes.
        match self.aimed {
            Some(key) => self.write_aimed_now(header, payload, key),
            None => self.send_put_now(header, payload),
        }
    }

    #[inline(always)]
    fn lend_now(&mut self, header: &Header, payload: &[Segment], md: MdHandle) -> Option<u64> {
        self.ask_no_more();
        let long = written::written(self.write_from, header.payload_len() as usize);
        match payload {
            [local] if long && self.aimed.is_none() => self.write_put_now(header, *local, md),
            _ => None,
        }
    }

    fn begun(&mut self, number: u64, op: OpId) {
        self.put_begun(number, op);
    }

    fn makes_puts(&self) -> bool {
        true
    }

    fn send_made(&mut self, header: &Header, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.ask_no_more();
        self.aimed.is_none() && self.send_frame_now(header, None, fill)
    }

    fn writes_ahead(&self, header: &Header, payload: &[Segment]) -> bool {
        payload.len() == 1 && self.ahead(header).is_some()
    }

    fn write_ahead(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        self.stirred = true;
        self.ask_no_more();
        self.write_ahead_of(ni, tx);
    }

    #[inline(always)]
    fn fetch_now(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        self.aimed.is_none() && self.read_now(ni, md, region, from)
    }

    #[inline]
    fn fetch_awaited(&mut self, landing: &Landing, from: &Target) -> bool {
        let read = self.read(landing, from);
        if read {
            self.alone.wait_for_latest();
        }
        read
    }

    #[inline]
    fn send_awaited(&mut self, source: &Landing, to: &Target) -> bool {
        let written = self.write(source, to);
        if written {
            self.alone.wait_for_latest();
        }
        written
    }

    #[inline]
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        self.watch_for_answer();
        let any = if self.gone || self.rings.any() || self.pending > 0 {
            self.progress(ni)
        } else {
            let any = self.poll_once(ni) > 0;
            if self.stirred {
                self.pump();
            }
            any
        };
        (self.alone.awaited(), any)
    }

    fn unawait(&mut self, ni: &mut Ni) {
        self.wait_no_more(ni);
    }

    fn progress(&mut self, ni: &mut Ni) -> bool {
        if self.gone {
            return false;
        }
        self.look_for_answer();
        let ringed = self.rings.any() && self.look_at_rings(ni);
        if ringed && self.rings_are_enough() {
            return true;
        }
        let mut count = self.poll_once(ni);
        let any = count > 0 || ringed;
        while count == BATCH {
            count = self.poll_again(ni);
        }
        // Out of the way of an answer to what has just arrived.
        if !any && !self.spare.is_empty() {
            self.repost();
        }
        if self.stirred {
            self.pump();
        }
        if self.pending > 0 {
            self.mend(ni, count);
            self.stirred = true;
        }
        any
    }

    fn glance(&mut self, ni: &mut Ni) -> bool {
        if !self.rings.any() || self.gone {
            return self.progress(ni);
        }
        self.look_for_answer();
        let ringed = self.rings.watch() && self.look_at_rings(ni);
        if ringed && !self.rings_are_enough() {
            self.progress(ni);
        }
        ringed
    }

    fn looks(&self) -> u32 {
        if self.crowded { 1 } else { LOOKS }
    }

    fn attendance(&self) -> Option<Attendance> {
        let dup = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().ok();
        Some(Attendance {
            alarm: vec![dup(self.cq.event_fd().ok()?)?],
            control: {
                let manager = self.joiner.as_ref().and_then(cm::Joiner::events_fd);
                let own = [self.mail.events_fd()?, dup(self.device.events_fd())?];
                own.into_iter().chain(manager).collect()
            },
            bell: Arc::clone(&self.bell),
            thread: self.thread,
            longest: None,
        })
    }

    fn arm(&mut self) -> bool {
        self.look = false;
        self.ask_no_more();
        let armed = self.cq.drain_events().and_then(|_| self.cq.arm(false));
        self.armed_at = armed.is_ok().then_some(self.empty_polls);
        self.shut_rings();
        !self.gone && armed.is_ok()
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        self.stirred = true;
        self.rings.looked(Instant::now());
        self.tend(ni)
    }

    fn longest(&self) -> Option<Duration> {
        self.rings.nap()
    }

    fn due(&self) -> Option<Instant> {
        self.next_time()
    }

    fn is_busy(&self) -> bool {
        (self.pending > 0 || self.look) && !self.gone
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    #[inline]
    fn lists_changed(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        self.tell_peers(ni, portals, &mut |_| {});
    }

    fn retire(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.withdraw(ni, md, &mut |_| {})
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.id {
            return Some(0);
        }
        self.rank_of(to).map(|_| u64::from(to.nid != self.id.nid))
    }

    fn paths(&self) -> Paths {
        self.counters.paths
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        self.pinned_key(ni, md)
    }

    fn aim(&mut self, key: Option<RemoteKey>) {
        self.aimed = key.filter(|k| k.rkey != 0);
    }

    fn pins(&self) -> bool {
        true
    }

    fn pinnable(&self) -> Option<u64> {
        self.registry.room()
    }

    fn exposable(&self) -> Option<u64> {
        self.registry.left()
    }

    /// Waits until what was sent has left, then ends the connections; the memory of every
    /// descriptor is out of peers' reach afterwards.
    fn close(&mut self, ni: &mut Ni) {
        self.farewell(ni);
        self.end(ni);
    }
}

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
