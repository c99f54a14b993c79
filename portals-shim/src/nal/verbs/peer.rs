//! One peer: its connection, credits, order, and room in the send queue.
//!
//! ```text
//!   held ──(connected and greeted)──► path chosen ──► queue ──(room, credit)──► flying ──► done
//!                                                       ▲                          │ connection broken
//!                                                       └── not received ◄── lost ◄┘
//! ```
//!
//! # Invariants
//!
//! * Everything for a peer leaves in the order in which it was queued: what cannot be posted waits
//!   in `queue`, and nothing overtakes it.
//! * A frame is posted only with a credit for the slot it takes at the peer, which gives a credit
//!   back only once the slot is posted again; [`Kind::Credit`] frames take one of the slots reserved
//!   for them, at most one is under way. So a peer always has a receive for what it is sent.
//! * At most `depth` requests are posted and not completed.
//! * A write is silent only when one that makes a completion was posted with it, in one call and after it: that
//!   completion is both's. So what flies always ends with something that makes a completion, and a failure names the
//!   request that failed.
//! * What is in `batch` comes before what is in `queue`, and after what flies; nothing else is posted before it.
//! * `flying` is what is posted and not completed, in order; frames in it can be had back. `frames_sent` counts
//!   the frames ever posted except those that went back from `lost` to `queue`; so do the peer's `frames_received`,
//!   and each frame has its effect once however often the connection breaks.

use super::frame::{self, Kind, SLOT, Writer};
use super::handshake::{self, Stage};
use super::memory::Transfer;
use super::reach::Adverts;
use portals_core::{Body, Header, ProcessId, Segment, Transmit};
use std::collections::VecDeque;
use std::time::Instant;
use verbs_backend::qp::PostError;
use verbs_backend::{Buffer, BufferPool, Destination, Qp, Remote, SendFlags, SendOp, Status};

/// Requests without answer that are remembered before those dropped by the peer are looked for.
const EXPECTED: usize = 256;
/// Most bytes that a post copies, so that a frame is kept in this much.
const COPY: usize = 256;

/// Ids of requests without a record of their own; those with one use its index.
pub(super) const PLAIN: u64 = 1 << 60;
/// Id, or tag, of credit frames.
pub(super) const CREDIT: u64 = 2 << 60;

/// What waits to be posted.
#[derive(Debug)]
enum Queued {
    Frame {
        bytes: Vec<u8>,
    },
    Transfer {
        transfer: Transfer,
        id: u64,
    },
    Inline {
        data: Vec<u8>,
        remote: Remote,
        id: u64,
    },
}

/// What is posted and not completed.
#[derive(Debug)]
enum Flying {
    /// A frame of so many bytes that the post copied; kept in `copies` for the case that it must be sent again.
    Small(usize),
    /// A frame in a buffer, which comes back with the completion.
    Buffered(usize),
    Credit,
    /// A read, which may be made again.
    Read {
        transfer: Transfer,
        id: u64,
    },
    /// A write ahead of a message, which may be made again as long as the message has not come.
    Ahead {
        transfer: Transfer,
        id: u64,
    },
    /// A write, which may not: the peer may have changed the memory since. A silent one makes no completion on
    /// success.
    Write {
        id: u64,
        silent: bool,
    },
}

/// A small write that is to be posted together with others; its bytes are in `copies`.
#[derive(Clone, Copy, Debug)]
struct Small {
    len: usize,
    remote: Remote,
    id: u64,
}

/// Small writes that are posted by one call, and requests under way from which on they are collected: a call costs
/// as much as several of them, and the first ones must not wait for the later ones.
const TOGETHER: usize = verbs_backend::qp::CHAIN;
const BUSY: usize = 4;

/// What a broken connection left undone, as far as this side knows.
#[derive(Debug)]
enum Lost {
    Frame(Vec<u8>),
    Read {
        transfer: Transfer,
        id: u64,
    },
    Write(u64),
    Ahead {
        transfer: Transfer,
        id: u64,
    },
    /// Refused for a reason that a new connection does not mend.
    Refused(u64),
}

/// How a one-sided request whose completion was lost ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) id: u64,
    pub(super) failed: bool,
}

/// When to send a datagram again, and when to give up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) next: Instant,
    pub(super) interval: std::time::Duration,
    pub(super) until: Instant,
}

/// A peer and the connection to it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ProcessId,
    pub(super) stage: Stage,
    pub(super) qp: Option<Qp>,
    /// The connection is broken, which nobody has looked at yet.
    pub(super) broken: bool,
    /// The peer has told what it advertises.
    pub(super) greeted: bool,
    /// The connection was in use once.
    pub(super) met: bool,
    /// The peer has closed in good order.
    pub(super) said_bye: bool,
    pub(super) timer: Option<Timer>,
    /// The last attempt of the peer that was accepted, and the answer to it.
    pub(super) taken: Option<u32>,
    pub(super) answer: Option<(u32, [u8; handshake::BYTES])>,
    /// A request of the peer that waits for the end of the old connection.
    pub(super) asked: Option<handshake::Message>,
    pub(super) way: Option<(Destination, u64)>,
    /// User and job that the peer said to be.
    pub(super) who: Option<(u32, u32)>,
    /// Operations that wait for the connection.
    pub(super) held: VecDeque<Transmit>,
    /// Requests whose answer has not come, to be answered with a failure should the peer be given up.
    pub(super) expected: VecDeque<(u32, Header)>,
    queue: VecDeque<Queued>,
    flying: VecDeque<Flying>,
    /// A place for each request under way, used in turn: a frame that the post copies is written there.
    copies: Vec<[u8; COPY]>,
    /// The place of the next request.
    next_copy: usize,
    /// Small writes that wait for others; at most [`TOGETHER`], posted in the next poll at the latest.
    batch: Vec<Small>,
    lost: VecDeque<Lost>,
    credits: u16,
    /// Slots of the peer for this side, as it said.
    granted: u16,
    /// Slots of ours for the peer.
    lent: u16,
    /// Slots of ours that the peer's frames have left and that are posted again.
    owed: u16,
    /// Slots of ours that its frames have left and that are not posted again yet.
    emptied: u16,
    /// A credit frame has been posted and has not completed.
    credit_under_way: bool,
    depth: usize,
    max_inline: usize,
    frames_sent: u32,
    pub(super) frames_received: u32,
    /// Requests sent, and how many the peer says are done.
    pub(super) requests_sent: u32,
    pub(super) requests_done_there: u32,
    /// Requests of the peer whose effect is complete here.
    pub(super) requests_done_here: u32,
    /// What the peer advertises, by portal.
    pub(super) adverts: Adverts,
}

impl Peer {
    pub(super) fn new(id: ProcessId, lent: u16, depth: u32) -> Self {
        Self {
            id,
            stage: Stage::Idle,
            qp: None,
            broken: false,
            greeted: false,
            met: false,
            said_bye: false,
            timer: None,
            taken: None,
            answer: None,
            asked: None,
            way: None,
            who: None,
            held: VecDeque::new(),
            expected: VecDeque::new(),
            queue: VecDeque::new(),
            flying: VecDeque::new(),
            copies: Vec::new(),
            next_copy: 0,
            batch: Vec::new(),
            lost: VecDeque::new(),
            credits: 0,
            granted: 0,
            lent,
            owed: 0,
            emptied: 0,
            credit_under_way: false,
            depth: depth as usize,
            max_inline: 0,
            frames_sent: 0,
            frames_received: 0,
            requests_sent: 0,
            requests_done_there: 0,
            requests_done_here: 0,
            adverts: Adverts::default(),
        }
    }

    /// The connection is ready for use by a new queue pair, through which the peer takes `granted` frames. The
    /// `received` frames that the peer has had are not sent again; says how one-sided requests of the old
    /// connection ended.
    pub(super) fn renew(&mut self, granted: u16, received: u32) -> Vec<Ended> {
        let inline = self.qp.as_ref().map_or(0, |q| q.capabilities().max_inline);
        self.max_inline = (inline as usize).min(COPY);
        self.copies.resize(self.depth, [0; COPY]);
        self.broken = false;
        self.greeted = false;
        self.met = true;
        self.adverts.clear();
        self.granted = granted;
        self.credits = granted;
        self.owed = 0;
        self.emptied = 0;
        self.credit_under_way = false;
        let frames = self
            .lost
            .iter()
            .filter(|l| matches!(l, Lost::Frame(_)))
            .count() as u32;
        let first = self.frames_sent.wrapping_sub(frames);
        // A peer cannot have had more than was sent.
        let mut had = received.wrapping_sub(first);
        if had > frames {
            had = 0;
        }
        self.frames_sent = first.wrapping_add(had);
        // Up to the last frame that arrived, writes have been done: a connection keeps the order.
        let mut done = self.lost.len();
        let mut left = had;
        for (at, lost) in self.lost.iter().enumerate() {
            if left == 0 {
                done = at;
                break;
            }
            left -= u32::from(matches!(lost, Lost::Frame(_)));
        }
        if had == 0 {
            done = 0;
        }
        let mut ended = Vec::new();
        let mut again = VecDeque::new();
        for (at, lost) in std::mem::take(&mut self.lost).into_iter().enumerate() {
            match lost {
                Lost::Frame(_) if at < done => {}
                Lost::Frame(bytes) => again.push_back(Queued::Frame { bytes }),
                Lost::Read { transfer, id } => again.push_back(Queued::Transfer { transfer, id }),
                Lost::Ahead { id, .. } if at < done => ended.push(Ended { id, failed: false }),
                Lost::Ahead { transfer, id } => again.push_back(Queued::Transfer { transfer, id }),
                Lost::Write(id) => ended.push(Ended {
                    id,
                    failed: at >= done,
                }),
                Lost::Refused(id) => ended.push(Ended { id, failed: true }),
            }
        }
        again.append(&mut self.queue);
        self.queue = again;
        ended
    }

    /// Forgets everything that waits; the owner ends the operations.
    pub(super) fn give_up(&mut self) {
        self.stage = Stage::Failed;
        self.timer = None;
        self.asked = None;
        self.queue.clear();
        self.lost.clear();
        self.adverts.clear();
    }

    /// Nothing that belongs to this peer would be lost by forgetting the connection.
    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty()
            && self.queue.is_empty()
            && self.batch.is_empty()
            && self.lost.is_empty()
    }

    pub(super) fn is_failed(&self) -> bool {
        self.stage == Stage::Failed
    }

    /// Frames may be posted.
    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.stage, Stage::Up | Stage::Opening(_)) && !self.broken
    }

    /// Operations may be sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.greeted && self.is_connected()
    }

    /// Operations may be sent, and none waits.
    #[inline]
    pub(super) fn takes_now(&self) -> bool {
        self.is_open() && self.held.is_empty()
    }

    /// Nothing of the queue pair is under way.
    pub(super) fn is_still(&self) -> bool {
        self.flying.is_empty()
    }

    /// Bytes that a post may copy.
    #[inline]
    pub(super) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Nothing waits, and every request has had its effect at the peer: a one-sided operation
    /// posted now comes after all of them.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.queue.is_empty() && self.requests_sent == self.requests_done_there
    }

    /// Everything that was to be sent has been posted and has completed.
    pub(super) fn is_drained(&self) -> bool {
        self.is_failed() || (self.is_unused() && self.flying.is_empty())
    }

    /// What [`Peer::pump`] does would have an effect.
    #[inline]
    pub(super) fn wants_pump(&self) -> bool {
        !self.queue.is_empty() || !self.batch.is_empty() || self.owes() || self.broken
    }

    /// Half of what the peer may send has come, and its slots are posted again.
    #[inline]
    fn owes(&self) -> bool {
        self.owed > 0 && self.owed >= self.lent / 2 && !self.credit_under_way
    }

    #[inline]
    fn fly(&mut self, flying: Flying) {
        self.flying.push_back(flying);
        self.next_copy += 1;
        if self.next_copy >= self.depth {
            self.next_copy = 0;
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.flying.len() + self.batch.len() < self.depth && self.is_connected()
    }

    /// Accounts what rode on a frame of the peer.
    pub(super) fn handle_prefix(&mut self, prefix: &frame::Prefix, kind_takes_slot: bool) {
        self.credits = self
            .credits
            .saturating_add(prefix.credits.get())
            .min(self.granted);
        // A peer cannot have done more than was sent.
        let done = prefix.requests_done.get();
        if done.wrapping_sub(self.requests_done_there)
            <= self.requests_sent.wrapping_sub(self.requests_done_there)
        {
            self.requests_done_there = done;
        }
        if kind_takes_slot {
            self.emptied = self.emptied.saturating_add(1).min(self.lent);
            self.frames_received = self.frames_received.wrapping_add(1);
        }
    }

    /// Accounts a frame that cannot be read; it filled a slot all the same.
    pub(super) fn handle_bad_frame(&mut self) {
        self.emptied = self.emptied.saturating_add(1).min(self.lent);
        self.frames_received = self.frames_received.wrapping_add(1);
    }

    /// Remembers a request whose answer is awaited.
    pub(super) fn expect_answer(&mut self, request: &Header) {
        // Requests that the peer dropped are never answered: their turn has passed long ago.
        while let Some((number, _)) = self.expected.front()
            && self.expected.len() >= EXPECTED
            && self.requests_done_there.wrapping_sub(*number) < 1 << 31
        {
            self.expected.pop_front();
        }
        self.expected.push_back((self.requests_sent, *request));
    }

    /// An answer has come; it is that of the oldest request it fits.
    pub(super) fn answered(&mut self, answer: &Header) {
        let fits = |request: &Header| match (request.body, answer.body) {
            (
                Body::Put {
                    ack_md: Some(asked),
                    length,
                    ..
                },
                Body::Ack { md, rlength, .. },
            ) => asked == md && length == rlength,
            (
                Body::Get {
                    reply_md,
                    reply_offset,
                    ..
                }
                | Body::GetPut {
                    reply_md,
                    reply_offset,
                    ..
                },
                Body::Reply {
                    md, local_offset, ..
                },
            ) => reply_md == md && reply_offset == local_offset,
            _ => false,
        };
        // Most often it is the oldest.
        match self.expected.front() {
            None => {}
            Some((_, first)) if fits(first) => drop(self.expected.pop_front()),
            Some(_) => {
                if let Some(at) = self.expected.iter().position(|(_, r)| fits(r)) {
                    self.expected.remove(at);
                }
            }
        }
    }

    /// No answer to this request will come.
    pub(super) fn forget_expected(&mut self, request: &Header) {
        if let Some(at) = self.expected.iter().rposition(|(_, r)| r == request) {
            self.expected.remove(at);
        }
    }

    /// All receive slots are posted.
    pub(super) fn slots_posted(&mut self) {
        self.owed = (self.owed + std::mem::take(&mut self.emptied)).min(self.lent);
    }

    /// The oldest request, if it is that of the record `completed`, which has succeeded, or a silent one before it.
    #[inline]
    pub(super) fn done_up_to(&mut self, completed: u64) -> Option<u64> {
        match self.flying.front() {
            Some(Flying::Write { id, silent }) if *silent || *id == completed => {
                let id = *id;
                self.flying.pop_front();
                Some(id)
            }
            Some(Flying::Read { id, .. } | Flying::Ahead { id, .. }) if *id == completed => {
                self.flying.pop_front();
                Some(completed)
            }
            _ => None,
        }
    }

    /// The oldest request, if it is a silent one that was done before the request `id`, which has completed.
    #[inline]
    pub(super) fn done_silently(&mut self, completed: u64) -> Option<u64> {
        match self.flying.front() {
            Some(Flying::Write { id, silent: true }) if *id != completed => {
                let id = *id;
                self.flying.pop_front();
                Some(id)
            }
            _ => None,
        }
    }

    /// A request has completed; they do so in the order of their posting. One that failed is kept for
    /// [`Peer::renew`], unless the connection is not to blame.
    #[inline]
    pub(super) fn handle_completion(&mut self, status: Status, buffer: Option<Buffer>) {
        let Some(flying) = self.flying.pop_front() else {
            return;
        };
        if matches!(flying, Flying::Credit) {
            self.credit_under_way = false;
        }
        if status != Status::SUCCESS {
            self.lose(flying, status, buffer);
        }
    }

    #[cold]
    fn lose(&mut self, flying: Flying, status: Status, buffer: Option<Buffer>) {
        self.broken = true;
        let refused = !status.is_of_connection();
        let lost = match flying {
            Flying::Small(len) => {
                // The requests after it have the places before the next one's.
                let back = self.flying.len() + 1;
                let at = (self.next_copy + self.depth).saturating_sub(back) % self.depth.max(1);
                match self.copies.get(at).and_then(|copy| copy.get(..len)) {
                    Some(bytes) => Lost::Frame(bytes.to_vec()),
                    None => return,
                }
            }
            Flying::Buffered(len) => match buffer.as_ref().and_then(|b| b.get(..len)) {
                Some(bytes) => Lost::Frame(bytes.to_vec()),
                None => return,
            },
            Flying::Credit => return,
            Flying::Read { id, .. } | Flying::Ahead { id, .. } | Flying::Write { id, .. }
                if refused =>
            {
                Lost::Refused(id)
            }
            Flying::Ahead { transfer, id } => Lost::Ahead { transfer, id },
            Flying::Read { transfer, id } => Lost::Read { transfer, id },
            Flying::Write { id, .. } => Lost::Write(id),
        };
        self.lost.push_back(lost);
    }

    /// The queue pair is to be destroyed although not all completions have come.
    pub(super) fn abandon(&mut self) {
        self.unbatch(0);
        while !self.flying.is_empty() {
            self.handle_completion(Status::FLUSHED, None);
        }
    }

    /// Whether a descriptor that the peer advertises may take this put: then the put does not go in a frame.
    #[inline]
    pub(super) fn may_take(&self, put: &Header) -> bool {
        !self.adverts.of(put.pt_index).is_empty() && self.is_settled()
    }

    /// Sends a message's frame of at most `size` bytes, written by `build`, if it can be posted at once. After `false`
    /// nothing has happened.
    #[inline]
    pub(super) fn send_now(
        &mut self,
        pool: &BufferPool,
        size: usize,
        build: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        self.flush();
        if !self.queue.is_empty() || self.credits == 0 || !self.has_room() {
            return false;
        }
        if size <= self.max_inline
            && let Some(copy) = self.copies.get_mut(self.next_copy)
        {
            let mut writer = Writer::new(copy, Kind::Message, false);
            build(&mut writer);
            let len = writer.len();
            self.post_copy(len, true);
            return true;
        }
        let Some(mut buffer) = pool.take() else {
            return false;
        };
        let mut writer = Writer::new(&mut buffer, Kind::Message, false);
        build(&mut writer);
        let len = writer.len();
        self.post_buffer(buffer, len, true);
        true
    }

    /// Sends a frame of at most `size` bytes, written by `build`.
    #[inline]
    pub(super) fn send(
        &mut self,
        pool: &BufferPool,
        kind: Kind,
        failed: bool,
        size: usize,
        build: impl FnOnce(&mut Writer<'_>),
    ) {
        self.flush();
        let direct = self.queue.is_empty() && self.credits > 0 && self.has_room();
        if direct
            && size <= self.max_inline
            && let Some(copy) = self.copies.get_mut(self.next_copy)
        {
            let mut writer = Writer::new(copy, kind, failed);
            build(&mut writer);
            let len = writer.len();
            return self.post_copy(len, true);
        }
        if direct && let Some(mut buffer) = pool.take() {
            let mut writer = Writer::new(&mut buffer, kind, failed);
            build(&mut writer);
            let len = writer.len();
            return self.post_buffer(buffer, len, true);
        }
        let mut bytes = vec![0; size.min(SLOT)];
        let mut writer = Writer::new(&mut bytes, kind, failed);
        build(&mut writer);
        let len = writer.len();
        bytes.truncate(len);
        self.queue.push_back(Queued::Frame { bytes });
    }

    /// Accounts a frame that was posted.
    #[inline]
    fn posted(&mut self, flying: Flying) {
        if !matches!(flying, Flying::Credit) {
            self.credits = self.credits.saturating_sub(1);
            self.frames_sent = self.frames_sent.wrapping_add(1);
        }
        self.owed = 0;
        self.fly(flying);
    }

    /// A frame was refused: it goes back to the head of the queue.
    #[cold]
    fn not_posted(&mut self, error: &PostError, frame: Option<Vec<u8>>) {
        self.refused(error);
        self.owed = 0;
        match frame {
            Some(bytes) => self.queue.push_front(Queued::Frame { bytes }),
            None => self.credit_under_way = false,
        }
    }

    fn refused(&mut self, error: &PostError) {
        tracing::warn!(peer = self.id.nid, %error, "connection broken");
        self.broken = true;
    }

    /// Posts the frame of `len` bytes in the next request's place.
    fn post_copy(&mut self, len: usize, credit: bool) {
        let place = self.copies.get_mut(self.next_copy);
        let Some(frame) = place.and_then(|copy| copy.get_mut(..len)) else {
            return;
        };
        frame::stamp(frame, self.owed, self.requests_done_here);
        let Some(qp) = &self.qp else { return };
        let id = if credit { PLAIN } else { CREDIT };
        match qp.post_inline(id, SendOp::Send, frame, SendFlags::SIGNALLED) {
            Ok(()) if credit => self.posted(Flying::Small(len)),
            Ok(()) => self.posted(Flying::Credit),
            Err(error) => {
                let frame = credit.then(|| frame.to_vec());
                self.not_posted(&error, frame);
            }
        }
    }

    fn post_buffer(&mut self, mut buffer: Buffer, len: usize, credit: bool) {
        frame::stamp(&mut buffer[..len], self.owed, self.requests_done_here);
        let Some(qp) = &self.qp else { return };
        let tag = if credit { PLAIN } else { CREDIT };
        match qp.post_owned(tag, SendOp::Send, buffer, 0..len, SendFlags::empty()) {
            Ok(()) if credit => self.posted(Flying::Buffered(len)),
            Ok(()) => self.posted(Flying::Credit),
            Err(rejected) => {
                let frame = credit.then(|| rejected.buffer[..len].to_vec());
                self.not_posted(&rejected.error, frame);
            }
        }
    }

    /// Posts a transfer, or queues it behind what waits.
    #[inline]
    pub(super) fn transfer(&mut self, transfer: Transfer, id: u64) {
        self.flush();
        if self.queue.is_empty() && self.has_room() {
            self.post_transfer(&transfer, id);
        } else {
            self.queue.push_back(Queued::Transfer { transfer, id });
        }
    }

    #[inline]
    fn post_transfer(&mut self, transfer: &Transfer, id: u64) {
        let Some(qp) = &self.qp else { return };
        match transfer.post(qp, id) {
            Ok(()) if transfer.read => self.fly(Flying::Read {
                transfer: *transfer,
                id,
            }),
            Ok(()) if transfer.again => self.fly(Flying::Ahead {
                transfer: *transfer,
                id,
            }),
            Ok(()) => self.fly(Flying::Write { id, silent: false }),
            Err(error) => {
                self.refused(&error);
                self.queue.push_front(Queued::Transfer {
                    transfer: *transfer,
                    id,
                });
            }
        }
    }

    /// Writes `data`, which has at most [`Peer::max_inline`] bytes, to the peer's memory; the call copies it.
    pub(super) fn write_inline(&mut self, data: Segment, remote: Remote, id: u64) {
        if self.queue.is_empty() && self.has_room() {
            if self.flying.len() >= BUSY {
                return self.collect(data, remote, id);
            }
            self.flush();
            if let Some(qp) = &self.qp {
                match super::memory::write_inline(qp, id, data, remote) {
                    Ok(()) => return self.fly(Flying::Write { id, silent: false }),
                    Err(error) => self.refused(&error),
                }
            }
        }
        self.flush();
        self.queue_inline(data, remote, id);
    }

    /// Adds to the batch, and posts it if it is full.
    fn collect(&mut self, data: Segment, remote: Remote, id: u64) {
        let at = self.next_copy + self.batch.len();
        let at = if at < self.depth { at } else { at - self.depth };
        let len = data.len as usize;
        let Some(place) = self.copies.get_mut(at).and_then(|c| c.get_mut(..len)) else {
            return self.queue_inline(data, remote, id);
        };
        crate::region::LocalCopy::gather_into(&[data], place);
        self.batch.push(Small { len, remote, id });
        if self.batch.len() >= TOGETHER {
            self.flush();
        }
    }

    /// Posts the batch.
    #[inline]
    pub(super) fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.post_batch();
        }
    }

    fn post_batch(&mut self) {
        let Some(qp) = self.qp.as_ref().filter(|_| !self.broken) else {
            return self.unbatch(0);
        };
        let total = self.batch.len();
        let mut requests = self.batch.iter().enumerate().map(|(number, small)| {
            let at = self.next_copy + number;
            let at = if at < self.depth { at } else { at - self.depth };
            let data = self.copies.get(at).and_then(|c| c.get(..small.len));
            // A slice of a place is there, since `collect` has written it.
            (
                small.id,
                SendOp::Write(small.remote),
                data.unwrap_or_default(),
            )
        });
        let result = qp.post_inline_chain(&mut requests);
        let accepted = match &result {
            Ok(count) => *count,
            Err(error) => error.accepted(),
        };
        for number in 0..accepted {
            let id = self.batch[number].id;
            let silent = number + 1 < total;
            self.fly(Flying::Write { id, silent });
        }
        match result {
            Ok(_) => self.batch.clear(),
            Err(error) => {
                self.refused(&error);
                self.unbatch(accepted);
            }
        }
    }

    /// Moves the batch from its write `first` on, which could not be posted, to the head of the queue.
    fn unbatch(&mut self, first: usize) {
        let rest = self.batch.len().saturating_sub(first);
        for number in (0..rest).rev() {
            let small = self.batch[first + number];
            let at = (self.next_copy + number) % self.depth.max(1);
            let data = self.copies.get(at).and_then(|c| c.get(..small.len));
            self.queue.push_front(Queued::Inline {
                data: data.unwrap_or_default().to_vec(),
                remote: small.remote,
                id: small.id,
            });
        }
        self.batch.clear();
    }

    #[cold]
    fn queue_inline(&mut self, data: Segment, remote: Remote, id: u64) {
        let mut bytes = Vec::new();
        crate::region::LocalCopy::gather(&[data], &mut bytes);
        self.queue.push_back(Queued::Inline {
            data: bytes,
            remote,
            id,
        });
    }

    fn post_write_inline(&mut self, data: &[u8], remote: Remote, id: u64) {
        let Some(qp) = &self.qp else { return };
        match qp.post_inline(id, SendOp::Write(remote), data, SendFlags::SIGNALLED) {
            Ok(()) => self.fly(Flying::Write { id, silent: false }),
            Err(error) => {
                self.refused(&error);
                self.queue.push_front(Queued::Inline {
                    data: data.to_vec(),
                    remote,
                    id,
                });
            }
        }
    }

    /// Posts what waits, as far as there is room, and returns credits that nothing else carries.
    pub(super) fn pump(&mut self, pool: &BufferPool) {
        self.flush();
        while self.has_room() {
            match self.queue.front() {
                None => break,
                Some(Queued::Frame { .. }) if self.credits == 0 => break,
                Some(_) => {}
            }
            match self.queue.pop_front() {
                Some(Queued::Frame { bytes }) => {
                    let len = bytes.len();
                    let place = self.copies.get_mut(self.next_copy);
                    let place = place.filter(|_| len <= self.max_inline);
                    if let Some(place) = place.and_then(|copy| copy.get_mut(..len)) {
                        place.copy_from_slice(&bytes);
                        self.post_copy(len, true);
                    } else if let Some(mut buffer) = pool.take() {
                        let len = bytes.len().min(buffer.len());
                        buffer[..len].copy_from_slice(&bytes[..len]);
                        self.post_buffer(buffer, len, true);
                    } else {
                        self.queue.push_front(Queued::Frame { bytes });
                        break;
                    }
                }
                Some(Queued::Transfer { transfer, id }) => self.post_transfer(&transfer, id),
                Some(Queued::Inline { data, remote, id }) => {
                    self.post_write_inline(&data, remote, id)
                }
                None => break,
            }
        }
        // Nothing carries the credits back.
        if self.owes() && self.has_room() {
            self.credit_under_way = true;
            let place = self.copies.get_mut(self.next_copy);
            if let Some(place) = place.filter(|_| frame::PREFIX <= self.max_inline) {
                let len = Writer::new(place, Kind::Credit, false).len();
                self.post_copy(len, false);
            } else if let Some(mut buffer) = pool.take() {
                let len = Writer::new(&mut buffer, Kind::Credit, false).len();
                self.post_buffer(buffer, len, false);
            } else {
                self.credit_under_way = false;
            }
        }
    }
}
