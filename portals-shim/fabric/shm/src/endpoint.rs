//! Endpoints that belong to no job: two that talk to each other share a memory of their own.
//!
//! ```text
//!   send to a process ──► a memory with it? ├─ yes: as between two ranks of a job (lib.rs)
//!                                           ├─ being made: the message waits
//!                                           └─ no: in the book? ├─ yes: knock there, the message waits
//!                                                               └─ no: the operation fails
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `endpoint/wire.rs` | what two endpoints say to each other until they share memory |
//! | `endpoint/hearing.rs` | what is heard: who comes, what meetings say, which peers are gone |
//! | `endpoint/meeting.rs` | the steps of each side in between |
//! | `endpoint/socket.rs` | sockets: who listens, who may come in |
//! | `endpoint/open.rs` | the start: names, secrets, whom an endpoint can reach |
//! | this one | which memory a message goes by, who is met and who is left |
//!
//! # Invariants
//!
//! * **One memory for each pair, which only those two have.** What a third one writes cannot reach it.
//! * **Who comes has proven two things**: that it runs as the own user, which the kernel says, and that it was given the
//!   address, which the secret in it says. Whoever knocks asks the kernel for the user before it says the secret.
//! * **Nobody waits for a peer.** All sockets are non-blocking. What is sent to a peer that does not answer waits in this
//!   process, and the program goes on.
//! * **Two that knock at each other at once meet once**: the knock of the lower id counts.
//! * A peer is gone when its socket is closed, which the kernel does for the dead; what it had sent before is taken first.
//! * A peer that writes nonsense is given up, and the others stay.

mod hearing;
mod meeting;
mod open;
mod socket;
mod wire;

#[cfg(test)]
mod tests;

pub use open::open_endpoint;

use crate::alarm::Alarm;
use crate::{LONGEST, Shm, nap};
use fabric_api::address::{Address, AddressBook};
use fabric_api::bell::Bell;
use fabric_api::call::{Paths, Target};
use fabric_api::delivery::refuse;
use fabric_api::nal::{Attendance, LOOKS, Nal};
use fabric_api::region::Region;
use host::awake::Awake;
use host::processors::{self, Processors};
use meeting::{Host, Knocked, Met, Welcomed};
use portals_core::{Error, Header, MdHandle, Ni, NiConfig, ProcessId, Segment, Transmit};
use socket::{Place, Reach, Watch};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The watch's name for the socket that listens.
const LISTENER: u64 = 0;
/// Sockets of those who have not said who they are. The longest silent makes room for the next.
const VISITORS: usize = 64;
/// How long a visitor may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// Before the next try at a peer whose queue is full.
const AGAIN: Duration = Duration::from_millis(2);
/// Before the next try at a peer whose own knock counts.
const CROSSED: Duration = Duration::from_millis(200);
/// Looks for what a peer had sent before it closed its socket.
const MOST_LOOKS: u32 = 1 << 16;
/// How long a close waits for peers to take what was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Somebody of the own user who has not said who it is.
#[derive(Debug)]
struct Visitor {
    token: u64,
    socket: OwnedFd,
    since: Instant,
}

/// What is waited for.
#[derive(Debug)]
enum Step {
    /// The time of the next knock: the queue of the other side was full, or both have knocked and the other's counts.
    Later(Instant),
    /// The answer to a knock.
    Knocked(Box<Knocked>, OwnedFd),
    /// The answer to a welcome.
    Welcomed(Box<Welcomed>, OwnedFd),
}

impl Step {
    fn socket(&self) -> Option<&OwnedFd> {
        match self {
            Self::Later(_) => None,
            Self::Knocked(_, socket) | Self::Welcomed(_, socket) => Some(socket),
        }
    }
}

/// A peer with which a memory is being made.
#[derive(Debug)]
struct Meeting {
    id: ProcessId,
    token: u64,
    step: Step,
    /// Messages to it, in their order.
    waiting: Vec<Transmit>,
}

/// A peer that shares a memory with this process.
#[derive(Debug)]
struct Peer {
    id: ProcessId,
    token: u64,
    /// Closed when the peer is gone.
    socket: OwnedFd,
    shm: Shm,
    processors: Processors,
    /// The generation of the book since when it is known.
    since: u64,
}

/// The fabric below one interface that was opened alone.
#[derive(Debug)]
pub(crate) struct Endpoint {
    config: NiConfig,
    place: Place,
    book: AddressBook,
    /// Of the book, when peers were last compared with it.
    generation: u64,
    listener: OwnedFd,
    watch: Watch,
    alarm: Alarm,
    bell: Arc<Bell>,
    peers: Vec<Peer>,
    /// Which of them a process is.
    index: HashMap<ProcessId, usize>,
    /// The one that was talked to last.
    latest: usize,
    meetings: Vec<Meeting>,
    visitors: Vec<Visitor>,
    /// The last name that a socket was given in the watch.
    tokens: u64,
    /// This process has no processor of its own among those that it knows.
    crowded: bool,
    /// Of peers that are gone.
    paths: Paths,
    closed: bool,
}

/// The message, whose maker keeps nothing.
fn take(tx: &mut Transmit) -> Transmit {
    Transmit {
        header: tx.header,
        md: tx.md,
        payload: std::mem::take(&mut tx.payload),
        op: tx.op,
        landing: std::mem::take(&mut tx.landing),
    }
}

impl Endpoint {
    /// What a meeting needs of this endpoint.
    fn host(&self) -> Host<'_> {
        Host {
            config: &self.config,
            address: self.book.own(),
            alarm: &self.alarm,
        }
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Which of the peers a process is.
    #[inline]
    fn find(&mut self, id: ProcessId) -> Option<usize> {
        match self.peers.get(self.latest) {
            Some(peer) if peer.id == id => Some(self.latest),
            _ => {
                let at = *self.index.get(&id)?;
                self.latest = at;
                Some(at)
            }
        }
    }

    /// Sends to a process that shares no memory with this one.
    #[cold]
    fn send_later(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        let id = tx.header.target;
        if self.closed {
            return refuse(ni, tx);
        }
        if let Some(meeting) = self.meetings.iter_mut().find(|m| m.id == id) {
            meeting.waiting.push(take(tx));
            return;
        }
        let Some(address) = self.book.find(id) else {
            tracing::debug!(
                ?id,
                "a message to a process that this endpoint does not know"
            );
            return refuse(ni, tx);
        };
        match self.knock(&address) {
            Ok(step) => {
                let token = self.token();
                let meeting = Meeting {
                    id,
                    token,
                    step,
                    waiting: vec![take(tx)],
                };
                self.begin(ni, meeting);
            }
            Err(why) => {
                tracing::warn!(?id, %why, "an endpoint cannot be reached");
                refuse(ni, tx);
            }
        }
    }

    /// Keeps a meeting, whose socket is watched from now on.
    fn begin(&mut self, ni: &mut Ni, meeting: Meeting) {
        let watched = meeting
            .step
            .socket()
            .map(|s| self.watch.add(s, meeting.token));
        match watched {
            Some(Err(error)) => self.fail(ni, meeting, &error.to_string()),
            Some(Ok(())) | None => {
                self.meetings.push(meeting);
                // The thread that looks after meetings has a time to come back at.
                self.bell.ring();
            }
        }
    }

    /// Knocks at the peer of this address.
    fn knock(&self, address: &Address) -> Result<Step, String> {
        let place = Place::from_bytes(address.contact()).ok_or("its address makes no sense")?;
        match place.reach() {
            Ok(socket) => {
                let knocked = Knocked::new(&self.host(), &socket, &place.secret)?;
                Ok(Step::Knocked(Box::new(knocked), socket))
            }
            Err(Reach::Later) => Ok(Step::Later(Instant::now() + AGAIN)),
            Err(Reach::Gone) => Err("it has closed, or has ended".to_owned()),
            Err(Reach::Never(why)) => Err(why),
        }
    }

    /// A meeting has come to nothing: what waits for it fails.
    fn fail(&mut self, ni: &mut Ni, meeting: Meeting, why: &str) {
        let id = meeting.id;
        tracing::warn!(?id, why, "an endpoint cannot be met");
        if let Some(socket) = meeting.step.socket() {
            self.watch.remove(socket);
        }
        meeting.waiting.iter().for_each(|tx| refuse(ni, tx));
    }

    /// The memory is there: what waits for it leaves.
    fn met(&mut self, ni: &mut Ni, (id, token, socket): (ProcessId, u64, OwnedFd), met: Met) {
        let Met { shm, processors } = met;
        let since = self.book.entry(id).map_or(0, |entry| entry.since);
        let at = self.peers.len();
        self.peers.push(Peer {
            since,
            id,
            token,
            socket,
            shm,
            processors,
        });
        self.index.insert(id, at);
        // Whatever descriptors there are, and not only those that change from now on.
        self.peers[at].shm.publish(ni, u64::MAX);
        self.recount();
    }

    fn leave_meeting(&mut self, ni: &mut Ni, waiting: Vec<Transmit>) {
        for mut tx in waiting {
            self.send(ni, &mut tx);
        }
    }

    /// Whether there is a processor for this process, by those that it knows.
    fn recount(&mut self) {
        let peers = self.peers.iter().map(|peer| peer.processors);
        let sets: Vec<_> = std::iter::once(Processors::own()).chain(peers).collect();
        self.crowded = processors::is_crowded(0, &sets, processors::at_once())
            || self.book.len() >= processors::of_machine();
    }

    /// Gives a peer up: what is under way to it fails.
    #[cold]
    fn part(&mut self, ni: &mut Ni, at: usize, why: &str) {
        let mut peer = self.peers.swap_remove(at);
        tracing::debug!(id = ?peer.id, why, "a peer is gone");
        self.index.remove(&peer.id);
        if let Some(moved) = self.peers.get(at) {
            self.index.insert(moved.id, at);
        }
        self.watch.remove(&peer.socket);
        peer.shm.part(ni);
        // Whoever waits for a message of it may be told.
        ni.lost(peer.id);
        self.paths = self.paths.and(peer.shm.paths());
        self.recount();
    }

    /// Sees what has become of the book.
    #[inline]
    fn follow(&mut self, ni: &mut Ni) {
        if self.book.generation() != self.generation {
            self.forget(ni);
        }
    }

    /// Parts with those who are no longer in the book.
    #[cold]
    fn forget(&mut self, ni: &mut Ni) {
        self.generation = self.book.generation();
        let since = |id: ProcessId| self.book.entry(id).map(|entry| entry.since);
        let peers: Vec<_> = (0..self.peers.len())
            .filter(|at| since(self.peers[*at].id) != Some(self.peers[*at].since))
            .collect();
        let (left, meetings): (Vec<_>, _) = std::mem::take(&mut self.meetings)
            .into_iter()
            .partition(|m| since(m.id).is_none());
        self.meetings = meetings;
        for at in peers.into_iter().rev() {
            self.part(ni, at, "the program has disconnected it");
        }
        for meeting in left {
            self.fail(ni, meeting, "the program has disconnected it");
        }
        self.recount();
    }

    fn is_drained(&self) -> bool {
        self.meetings.iter().all(|m| m.waiting.is_empty())
            && self.peers.iter().all(|peer| peer.shm.is_drained())
    }
}

impl Nal for Endpoint {
    #[inline]
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        self.follow(ni);
        match self.find(tx.header.target) {
            Some(at) => self.peers[at].shm.send_expecting(ni, tx),
            None => self.send_later(ni, tx),
        }
    }

    #[inline]
    fn send_now(&mut self, header: &Header, payload: &[Segment]) -> bool {
        // Whom the program has disconnected since is seen to there.
        if self.book.generation() != self.generation {
            return false;
        }
        match self.find(header.target) {
            Some(at) => {
                let shm = &mut self.peers[at].shm;
                let sent = shm.send_now(header, payload);
                if sent {
                    shm.expect(header);
                }
                sent
            }
            None => false,
        }
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni) -> bool {
        self.follow(ni);
        let mut any = false;
        let mut bad = None;
        for (at, peer) in self.peers.iter_mut().enumerate() {
            any |= peer.shm.progress(ni);
            if peer.shm.is_spoiled() {
                bad = Some(at);
            }
        }
        if let Some(at) = bad {
            self.part(ni, at, "it has written nonsense");
        }
        any
    }

    fn lists_changed(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        if portals != 0 {
            for peer in &mut self.peers {
                peer.shm.publish(ni, portals);
            }
        }
    }

    fn retire(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        let mut peers = self.peers.iter_mut();
        peers.try_for_each(|peer| peer.shm.retire(ni, md))
    }

    fn attendance(&self) -> Option<Attendance> {
        Some(Attendance {
            alarm: vec![self.alarm.descriptor().ok()?],
            control: vec![self.watch.descriptor().ok()?],
            bell: Arc::clone(&self.bell),
            thread: false,
            longest: Some(LONGEST),
        })
    }

    fn spin(&self) -> Option<Duration> {
        self.crowded.then_some(Duration::ZERO)
    }

    fn looks(&self) -> u32 {
        if self.crowded { 1 } else { LOOKS }
    }

    fn arm(&mut self) -> bool {
        self.alarm.silence();
        let mut orders = false;
        for peer in &mut self.peers {
            orders |= peer.shm.prepare();
        }
        if orders {
            nap::order_all();
        }
        true
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        if self.closed {
            return false;
        }
        self.follow(ni);
        let any = self.look(ni);
        self.retry(ni);
        any
    }

    fn due(&self) -> Option<Instant> {
        let again = self.meetings.iter().filter_map(|m| match m.step {
            Step::Later(at) => Some(at),
            Step::Knocked(..) | Step::Welcomed(..) => None,
        });
        let silent = self.visitors.iter().map(|v| v.since + SILENCE).min();
        again.chain(silent).min()
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.config.id {
            return Some(0);
        }
        self.book.find(to).map(|_| 1)
    }

    fn paths(&self) -> Paths {
        let peers = self.peers.iter().map(|peer| peer.shm.paths());
        peers.fold(self.paths, Paths::and)
    }

    fn shares(&self) -> bool {
        true
    }

    fn window(&mut self, to: &Target) -> Option<(Region, u64, u64)> {
        let at = self.find(to.process)?;
        self.peers[at].shm.window(to)
    }

    /// Waits until peers have what was sent, and takes nothing any more.
    fn close(&mut self, ni: &mut Ni) {
        if self.closed {
            return;
        }
        let mut left = Awake::new(PATIENCE);
        while !self.is_drained() && !left.is_over() {
            let any = self.progress(ni);
            if !(self.attend(ni) | any) {
                std::thread::yield_now();
            }
        }
        self.closed = true;
        for meeting in std::mem::take(&mut self.meetings) {
            self.fail(ni, meeting, "the endpoint closes");
        }
        for peer in &mut self.peers {
            peer.shm.close(ni);
        }
        self.peers.clear();
        self.index.clear();
    }
}
