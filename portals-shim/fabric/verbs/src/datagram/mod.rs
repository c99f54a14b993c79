//! Portals over reliable datagrams: two queue pairs of a process for all its peers.
//!
//! ```text
//!   message ──► header, first data │ rest ──► fragment, then a put to a landing   send.rs
//!   fragment ─► matched; the rest of its data is wanted? ─► landing opened
//!   put ──────► straight to where the match said                                 receive.rs
//! ```
//!
//! `verbs_backend::rd` makes datagrams reliable; here is what is said with them, and the device's side: queue pairs,
//! completions, the clock.
//!
//! | file | decides |
//! |---|---|
//! | `open.rs` | device, queue pairs, the exchange of addresses |
//! | `send.rs` | the path of an outgoing message |
//! | `receive.rs` | what arrives |
//! | `landings.rs` | where the rest of messages goes, and how much of a peer is waited for |
//! | `words.rs` | what a fabric that has connections too is told |
//! | `queues.rs` | queue pairs, completions, a device that fails |
//! | `peers.rs` | who may be talked to, and what is kept of each |
//! | `time.rs` | how often the clock is read |
//! | `sleep.rs` | who looks after timers while the program sleeps |
//! | this one | progress, peers that are gone, the close |
//!
//! # Invariants
//!
//! * **Order**: messages to a peer are one stream of fragments and puts, in which `rd` keeps requests in their order, and answers
//!   in theirs; answers overtake requests, and a word comes after both. Nothing goes another way. A descriptor's memory is
//!   written by its owner's library only, so no peer has to be asked before it is withdrawn.
//! * **SEND_END** comes when the payload has been copied (what fits the first fragment) or acked by the peer (what is
//!   longer): until then segments may have to be read again.
//! * A **landing** is numbered by the sender, in the frame that announces it, and opened when that frame is matched;
//!   if nobody wants the rest, it is not opened, and `rd` drops what comes for it.
//! * Every operation on a peer that is gone **ends**, with a failure where it is not known to have succeeded.
//! * The time that is told to `rd` is read when something is sent or arrives, and otherwise in every 16th poll.

mod landings;
mod open;
mod peers;
mod queues;
mod receive;
mod send;
mod sleep;
mod time;
mod words;

pub use open::in_threads;
pub(crate) use open::{Contact, Directory, Unconnected};
pub(crate) use send::first_data;
pub(crate) use words::News;

use super::advice::unusable_device;
use super::verbs::Counters;
use fabric_api::call::{Paths, RemoteKey};
use fabric_api::delivery;
use fabric_api::nal::{Armed, Look, Nal, Schedule, Waiter};
use host::awake::Awake;
use peers::Peers;
use portals_core::{Body, Header, Ni, NiFail, OpId, ProcessId, Segments, Transmit};
use queues::{BATCH, Queues};
use receive::Surplus;
use send::Payload;
use slab::Slab;
use sleep::Sleep;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use time::Timekeeper;
use verbs_backend::rd::{Endpoint, Event as Happened, PeerId, Received};

/// How long the close may wait for acks.
const PATIENCE: Duration = Duration::from_secs(5);
/// Farewells to each peer. All lost, the peer waits until it gives up.
const FAREWELLS: usize = 4;
/// Requests without an answer that are remembered; the oldest of more has been dropped by its target.
const EXPECTED: usize = 4096;

/// What the end of something completes.
#[derive(Clone, Copy, Debug)]
enum Long {
    /// A long message, whose rest goes to this landing, and the target's ack, if it came first.
    Message {
        header: Header,
        landing: u32,
        after: After,
        ack: Option<Header>,
    },
    /// A word to this rank.
    Word(usize),
}

#[derive(Clone, Copy, Debug)]
enum After {
    Send(Option<OpId>),
    Reply(OpId),
}

/// The fabric below one interface.
#[derive(Debug)]
pub struct DatagramNal {
    queues: Queues,
    rd: Endpoint<Payload>,
    peers: Peers,
    /// What the ends of long messages and words complete, by their tags.
    longs: Slab<Long>,
    /// For a fabric that has connections too.
    news: Option<VecDeque<News>>,
    time: Timekeeper,
    sleep: Sleep,
    /// How long a peer may be silent.
    patience: Duration,
    closed: bool,
    counters: Counters,
}

impl DatagramNal {
    fn read_clock(&mut self) {
        self.time.read(self.rd.next_timeout());
    }

    /// The peer of a rank, made when it is first needed.
    fn meet(&mut self, rank: usize) -> Option<PeerId> {
        if let Some(known) = self.peers.known(rank) {
            return Some(known);
        }
        let number = u32::try_from(rank).ok()?;
        let contact = self.peers.contact(rank)?;
        let to = match self.queues.resolve(&contact) {
            Ok(to) => to,
            Err(error) => {
                tracing::error!(peer = rank, %error, "its address is of no use");
                return None;
            }
        };
        let id = self.rd.add_peer(number, contact.token);
        self.peers.insert(id, rank, to, contact.who);
        self.peers.known(rank)
    }

    /// Posts all that is to be sent.
    fn flush(&mut self) {
        self.queues
            .flush(&mut self.rd, &self.peers, self.time.now());
    }

    /// Handles up to a batch of completions; returns how many there were.
    fn poll_once(&mut self, ni: &mut Ni) -> usize {
        let count = match self.queues.poll() {
            Ok(0) => return 0,
            Ok(count) => count,
            Err(error) => {
                self.device_gone(ni, &error);
                return 0;
            }
        };
        if self.time.is_stale() {
            self.read_clock();
        }
        for at in 0..count {
            if let Some(arrival) = self.queues.complete(at, &mut self.rd) {
                self.arrived(ni, &arrival.1);
                self.queues.give_back(arrival);
            }
        }
        count
    }

    fn arrived(&mut self, ni: &mut Ni, bytes: &[u8]) {
        if let Some(number) = Endpoint::<Payload>::claimed_sender(bytes)
            && self.rd.find(number).is_none()
        {
            // The first word of a rank; whether it is one is checked below.
            let rank = number as usize;
            if self.peers.is_rank(rank) {
                let _ = self.meet(rank);
            }
        }
        let received = self.rd.handle_datagram(self.time.now(), bytes);
        // An ack of the target may come with the datagrams' own; SEND_END precedes ACK.
        while let Some(event) = self.rd.poll_ended() {
            self.event(ni, event);
        }
        match received {
            Received::Nothing => {}
            Received::Fragment { peer, data } => self.frame(ni, peer, data),
            Received::Place {
                peer,
                landing,
                offset,
                data,
                complete,
            } => self.place(ni, peer, landing, offset, data, complete),
        }
        self.events(ni);
    }

    fn events(&mut self, ni: &mut Ni) {
        while let Some(event) = self.rd.poll_event() {
            self.event(ni, event);
        }
    }

    fn event(&mut self, ni: &mut Ni, event: Happened) {
        match event {
            Happened::Fragment { peer, data } => {
                self.frame(ni, peer, &data);
                self.rd.recycle(data);
            }
            Happened::Place {
                peer,
                landing,
                offset,
                data,
                complete,
            } => {
                self.place(ni, peer, landing, offset, &data, complete);
                self.rd.recycle(data);
            }
            Happened::Acked { tag, .. } => self.long_end(ni, tag, NiFail::OK),
            Happened::Failed { tag, .. } => self.long_end(ni, tag, NiFail::FAIL),
            Happened::Gone {
                peer,
                said,
                unacked,
            } => self.peer_gone(ni, peer, said, unacked),
        }
    }

    /// A message was acked as a whole, or will not be.
    fn long_end(&mut self, ni: &mut Ni, tag: u64, fail: NiFail) {
        // Those that were copied have ended.
        let Some(index) = tag.checked_sub(1) else {
            return;
        };
        let Some(long) = self.longs.try_remove(index as usize) else {
            return;
        };
        match long {
            // What its target has acked has arrived, whatever became of the datagrams' own acks.
            Long::Message {
                after: After::Send(op),
                ack: Some(ack),
                ..
            } => {
                if let Some(op) = op {
                    ni.send_end(op, NiFail::OK);
                }
                ni.handle_header(&ack);
            }
            Long::Message {
                header,
                after: After::Send(op),
                ack: None,
                ..
            } => {
                if let Some(op) = op {
                    ni.send_end(op, fail);
                }
                if fail != NiFail::OK {
                    self.forget_expected(&header);
                    delivery::fail_answer(ni, &header, fail);
                }
            }
            Long::Message {
                after: After::Reply(op),
                ..
            } => ni.reply_end(op, fail),
            Long::Word(rank) => self.word_ended(rank, fail),
        }
    }

    fn peer_gone(&mut self, ni: &mut Ni, id: PeerId, said: bool, unacked: u32) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let (rank, sent) = (peer.rank, peer.frames_sent);
        let said = said || peer.left;
        let mut expected = std::mem::take(&mut peer.expected);
        let landings = peer.landings.take();
        if !said && !self.closed {
            tracing::error!(peer = rank, "no answer: every operation on it fails");
            // Of messages that have had their SEND_END, and of those that will not come, nothing else says so.
            if let Some(process) = self.peers.process(rank) {
                ni.lost(process);
            }
        }
        if said {
            // What it has acked has had its effect.
            expected.forget_up_to(sent.wrapping_sub(unacked));
        }
        for request in expected.into_requests() {
            delivery::fail_answer(ni, &request, NiFail::FAIL);
        }
        for op in landings {
            ni.deposit_end(op, NiFail::FAIL);
        }
        self.note(News::Gone { rank, said });
    }

    /// The device does not work any more, or the interface closes: every operation ends.
    fn end_all(&mut self, ni: &mut Ni) {
        for peer in self.peers.iter() {
            if let Some(id) = self.rd.find(peer.rank as u32) {
                self.rd.remove(id);
            }
        }
        self.events(ni);
    }

    pub(crate) fn device_gone(&mut self, ni: &mut Ni, why: &dyn std::fmt::Display) {
        if self.queues.set_gone() {
            tracing::error!("{}", unusable_device(self.queues.device_name(), why));
            self.end_all(ni);
        }
    }

    /// Timers whose time has come.
    fn timers(&mut self, ni: &mut Ni) -> bool {
        let due = self
            .rd
            .next_timeout()
            .is_some_and(|at| at <= self.time.now());
        if due {
            self.rd.handle_timeout(self.time.now());
            self.events(ni);
            self.flush();
        }
        due
    }

    /// Whether the device does not work any more. To ask [`Nal::schedule`] for it would be taken for the attendant's question.
    pub(crate) fn has_gone(&self) -> bool {
        self.queues.is_gone()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.rd.is_idle()
    }

    pub(crate) fn closing_time(&self) -> Duration {
        self.patience.min(PATIENCE)
    }

    fn segments_from(segments: &Segments, skip: u64) -> Segments {
        let mut skip = skip;
        let mut rest = Segments::new();
        for s in segments {
            let by = skip.min(s.len);
            skip -= by;
            if s.len > by {
                rest.push(portals_core::Segment {
                    addr: s.addr + by,
                    len: s.len - by,
                });
            }
        }
        rest
    }
}

impl Nal for DatagramNal {
    /// Sends a message of this process.
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, _: Option<&RemoteKey>) {
        let rank = self.peers.rank_of(tx.header.target);
        let rank = rank.filter(|_| !self.closed && !self.queues.is_gone());
        let peer = rank.and_then(|rank| self.meet(rank));
        let Some(peer) = peer.filter(|peer| !self.rd.is_gone(*peer)) else {
            return delivery::refuse(ni, tx);
        };
        self.counters.protocols.eager += 1;
        match tx.header.body {
            Body::Get { .. }
            | Body::GetPut { .. }
            | Body::Put {
                ack_md: Some(_), ..
            } => self.expect_answer(peer, &tx.header),
            _ => {}
        }
        self.read_clock();
        self.send_pieces(ni, peer, &tx.header, &tx.payload, Some(After::Send(tx.op)));
        self.flush();
        self.events(ni);
    }

    fn progress(&mut self, ni: &mut Ni, _: Look) -> bool {
        if self.queues.is_gone() {
            return false;
        }
        let mut count = self.poll_once(ni);
        let any = count > 0;
        while count == BATCH {
            self.flush();
            count = self.poll_once(ni);
        }
        if any {
            self.sleep.set_asleep(false);
            self.flush();
            self.timers(ni);
        } else if self.time.poll_was_idle() && self.rd.next_timeout().is_some() {
            self.read_clock();
            self.timers(ni);
        }
        any
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        if !self.queues.is_gone()
            && let Err(why) = self.queues.device_events()
        {
            self.device_gone(ni, &why);
        }
        if self.queues.is_gone() {
            return false;
        }
        if self.queues.is_interrupted() {
            self.queues.mend(&mut self.rd);
        }
        // What waits unread may be the acks that the timers wait for.
        let asleep = self.sleep.is_asleep();
        let mut any = false;
        while self.progress(ni, Look::All) {
            any = true;
        }
        self.sleep.set_asleep(asleep);
        self.read_clock();
        any | self.timers(ni)
    }

    fn schedule(&self) -> Schedule {
        let next = self.rd.next_timeout();
        let due = self.sleep.attendant_due(self.time.now(), next);
        Schedule {
            due: due.and_then(|at| self.time.instant(at)),
            busy: self.queues.is_interrupted(),
            gone: self.queues.is_gone(),
            spin: None,
            looks: self.sleep.looks(),
        }
    }

    fn waiter(&self) -> Waiter {
        match self.queues.descriptors() {
            Some((done, device)) => Waiter::Descriptors(self.sleep.attendance(done, device)),
            None => Waiter::Poll,
        }
    }

    /// Whoever sleeps next leaves acks to nobody, and timers to the attendant.
    fn arm(&mut self) -> Armed {
        self.rd.ack_all();
        self.flush();
        self.sleep.begin(self.rd.next_timeout());
        Armed::ringing(self.queues.arm())
    }

    fn publish(&mut self, ni: &mut Ni) {
        // Nobody reaches a descriptor past its owner.
        ni.take_dirty_portals();
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        self.peers.distance(to)
    }

    fn statistics(&self) -> Paths {
        self.counters.protocols.paths()
    }

    /// Waits until what was sent has been acked, then says farewell.
    fn close(&mut self, ni: &mut Ni) {
        let mut time = Awake::new(self.closing_time());
        let mut surplus = Surplus::new();
        while !self.queues.is_gone() && !time.is_over() {
            self.rd.ack_all();
            self.flush();
            if !self.attend(ni) {
                std::thread::yield_now();
            }
            let left = self.peers.iter().map(|p| p.landings.unwanted()).sum();
            if self.rd.is_idle() && surplus.is_over(left, self.rd.stats().put_receives) {
                break;
            }
        }
        if !self.queues.is_gone() && !self.rd.is_idle() {
            tracing::warn!("closed although something was under way");
        }
        self.closed = true;
        self.queues.close();
        for _ in 0..FAREWELLS {
            for peer in self.peers.iter() {
                if let Some(id) = self.rd.find(peer.rank as u32) {
                    self.rd.farewell(id);
                }
            }
            self.flush();
        }
        let until = Instant::now() + Duration::from_millis(20);
        while !self.queues.is_gone()
            && self.queues.commands_outstanding() >= 8
            && Instant::now() < until
        {
            self.poll_once(ni);
        }
        self.end_all(ni);
        let stats = self.rd.stats();
        tracing::info!(?stats, "reliable datagrams");
        if std::env::var_os("PORTOLAN_DATAGRAM_STATS").is_some() {
            host::say(format_args!("rank {}: {stats:?}", self.peers.own_rank()));
        }
    }
}
