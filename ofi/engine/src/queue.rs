//! What waits until a peer may be sent it.

use crate::core::MOST_PENDING;
use crate::peers::Outgoing;
use std::collections::VecDeque;

/// What waits for one peer's credits: operations, in their order, and answers to the peer's atomic operations and long messages.
///
/// **Answers are bounded by what a requester has under way.** The credit of a request is given back when the operation has been
/// made, and not when its answer has left: two peers with atomics on each other would wait for each other. An honest
/// requester has at most [`MOST_PENDING`] operations without an end. It forgets those of a target that it takes for lost, and may
/// then ask for as many again: [`Queue::MOST_ANSWERS`] is twice that. Peers that share memory lose no message of a connection, so they
/// never ask again; they may ask to have this side's long messages exposed instead, of which there are as many at most. A peer with
/// more has left the protocol.
///
/// **Answers do not wait for operations.** Operations of both sides may wait for each other's answers. So the two leave in turn,
/// and answers alone while operations are held back.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    operations: VecDeque<Outgoing>,
    answers: VecDeque<Outgoing>,
    /// The last that left was an answer.
    answered: bool,
}

impl Queue {
    /// Answers that may wait for one peer.
    pub(crate) const MOST_ANSWERS: usize = 2 * MOST_PENDING;

    /// Whether nothing that waits comes before this.
    #[inline]
    pub(crate) fn lets_pass(&self, what: &Outgoing) -> bool {
        self.answers.is_empty() && (self.operations.is_empty() || what.is_answer())
    }

    /// Operations, and answers.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.operations.len(), self.answers.len())
    }

    pub(crate) fn push(&mut self, what: Outgoing) {
        match what.is_answer() {
            true => self.answers.push_back(what),
            false => self.operations.push_back(what),
        }
    }

    /// Whether something waits that its program holds for sent, or that the peer has asked for.
    pub(crate) fn holds_copies(&self) -> bool {
        !self.answers.is_empty() || self.operations.iter().any(Outgoing::is_copy)
    }

    /// Whether the peer has asked for more answers than an honest one can.
    pub(crate) fn overflows(&self) -> bool {
        self.answers.len() > Self::MOST_ANSWERS
    }

    fn is_answers_turn(&self, held: bool) -> bool {
        let alone = held || self.operations.is_empty();
        !self.answers.is_empty() && (alone || !self.answered)
    }

    /// What leaves next; nothing but an answer while operations are `held` back.
    pub(crate) fn next(&self, held: bool) -> Option<&Outgoing> {
        match self.is_answers_turn(held) {
            true => self.answers.front(),
            false => self.operations.front().filter(|_| !held),
        }
    }

    /// Takes what [`Queue::next`] gives.
    pub(crate) fn pop(&mut self, held: bool) -> Option<Outgoing> {
        let answer = self.is_answers_turn(held);
        self.answered = answer;
        match answer {
            true => self.answers.pop_front(),
            false if held => None,
            false => self.operations.pop_front(),
        }
    }

    /// The operations that waited. The answers are dropped.
    pub(crate) fn into_operations(self) -> VecDeque<Outgoing> {
        self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::Op;

    fn written(data: u64) -> Outgoing {
        Outgoing::Written {
            data,
            op: Op::default(),
            len: 0,
        }
    }

    fn queue(operations: u64, answers: u64) -> Queue {
        let mut queue = Queue::default();
        for n in 0..operations {
            queue.push(written(n));
        }
        for n in 0..answers {
            queue.push(Outgoing::AtomicDone(n, None));
        }
        queue
    }

    fn left(queue: &mut Queue, held: bool) -> Vec<(bool, u64)> {
        let mut all = Vec::new();
        while let Some(next) = queue.next(held).map(Outgoing::is_answer) {
            all.push(match queue.pop(held) {
                Some(Outgoing::Written { data, .. }) => (false, data),
                Some(Outgoing::AtomicDone(n, _)) => (true, n),
                other => panic!("{other:?}"),
            });
            assert_eq!(all.last().map(|(answer, _)| *answer), Some(next));
        }
        all
    }

    #[test]
    fn answers_and_operations_leave_in_turn() {
        let mut both = queue(2, 3);
        let due = [(true, 0), (false, 0), (true, 1), (false, 1), (true, 2)];
        assert_eq!(left(&mut both, false), due);
        assert_eq!(both.len(), (0, 0));
    }

    #[test]
    fn answers_leave_while_operations_are_held_back() {
        let mut both = queue(2, 2);
        assert_eq!(left(&mut both, true), [(true, 0), (true, 1)]);
        assert_eq!(both.len(), (2, 0));
        assert!(both.lets_pass(&Outgoing::AtomicDone(2, None)));
        assert!(!both.lets_pass(&written(2)));
        assert_eq!(left(&mut both, false), [(false, 0), (false, 1)]);
    }
}
