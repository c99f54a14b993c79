//! Endpoints that belong to no job: two that talk to each other share a memory of their own.
//!
//! ```text
//!   send to a process ──► a memory with it? ├─ yes: as between two ranks of a job (lib.rs)
//!                                           ├─ being made: the message waits
//!                                           └─ no: in the book? ├─ yes: request a connection; the message waits
//!                                                               └─ no: the operation fails
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `endpoint/wire.rs` | the messages of the handshake |
//! | `endpoint/events.rs` | what sockets receive: requests, answers, ends of peers |
//! | `endpoint/handshake.rs` | the steps of each side |
//! | `endpoint/socket.rs` | sockets: listening, connecting, accepting |
//! | `endpoint/links.rs` | which peers can be sent frames |
//! | `endpoint/open.rs` | the start: names, secrets, whom an endpoint can reach |
//! | this one | which memory a message goes by, which peers are connected and which are left |
//!
//! # Invariants
//!
//! * **One memory for each pair, which only those two have.** What a third one writes cannot reach it.
//! * **A peer has proven two things**: that it runs as the own user, which the kernel says, and that it was given the
//!   address, which the secret in it says. The active side asks the kernel for the user before it sends the secret.
//! * **Nobody waits for a peer.** All sockets are non-blocking. What is sent to a peer that does not answer waits in this
//!   process, and the program goes on.
//! * **Two that request a connection of each other have one**: the request of the lower id counts.
//! * A peer is gone when its socket is closed, which the kernel does for the dead; what it had sent before is taken first.
//! * A peer that writes nonsense is given up, and the others stay.

mod events;
mod handshake;
mod links;
mod open;
mod socket;
mod wire;

#[cfg(test)]
mod tests;

pub use links::Links;
pub use open::open_endpoint;

use crate::alarm::Alarm;
use crate::{LONGEST, Shm, nap};
use fabric_api::address::{Address, AddressBook};
use fabric_api::bell::Bell;
use fabric_api::call::{Paths, RemoteKey, Target};
use fabric_api::delivery::refuse;
use fabric_api::nal::{Armed, Attendance, LOOKS, Look, Nal, Outcome, Schedule, Waiter};
use fabric_api::op::{Capabilities, Put};
use fabric_api::region::Region;
use handshake::{Connected, Local, Replied, Requested};
use host::awake::Awake;
use host::fork::Unshared;
use host::processors::{self, Processors};
use portals_core::{Error, MdHandle, Ni, NiConfig, ProcessId, ReadyPut, Transmit};
use socket::{ConnectError, Contact, Watch};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The watch's name for the socket that listens.
const LISTENER: u64 = 0;
/// Accepted sockets that have sent no request. The longest silent makes room for the next.
const MOST_ACCEPTED: usize = 64;
/// How long an accepted socket may be silent.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Before the next try at a peer whose queue is full.
const RETRY: Duration = Duration::from_millis(2);
/// Before the next try to accept a connection after the system has refused it.
const PAUSE: Duration = Duration::from_millis(20);
/// Before the next try at a peer whose own request counts.
const CROSSED_RETRY: Duration = Duration::from_millis(200);
/// Looks for what a peer had sent before it closed its socket.
const MOST_LOOKS: u32 = 1 << 16;
/// How long a close waits for peers to take what was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// A socket of the own user's that has sent no request.
#[derive(Debug)]
struct Accepted {
    token: u64,
    socket: OwnedFd,
    /// How long it may still be silent.
    left: Awake,
}

/// What an attempt waits for.
#[derive(Debug)]
enum Step {
    /// The time of the next request: the queue of the peer was full, or both have sent one and the peer's counts.
    Later(Instant),
    /// The reply to a request.
    Requested(Box<Requested>, OwnedFd),
    /// That the memory is ready to use, after a reply.
    Replied(Box<Replied>, OwnedFd),
}

impl Step {
    fn socket(&self) -> Option<&OwnedFd> {
        match self {
            Self::Later(_) => None,
            Self::Requested(_, socket) | Self::Replied(_, socket) => Some(socket),
        }
    }
}

/// A connection that is being set up.
#[derive(Debug)]
struct Attempt {
    id: ProcessId,
    /// The generation of the book since when it is known.
    since: u64,
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
    contact: Contact,
    book: AddressBook,
    /// Of the book, when peers were last compared with it.
    generation: u64,
    /// Its name is this process's alone.
    listener: Unshared,
    /// Until then nobody is accepted, as the system refused it.
    pause: Option<Instant>,
    /// The system refused the last connection, and that was said.
    told: bool,
    watch: Watch,
    alarm: Alarm,
    bell: Arc<Bell>,
    peers: Vec<Peer>,
    /// Which of them a process is.
    index: BTreeMap<ProcessId, usize>,
    /// The one that was talked to last.
    latest: usize,
    links: Links,
    attempts: Vec<Attempt>,
    accepted: Vec<Accepted>,
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
    /// What a handshake needs of this endpoint.
    fn local(&self) -> Local<'_> {
        Local {
            config: &self.config,
            address: self.book.own(),
            alarm: &self.alarm,
        }
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// The generation of the book since when it has a process; 0 if it has not.
    fn since(&self, id: ProcessId) -> u64 {
        self.book.entry(id).map_or(0, |entry| entry.since)
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
        if let Some(attempt) = self.attempts.iter_mut().find(|m| m.id == id) {
            attempt.waiting.push(take(tx));
            return;
        }
        let Some(address) = self.book.find(id) else {
            tracing::debug!(
                ?id,
                "a message to a process that this endpoint does not know"
            );
            return refuse(ni, tx);
        };
        match self.request(&address) {
            Ok(step) => {
                let token = self.token();
                let attempt = Attempt {
                    id,
                    since: self.since(id),
                    token,
                    step,
                    waiting: vec![take(tx)],
                };
                self.start(ni, attempt);
            }
            Err(why) => {
                tracing::warn!(?id, %why, "an endpoint cannot be connected");
                refuse(ni, tx);
            }
        }
    }

    /// Keeps an attempt, whose socket is watched from now on.
    fn start(&mut self, ni: &mut Ni, attempt: Attempt) {
        let watched = attempt
            .step
            .socket()
            .map(|s| self.watch.add(s, attempt.token));
        match watched {
            Some(Err(error)) => self.fail(ni, attempt, &error.to_string()),
            Some(Ok(())) | None => {
                self.attempts.push(attempt);
                // The progress thread has a time to come back at.
                self.bell.ring();
            }
        }
    }

    /// Requests a connection of the peer of this address.
    fn request(&self, address: &Address) -> Result<Step, String> {
        let contact = Contact::from_bytes(address.id(), address.contact());
        let contact = contact.ok_or("its address makes no sense")?;
        match contact.connect() {
            Ok(socket) => {
                let requested = Requested::new(&self.local(), &socket, &contact.secret)?;
                Ok(Step::Requested(Box::new(requested), socket))
            }
            Err(ConnectError::Full) => Ok(Step::Later(Instant::now() + RETRY)),
            Err(ConnectError::Gone) => Err("it has closed, or has ended".to_owned()),
            Err(ConnectError::Other(why)) => Err(why),
        }
    }

    /// An attempt has failed, and so does what waits for it.
    fn fail(&mut self, ni: &mut Ni, attempt: Attempt, why: &str) {
        let id = attempt.id;
        tracing::warn!(?id, why, "an endpoint cannot be connected");
        if let Some(socket) = attempt.step.socket() {
            self.watch.remove(socket);
        }
        attempt.waiting.iter().for_each(|tx| refuse(ni, tx));
        self.book.remove_inbound(id);
    }

    /// The memory is there: what waits for it leaves.
    fn connected(
        &mut self,
        ni: &mut Ni,
        (id, since): (ProcessId, u64),
        (token, socket): (u64, OwnedFd),
        connected: Connected,
    ) {
        let Connected { shm, processors } = connected;
        self.links.connected(id, &shm);
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
        self.peers[at].shm.publish_portals(ni, u64::MAX);
        self.recount();
    }

    fn send_waiting(&mut self, ni: &mut Ni, waiting: Vec<Transmit>) {
        for mut tx in waiting {
            self.send(ni, &mut tx, None);
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
        self.links.gone(peer.id);
        if let Some(moved) = self.peers.get(at) {
            self.index.insert(moved.id, at);
        }
        self.watch.remove(&peer.socket);
        peer.shm.part(ni);
        // Whoever waits for a message of it may be told.
        ni.lost(peer.id);
        self.book.remove_inbound(peer.id);
        self.paths = self.paths.and(peer.shm.statistics());
        self.recount();
    }

    /// Leaves peers that the program has removed from the book since.
    #[inline]
    fn check_book(&mut self, ni: &mut Ni) {
        if self.book.generation() != self.generation {
            self.leave_removed(ni);
        }
    }

    /// Leaves peers that are no longer in the book, or are there again.
    #[cold]
    fn leave_removed(&mut self, ni: &mut Ni) {
        self.generation = self.book.generation();
        let is_left = |id, since| self.book.entry(id).map(|entry| entry.since) != Some(since);
        let peers = self.peers.iter().enumerate();
        let peers: Vec<_> = peers
            .filter_map(|(at, peer)| is_left(peer.id, peer.since).then_some(at))
            .collect();
        let (left, attempts): (Vec<_>, _) = std::mem::take(&mut self.attempts)
            .into_iter()
            .partition(|attempt| is_left(attempt.id, attempt.since));
        self.attempts = attempts;
        for at in peers.into_iter().rev() {
            self.part(ni, at, "the program has disconnected it");
        }
        for attempt in left {
            self.fail(ni, attempt, "the program has disconnected it");
        }
        self.recount();
    }

    /// When a connection is to be tried again, or one that says nothing is looked at.
    fn due(&self) -> Option<Instant> {
        let again = self.attempts.iter().filter_map(|m| match m.step {
            Step::Later(at) => Some(at),
            Step::Requested(..) | Step::Replied(..) => None,
        });
        let now = Instant::now();
        let silent = self.accepted.iter().map(|v| now + v.left.slice()).min();
        again.chain(silent).chain(self.pause).min()
    }

    fn is_drained(&self) -> bool {
        self.attempts.iter().all(|m| m.waiting.is_empty())
            && self.peers.iter().all(|peer| peer.shm.is_drained())
    }
}

impl Nal for Endpoint {
    #[inline]
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, _: Option<&RemoteKey>) {
        self.check_book(ni);
        match self.find(tx.header.target) {
            Some(at) => self.peers[at].shm.send_expecting(ni, tx),
            None => self.send_later(ni, tx),
        }
    }

    #[inline]
    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        // `send` leaves peers that the program has disconnected since.
        if self.book.generation() != self.generation {
            return Outcome::Declined;
        }
        let Some(at) = self.find(ready.header.target) else {
            return Outcome::Declined;
        };
        let shm = &mut self.peers[at].shm;
        let outcome = shm.put(ni, ready, put);
        if outcome != Outcome::Declined {
            shm.expect(&ready.header);
        }
        outcome
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool {
        self.check_book(ni);
        let mut any = false;
        let mut bad = None;
        for (at, peer) in self.peers.iter_mut().enumerate() {
            any |= peer.shm.progress(ni, look);
            if peer.shm.is_spoiled() {
                bad = Some(at);
            }
        }
        if let Some(at) = bad {
            self.part(ni, at, "it has written nonsense");
        }
        any
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        if self.closed {
            return false;
        }
        self.check_book(ni);
        let any = self.poll_sockets(ni);
        self.retry(ni);
        any
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            due: self.due(),
            spin: self.crowded.then_some(Duration::ZERO),
            looks: if self.crowded { 1 } else { LOOKS },
            ..Schedule::NEVER
        }
    }

    fn waiter(&self) -> Waiter {
        let (Ok(alarm), Ok(control)) = (self.alarm.descriptor(), self.watch.descriptor()) else {
            return Waiter::Poll;
        };
        Waiter::Descriptors(Attendance {
            alarm: vec![alarm],
            control: vec![control],
            bell: Arc::clone(&self.bell),
            thread: false,
            longest: Some(LONGEST),
        })
    }

    fn arm(&mut self) -> Armed {
        self.alarm.silence();
        let mut orders = false;
        for peer in &mut self.peers {
            orders |= peer.shm.prepare();
        }
        if orders {
            nap::order_all();
        }
        Armed::ringing(true)
    }

    fn publish(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        if portals != 0 {
            for peer in &mut self.peers {
                peer.shm.publish_portals(ni, portals);
            }
        }
    }

    fn withdraw(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        let mut peers = self.peers.iter_mut();
        peers.try_for_each(|peer| peer.shm.withdraw(ni, md))
    }

    fn window(&mut self, to: &Target) -> Option<(Region, u64, u64)> {
        let at = self.find(to.process)?;
        self.peers[at].shm.window(to)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shares: true,
            ..Capabilities::default()
        }
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.config.id {
            return Some(0);
        }
        self.book.find(to).map(|_| 1)
    }

    fn statistics(&self) -> Paths {
        let peers = self.peers.iter().map(|peer| peer.shm.statistics());
        peers.fold(self.paths, Paths::and)
    }

    /// Waits until peers have what was sent, and takes nothing any more.
    fn close(&mut self, ni: &mut Ni) {
        if self.closed {
            return;
        }
        let mut left = Awake::new(PATIENCE);
        while !self.is_drained() && !left.is_over() {
            let any = self.progress(ni, Look::All);
            if !(self.attend(ni) | any) {
                std::thread::yield_now();
            }
        }
        self.closed = true;
        for attempt in std::mem::take(&mut self.attempts) {
            self.fail(ni, attempt, "the endpoint closes");
        }
        for peer in &mut self.peers {
            self.links.gone(peer.id);
            peer.shm.close(ni);
        }
        self.peers.clear();
        self.index.clear();
    }
}
