//! Sends that wait for their turn, by lane (a peer, and whose messages). No I/O.
//!
//! # Invariants
//! * The sends of a lane leave in the order in which they came.
//! * A lane is listed once, and only if a send of it waits.

use std::collections::VecDeque;

/// The sends. A queue keeps its memory, so that what waits again needs none.
#[derive(Debug)]
pub(super) struct Waiting {
    queues: Vec<VecDeque<u32>>,
    listed: Vec<u32>,
}

impl Waiting {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            queues: vec![VecDeque::new(); lanes],
            listed: Vec::new(),
        }
    }

    /// Whether none waits.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whether a send of the lane waits.
    #[inline]
    pub(super) fn has(&self, lane: u32) -> bool {
        !self.is_empty() && self.first(lane).is_some()
    }

    /// Behind all others of the lane; `false` when there is no such lane.
    pub(super) fn push(&mut self, lane: u32, slot: u32) -> bool {
        let Some(queue) = self.queues.get_mut(lane as usize) else {
            return false;
        };
        if queue.is_empty() {
            self.listed.push(lane);
        }
        queue.push_back(slot);
        true
    }

    /// The send of the lane whose turn it is.
    pub(super) fn first(&self, lane: u32) -> Option<u32> {
        self.queues.get(lane as usize)?.front().copied()
    }

    /// It has had its turn.
    pub(super) fn pop(&mut self, lane: u32) {
        if let Some(queue) = self.queues.get_mut(lane as usize)
            && queue.pop_front().is_some()
            && queue.is_empty()
        {
            self.listed.retain(|l| *l != lane);
        }
    }

    /// The lane at a place of the list, from 0.
    pub(super) fn lane(&self, at: usize) -> Option<u32> {
        self.listed.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_keeps_its_order_and_is_listed_while_something_waits() {
        let mut waiting = Waiting::new(3);
        for (lane, slot) in [(2, 7), (0, 5), (2, 6), (0, 9), (2, 1)] {
            assert!(waiting.push(lane, slot));
        }
        assert!(!waiting.push(3, 4) && !waiting.has(3) && !waiting.has(1));
        assert_eq!(
            [0, 1, 2].map(|at| waiting.lane(at)),
            [Some(2), Some(0), None]
        );
        for slot in [7, 6, 1] {
            assert_eq!(waiting.first(2), Some(slot));
            waiting.pop(2);
        }
        assert_eq!((waiting.first(2), waiting.lane(0)), (None, Some(0)));
        waiting.pop(2);
        waiting.pop(0);
        waiting.pop(0);
        assert_eq!(waiting.lane(0), None);
    }
}
