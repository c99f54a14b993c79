//! The calls that wait to be executed, earliest first.
//!
//! When a call can be executed depends on its kernel, whose work postpones the calls of all its ranks. The heap has a time
//! for each call that was right once, and is looked at again when it comes to the top: no call is moved when a kernel works.
//!
//! # Invariants
//!
//! * A rank with a call stands in the heap or among the parked, once. One without may still stand there, until it is met.
//! * The time in the heap is not later than the true one: clocks, and the times at which kernels are free, never go back.
//! * Parked are only calls of nodes whose kernel is in the interrupt handler.

use super::{RankState, Sim};
use nic_model::SimTime;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// So many ranks are all looked at in debug builds, to compare.
const FEW: usize = 128;

/// When a call can be executed, since when it waits, and whose it is.
type Key = (SimTime, SimTime, usize);

/// The ranks that are in a call, and some that were.
#[derive(Debug, Default)]
pub(super) struct WaitingCalls {
    heap: BinaryHeap<Reverse<Key>>,
    /// By rank: whether it stands in the heap or among the parked.
    stands: Vec<bool>,
    /// By node: ranks whose calls wait for the end of the handler.
    parked: Vec<Vec<usize>>,
    /// Calls that were looked at.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl WaitingCalls {
    pub(super) fn new(ranks: usize, nodes: usize) -> Self {
        Self {
            heap: BinaryHeap::new(),
            stands: vec![false; ranks],
            parked: vec![Vec::new(); nodes],
            #[cfg(test)]
            looks: 0,
        }
    }

    /// A rank has made a call, at `clock`.
    pub(super) fn add(&mut self, rank: usize, clock: SimTime) {
        if !std::mem::replace(&mut self.stands[rank], true) {
            self.heap.push(Reverse((clock, clock, rank)));
        }
    }

    /// The kernel of a node is out of the handler, at `at`.
    pub(super) fn unpark(&mut self, node: usize, at: SimTime) {
        for rank in self.parked[node].drain(..) {
            self.heap.push(Reverse((at, SimTime::ZERO, rank)));
        }
    }
}

impl Sim {
    /// The earliest call that can be executed: of a rank whose kernel is not in the handler. Of those that can be at the
    /// same time the one that has waited longest: a rank that calls again and again keeps nobody of its node out.
    pub(super) fn next_call(&mut self) -> Option<(SimTime, usize)> {
        let mut calls = std::mem::take(&mut self.waiting_calls);
        let found = self.look_at(&mut calls);
        self.waiting_calls = calls;
        debug_assert!(self.ranks.len() > FEW || found == self.next_of_all());
        debug_assert!(self.ranks.len() > FEW || self.counts_hold());
        found
    }

    fn look_at(&self, calls: &mut WaitingCalls) -> Option<(SimTime, usize)> {
        while let Some(mut top) = calls.heap.peek_mut() {
            #[cfg(test)]
            {
                calls.looks += 1;
            }
            let Reverse((at, clock, rank)) = *top;
            let node = self.ranks[rank].node;
            if !matches!(self.ranks[rank].state, RankState::Calling(_)) {
                PeekMut::pop(top);
                calls.stands[rank] = false;
            } else if self.nodes.all[node].handling {
                PeekMut::pop(top);
                calls.parked[node].push(rank);
            } else {
                let key = self.key(rank);
                debug_assert!(
                    key >= (at, clock, rank),
                    "a call of rank {rank} is earlier now"
                );
                if key == (at, clock, rank) {
                    return Some((at, rank));
                }
                *top = Reverse(key);
            }
        }
        None
    }

    fn key(&self, rank: usize) -> Key {
        let r = &self.ranks[rank];
        let free = r.clock.max(self.nodes.all[r.node].free_at);
        (self.runs(r.node, free), r.clock, rank)
    }

    /// Whether the counts of ranks are those of their states.
    fn counts_hold(&self) -> bool {
        let count = |is: fn(&RankState) -> bool| self.ranks.iter().filter(|r| is(&r.state)).count();
        self.live == count(|s| !matches!(s, RankState::Gone { .. }))
            && self.rejoining == count(|s| matches!(s, RankState::Rejoining))
    }

    /// What the heap is to find, by a look at every rank.
    fn next_of_all(&self) -> Option<(SimTime, usize)> {
        let calls = self.ranks.iter().enumerate().filter(|(_, r)| {
            matches!(r.state, RankState::Calling(_)) && !self.nodes.all[r.node].handling
        });
        let first = calls.map(|(rank, _)| self.key(rank)).min();
        first.map(|(at, _, rank)| (at, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_stands_once_until_it_is_met() {
        let mut calls = WaitingCalls::new(2, 1);
        calls.add(1, SimTime(5));
        calls.add(1, SimTime(7));
        calls.add(0, SimTime(6));
        assert_eq!(calls.heap.len(), 2);
        // The time that was right first is no later than the true one.
        assert_eq!(calls.heap.pop(), Some(Reverse((SimTime(5), SimTime(5), 1))));
    }
}
