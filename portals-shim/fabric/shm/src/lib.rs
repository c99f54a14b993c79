//! Portals between the ranks of one machine, over memory that they share.
//!
//! ```text
//!   put, get ──► shown descriptor at the peer, and nothing of ours is under way there?
//!                 ├─ yes: the initiator copies, and makes SEND_END, ACK, REPLY            onesided.rs
//!                 └─ no: a cell in the ring from this rank to that one, matched there     send.rs
//!                        ├─ a put of up to 216 bytes: in the cell, and done with
//!                        ├─ up to 152 bytes: in the cell
//!                        ├─ up to 8 KiB: in the ring's bulk area
//!                        └─ more: the cell says where the data is, and the target has the kernel copy it straight
//!                           into the matched descriptor; where the kernel forbids that, the data goes through the
//!                           bulk area in parts                                            receive.rs
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `open.rs` | how ranks come to share memory, and which of them can |
//! | `layout.rs` | where everything is in it |
//! | `ring.rs` | who may touch which cell, and who wakes whom: no memory, no system call; played under loom |
//! | `cell.rs` | the bytes of a cell |
//! | `peer.rs` | one peer's rings, what arrives in parts |
//! | `waiting.rs` | what waits for room: which message is next, and when a peer is owed so much that it is read no more |
//! | `protocols.rs` | which protocol carries a message |
//! | `send.rs`, `receive.rs` | the path of a message |
//! | `onesided.rs` | which descriptors peers copy to and from by themselves, and their withdrawal |
//! | `near.rs` | frames past the library, for programs with messages of their own |
//! | `bulk.rs` | where data lies that does not fit cells |
//! | `endpoint.rs`, `endpoint/` | endpoints that belong to no job, each pair of which has a memory |
//! | `members.rs` | who shares the memory |
//! | `door.rs` | who is handed the memory, and by whom |
//! | `fault.rs` | what happens when a peer writes nonsense |
//! | `nap.rs`, `alarm.rs` | the futex; the socket of ranks that must sleep on other descriptors too |
//! | `map.rs`, `attach.rs` | mappings, copies, the kernel's copies: all unsafe code |
//!
//! # Invariants
//!
//! * **One ring for each ordered pair of ranks, with one writer and one reader.** A ring with many writers needs a
//!   place to be claimed before it is filled, and a writer that dies in between stops everybody behind it. Here a
//!   dead writer stops nobody, no message needs an atomic read-modify-write, and a reader looks only at the rings of
//!   ranks that have ever written to it.
//! * **No lock is in shared memory.** The only thing anybody waits for there is `busy`, and not for the dead.
//! * **A rank writes its own file, and others read it.** What a peer writes is copied once and checked, and then only the
//!   copy is used. Offsets and lengths end within their area, or the job ends by the name of the rank that wrote them
//!   (`fault.rs`). What a peer says cannot make this process read or write anything but the shared memory, the memory of
//!   the descriptor that `portals-core` chose, and memory of that peer itself.
//! * A message is handled completely before its cell is given back, so `consumed` also says which messages have had
//!   their effect. A one-sided operation is used only when all earlier messages to that peer have (rule 24).
//! * No memory has a name: it is gone when the last process is.
//! * Sending and handling a message that finds room takes no lock, no system call and no allocation here.

pub mod alarm;
mod attach;
mod bulk;
mod cell;
pub mod door;
mod endpoint;
mod fault;
pub mod handing;
mod layout;
pub(crate) mod map;
mod members;
mod nap;
mod near;
mod onesided;
mod open;
mod patience;
mod peer;
pub mod protocols;
mod receive;
mod ring;
mod send;
mod trusted;
mod waiting;

#[cfg(test)]
mod tests;

use alarm::{Alarm, Lines};
pub use endpoint::{Links, open_endpoint};
use fabric_api::call::{Paths, RemoteKey, Target};
use fabric_api::delivery;
use fabric_api::expected::is_request;
use fabric_api::nal::{Armed, LOOKS, Look, Nal, Nap, Outcome, Schedule, Waiter};
use fabric_api::op::{Capabilities, Mode, Put};
use fabric_api::region::Region;
pub use fault::OnFault;
use handing::Handing;
use host::awake::Awake;
use host::life::{Life, life};
pub use layout::VERSION;
use layout::{Layout, Ring, State};
use map::Map;
pub use members::Members;
use nap::Futex;
pub use nap::LONGEST;
pub use near::{FRAME, Frame, Lane, Link, Near, Unfetched};
use onesided::Published;
pub use open::{Joining, Mapped, Own, common, machine_of, open, sorted};
pub use open::{Memory, Options, check, check_copies, in_threads, in_threads_with, join};
use peer::{After, Peer};
use portals_core::{Error, Header, MdHandle, Ni, NiFail, ProcessId, ReadyPut, Segments, Transmit};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use waiting::Waiting;

/// Whether bytes of a peer can be read as a cell; for the fuzz target of the parser.
#[doc(hidden)]
pub fn is_cell(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|b| {
        cell::decode(b).is_ok_and(|p| p.kind != cell::Kind::Message || cell::header(b).is_ok())
    })
}

/// How long a peer that neither answers nor dies can hold up a withdrawal or the close.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a rank that has something to send looks whether a peer that does not take it still lives.
const LOOK: Duration = Duration::from_millis(100);
/// Requests of a peer without an answer that are kept.
const MOST_EXPECTED: usize = 1 << 14;
/// After how many looks in vain a rank that does not sleep asks around.
const IDLE: u32 = 1 << 14;

/// Whether a peer is proven to have ended; `pid` is its number here, if it has one.
fn is_dead(pid: Option<i32>) -> bool {
    pid.is_some_and(|pid| life(pid) == Life::Dead)
}

/// Data of ours whose RTS a peer has, and has not answered.
#[derive(Debug)]
struct RndvSend {
    rank: usize,
    after: After,
    header: Header,
    data: Segments,
}

/// What is counted here and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Cells that could not be read, or claimed to come from somebody else.
    bad_cells: u64,
    paths: Paths,
}

/// All but the mapping, so that both can be used at once.
#[derive(Debug)]
struct Core {
    layout: Layout,
    /// Ranks are numbers within the memory, here and in all of this module.
    rank: usize,
    /// Own user and job.
    who: (u32, u32),
    members: Members,
    /// By rank; the own one is not used.
    peers: Vec<Peer>,
    /// How those are woken.
    lines: Lines,
    /// The rank that was written to last, which is likely to be the next one; no rank at first.
    latest: usize,
    /// The ranks that write to this one.
    callers: Vec<usize>,
    /// The same as a set, as it was last seen in the block.
    contacts: Vec<u64>,
    /// The ranks for which something waits for room.
    backlog: Vec<usize>,
    /// Data whose ATS has not come, by token.
    rndv_sends: Vec<Option<RndvSend>>,
    spare_tokens: Vec<usize>,
    /// How many there are.
    outstanding: usize,
    published: Published,
    /// Before it sleeps it orders all other ranks.
    orders: bool,
    counters: Counters,
    on_fault: OnFault,
    /// Where peers cannot open each other's files.
    handing: Option<Handing>,
    /// How long a peer may be at work on what this rank shows.
    patience: Duration,
    /// The ranks that send frames to this one, as they say in their own files.
    calling: Arc<[AtomicU64]>,
    /// Looks in vain, and when others' files were last asked who they write to.
    idle: u32,
    asked: Option<Instant>,
    /// When peers that do not take what waits for them were last looked at.
    looked: Option<Instant>,
    closed: bool,
}

impl Core {
    /// The rank of another process of the job.
    #[inline]
    fn rank_of(&self, to: ProcessId) -> Option<usize> {
        if self.members.ids().get(self.latest) == Some(&to) {
            return Some(self.latest);
        }
        self.members.find(to).filter(|rank| *rank != self.rank)
    }

    fn ring_to(&self, rank: usize) -> Ring {
        self.peers[rank].to
    }

    /// Learns which ranks have begun to write to this one.
    #[inline]
    fn meet(&mut self, map: &Map) {
        let block = self.layout.block(self.rank);
        for word in 0..self.contacts.len() {
            let now = block.contacts(map, word).load(Ordering::Acquire);
            if now != self.contacts[word] {
                self.met(word, now);
            }
        }
    }

    #[cold]
    fn met(&mut self, word: usize, now: u64) {
        let new = now & !self.contacts[word];
        self.contacts[word] |= now;
        let ranks = (0..64).filter(|bit| new & (1 << bit) != 0);
        let ranks = ranks.map(|bit| word * 64 + bit);
        let (own, size) = (self.rank, self.peers.len());
        self.callers
            .extend(ranks.filter(|rank| *rank != own && *rank < size));
    }

    fn progress(&mut self, map: &Map, ni: &mut Ni) -> bool {
        if self.closed {
            return false;
        }
        self.meet(map);
        let mut any = false;
        for at in 0..self.callers.len() {
            any |= self.drain(map, ni, self.callers[at]);
        }
        if !self.backlog.is_empty() {
            any |= self.flush(map, ni);
        }
        if !any {
            self.idle = self.idle.wrapping_add(1);
            if self.idle.is_multiple_of(IDLE) {
                self.ask_around(map);
            }
            if !self.is_drained() {
                any = self.give_up(map, ni);
            }
        }
        any
    }

    /// Asks every rank's own file whether it writes to this one. What the common file says of that is quicker to look at,
    /// and anybody can spoil it.
    #[cold]
    fn ask_around(&mut self, map: &Map) {
        let now = Instant::now();
        if self.asked.is_some_and(|at| now < at + LOOK) {
            return;
        }
        self.asked = Some(now);
        let (word, bit) = (self.rank / 64, 1 << (self.rank % 64));
        let ranks = self.peers.len();
        for first in (0..ranks).step_by(64) {
            let mut writers = 0;
            let some = first..ranks.min(first + 64);
            for rank in some.filter(|rank| *rank != self.rank) {
                let block = self.layout.block(rank);
                if block.writes_to(map, word).load(Ordering::Acquire) & bit != 0 {
                    writers |= 1 << (rank % 64);
                }
                if block.calls(map, word).load(Ordering::Acquire) & bit != 0
                    && let Some(calling) = self.calling.get(rank / 64)
                {
                    calling.fetch_or(1 << (rank % 64), Ordering::Relaxed);
                }
            }
            self.met(first / 64, writers);
        }
        for at in 0..self.callers.len() {
            let rank = self.callers[at];
            let peer = &self.peers[rank];
            if !peer.arriving.is_possible(&peer.from.words(map)) {
                self.bad(rank, &"it has spoiled one that it had not finished");
            }
        }
    }

    /// Gives up what is meant for peers that are dead or have closed. Returns whether there was any.
    #[cold]
    fn give_up(&mut self, map: &Map, ni: &mut Ni) -> bool {
        let now = Instant::now();
        if self.looked.is_some_and(|at| now < at + LOOK) {
            return false;
        }
        self.looked = Some(now);
        let mut wanted: Vec<usize> = self.backlog.clone();
        wanted.extend(self.rndv_sends.iter().flatten().map(|a| a.rank));
        wanted.sort_unstable();
        wanted.dedup();
        let mut any = false;
        for rank in wanted {
            let closed = self.layout.block(rank).state(map) == State::Closed;
            if closed || self.peers[rank].is_dead() {
                self.fail_peer(ni, rank);
                any = true;
            }
        }
        any
    }

    /// Everything under way to a peer fails, and everything that is started later.
    fn fail_peer(&mut self, ni: &mut Ni, rank: usize) {
        let peer = &mut self.peers[rank];
        peer.gone = true;
        let none = Waiting::new(peer.from.cells());
        let waiting = std::mem::replace(&mut peer.waiting, none);
        peer.rndv_sends = 0;
        let stream = peer.stream.take().and_then(|s| s.op);
        let awaited = std::mem::take(&mut peer.awaited);
        let mut expected = std::mem::take(&mut peer.expected);
        self.backlog.retain(|r| *r != rank);
        for m in waiting.into_all() {
            Self::end(ni, m.after, NiFail::FAIL);
            if let Some(header) = m.header.filter(|_| m.kind != cell::Kind::AckToSend) {
                expected.forget(&header);
                delivery::fail_answer(ni, &header, NiFail::FAIL);
            }
        }
        for token in 0..self.rndv_sends.len() {
            if self.rndv_sends[token]
                .as_ref()
                .is_some_and(|a| a.rank == rank)
                && let Some(a) = self.rndv_sends[token].take()
            {
                self.spare_tokens.push(token);
                self.outstanding -= 1;
                Self::end(ni, a.after, NiFail::FAIL);
                expected.forget(&a.header);
                delivery::fail_answer(ni, &a.header, NiFail::FAIL);
            }
        }
        for request in expected.into_requests() {
            delivery::fail_answer(ni, &request, NiFail::FAIL);
        }
        for op in stream.into_iter().chain(awaited.into_iter().map(|a| a.op)) {
            ni.deposit_end(op, NiFail::FAIL);
        }
    }

    fn end(ni: &mut Ni, after: After, fail: NiFail) {
        match after {
            After::Nothing => {}
            After::Send(op) => ni.send_end(op, fail),
            After::Reply(op) => ni.reply_end(op, fail),
        }
    }

    /// Nothing of this rank's is under way that needs its memory.
    fn is_drained(&self) -> bool {
        self.backlog.is_empty() && self.outstanding == 0
    }
}

/// The fabric below one interface.
#[derive(Debug)]
pub struct Shm {
    map: Arc<Map>,
    core: Core,
    nap: Arc<Futex>,
    spin: Duration,
    /// What this rank sleeps on instead of the futex.
    alarm: Option<Alarm>,
}

/// What a fabric that is made of this and another one needs.
impl Shm {
    /// The number of the peer that has this id, if it shares this memory and is not this process.
    #[inline]
    pub fn peer(&self, id: ProcessId) -> Option<usize> {
        self.core.rank_of(id)
    }

    /// Sends a message to the peer of this number.
    #[inline]
    pub fn send_to(&mut self, ni: &mut Ni, peer: usize, tx: &mut Transmit) {
        self.core.send_to(&self.map, ni, peer, tx);
    }

    /// Shows the portals of this set to the others, as they are.
    pub fn publish_portals(&mut self, ni: &Ni, portals: u64) {
        self.core.publish(&self.map, ni, portals);
    }

    /// Whether nothing is under way to others.
    pub fn is_drained(&self) -> bool {
        self.core.is_drained()
    }

    /// Sends a message of which it is known, if the peer is given up, that its answer has not come.
    fn send_expecting(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        let header = tx.header;
        let before = self.core.counters.paths.two_sided;
        self.send(ni, tx, None);
        // What was served without the peer has had its answer.
        if self.core.counters.paths.two_sided != before {
            self.expect(&header);
        }
    }

    fn expect(&mut self, header: &Header) {
        let Some(peer) = self.core.rank_of(header.target) else {
            return;
        };
        let expected = &mut self.core.peers[peer].expected;
        if is_request(&header.body) {
            // Whoever has so many unanswered has sent what its target drops.
            if expected.len() >= MOST_EXPECTED {
                expected.drop_oldest();
            }
            expected.push(0, header);
        }
    }

    /// Part of [`Nal::arm`], whose caller then makes the fence ([`nap::order_all`]) if this says that one is due.
    fn prepare(&mut self) -> bool {
        self.core.prepare(&self.map);
        self.core.orders
    }

    /// Whether a peer has written nonsense.
    #[inline]
    fn is_spoiled(&self) -> bool {
        self.core.peers.iter().any(|peer| peer.nonsense != 0)
    }

    /// Has every peer seem to have written nonsense.
    #[cfg(test)]
    fn spoil_for_test(&mut self) {
        let other = 1 - self.core.rank;
        self.core.bad(other, &"it is a test");
    }

    /// Gives all peers up: what is under way to them fails. Only a copy that a living peer is making is waited for.
    fn part(&mut self, ni: &mut Ni) {
        self.core.withdraw_all(&self.map);
        let own = self.core.rank;
        for rank in (0..self.core.peers.len()).filter(|rank| *rank != own) {
            self.core.fail_peer(ni, rank);
        }
        self.core.leave(&self.map);
    }

    /// Frames between this rank and the others, past the library.
    pub fn near(&self) -> Near {
        let core = &self.core;
        let map = Arc::clone(&self.map);
        let (members, who) = (core.members.clone(), core.who);
        Near::new(
            (map, Arc::clone(&core.calling)),
            core.layout,
            core.rank,
            members,
            who,
            core.on_fault,
            (core.orders, core.lines.clone()),
        )
    }

    /// The memory of a rank, while the kernel copies from it.
    fn there(&self, rank: usize) -> Option<attach::There> {
        self.core.peers.get(rank)?.there
    }

    /// What becomes readable after [`Nal::arm`], for a memory that was joined with an alarm.
    pub fn alarm(&self) -> Option<OwnedFd> {
        self.alarm.as_ref()?.descriptor().ok()
    }
}

impl Nal for Shm {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, _: Option<&RemoteKey>) {
        self.core.send(&self.map, ni, tx);
    }

    #[inline]
    fn put(&mut self, _: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        let fits = matches!(put.mode, Mode::Standard | Mode::AtOnce);
        match fits && self.core.send_now(&self.map, &ready.header, &ready.payload) {
            true => Outcome::Taken,
            false => Outcome::Declined,
        }
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni, _: Look) -> bool {
        self.core.progress(&self.map, ni)
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            spin: Some(self.spin),
            looks: if self.spin.is_zero() { 1 } else { LOOKS },
            ..Schedule::NEVER
        }
    }

    fn waiter(&self) -> Waiter {
        match self.alarm {
            None => Waiter::Memory(Arc::clone(&self.nap) as Arc<dyn Nap>),
            Some(_) => Waiter::Poll,
        }
    }

    fn arm(&mut self) -> Armed {
        if let Some(alarm) = &self.alarm {
            alarm.silence();
        }
        if self.prepare() {
            nap::order_all();
        }
        Armed::ringing(true)
    }

    fn publish(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        self.core.publish(&self.map, ni, portals);
    }

    fn withdraw(&mut self, _ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.core.withdraw(&self.map, md)
    }

    fn window(&mut self, to: &Target) -> Option<(Region, u64, u64)> {
        let (fd, share, len) = self.core.window(&self.map, to)?;
        let region = Region::of_file(fd, share.len, false).ok()?;
        Some((region, share.offset, len))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shares: true,
            ..Capabilities::default()
        }
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        let own = *self.core.members.ids().get(self.core.rank)?;
        if to == own {
            return Some(0);
        }
        let other = self.core.rank_of(to);
        other.map(|_| u64::from(to.nid != own.nid))
    }

    fn statistics(&self) -> Paths {
        let mut paths = self.core.counters.paths;
        paths.by_memory = paths.one_sided + paths.two_sided;
        paths
    }

    /// Waits until peers have what was sent, takes back what was shown, and takes nothing any more.
    fn close(&mut self, ni: &mut Ni) {
        let core = &mut self.core;
        if core.closed {
            return;
        }
        core.withdraw_all(&self.map);
        let mut left = Awake::new(PATIENCE);
        while !core.is_drained() && !left.is_over() {
            if !core.progress(&self.map, ni) {
                std::thread::yield_now();
            }
        }
        if !core.is_drained() {
            tracing::warn!("closed although something was under way");
        }
        core.leave(&self.map);
    }
}

impl Drop for Shm {
    /// Before the regions that this rank shows are unmapped.
    fn drop(&mut self) {
        if !self.core.closed {
            self.core.withdraw_all(&self.map);
            self.core.leave(&self.map);
        }
    }
}

impl Core {
    /// Before a sleep: whoever makes work from now on rings the bell.
    fn prepare(&mut self, map: &Map) {
        self.ask_around(map);
        ring::Bell::prepare(self.layout.block(self.rank).bell(map));
        for at in 0..self.backlog.len() {
            let rank = self.backlog[at];
            let ring = self.ring_to(rank);
            self.peers[rank].starve(map, ring);
        }
    }

    /// Takes nothing any more, and says so.
    fn leave(&mut self, map: &Map) {
        self.closed = true;
        self.layout.block(self.rank).set_closed(map);
        for at in 0..self.callers.len() {
            self.ring(map, self.callers[at], ring::Order::Both);
        }
    }

    /// Work was made for a peer; `order` says how its sleep is ordered with it.
    #[inline]
    fn ring(&mut self, map: &Map, rank: usize, order: ring::Order) {
        if ring::Bell::is_due(self.layout.block(rank).bell(map), order) {
            self.wake(map, rank);
        }
    }

    #[cold]
    fn wake(&mut self, map: &Map, rank: usize) {
        if !self.lines.ring(rank) {
            nap::wake(self.layout.block(rank).bell(map));
        }
    }

    /// Sends what waits for room; returns whether a message left.
    fn flush(&mut self, map: &Map, ni: &mut Ni) -> bool {
        let mut any = false;
        for rank in std::mem::take(&mut self.backlog) {
            let ring = self.ring_to(rank);
            let mut wrote = false;
            let peer = &mut self.peers[rank];
            while let Some(m) = peer.write_waiting(map, ring, &mut wrote) {
                Self::end(ni, m.after, NiFail::OK);
                any = true;
            }
            if !peer.waiting.is_empty() {
                self.backlog.push(rank);
            }
            if wrote {
                self.call(map, rank);
            }
        }
        any
    }
}
