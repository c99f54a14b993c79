//! The send queue of one peer: the queue pair, what waits for it, what flies on it, and what a broken connection left.
//!
//! | file | decides |
//! |---|---|
//! | `send_queue.rs` | what is asked of it: a short write, the end of a request |
//! | `queue.rs` | what is posted at once, and what is posted later |
//! | `waiting.rs` | what waits, and which of it goes next |
//! | `post.rs` | posting, and what becomes of what was refused |
//! | `window.rs` | what is posted and not completed, and where its bytes are kept |
//! | `flight.rs` | marks behind what is posted, and what its end does |
//! | `batch.rs` | small writes that are posted together |
//! | `relaxed.rs` | a write of relaxed order, posted together with the message after it |
//! | `rma_write_send.rs` | puts whose data is written, and their message |
//! | `headers.rs` | headers that the peer keeps |
//! | `eager_ring.rs` | short frames that are written where the peer looks |
//! | `credits.rs` | how many frames may leave, and what is given back |
//! | `lost.rs` | what a broken connection left undone, and which of it the peer has had |
//! | `renewal.rs` | what goes there, and what is posted again |
//! | `withdrawal.rs` | when the peer is told that nothing of a list it replaces is under way |
//! | `confirm.rs` | ends of requests by the word of a witness |
//! | `by_hand.rs` | frames that tests make |
//!
//! ```text
//!   queue ──(room, credit)──► window ──► done
//!     ▲                          │ connection broken
//!     └── not received ◄── lost ◄┘
//! ```
//!
//! # Invariants
//!
//! * All of this is of one peer, and nothing here looks at other peers, at the connecting, or at what was received: what a
//!   frame carries of those is told by [`SendQueue::slot_filled`], [`SendQueue::slots_posted`], and
//!   [`SendQueue::request_done`]. So one lock for each peer protects it.
//! * Requests leave in the order in which they were made, and answers in theirs: what cannot be posted waits in `queue`, where
//!   answers overtake requests (`waiting.rs`). Frames are numbered as they are posted, so that it does not matter to a new connection
//!   in which order those leave that the peer has not had.
//! * A frame is posted only with a credit for the slot it takes at the peer, which gives a credit
//!   back only once the slot is posted again; frames of credits alone take one of the slots reserved
//!   for them, at most one is under way. So a peer always has a receive for what it is sent.
//! * A write is silent only when one that makes a completion was posted with it, in one call and after it: that
//!   completion is both's. Of short frames, which nobody waits for, one in [`window::QUIET`] makes a completion. Whoever
//!   waits for the end of all that flies posts a mark ([`SendQueue::mark`]): the close, the end of a broken connection, and
//!   the look for forgotten requests. A failure names the request that failed.
//! * A write in `relaxed` is posted by the call that posts the next frame, or alone before anything else is posted or
//!   waits in `queue`, in the next poll at the latest. While there is one, `batch` and `queue` are empty, and it has its
//!   room in the send queue.
//! * A poll that finds frames in rings alone leaves what is kept of other peers to a later one (`proto/eager_ring.rs`, `ROWS`).
//! * What is in `batch` comes before what is in `queue`, and after what flies; nothing else is posted before it.
//! * Frames in the window can be had back: each has its effect once however often the connection breaks.

mod batch;
#[cfg(test)]
mod by_hand;
mod confirm;
mod credits;
mod eager_ring;
mod flight;
mod headers;
mod lost;
mod post;
mod queue;
mod relaxed;
mod renewal;
mod rma_write_send;
mod waiting;
mod window;
mod withdrawal;

use crate::memory;
use batch::Batch;
use confirm::Confirm;
use credits::Credits;
use eager_ring::PeerRing;
use headers::SentHeaders;
use lost::Undone;
use portals_core::{Header, Segment};
use relaxed::Relaxed;
use verbs_backend::{Buffer, Completion, Qp, Remote, Status};
use waiting::Waiting;
use window::{Flying, Window};
use withdrawal::Withdrawn;

pub(crate) use confirm::Confirmed;
pub(crate) use lost::{Lost, Recovery};
pub(crate) use queue::Fill;
pub(crate) use renewal::Ended;

/// Most bytes that a post copies, so that a frame is kept in this much.
pub(crate) const COPY: usize = 256;

/// Ids of requests without a record of their own; those with one use its index.
pub(crate) const PLAIN: u64 = 1 << 60;
/// Id, or tag, of credit frames.
const CREDIT: u64 = 2 << 60;

/// The send queue of one peer.
#[derive(Debug)]
pub(crate) struct SendQueue {
    /// The peer's node, for messages to the user.
    nid: u32,
    qp: Option<Qp>,
    /// Connecting has come so far that frames may be posted.
    ready: bool,
    /// The connection is broken, which nobody has looked at yet.
    broken: bool,
    queue: Waiting,
    window: Window,
    /// Where requests end by the word of a witness.
    confirm: Option<Box<Confirm>>,
    withdrawn: Withdrawn,
    batch: Batch,
    relaxed: Relaxed,
    undone: Undone,
    ring: PeerRing,
    headers: SentHeaders,
    credits: Credits,
    max_inline: usize,
    /// Long replies that the peer has not acknowledged.
    unread: usize,
    /// Requests of the peer whose effect is complete here, as the next frame tells it.
    requests_done: u32,
}

impl SendQueue {
    pub(super) fn new(nid: u32, lent: u16, depth: u32) -> Self {
        Self {
            nid,
            qp: None,
            ready: false,
            broken: false,
            queue: Waiting::default(),
            window: Window::new(depth),
            confirm: None,
            withdrawn: Withdrawn::default(),
            batch: Batch::default(),
            relaxed: Relaxed::new(),
            undone: Undone::default(),
            ring: PeerRing::default(),
            headers: SentHeaders::new(),
            credits: Credits::new(lent),
            max_inline: 0,
            unread: 0,
            requests_done: 0,
        }
    }

    /// The queue pair, which this owns.
    pub(crate) fn qp(&self) -> Option<&Qp> {
        self.qp.as_ref()
    }

    /// What is posted from here on goes by this queue pair.
    pub(crate) fn attach(&mut self, qp: Qp) {
        self.qp = Some(qp);
    }

    /// Gives the queue pair out.
    pub(crate) fn detach(&mut self) -> Option<Qp> {
        self.qp.take()
    }

    /// The buffer of a request that has completed, and its tag.
    pub(crate) fn take_buffer(&self, completion: &Completion) -> Option<(Buffer, u64)> {
        self.qp.as_ref()?.take(completion)
    }

    /// Frames may be posted.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        self.ready && !self.broken
    }

    /// Connecting has come so far that frames may be posted, or has not.
    pub(super) fn set_ready(&mut self, ready: bool) {
        self.ready = ready;
    }

    /// The connection is broken, which nobody has looked at yet.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The connection is broken; or that has been looked at.
    pub(crate) fn set_broken(&mut self, broken: bool) {
        self.broken = broken;
    }

    /// Nothing would be lost by forgetting the connection.
    pub(super) fn is_unused(&self) -> bool {
        self.queue.is_empty() && self.kept_back() == 0 && self.undone.is_empty()
    }

    /// Everything has been posted and has completed.
    pub(super) fn is_drained(&self) -> bool {
        self.is_unused() && self.window.is_empty()
    }

    /// Nothing of the queue pair is under way.
    pub(crate) fn is_still(&self) -> bool {
        self.window.len() <= self.ended_here()
    }

    /// Nothing waits for room or credits.
    #[inline]
    pub(super) fn is_queue_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes `data`, which has at most [`SendQueue::max_inline`] bytes, to the peer's memory; the call copies it.
    pub(crate) fn write_inline(&mut self, data: Segment, remote: Remote, id: u64) {
        self.flush_relaxed();
        if self.queue.is_empty() && self.has_room() {
            if self.window.loud() >= batch::BUSY {
                return self.collect(data, remote, id);
            }
            self.flush();
            if let Some(qp) = &self.qp {
                match memory::write_inline(qp, id, data, remote) {
                    Ok(()) => {
                        return self.fly(Flying::Write {
                            id,
                            len: data.len,
                            silent: false,
                        });
                    }
                    Err(error) => self.refused(&error),
                }
            }
        }
        self.flush();
        self.queue_inline(data, remote, id);
    }

    /// The oldest request, if it is that of the record `completed`, which has succeeded, or a silent one before it.
    #[inline]
    pub(crate) fn done_up_to(&mut self, completed: u64) -> Option<u64> {
        self.window.done_up_to(completed)
    }

    /// The oldest request, if it is a silent one that was done before the request `id`, which has completed.
    #[inline]
    pub(crate) fn done_silently(&mut self, completed: u64) -> Option<u64> {
        self.window.done_silently(completed)
    }

    /// A request has completed; they do so in the order of their posting. One that failed is kept for
    /// [`SendQueue::renew`], unless the connection is not to blame.
    #[inline]
    pub(crate) fn handle_completion(&mut self, status: Status, buffer: Option<Buffer>) {
        let Some(flying) = self.window.front() else {
            return;
        };
        if matches!(flying, Flying::Credit) {
            self.credits.returning(false);
        }
        let flying = self.window.pop();
        if status != Status::SUCCESS
            && let Some(flying) = flying
        {
            self.lose(flying, status, buffer);
        }
    }

    /// Bytes that a post may copy.
    #[inline]
    pub(crate) fn max_inline(&self) -> usize {
        self.max_inline
    }

    /// What [`SendQueue::pump`] does would have an effect.
    #[inline]
    pub(crate) fn wants_pump(&self) -> bool {
        !self.queue.is_clear() || self.kept_back() > 0 || self.credits.is_due() || self.broken
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.window.fits(self.kept_back() + 1) && self.is_connected()
    }

    /// Requests that are kept back to be posted together with another one.
    #[inline]
    fn kept_back(&self) -> usize {
        self.batch.len() + self.relaxed.len()
    }

    /// Remembers the put that was posted last, if it was a repeated one.
    #[inline(always)]
    pub(crate) fn remember(&mut self, put: &Header) {
        self.headers.remember(put);
    }

    /// Whether the next put with this header goes without it.
    #[cfg(test)]
    pub(crate) fn remembers(&self, put: &Header) -> bool {
        self.headers.of_put(put).is_some()
    }

    /// A frame of the peer gives so many credits.
    #[inline(always)]
    pub(super) fn take_credits(&mut self, credits: u16) {
        self.credits.receive(credits);
    }

    /// A slot of ours was filled by a frame; `free`: it can be used again at once.
    #[inline(always)]
    pub(super) fn slot_filled(&mut self, free: bool) {
        self.credits.filled(free);
    }

    /// All receive slots are posted.
    pub(crate) fn slots_posted(&mut self) {
        self.credits.posted();
    }

    /// Why the peer does not keep to what is agreed on, if it does not.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.credits.is_overdrawn() {
            return Some("it sends without credits and takes none of its answers");
        }
        if self.unread > self.credits.limit() {
            return Some("it acknowledges none of its long replies");
        }
        let floods = self.withdrawn.are_too_many();
        floods.then_some("it changes its descriptors and waits for no confirmation")
    }

    /// Accounts what is owed to the peer.
    fn count_answers(&mut self) {
        self.credits.answers_wait(self.queue.owed());
    }

    /// What is under way will bring the peer so many answers, at most.
    pub(crate) fn promise(&mut self, answers: usize) {
        self.queue.promise(answers);
        self.count_answers();
    }

    /// It has ended; what it brings is sent now.
    pub(crate) fn keep_promise(&mut self, answers: usize) {
        self.queue.keep(answers);
        self.count_answers();
    }

    /// The peer is told of a long reply, which it is to acknowledge.
    pub(crate) fn reply_begun(&mut self) {
        self.unread += 1;
        // Who mends connections gives the peer up.
        self.broken |= self.unread > self.credits.limit();
    }

    /// It has acknowledged one.
    pub(crate) fn reply_ended(&mut self) {
        self.unread = self.unread.saturating_sub(1);
    }

    /// Slots here that the peer may fill.
    pub(crate) fn slots(&self) -> u16 {
        self.credits.lent()
    }

    /// The effect of one more request of the peer is complete here.
    #[inline]
    pub(crate) fn request_done(&mut self) {
        self.requests_done = self.requests_done.wrapping_add(1);
    }

    /// Requests of the peer whose effect is complete here.
    pub(crate) fn requests_done(&self) -> u32 {
        self.requests_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_with_more_unread_replies_than_one_that_counts_is_at_fault() {
        let mut sq = SendQueue::new(1, 16, 64);
        let limit = 64 * 16;
        for _ in 0..3 {
            (0..limit).for_each(|_| sq.reply_begun());
            assert_eq!((sq.is_broken(), sq.fault()), (false, None));
            (0..limit).for_each(|_| sq.reply_ended());
        }
        (0..=limit).for_each(|_| sq.reply_begun());
        assert!(sq.is_broken());
        assert!(sq.fault().is_some_and(|why| why.contains("long replies")));
    }

    /// More is owed to a peer than to one that counts: what a new connection grants does not help it.
    #[test]
    fn a_peer_that_is_owed_too_much_is_at_fault_after_a_new_connection_too() {
        let mut sq = SendQueue::new(1, 16, 64);
        sq.promise(64 * 16);
        let _ = sq.renew(16, 0, crate::proto::recover);
        assert_eq!(sq.fault(), None);
        assert!(!sq.queue.is_clear());
        sq.promise(1);
        assert!(sq.fault().is_some());
        let _ = sq.renew(16, 0, crate::proto::recover);
        assert!(sq.fault().is_some());
    }
}
