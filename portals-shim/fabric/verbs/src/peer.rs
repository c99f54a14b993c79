//! One peer: its connection, and what goes over it in either direction.
//!
//! | part | file | owns |
//! |---|---|---|
//! | `session` | `peer/session.rs` | what was said to connect, and how far that is |
//! | `held` | | operations that wait for the connection |
//! | `sq` | `peer/send_queue.rs`, `peer/send_queue/` | the queue pair, what waits for it, flies on it, or was lost with it |
//! | `requests` | `peer/requests.rs`, `peer/requests/` | which requests are done or to be answered, acks that came early |
//! | `received` | `peer/received.rs`, `peer/received/` | what has come, answers that wait for the data of earlier messages |
//! | `gets` | `proto/get_by_am/measured.rs` | which protocol was quicker for short gets |
//! | `adverts` | `adverts.rs` | which memory of the peer may be reached |
//!
//! ```text
//!   held ──(connected and greeted)──► path chosen ──► send queue ──► done
//! ```
//!
//! # Invariants
//!
//! * A part sees itself alone, so that the send queue can be locked by peer: what concerns several parts is a method here, which
//!   tells each its share.
//! * The send queue is ready exactly in the stages in which frames may be posted, since [`Peer::enter`] alone sets the stage.
//! * A frame that takes a slot here is counted once by `received`, and its slot once by the credits of the send queue.

mod received;
mod requests;
mod send_queue;
mod session;

use super::adverts::Adverts;
use super::frame;
use super::handshake::Stage;
use super::proto::get_by_am::measured::Measured;
use portals_core::{ProcessId, Transmit};
use received::Received;
use requests::Requests;
use send_queue::{Ended, SendQueue};
use session::Session;
use std::collections::VecDeque;
use verbs_backend::Qp;

pub(super) use received::Late;
pub(super) use send_queue::{COPY, Confirmed, Fill, Lost, PLAIN, Recovery};

/// A peer and the connection to it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ProcessId,
    pub(super) session: Session,
    /// Operations that wait for the connection.
    pub(super) held: VecDeque<Transmit>,
    /// The send queue.
    pub(super) sq: SendQueue,
    pub(super) requests: Requests,
    pub(super) received: Received,
    pub(super) gets: Measured,
    pub(super) adverts: Adverts,
}

impl Peer {
    pub(super) fn new(id: ProcessId, lent: u16, depth: u32) -> Self {
        Self {
            id,
            session: Session::new(),
            held: VecDeque::new(),
            sq: SendQueue::new(id.nid, lent, depth),
            requests: Requests::default(),
            received: Received::new(),
            gets: Measured::default(),
            adverts: Adverts::default(),
        }
    }

    /// Nothing that belongs to this peer would be lost by forgetting the connection.
    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.sq.is_unused()
    }

    pub(super) fn is_failed(&self) -> bool {
        self.session.stage() == Stage::Failed
    }

    /// Operations may be sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.session.greeted && self.sq.is_connected()
    }

    /// Operations may be sent, and none waits.
    #[inline]
    pub(super) fn takes_now(&self) -> bool {
        self.is_open() && self.held.is_empty()
    }

    /// Connecting has come so far.
    pub(super) fn enter(&mut self, stage: Stage) {
        self.session.enter(stage);
        self.sq
            .set_ready(matches!(stage, Stage::Up | Stage::Opening(_)));
    }

    /// The connection is over: gives its queue pair out, which the manager does not hold any more.
    pub(super) fn unlink(&mut self) -> Option<Qp> {
        self.session.link = None;
        self.session.card = None;
        self.sq.detach()
    }

    /// The connection is over: gives its queue pair out where frames are kept until they are confirmed.
    pub(super) fn unlink_confirmed(&mut self) -> Option<Qp> {
        self.sq.confirms().then(|| self.unlink())?
    }

    /// Nothing waits, and every request has had its effect at the peer: a one-sided operation
    /// posted now comes after all of them.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.sq.is_queue_empty() && self.requests.are_done()
    }

    /// Whether a put may be written now, and its owner notified.
    #[inline]
    pub(super) fn may_notify(&self) -> bool {
        self.requests.framed_are_done() && self.sq.has_room_to_notify() && self.is_open()
    }

    /// Everything that was to be sent has been posted and has completed.
    pub(super) fn is_drained(&self) -> bool {
        self.is_failed() || (self.held.is_empty() && self.sq.is_drained())
    }

    /// The next answer that waits for data no more.
    pub(super) fn next_late(&mut self) -> Option<Late> {
        let late = self.received.late().next()?;
        self.sq.keep_promise(1);
        Some(late)
    }

    /// Accounts what rode on a frame of the peer.
    pub(super) fn handle_prefix(&mut self, prefix: &frame::Prefix, kind_takes_slot: bool) {
        self.sq.take_credits(prefix.credits.get());
        self.requests.say_done(prefix.requests_done.get());
        if kind_takes_slot {
            self.slot_filled();
        }
    }

    /// Accounts a frame that cannot be read; it filled a slot all the same.
    pub(super) fn handle_bad_frame(&mut self) {
        self.slot_filled();
    }

    /// A slot of ours was filled by a frame that counts: of the ring, where it is free again, or one that must be posted.
    #[inline]
    fn slot_filled(&mut self) {
        let free = self.received.count_frame();
        self.sq.slot_filled(free);
    }

    /// The connection is ready for use by a new queue pair, through which the peer takes `granted` frames. The
    /// `received` frames that the peer has had are not sent again; says how one-sided requests of the old
    /// connection ended. What was left undone, and has arrived or not, is for its protocol to `recover`.
    pub(super) fn renew(
        &mut self,
        granted: u16,
        received: u32,
        recover: impl Fn(&Lost, bool) -> Recovery,
    ) -> Vec<Ended> {
        self.session.greeted = false;
        self.session.met = true;
        self.adverts.clear();
        self.received.renew();
        self.requests.renew();
        self.sq.renew(granted, received, recover)
    }

    /// Forgets everything that waits; the owner ends the operations.
    pub(super) fn give_up(&mut self) {
        self.enter(Stage::Failed);
        self.session.timer = None;
        self.session.asked = None;
        self.adverts.clear();
        self.sq.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_may_be_posted_in_two_stages_of_a_connection_that_is_whole() {
        let mut peer = Peer::new(ProcessId::new(1, 1), 4, 16);
        assert!(!peer.sq.is_connected());
        for (stage, posts) in [
            (Stage::Asking(1), false),
            (Stage::Joining(1), false),
            (Stage::Opening(1), true),
            (Stage::Up, true),
            (Stage::Draining, false),
            (Stage::Idle, false),
            (Stage::Answered, false),
            (Stage::Up, true),
            (Stage::Failed, false),
        ] {
            peer.enter(stage);
            assert_eq!(peer.session.stage(), stage);
            assert_eq!(peer.sq.is_connected(), posts, "{stage:?}");
            peer.sq.set_broken(true);
            assert!(!peer.sq.is_connected(), "{stage:?}");
            peer.sq.set_broken(false);
        }
    }
}
