//! Every state that a small world can reach, checked: for tests of state machines that talk to each other.
//!
//! A [`World`] holds the machines and the messages between them; a step is anything that may happen next. The
//! explorer visits each state once, checks it, and then looks at what happens when nothing new is asked for:
//!
//! * a state from which nothing more happens has nothing under way (no deadlock);
//! * no sequence of steps returns to where it was (no livelock), so whatever happens first, everything ends.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};

/// What is explored.
pub trait World: Clone + Hash {
    /// What may happen next.
    type Step: Copy + std::fmt::Debug;

    /// All of it. The same state always has the same steps.
    fn steps(&self) -> Vec<Self::Step>;

    /// Whether the world asks for something new by it, rather than going on with what was asked for.
    fn is_new(step: &Self::Step) -> bool;

    /// It happens.
    fn apply(&mut self, step: Self::Step);

    /// States that behave alike become equal.
    #[must_use]
    fn canonical(self) -> Self {
        self
    }

    /// What must hold in every state; panics if it does not.
    fn check(&self);

    /// Whether nothing is under way, where nothing more can happen.
    fn is_done(&self) -> bool;
}

/// What there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visited {
    /// Different states.
    pub states: usize,
    /// Steps from one to another.
    pub steps: usize,
}

/// Visits every state that `start` leads to.
///
/// # Panics
/// When a check fails, something can wait for ever, or there are more than `most` states.
pub fn explore<W: World>(start: W, most: usize) -> Visited {
    // States are known by two independent 64-bit hashes; the worlds that wait to be expanded are all that is kept
    // whole.
    let keys = [RandomState::new(), RandomState::new()];
    let key = |w: &W| keys.each_ref().map(|k| k.hash_one(w));
    let start = start.canonical();
    let mut seen = HashMap::from([(key(&start), 0u32)]);
    let mut open = vec![(0u32, start)];
    let mut ends: Vec<(u32, u32)> = Vec::new();
    let mut steps = 0;
    while let Some((number, world)) = open.pop() {
        world.check();
        let mut goes_on = false;
        for step in world.steps() {
            let mut next = world.clone();
            next.apply(step);
            let next = next.canonical();
            let count = seen.len();
            let to = *seen.entry(key(&next)).or_insert(count as u32);
            steps += 1;
            if !W::is_new(&step) {
                goes_on = true;
                ends.push((number, to));
            }
            if seen.len() > count {
                assert!(count < most, "too many states to visit them all");
                open.push((to, next));
            }
        }
        assert!(goes_on || world.is_done(), "deadlock");
    }
    assert!(!has_cycle(seen.len(), &ends), "livelock");
    Visited {
        states: seen.len(),
        steps,
    }
}

/// Whether some path returns to where it was.
fn has_cycle(nodes: usize, edges: &[(u32, u32)]) -> bool {
    // Nodes without a way in are taken away until none is left that has none.
    let mut into = vec![0u32; nodes];
    let mut first = vec![0u32; nodes + 1];
    for (from, to) in edges {
        into[*to as usize] += 1;
        first[*from as usize + 1] += 1;
    }
    for i in 0..nodes {
        first[i + 1] += first[i];
    }
    let mut targets = vec![0u32; edges.len()];
    let mut at = first.clone();
    for (from, to) in edges {
        targets[at[*from as usize] as usize] = *to;
        at[*from as usize] += 1;
    }
    let mut free: Vec<usize> = (0..nodes).filter(|n| into[*n] == 0).collect();
    let mut taken = 0;
    while let Some(node) = free.pop() {
        taken += 1;
        for to in &targets[first[node] as usize..first[node + 1] as usize] {
            let to = *to as usize;
            into[to] -= 1;
            if into[to] == 0 {
                free.push(to);
            }
        }
    }
    taken < nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two players want two locks; `same` tells whether in the same order.
    #[derive(Clone, Hash)]
    struct Locks {
        same: bool,
        /// Who has which.
        owner: [Option<usize>; 2],
        /// Locks taken; `None` at rest.
        taken: [Option<usize>; 2],
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Want(usize),
        Take(usize),
        Give(usize),
    }

    impl Locks {
        fn next(&self, who: usize) -> usize {
            let n = self.taken[who].unwrap_or(0);
            if who == 1 && !self.same { 1 - n } else { n }
        }
    }

    impl World for Locks {
        type Step = Step;

        fn steps(&self) -> Vec<Step> {
            let mut steps = vec![];
            for who in 0..2 {
                match self.taken[who] {
                    None => steps.push(Step::Want(who)),
                    Some(2) => steps.push(Step::Give(who)),
                    Some(_) if self.owner[self.next(who)].is_none() => steps.push(Step::Take(who)),
                    Some(_) => {}
                }
            }
            steps
        }

        fn is_new(step: &Step) -> bool {
            matches!(step, Step::Want(_))
        }

        fn apply(&mut self, step: Step) {
            match step {
                Step::Want(who) => self.taken[who] = Some(0),
                Step::Take(who) => {
                    self.owner[self.next(who)] = Some(who);
                    self.taken[who] = self.taken[who].map(|n| n + 1);
                }
                Step::Give(who) => {
                    self.owner = self.owner.map(|o| o.filter(|o| *o != who));
                    self.taken[who] = None;
                }
            }
        }

        fn check(&self) {}

        fn is_done(&self) -> bool {
            self.taken == [None, None]
        }
    }

    fn locks(same: bool) -> Locks {
        Locks {
            same,
            owner: [None; 2],
            taken: [None; 2],
        }
    }

    #[test]
    fn locks_in_one_order_are_taken_by_all() {
        // Each at rest, without a lock, with one, with two; not both with locks.
        assert_eq!(explore(locks(true), 100).states, 12);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn locks_in_two_orders_are_not() {
        explore(locks(false), 100);
    }

    #[test]
    fn cycles_are_found() {
        assert!(has_cycle(3, &[(0, 1), (1, 2), (2, 1)]));
        assert!(has_cycle(1, &[(0, 0)]));
        assert!(!has_cycle(4, &[(0, 1), (0, 2), (1, 3), (2, 3)]));
    }
}
