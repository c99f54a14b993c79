//! What has been posted: marks behind it, and what its end does.

use super::SendQueue;
use super::window::Flying;
use std::time::Instant;
use verbs_backend::{Remote, SendFlags, SendOp};

/// What a mark writes: nothing, which takes no memory of the peer's.
const NOWHERE: Remote = Remote {
    address: 0,
    rkey: 0,
};

impl SendQueue {
    /// A request was posted.
    #[inline(always)]
    pub(super) fn fly(&mut self, flying: Flying) {
        if matches!(flying, Flying::Write { .. } | Flying::RelaxedWrite { .. }) {
            self.ring.data_was_written();
        }
        self.window.push(flying);
    }

    /// Posts something that makes a completion after what makes none, if that flies last.
    pub(crate) fn mark(&mut self) {
        if self.confirm.is_some() {
            return self.ask_witness();
        }
        if self.window.quiet() > 0 {
            self.post_mark();
        }
    }

    /// Finds out whether the peer is there, if nothing is under way that would.
    #[cold]
    pub(crate) fn probe(&mut self) {
        self.mark();
        if self.window.is_empty() && self.confirm.is_none() {
            self.post_mark();
        }
    }

    /// Posts something that does nothing but end.
    pub(super) fn post_mark(&mut self) {
        let Some(qp) = self.qp.as_ref().filter(|_| !self.window.is_full()) else {
            return;
        };
        match qp.post_inline(
            self.window.plain(0),
            SendOp::Write(NOWHERE),
            &[],
            SendFlags::SIGNALLED,
        ) {
            Ok(()) => self.fly(Flying::Mark),
            Err(error) if self.is_connected() => self.refused(&error),
            Err(error) => tracing::debug!(peer = self.nid, %error, "no mark"),
        }
    }

    /// Whether the oldest request has been under way for longer than an adapter takes that has not forgotten it; to be
    /// asked when all completions are taken.
    pub(crate) fn has_forgotten(&mut self, now: Instant) -> bool {
        // What would make no completion however long one waits.
        self.mark();
        self.window.has_forgotten(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PLAIN;
    use super::*;
    use verbs_backend::Status;

    fn send_queue(depth: u32) -> SendQueue {
        SendQueue::new(1, 4, depth)
    }

    /// Posts a short frame as one is; whether it is silent.
    fn post(sq: &mut SendQueue) -> bool {
        let (flags, silent) = sq.window.unsignalled();
        assert_eq!(flags == SendFlags::empty(), silent);
        sq.fly(Flying::Small { len: 8, silent });
        silent
    }

    /// Takes the completion of a request without a record.
    fn complete(sq: &mut SendQueue, number: u64, status: Status) {
        assert_eq!(sq.done_silently(PLAIN | number), None, "no record");
        sq.handle_completion(status, None);
    }

    #[test]
    fn one_short_frame_in_seventeen_is_loud() {
        for (depth, silent) in [(128, 16), (64, 16), (16, 4), (4, 1), (3, 0)] {
            let mut sq = send_queue(depth);
            let loud: Vec<usize> = (0..51).filter(|_| !post(&mut sq)).collect();
            let every: Vec<usize> = (0..51).filter(|n| n % (silent + 1) == silent).collect();
            assert_eq!(loud, every, "depth {depth}");
        }
    }

    #[test]
    fn a_completion_ends_the_silent_frames_before_it() {
        let mut sq = send_queue(128);
        for _ in 0..20 {
            post(&mut sq);
        }
        complete(&mut sq, 16, Status::SUCCESS);
        assert_eq!((sq.window.len(), sq.window.quiet()), (3, 3));
        // Anything else with a completion does so too.
        sq.fly(Flying::Mark);
        complete(&mut sq, 20, Status::SUCCESS);
        assert!(sq.is_still() && !sq.broken);
    }

    #[test]
    fn a_silent_frame_that_fails_ends_those_before_it_alone() {
        let mut sq = send_queue(128);
        sq.window.open();
        for _ in 0..5 {
            post(&mut sq);
        }
        complete(&mut sq, 3, Status::FLUSHED);
        assert!(sq.broken);
        assert_eq!((sq.window.len(), sq.undone.len()), (1, 1));
        complete(&mut sq, 4, Status::FLUSHED);
        assert!(sq.is_still());
        assert_eq!((sq.undone.len(), sq.window.quiet()), (2, 0));
    }

    /// A frame of credits has no number: the next frame may be taken before its completion.
    #[test]
    fn after_written_data_a_numbered_message_comes_before_the_ring() {
        let mut sq = send_queue(128);
        sq.fly(Flying::Write {
            id: 1,
            len: 8,
            silent: false,
        });
        sq.posted(Flying::Credit);
        assert!(sq.ring.is_unordered());
        sq.posted(Flying::Buffered(8));
        assert!(!sq.ring.is_unordered());
    }
}
