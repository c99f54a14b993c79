//! One connection: credits, order, and room in the send queue.
//!
//! # Invariants
//!
//! * Everything for a peer leaves in the order in which it was queued: what cannot be posted waits
//!   in `queue`, and nothing overtakes it.
//! * A frame is posted only with a credit for the slot it takes at the peer, which gives a credit
//!   back only once the slot is posted again; [`Kind::Credit`] frames take one of the slots reserved
//!   for them, at most one is under way. So a peer always has a receive for what it is sent.
//! * At most `depth` requests are posted and not completed.

use super::frame::{self, Kind, RemoteMd, SLOT, Writer};
use super::memory::Transfer;
use portals_core::ProcessId;
use std::collections::{BTreeMap, VecDeque};
use verbs_backend::qp::PostError;
use verbs_backend::{BufferPool, Qp, Remote, SendFlags, SendOp};

/// Send queue entries of a connection.
pub(super) const DEPTH: u32 = 128;
/// Receive slots that each peer may fill, besides those for credits.
pub(super) const CREDITS: u16 = 64;
/// Slots for frames without credit, per peer.
pub(super) const RESERVED: u16 = 4;
/// Credits owed before they are sent on their own.
const RETURN_AT: u16 = CREDITS / 2;
/// Inline data that is built on the stack.
const STACK: usize = 256;

/// Ids of requests without a record of their own; those with one use its index.
pub(super) const PLAIN: u64 = 1 << 60;
/// Id, or tag, of credit frames.
pub(super) const CREDIT: u64 = 2 << 60;

/// What waits to be posted.
#[derive(Debug)]
enum Queued {
    Frame {
        bytes: Vec<u8>,
        credit: bool,
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

/// A peer and the connection to it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ProcessId,
    pub(super) qp: Qp,
    queue: VecDeque<Queued>,
    credits: u16,
    /// Slots of ours that the peer's frames have left and that are posted again.
    owed: u16,
    /// Slots of ours that its frames have left and that are not posted again yet.
    emptied: u16,
    /// A credit frame has been posted and has not completed.
    credit_under_way: bool,
    posted: u64,
    completed: u64,
    max_inline: usize,
    /// Requests sent, and how many the peer says are done.
    pub(super) requests_sent: u32,
    pub(super) requests_done_there: u32,
    /// Requests of the peer whose effect is complete here.
    pub(super) requests_done_here: u32,
    /// What the peer advertises, by portal.
    pub(super) adverts: BTreeMap<u32, Vec<RemoteMd>>,
    /// The connection has failed; everything for it fails.
    pub(super) failed: bool,
}

impl Peer {
    pub(super) fn new(id: ProcessId, qp: Qp) -> Self {
        let max_inline = (qp.capabilities().max_inline as usize).min(STACK);
        Self {
            id,
            qp,
            queue: VecDeque::new(),
            credits: CREDITS,
            owed: 0,
            emptied: 0,
            credit_under_way: false,
            posted: 0,
            completed: 0,
            max_inline,
            requests_sent: 0,
            requests_done_there: 0,
            requests_done_here: 0,
            adverts: BTreeMap::new(),
            failed: false,
        }
    }

    /// Bytes that a post may copy.
    pub(super) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// Nothing waits, and every request has had its effect at the peer: a one-sided operation
    /// posted now comes after all of them.
    pub(super) fn is_settled(&self) -> bool {
        self.queue.is_empty() && self.requests_sent == self.requests_done_there
    }

    /// Everything that was queued has been posted and has completed.
    pub(super) fn is_drained(&self) -> bool {
        self.failed || (self.queue.is_empty() && self.posted == self.completed)
    }

    fn has_room(&self) -> bool {
        self.posted - self.completed < u64::from(DEPTH)
    }

    /// Accounts what rode on a frame of the peer.
    pub(super) fn handle_prefix(&mut self, prefix: &frame::Prefix, kind_takes_slot: bool) {
        self.credits = self
            .credits
            .saturating_add(prefix.credits.get())
            .min(CREDITS);
        // A peer cannot have done more than was sent.
        let done = prefix.requests_done.get();
        if done.wrapping_sub(self.requests_done_there)
            <= self.requests_sent.wrapping_sub(self.requests_done_there)
        {
            self.requests_done_there = done;
        }
        if kind_takes_slot {
            self.emptied += 1;
        }
    }

    /// All receive slots are posted.
    pub(super) fn slots_posted(&mut self) {
        self.owed += std::mem::take(&mut self.emptied);
    }

    /// A request has completed; they do so in the order of their posting.
    pub(super) fn handle_completion(&mut self, id: u64) {
        self.completed = (self.completed + 1).min(self.posted);
        if id == CREDIT {
            self.credit_under_way = false;
        }
    }

    /// Sends a frame of at most `size` bytes, written by `build`.
    pub(super) fn send(
        &mut self,
        pool: &BufferPool,
        kind: Kind,
        token: u32,
        failed: bool,
        size: usize,
        build: impl FnOnce(&mut Writer<'_>),
    ) {
        let direct = self.queue.is_empty() && self.credits > 0 && self.has_room();
        if direct && size <= self.max_inline {
            let mut scratch = [0; STACK];
            let mut writer = Writer::new(&mut scratch, kind, token, failed);
            build(&mut writer);
            let len = writer.len();
            return self.post_small(&mut scratch[..len], true);
        }
        if direct && let Some(mut buffer) = pool.take() {
            let mut writer = Writer::new(&mut buffer, kind, token, failed);
            build(&mut writer);
            let len = writer.len();
            return self.post_buffer(buffer, len, true);
        }
        let mut bytes = vec![0; size.min(SLOT)];
        let mut writer = Writer::new(&mut bytes, kind, token, failed);
        build(&mut writer);
        let len = writer.len();
        bytes.truncate(len);
        self.queue.push_back(Queued::Frame {
            bytes,
            credit: true,
        });
    }

    fn take_riders(&mut self, frame: &mut [u8], credit: bool) {
        let owed = std::mem::take(&mut self.owed);
        frame::stamp(frame, owed, self.requests_done_here);
        if credit {
            self.credits -= 1;
        }
    }

    fn post_small(&mut self, frame: &mut [u8], credit: bool) {
        self.take_riders(frame, credit);
        self.posted += 1;
        let id = if credit { PLAIN } else { CREDIT };
        let result = self
            .qp
            .post_inline(id, SendOp::Send, frame, SendFlags::SIGNALLED);
        self.check(result);
    }

    fn post_buffer(&mut self, mut buffer: verbs_backend::Buffer, len: usize, credit: bool) {
        self.take_riders(&mut buffer[..len], credit);
        self.posted += 1;
        let tag = if credit { PLAIN } else { CREDIT };
        let result = self
            .qp
            .post_owned(tag, SendOp::Send, buffer, 0..len, SendFlags::empty())
            .map_err(|rejected| rejected.error);
        self.check(result);
    }

    fn check(&mut self, result: Result<(), PostError>) {
        if let Err(error) = result {
            tracing::error!(peer = self.id.nid, %error, "connection failed");
            self.failed = true;
        }
    }

    /// Posts a transfer, or queues it behind what waits.
    pub(super) fn transfer(&mut self, transfer: Transfer, id: u64) {
        if self.queue.is_empty() && self.has_room() {
            self.post_transfer(&transfer, id);
        } else {
            self.queue.push_back(Queued::Transfer { transfer, id });
        }
    }

    fn post_transfer(&mut self, transfer: &Transfer, id: u64) {
        self.posted += 1;
        let result = transfer.post(&self.qp, id);
        self.check(result);
    }

    /// Writes up to [`Peer::max_inline`] bytes to the peer's memory; they are copied by the call.
    pub(super) fn write_inline(&mut self, data: &[u8], remote: Remote, id: u64) {
        if self.queue.is_empty() && self.has_room() {
            self.post_write_inline(data, remote, id);
        } else {
            self.queue.push_back(Queued::Inline {
                data: data.to_vec(),
                remote,
                id,
            });
        }
    }

    fn post_write_inline(&mut self, data: &[u8], remote: Remote, id: u64) {
        self.posted += 1;
        let result = self
            .qp
            .post_inline(id, SendOp::Write(remote), data, SendFlags::SIGNALLED);
        self.check(result);
    }

    /// Posts what waits, as far as there is room, and returns credits that nothing else carries.
    pub(super) fn pump(&mut self, pool: &BufferPool) {
        while !self.failed && self.has_room() {
            match self.queue.front() {
                None => break,
                Some(Queued::Frame { credit: true, .. }) if self.credits == 0 => break,
                Some(_) => {}
            }
            match self.queue.pop_front() {
                Some(Queued::Frame { mut bytes, credit }) => {
                    if bytes.len() <= self.max_inline {
                        self.post_small(&mut bytes, credit);
                    } else if let Some(mut buffer) = pool.take() {
                        let len = bytes.len().min(buffer.len());
                        buffer[..len].copy_from_slice(&bytes[..len]);
                        self.post_buffer(buffer, len, credit);
                    } else {
                        self.queue.push_front(Queued::Frame { bytes, credit });
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
        if self.owed >= RETURN_AT && !self.credit_under_way && !self.failed && self.has_room() {
            self.credit_under_way = true;
            let mut scratch = [0; frame::PREFIX];
            let len = Writer::new(&mut scratch, Kind::Credit, 0, false).len();
            if len <= self.max_inline {
                self.post_small(&mut scratch[..len], false);
            } else if let Some(mut buffer) = pool.take() {
                buffer[..len].copy_from_slice(&scratch[..len]);
                self.post_buffer(buffer, len, false);
            } else {
                self.credit_under_way = false;
            }
        }
    }
}
