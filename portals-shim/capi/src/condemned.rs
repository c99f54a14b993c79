//! Queues that were freed while descriptors named them, until the last descriptor is gone.
//!
//! A call that frees or makes a queue looks at a few of them in turn, so that its cost does not grow with their number.

use std::collections::BTreeSet;
use std::ops::Bound;

/// How many queues a call looks at: more than it can add, so that none waits for ever.
const EACH_CALL: usize = 2;

/// The queues, by handle.
#[derive(Debug, Default)]
pub(crate) struct Condemned {
    queues: BTreeSet<u32>,
    /// The one that was looked at last.
    last: u32,
}

impl Condemned {
    pub(crate) fn insert(&mut self, queue: u32) {
        self.queues.insert(queue);
    }

    pub(crate) fn contains(&self, queue: u32) -> bool {
        self.queues.contains(&queue)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Looks at the next few: those of which `retire` says that they are gone are forgotten.
    pub(crate) fn sweep(&mut self, retire: impl FnMut(u32) -> bool) {
        self.look_at(EACH_CALL, retire);
    }

    /// Looks at all.
    pub(crate) fn sweep_all(&mut self, retire: impl FnMut(u32) -> bool) {
        self.look_at(self.queues.len(), retire);
    }

    fn look_at(&mut self, most: usize, mut retire: impl FnMut(u32) -> bool) {
        for _ in 0..most.min(self.queues.len()) {
            let after = (Bound::Excluded(self.last), Bound::Unbounded);
            let next = self.queues.range(after).next();
            let Some(next) = next.or_else(|| self.queues.first()).copied() else {
                return;
            };
            self.last = next;
            if retire(next) {
                self.queues.remove(&next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_frees_cost_grows_with_their_number_and_not_with_its_square() {
        let cost = |queues: u32| {
            let (mut condemned, mut looks) = (Condemned::default(), 0u32);
            for queue in 0..queues {
                condemned.sweep(|_| {
                    looks += 1;
                    false
                });
                condemned.insert(queue);
            }
            looks
        };
        assert!(cost(4_000) <= 2 * 4_000, "{}", cost(4_000));
    }

    #[test]
    fn every_queue_has_its_turn() {
        let mut condemned = Condemned::default();
        (0..100).for_each(|queue| condemned.insert(queue));
        // One is in use all the time.
        let mut rounds = 0;
        while condemned.queues.len() > 1 {
            condemned.sweep(|queue| queue != 50);
            rounds += 1;
        }
        assert!(rounds <= 100, "{rounds}");
        assert!(condemned.contains(50) && !condemned.contains(49));
        condemned.sweep_all(|_| true);
        assert!(condemned.is_empty());
    }
}
