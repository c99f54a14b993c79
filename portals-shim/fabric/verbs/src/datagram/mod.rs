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
//! | this one | progress, time, peers that are gone, the close |
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
mod receive;
mod send;
mod words;

pub use open::in_threads;
pub(crate) use open::{Contact, Directory, Unconnected};
pub(crate) use send::first_data;
pub(crate) use words::News;

use super::advice::unusable_device;
use super::verbs::Counters;
use fabric_api::bell::Bell;
use fabric_api::call::{Paths, RemoteKey};
use fabric_api::delivery;
use fabric_api::expected::Expected;
use fabric_api::nal::{Armed, Attendance, LOOKS, Look, Nal, Schedule, Waiter};
use fabric_api::place::Placement;
use host::awake::{Awake, Clock};
use landings::Landings;
use portals_core::{Body, Header, Ni, NiFail, OpId, ProcessId, Segments, Transmit};
use receive::Surplus;
use send::Payload;
use slab::Slab;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs_backend::rd::{Channel, Endpoint, Event as Happened, PeerId, Received, Time};
use verbs_backend::{Completion, Cq, DatagramQueue, Destination, Device, Event};

/// Completions taken in one go.
const BATCH: usize = 16;
/// Polls that find nothing between two looks at the clock.
const LOOK: u32 = 16;
/// How long a thread that looks after timers leaves them to a program that polls.
const GRACE: Duration = Duration::from_millis(10);
/// How long the close may wait for acks.
const PATIENCE: Duration = Duration::from_secs(5);
/// Farewells to each peer. All lost, the peer waits until it gives up.
const FAREWELLS: usize = 4;
/// Requests without an answer that are remembered; the oldest of more has been dropped by its target.
const EXPECTED: usize = 4096;

/// A rank that was talked to.
#[derive(Debug)]
struct Peer {
    rank: usize,
    command: Destination,
    data: Destination,
    who: (u32, u32),
    /// Frames sent that are no answers, modulo 2^32.
    frames_sent: u32,
    /// Requests that wait for an answer, and the numbers of their frames.
    expected: Expected,
    landings: Landings,
    /// It has closed in good order, as was found out elsewhere.
    left: bool,
    /// Words of the peer that nobody has looked at.
    words: u8,
}

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
    rank: usize,
    id: ProcessId,
    place: Placement,
    ids: Vec<ProcessId>,
    device: Device,
    cq: Cq,
    command: DatagramQueue,
    data: DatagramQueue,
    rd: Endpoint<Payload>,
    /// By [`PeerId`].
    peers: Vec<Peer>,
    /// By rank.
    known: Vec<Option<PeerId>>,
    directory: Directory,
    longs: Slab<Long>,
    /// For a fabric that has connections too.
    news: Option<VecDeque<News>>,
    clock: Clock,
    /// What it read last.
    now: Time,
    /// Polls since the clock was read.
    polls: u32,
    /// Where a datagram is written when the ring is full, and small ones before they are copied.
    scratch: Vec<u8>,
    slots: Box<[Completion; BATCH]>,
    /// A queue pair has failed.
    down: bool,
    patience: Duration,
    thread: bool,
    crowded: bool,
    bell: Arc<Bell>,
    /// The program sleeps, so that timers are the attendant's.
    asleep: bool,
    /// When the attendant looks after timers again at the latest; `None` if nothing makes it.
    looks_at: Cell<Option<Time>>,
    closed: bool,
    gone: bool,
    counters: Counters,
}

impl DatagramNal {
    fn rank_of(&self, to: ProcessId) -> Option<usize> {
        self.place
            .find(to, |rank| self.ids.get(rank) == Some(&to))
            .filter(|rank| *rank != self.rank)
    }

    fn read_clock(&mut self) {
        self.polls = 0;
        // A job that stood still has not waited for its peers' acks.
        let due = self.rd.next_timeout().map(Duration::from_nanos);
        let now = self.clock.read(due);
        self.now = Time::try_from(now.as_nanos()).unwrap_or(Time::MAX);
    }

    /// The peer of a rank, made when it is first needed.
    fn meet(&mut self, rank: usize) -> Option<PeerId> {
        if let Some(known) = self.known.get(rank).copied().flatten() {
            return Some(known);
        }
        let number = u32::try_from(rank).ok()?;
        let contact = match self.directory.find(number) {
            Ok(contact) => contact,
            Err(error) => {
                tracing::error!(peer = rank, %error, "no address");
                return None;
            }
        };
        let ways = self
            .command
            .resolve(&contact.command)
            .and_then(|command| Ok((command, self.data.resolve(&contact.data)?)));
        let (command, data) = match ways {
            Ok(ways) => ways,
            Err(error) => {
                tracing::error!(peer = rank, %error, "no way");
                return None;
            }
        };
        let id = self.rd.add_peer(number, contact.token);
        if id.index() == self.peers.len() {
            self.peers.push(Peer {
                rank,
                command,
                data,
                who: contact.who,
                frames_sent: 0,
                expected: Expected::default(),
                landings: Landings::default(),
                left: false,
                words: 0,
            });
        }
        *self.known.get_mut(rank)? = Some(id);
        Some(id)
    }

    /// Posts all that is to be sent.
    fn flush(&mut self) {
        loop {
            let full = self.data.room().is_none();
            let out = match self.data.room() {
                Some(room) => room,
                None => &mut self.scratch[..],
            };
            let Some(t) = self.rd.poll_transmit(self.now, out) else {
                break;
            };
            let Some(peer) = self.peers.get(t.peer.index()) else {
                continue;
            };
            let staged = match t.channel {
                Channel::Data => self.data.stage(&peer.data, t.len),
                Channel::Command => {
                    let written = match self.data.room() {
                        Some(room) if !full => &room[..t.len],
                        _ => &self.scratch[..t.len],
                    };
                    self.command.stage_copy(&peer.command, written)
                }
            };
            if let Err(error) = staged {
                self.failed(&error);
            }
            if t.channel == Channel::Command {
                self.command_left();
            }
        }
        // The last one tells that all have left.
        for result in [self.command.flush(false), self.data.flush(true)] {
            if let Err(error) = result {
                self.failed(&error);
            }
        }
    }

    /// What is in the command queue leaves at once, and few of its sends make completions: half of its places count as
    /// free although their completions have not come.
    fn command_left(&mut self) {
        let known = self
            .command
            .outstanding()
            .saturating_sub(open::COMMAND.1 as usize / 2);
        let posted = self.rd.posted(Channel::Command);
        self.rd
            .handle_sent(Channel::Command, posted.saturating_sub(known));
    }

    /// A queue pair does not work. What was posted is as good as lost; it will be sent again.
    fn failed(&mut self, error: &dyn std::fmt::Display) {
        if !self.closed && !self.down {
            tracing::warn!(%error, "datagrams are interrupted");
        }
        self.down = true;
    }

    fn mend(&mut self) {
        for queue in [&mut self.command, &mut self.data] {
            if let Err(error) = queue.recover() {
                tracing::debug!(%error, "no datagrams yet");
                return;
            }
        }
        self.down = false;
        for channel in [Channel::Command, Channel::Data] {
            let lost = self.rd.posted(channel);
            self.rd.handle_sent(channel, lost);
        }
    }

    /// Handles up to a batch of completions; returns how many there were.
    fn poll_once(&mut self, ni: &mut Ni) -> usize {
        let count = match self.cq.poll(&mut self.slots[..]) {
            Ok([]) => return 0,
            Ok(done) => done.len(),
            Err(error) => {
                self.device_gone(ni, &error);
                return 0;
            }
        };
        if self.polls > 0 {
            self.read_clock();
        }
        for at in 0..count.min(BATCH) {
            let completion = self.slots[at];
            let is_data = completion.qpn() == self.data.qpn();
            let queue = if is_data {
                &mut self.data
            } else {
                &mut self.command
            };
            let before = queue.outstanding();
            let arrival = queue.handle(&completion);
            let left = before.saturating_sub(queue.outstanding());
            if is_data && left > 0 {
                self.rd.handle_sent(Channel::Data, left);
            }
            if !is_data && left > 0 {
                self.command_left();
            }
            match arrival {
                Ok(None) => {}
                Ok(Some(arrival)) => {
                    self.arrived(ni, &arrival);
                    let queue = if is_data {
                        &mut self.data
                    } else {
                        &mut self.command
                    };
                    if let Err(error) = queue.give_back(arrival) {
                        self.failed(&error);
                    }
                }
                Err(error) => self.failed(&error),
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
            if rank < self.ids.len() && rank != self.rank {
                let _ = self.meet(rank);
            }
        }
        let received = self.rd.handle_datagram(self.now, bytes);
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
                    delivery::fail_answer(ni, &header);
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
        let Some(peer) = self.peers.get_mut(id.index()) else {
            return;
        };
        let said = said || peer.left;
        let rank = peer.rank;
        if !said && !self.closed {
            tracing::error!(peer = rank, "no answer: every operation on it fails");
            // Of messages that have had their SEND_END, and of those that will not come, nothing else says so.
            if let Some(id) = self.ids.get(rank) {
                ni.lost(*id);
            }
        }
        let mut expected = std::mem::take(&mut peer.expected);
        if said {
            // What it has acked has had its effect.
            expected.forget_up_to(peer.frames_sent.wrapping_sub(unacked));
        }
        let landings = peer.landings.take();
        for request in expected.into_requests() {
            delivery::fail_answer(ni, &request);
        }
        for op in landings {
            ni.deposit_end(op, NiFail::FAIL);
        }
        self.note(News::Gone { rank, said });
    }

    /// The device does not work any more, or the interface closes: every operation ends.
    fn end_all(&mut self, ni: &mut Ni) {
        for at in 0..self.peers.len() {
            if let Some(id) = self.rd.find(self.peers[at].rank as u32) {
                self.rd.remove(id);
            }
        }
        self.events(ni);
    }

    pub(crate) fn device_gone(&mut self, ni: &mut Ni, why: &dyn std::fmt::Display) {
        if !self.gone {
            self.gone = true;
            tracing::error!("{}", unusable_device(self.device.name(), why));
            self.end_all(ni);
        }
    }

    fn device_events(&mut self, ni: &mut Ni) {
        while !self.gone {
            match self.device.take_event() {
                Ok(None) => return,
                Ok(Some(Event::DeviceGone)) => {
                    self.device_gone(ni, &"it was taken away or has failed");
                }
                Ok(Some(Event::CompletionQueue)) => {
                    self.device_gone(ni, &"a queue of it is broken");
                }
                Ok(Some(Event::QueuePair { qpn, .. })) => {
                    if [self.command.qpn(), self.data.qpn()].contains(&qpn) {
                        self.down = true;
                    }
                }
                Ok(Some(_)) => {}
                Err(error) => self.device_gone(ni, &error),
            }
        }
    }

    /// Timers whose time has come.
    fn timers(&mut self, ni: &mut Ni) -> bool {
        let due = self.rd.next_timeout().is_some_and(|at| at <= self.now);
        if due {
            self.rd.handle_timeout(self.now);
            self.events(ni);
            self.flush();
        }
        due
    }

    fn attendance(&self) -> Option<Attendance> {
        let dup = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().ok();
        Some(Attendance {
            alarm: vec![dup(self.cq.event_fd().ok()?)?],
            control: vec![dup(self.device.events_fd())?],
            bell: Arc::clone(&self.bell),
            thread: self.thread,
            longest: None,
        })
    }

    /// When the attendant is to look after timers; what it is told is what it does.
    fn due(&self) -> Option<Instant> {
        let quiet = self.now + Time::try_from(GRACE.as_nanos()).unwrap_or(Time::MAX);
        let next = self.rd.next_timeout();
        let at = next.map(|at| if self.asleep { at } else { at.max(quiet) });
        self.looks_at.set(at);
        at.and_then(|at| self.time_of(at))
    }

    /// Whether the device does not work any more. To ask [`Nal::schedule`] for it would be taken for the attendant's question.
    pub(crate) fn has_gone(&self) -> bool {
        self.gone
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
        let rank = self.rank_of(tx.header.target);
        let rank = rank.filter(|_| !self.closed && !self.gone);
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
        if self.gone {
            return false;
        }
        let mut count = self.poll_once(ni);
        let any = count > 0;
        while count == BATCH {
            self.flush();
            count = self.poll_once(ni);
        }
        if any {
            self.asleep = false;
            self.flush();
            self.timers(ni);
        } else {
            self.polls += 1;
            if self.polls >= LOOK && self.rd.next_timeout().is_some() {
                self.read_clock();
                self.timers(ni);
            }
        }
        any
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        self.device_events(ni);
        if self.gone {
            return false;
        }
        if self.down {
            self.mend();
        }
        // What waits unread may be the acks that the timers wait for.
        let asleep = self.asleep;
        let mut any = false;
        while self.progress(ni, Look::All) {
            any = true;
        }
        self.asleep = asleep;
        self.read_clock();
        any | self.timers(ni)
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            due: self.due(),
            busy: self.down && !self.gone,
            gone: self.gone,
            spin: None,
            looks: if self.crowded { 1 } else { LOOKS },
        }
    }

    fn waiter(&self) -> Waiter {
        self.attendance().map_or(Waiter::Poll, Waiter::Descriptors)
    }

    /// Whoever sleeps next leaves acks to nobody, and timers to the attendant.
    fn arm(&mut self) -> Armed {
        self.rd.ack_all();
        self.flush();
        // An attendant that looks in time is left alone: it costs a thread's wake-up.
        let looks_at = self.looks_at.get();
        let next = self.rd.next_timeout();
        if next.is_some_and(|next| looks_at.is_none_or(|at| at > next)) {
            self.bell.ring();
        }
        self.asleep = true;
        let armed = self.cq.drain_events().and_then(|_| self.cq.arm(false));
        Armed::ringing(!self.gone && armed.is_ok())
    }

    fn publish(&mut self, ni: &mut Ni) {
        // Nobody reaches a descriptor past its owner.
        ni.take_dirty_portals();
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.id {
            return Some(0);
        }
        self.rank_of(to).map(|_| u64::from(to.nid != self.id.nid))
    }

    fn statistics(&self) -> Paths {
        self.counters.protocols.paths()
    }

    /// Waits until what was sent has been acked, then says farewell.
    fn close(&mut self, ni: &mut Ni) {
        let mut time = Awake::new(self.closing_time());
        let mut surplus = Surplus::new();
        while !self.gone && !time.is_over() {
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
        if !self.gone && !self.rd.is_idle() {
            tracing::warn!("closed although something was under way");
        }
        self.closed = true;
        for _ in 0..FAREWELLS {
            for peer in &self.peers {
                if let Some(id) = self.rd.find(peer.rank as u32) {
                    self.rd.farewell(id);
                }
            }
            self.flush();
        }
        let until = Instant::now() + Duration::from_millis(20);
        while !self.gone && self.command.outstanding() >= 8 && Instant::now() < until {
            self.poll_once(ni);
        }
        self.end_all(ni);
        let stats = self.rd.stats();
        tracing::info!(?stats, "reliable datagrams");
        if std::env::var_os("PORTOLAN_DATAGRAM_STATS").is_some() {
            host::say(format_args!("rank {}: {stats:?}", self.rank));
        }
    }
}
