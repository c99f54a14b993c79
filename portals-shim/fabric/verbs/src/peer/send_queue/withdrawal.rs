//! Lists of descriptors that the peer replaces, and when it is told that nothing of the old one is under way.
//!
//! ```text
//!   READ by the old list ──► answer is lost ──────────────► READ again ──► done
//!   new list             ──► waits, a mark is posted behind the READ         └─► Withdrawn
//! ```
//!
//! # Invariants
//!
//! * A withdrawal is confirmed when all reads that were posted or waited before it are done, and all writes that waited have been
//!   posted: the confirmation is an answer, and overtakes requests. The order of the connection
//!   does not see to that: a read whose answer was lost is executed again, after what came behind it, and the memory may be
//!   gone by then. Writes and frames are not.
//! * A confirmation is not made while much is owed (`credits.rs`).
//! * Nothing need follow a read for its end, but an adapter may find out that an answer was lost by what comes behind it
//!   alone (`watch.rs`): so something does.
//! * A connection that breaks takes its unconfirmed withdrawals with it: the peer waits for them no more.

use super::SendQueue;
use super::window::Flying;

/// Withdrawals of a peer at a time: of each of its portals as often as its list may be changed without one.
const MOST: usize = 1 << 14;

/// Withdrawals to be confirmed.
#[derive(Debug, Default)]
pub(super) struct Withdrawn {
    /// Each by its token, and when it can be confirmed.
    waiting: Vec<(u32, Due)>,
}

/// When a withdrawal can be confirmed; numbers are modulo 2^32.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// When so many of the requests that wait have left, and what was posted then is done.
    Left(u32),
    /// When so many requests are done.
    Done(u32),
}

/// Whether a number has come to `due`.
fn is_reached(number: u32, due: u32) -> bool {
    number.wrapping_sub(due) < 1 << 31
}

impl Withdrawn {
    /// The connection that they waited for has ended.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// One that can be confirmed when the requests before the `oldest` one under way are done.
    fn next(&mut self, oldest: u32) -> Option<u32> {
        let done = |(_, due): &(u32, Due)| match due {
            Due::Left(_) => false,
            Due::Done(due) => is_reached(oldest, *due),
        };
        let at = self.waiting.iter().position(done)?;
        Some(self.waiting.swap_remove(at).0)
    }

    /// Whether more wait than those of a peer that waits for their confirmations.
    pub(super) fn are_too_many(&self) -> bool {
        self.waiting.len() > MOST
    }

    /// Whether one waits.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// So many requests have left, and `flown` were posted; whether one waits for the end of these from here on.
    fn left(&mut self, left: u32, flown: u32) -> bool {
        let mut any = false;
        for (_, due) in &mut self.waiting {
            if let Due::Left(number) = *due
                && is_reached(left, number)
            {
                *due = Due::Done(flown);
                any = true;
            }
        }
        any
    }
}

impl SendQueue {
    /// A withdrawal was taken note of; whether it can be confirmed at once, or else later by [`SendQueue::next_confirmable`].
    pub(crate) fn confirms_at_once(&mut self, token: u32) -> bool {
        let flies = |f: &Flying| matches!(f, Flying::Read { .. });
        let waits = self.queue.moves_data();
        if !waits && !self.queue.is_much_owed() && !self.window.iter().any(flies) {
            return true;
        }
        let due = match waits {
            true => Due::Left(self.queue.all_left()),
            // What is kept back is posted before anything else.
            false => Due::Done(self.window.flown().wrapping_add(self.kept_back() as u32)),
        };
        self.withdrawn.waiting.push((token, due));
        if !waits && self.kept_back() == 0 {
            self.mark_withdrawal();
        }
        false
    }

    /// Requests that waited have been posted.
    #[cold]
    pub(super) fn requests_left(&mut self) {
        if self.withdrawn.left(self.queue.left(), self.window.flown()) {
            self.mark_withdrawal();
        }
    }

    fn mark_withdrawal(&mut self) {
        if self.confirm.is_none() {
            self.post_mark();
        }
    }

    /// A withdrawal that can be confirmed now.
    pub(crate) fn next_confirmable(&mut self) -> Option<u32> {
        if self.queue.is_much_owed() {
            return None;
        }
        self.withdrawn.next(self.window.oldest())
    }

    /// Whether a withdrawal waits for reads.
    pub(crate) fn awaits_reads(&self) -> bool {
        self.withdrawn.are_any()
    }

    /// Requests that were ever posted, modulo 2^32.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> u32 {
        self.window.flown()
    }
}

#[cfg(test)]
mod tests {
    use super::super::waiting::Queued;
    use super::*;
    use crate::memory::Transfer;
    use portals_core::Segment;
    use verbs_backend::Remote;

    fn read(id: u64) -> (Transfer, u64) {
        let transfer = Transfer {
            local: Segment { addr: 0, len: 8 },
            lkey: 0,
            remote: Remote {
                address: 0,
                rkey: 0,
            },
            read: true,
            again: false,
            announced: false,
        };
        (transfer, id)
    }

    fn send_queue() -> SendQueue {
        SendQueue::new(1, 4, 64)
    }

    fn fly(sq: &mut SendQueue, id: u64) {
        let (transfer, id) = read(id);
        sq.fly(Flying::Read { transfer, id });
    }

    #[test]
    fn without_reads_a_withdrawal_is_confirmed_at_once() {
        let mut sq = send_queue();
        sq.fly(Flying::Mark);
        assert!(sq.confirms_at_once(7));
        assert!(!sq.awaits_reads());
    }

    /// A peer that changes its lists and waits for no confirmation does not fill this process's memory.
    #[test]
    fn a_peer_that_waits_for_no_confirmation_is_at_fault() {
        let mut sq = send_queue();
        fly(&mut sq, 1);
        for token in 0..MOST as u32 {
            assert!(!sq.confirms_at_once(token));
            assert_eq!(sq.fault(), None);
        }
        assert!(!sq.confirms_at_once(MOST as u32));
        let why = sq.fault().unwrap_or_default();
        assert!(why.contains("waits for no confirmation"), "{why}");
    }

    #[test]
    fn a_withdrawal_waits_for_the_reads_before_it_and_no_others() {
        let mut sq = send_queue();
        fly(&mut sq, 1);
        assert!(!sq.confirms_at_once(7));
        fly(&mut sq, 2);
        assert!(!sq.confirms_at_once(8));
        assert_eq!(sq.next_confirmable(), None);
        assert_eq!(sq.done_up_to(1), Some(1));
        assert_eq!(
            (sq.next_confirmable(), sq.next_confirmable()),
            (Some(7), None)
        );
        assert!(sq.awaits_reads());
        fly(&mut sq, 3);
        assert_eq!(sq.done_up_to(2), Some(2));
        assert_eq!(
            (sq.next_confirmable(), sq.next_confirmable()),
            (Some(8), None)
        );
        assert!(!sq.awaits_reads());
    }

    #[test]
    fn a_withdrawal_waits_for_reads_that_wait() {
        let mut sq = send_queue();
        let (transfer, id) = read(1);
        sq.queue.push_back(Queued::Transfer { transfer, id });
        assert!(!sq.confirms_at_once(7));
        assert_eq!(sq.next_confirmable(), None);
        sq.requests_left();
        assert_eq!(sq.next_confirmable(), None);
        // An answer overtakes it, and is done before.
        sq.fly(Flying::Credit);
        assert_eq!(sq.window.pop().map(|_| ()), Some(()));
        sq.requests_left();
        assert_eq!(sq.next_confirmable(), None);
        assert!(sq.queue.pop(true).is_some());
        fly(&mut sq, 1);
        sq.requests_left();
        assert_eq!(sq.next_confirmable(), None);
        assert_eq!(sq.done_up_to(1), Some(1));
        assert_eq!(sq.next_confirmable(), Some(7));
    }
}
