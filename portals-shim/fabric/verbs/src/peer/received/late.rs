//! Answers that wait for the data of earlier messages: a get sees the put before it.
//!
//! Messages are matched as they come (rule 24), but the data of a long put comes later, by a read of ours. The
//! initiator's own read of an answer is a request of the other direction, and nothing orders the two: a packet that is
//! lost or late would let it see the memory as it was. So what a get or an exchange reads is read when the puts that
//! came before it from the same peer are in place.

use fabric_api::expected::is_done;
use portals_core::{NiFail, ReplyOut, Swap};
use std::collections::VecDeque;

/// A request that has matched, and whose memory is looked at later.
#[derive(Debug)]
pub(crate) enum Late {
    Reply(ReplyOut),
    /// With the data that came, and how the exchange ends: it is not made unless all data has come.
    Swap(Swap, Vec<u8>, NiFail),
}

/// Puts of a peer whose data is being read, and what waits for them.
///
/// Reads of a connection end in the order in which they began, also when it is made anew, so counting them is enough.
#[derive(Debug, Default)]
pub(crate) struct LateAnswers {
    /// Puts begun and ended, modulo 2^32.
    begun: u32,
    ended: u32,
    /// With the puts that must have ended before.
    waiting: VecDeque<(u32, Late)>,
}

impl LateAnswers {
    /// The data of a put is being read.
    pub(crate) fn begin(&mut self) {
        self.begun = self.begun.wrapping_add(1);
    }

    /// The data of the oldest such put is in place, or will not come.
    pub(crate) fn end(&mut self) {
        if self.ended != self.begun {
            self.ended = self.ended.wrapping_add(1);
        }
    }

    /// Whether an answer to what comes now must wait.
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.ended != self.begun
    }

    pub(crate) fn wait(&mut self, late: Late) {
        self.waiting.push_back((self.begun, late));
    }

    /// The next one that need not wait any more.
    pub(crate) fn next(&mut self) -> Option<Late> {
        let (after, _) = self.waiting.front()?;
        is_done(*after, self.ended)
            .then(|| self.waiting.pop_front())
            .flatten()
            .map(|w| w.1)
    }

    /// All that wait; the owner ends them.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = Late> + use<> {
        self.ended = self.begun;
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|(_, late)| late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_testing::message;
    use portals_core::{Body, MdHandle, OpId, Segments};

    fn reply(number: u32) -> Late {
        let body = Body::Reply {
            md: MdHandle::from_raw(0),
            mlength: 0,
            rlength: 0,
            local_offset: 0,
        };
        Late::Reply(ReplyOut {
            op: OpId(number),
            header: message(body),
            md: MdHandle::from_raw(0),
            segments: Segments::new(),
            searched: 0,
        })
    }

    fn number(late: Option<Late>) -> Option<u32> {
        match late? {
            Late::Reply(reply) => Some(reply.op.0),
            Late::Swap(..) => None,
        }
    }

    #[test]
    fn an_answer_waits_for_the_puts_before_it_and_for_no_later_one() {
        let mut late = LateAnswers::default();
        assert!(!late.must_wait());
        late.begin();
        late.begin();
        assert!(late.must_wait());
        late.wait(reply(1));
        late.begin();
        late.wait(reply(2));
        late.end();
        assert_eq!(number(late.next()), None);
        late.end();
        assert_eq!(number(late.next()), Some(1));
        assert_eq!(number(late.next()), None);
        late.end();
        assert_eq!(number(late.next()), Some(2));
        assert_eq!(number(late.next()), None);
        assert!(!late.must_wait());
    }
}
