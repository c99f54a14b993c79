//! One peer: its connection, credits, order, and room in the send queue.
//!
//! | file | decides |
//! |---|---|
//! | `peer/session.rs` | what was said to connect |
//! | `peer/queue.rs` | what waits, what is posted at once |
//! | `peer/post.rs` | posting, and what becomes of what was refused |
//! | `peer/flight.rs` | what is posted and not completed |
//! | `peer/batch.rs` | small writes that are posted together |
//! | `peer/relaxed.rs` | a write of relaxed order, posted together with the message after it |
//! | `peer/renewal.rs` | what a broken connection left undone, and what is sent again |
//! | `peer/withdrawal.rs` | when the peer is told that nothing of a list it replaces is under way |
//! | `peer/requests.rs`, `peer/requests/acks.rs` | which requests are done, which are still to be answered, and acks that came before the end of their put |
//! | `peer/rma_write_send.rs` | puts whose data is written, and their message |
//! | `peer/eager_ring.rs` | short frames that are written where the peer looks |
//! | `peer/credits.rs` | how many frames may leave, and what is given back |
//! | `peer/confirm.rs` | ends of requests by the word of a witness |
//! | `peer/received.rs`, `peer/received/late.rs` | what has come, and answers that wait for the data of earlier messages |
//! | `peer/by_hand.rs` | frames that tests make |
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
//!   back only once the slot is posted again; [`frame::Kind::Credit`] frames take one of the slots reserved
//!   for them, at most one is under way. So a peer always has a receive for what it is sent.
//! * At most `depth` requests are posted and not completed.
//! * A write is silent only when one that makes a completion was posted with it, in one call and after it: that
//!   completion is both's. Of short frames, which nobody waits for, one in [`flight::QUIET`] makes a completion. Whoever
//!   waits for the end of all that flies posts a mark ([`Peer::mark`]): the close, the end of a broken connection, and
//!   the look for forgotten requests. A failure names the request that failed.
//! * A write in `relaxed` is posted by the call that posts the next frame, or alone before anything else is posted or
//!   waits in `queue`, in the next poll at the latest. While there is one, `batch` and `queue` are empty, and it has its
//!   room in the send queue.
//! * A poll that finds frames in rings alone leaves what is kept of other peers to a later one (`proto/eager_ring.rs`, `ROWS`).
//! * What is in `batch` comes before what is in `queue`, and after what flies; nothing else is posted before it.
//! * `flying` is what is posted and not completed, in order; frames in it can be had back. `frames_sent` counts
//!   the frames ever posted except those that went back from `lost` to `queue`; so do the peer's `frames_received`,
//!   and each frame has its effect once however often the connection breaks.

mod batch;
#[cfg(test)]
mod by_hand;
mod confirm;
mod credits;
mod eager_ring;
mod flight;
mod post;
mod queue;
mod received;
mod relaxed;
mod renewal;
mod requests;
mod rma_write_send;
mod session;
mod withdrawal;

use super::adverts::Adverts;
use super::frame;
use super::handshake::Stage;
use super::proto::get_by_am::measured::Measured;
use super::proto::header_cache::SentHeader;
use super::watch::Watch;
use batch::Small;
use confirm::Confirm;
use credits::Credits;
use eager_ring::Ring;
use flight::Flying;
use relaxed::RelaxedWrite;

use portals_core::{ProcessId, Transmit};
use queue::Queued;
use received::Received;
use renewal::Lost;
use requests::Requests;
use std::collections::VecDeque;
use verbs_backend::cm::Link;
use verbs_backend::{Qp, SendBatch};

pub(super) use confirm::Confirmed;
pub(super) use queue::Fill;
pub(super) use received::Late;
pub(super) use session::Session;

/// Most bytes that a post copies, so that a frame is kept in this much.
pub(super) const COPY: usize = 256;

/// Ids of requests without a record of their own; those with one use its index.
pub(super) const PLAIN: u64 = 1 << 60;
/// Id, or tag, of credit frames.
pub(super) const CREDIT: u64 = 2 << 60;

/// A peer and the connection to it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ProcessId,
    pub(super) session: Session,
    pub(super) qp: Option<Qp>,
    /// The connection manager's part of the connection.
    pub(super) link: Option<Link>,
    /// The connection is broken, which nobody has looked at yet.
    pub(super) broken: bool,
    /// Operations that wait for the connection.
    pub(super) held: VecDeque<Transmit>,
    /// What this side asks of the peer.
    pub(super) requests: Requests,
    pub(super) received: Received,
    /// Which protocol was quicker for short gets.
    pub(super) gets: Measured,
    queue: VecDeque<Queued>,
    flying: VecDeque<Flying>,
    /// Requests posted ever, modulo 2^32.
    flown: u32,
    /// Silent frames that fly after the last request that makes a completion.
    quiet: usize,
    watch: Option<Watch>,
    /// Where requests end by the word of a witness.
    confirm: Option<Box<Confirm>>,
    /// Withdrawals to be confirmed, each when so many requests are done.
    withdrawn: Vec<(u32, u32)>,
    /// A place for each request under way, used in turn: a frame that the post copies is written there.
    copies: Vec<[u8; COPY]>,
    /// The place of the next request.
    next_copy: usize,
    /// Small writes that wait for others; at most [`batch::TOGETHER`], posted in the next poll at the latest.
    batch: Vec<Small>,
    /// A write that waits for the message that tells of it.
    relaxed: Option<RelaxedWrite>,
    /// Memory for posting the two.
    chain: SendBatch,
    lost: VecDeque<Lost>,
    /// The peer's ring for short frames.
    ring: Option<Ring>,
    /// Data was written into the peer's memory since the last message: the peer sees it only with a completion.
    unordered: bool,
    /// The header of the last put that was sent to the peer, and of the last notified one.
    pub(super) sent_header: SentHeader,
    sent_notice: SentHeader,
    credits: Credits,
    depth: usize,
    /// Requests under way besides marks: as many, or one less where marks need their own place.
    room: usize,
    max_inline: usize,
    frames_sent: u32,
    /// Requests of the peer whose effect is complete here.
    pub(super) requests_done_here: u32,
    /// What the peer advertises, by portal.
    pub(super) adverts: Adverts,
}

impl Peer {
    pub(super) fn new(id: ProcessId, lent: u16, depth: u32) -> Self {
        Self {
            id,
            session: Session::new(),
            qp: None,
            link: None,
            confirm: None,
            withdrawn: Vec::new(),
            room: depth as usize,
            broken: false,
            held: VecDeque::new(),
            requests: Requests::default(),
            gets: Measured::default(),
            received: Received::new(),
            queue: VecDeque::new(),
            flying: VecDeque::new(),
            flown: 0,
            quiet: 0,
            watch: None,
            copies: Vec::new(),
            next_copy: 0,
            batch: Vec::new(),
            relaxed: None,
            chain: SendBatch::new(),
            lost: VecDeque::new(),
            ring: None,
            unordered: false,
            sent_header: SentHeader::empty(),
            sent_notice: SentHeader::empty(),
            credits: Credits::new(lent),
            depth: depth as usize,
            max_inline: 0,
            frames_sent: 0,
            requests_done_here: 0,
            adverts: Adverts::default(),
        }
    }

    /// Nothing that belongs to this peer would be lost by forgetting the connection.
    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty()
            && self.queue.is_empty()
            && self.batch.is_empty()
            && self.relaxed.is_none()
            && self.lost.is_empty()
    }

    pub(super) fn is_failed(&self) -> bool {
        self.session.stage == Stage::Failed
    }

    /// Frames may be posted.
    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.session.stage, Stage::Up | Stage::Opening(_)) && !self.broken
    }

    /// Operations may be sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.session.greeted && self.is_connected()
    }

    /// Operations may be sent, and none waits.
    #[inline]
    pub(super) fn takes_now(&self) -> bool {
        self.is_open() && self.held.is_empty()
    }

    /// Nothing of the queue pair is under way.
    pub(super) fn is_still(&self) -> bool {
        self.flying.len() <= self.ended_here()
    }

    /// The connection is over: gives its queue pair out, which the manager does not hold any more.
    pub(super) fn unlink(&mut self) -> Option<Qp> {
        self.link = None;
        self.session.card = None;
        self.qp.take()
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
        self.queue.is_empty() && self.requests.are_done()
    }

    /// Everything that was to be sent has been posted and has completed.
    pub(super) fn is_drained(&self) -> bool {
        self.is_failed() || (self.is_unused() && self.flying.is_empty())
    }

    /// What [`Peer::pump`] does would have an effect.
    #[inline]
    pub(super) fn wants_pump(&self) -> bool {
        !self.queue.is_empty()
            || !self.batch.is_empty()
            || self.relaxed.is_some()
            || self.credits.is_due()
            || self.broken
    }

    #[inline]
    fn has_room(&self) -> bool {
        let kept = self.batch.len() + usize::from(self.relaxed.is_some());
        self.flying.len() + kept < self.room && self.is_connected()
    }

    /// Accounts what rode on a frame of the peer.
    pub(super) fn handle_prefix(&mut self, prefix: &frame::Prefix, kind_takes_slot: bool) {
        self.credits.receive(prefix.credits.get());
        self.requests.say_done(prefix.requests_done.get());
        if kind_takes_slot {
            self.slot_filled();
        }
    }

    /// Accounts a frame that cannot be read; it filled a slot all the same.
    pub(super) fn handle_bad_frame(&mut self) {
        self.slot_filled();
    }

    /// A slot of ours was filled by a frame that counts.
    #[inline]
    fn slot_filled(&mut self) {
        let free = self.received.count_frame();
        self.credits.filled(free);
    }

    /// All receive slots are posted.
    pub(super) fn slots_posted(&mut self) {
        self.credits.posted();
    }
}
