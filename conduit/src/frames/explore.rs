//! Every order of what ranks can do with short lanes: nobody stops, no reply waits.
//!
//! The lanes are counts, the rules those of the module: a step of a rank is one of sending a request, taking a request,
//! taking a reply. A rank that waits for room takes what comes, one that computes does nothing for as long as it likes.

use std::collections::HashSet;

/// Frames that a lane holds, of requests and of replies.
#[derive(Clone, Copy, Debug)]
struct Room {
    requests: u8,
    replies: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    ranks: usize,
    /// By from × to: requests in the lane, replies in the lane, requests still to be sent.
    requests: Vec<u8>,
    replies: Vec<u8>,
    left: Vec<u8>,
}

impl State {
    fn new(ranks: usize, each: u8) -> Self {
        let pairs = ranks * ranks;
        let left = (0..pairs)
            .map(|p| if p / ranks == p % ranks { 0 } else { each })
            .collect();
        Self {
            ranks,
            requests: vec![0; pairs],
            replies: vec![0; pairs],
            left,
        }
    }

    fn is_over(&self) -> bool {
        let all = [&self.requests, &self.replies, &self.left];
        all.into_iter().flatten().all(|n| *n == 0)
    }

    /// What can happen next, by the ranks of the set `awake`; `answers` says which requests are answered.
    fn next(&self, room: Room, awake: u32, answers: fn(usize, usize) -> bool) -> Vec<Self> {
        let mut all = Vec::new();
        let pairs = (0..self.ranks).flat_map(|a| (0..self.ranks).map(move |b| (a, b)));
        for (me, other) in pairs.filter(|(a, b)| a != b && awake & (1 << *a) != 0) {
            let (to, from) = (me * self.ranks + other, other * self.ranks + me);
            let mut step = |change: &dyn Fn(&mut Self)| {
                let mut next = self.clone();
                change(&mut next);
                all.push(next);
            };
            if self.left[to] > 0 && self.requests[to] < room.requests {
                step(&|s| {
                    s.left[to] -= 1;
                    s.requests[to] += 1;
                });
            }
            if self.requests[from] > 0 && self.replies[to] < room.replies {
                let answered = answers(other, me);
                step(&|s| {
                    s.requests[from] -= 1;
                    s.replies[to] += u8::from(answered);
                });
            }
            if self.replies[from] > 0 {
                step(&|s| s.replies[from] -= 1);
            }
        }
        all
    }

    /// Whether something that concerns the ranks of the set alone is not done.
    fn has_work_within(&self, set: u32) -> bool {
        (0..self.requests.len()).any(|p| {
            let (a, b) = (p / self.ranks, p % self.ranks);
            let within = set & (1 << a) != 0 && set & (1 << b) != 0;
            within && (self.requests[p] > 0 || self.replies[p] > 0 || self.left[p] > 0)
        })
    }
}

/// Visits every state that can be reached; in each, some rank of any set of ranks that poll can go on while there is
/// work among them. How many states there are.
fn explore(ranks: usize, each: u8, room: Room, answers: fn(usize, usize) -> bool) -> usize {
    let everybody = (1 << ranks) - 1;
    let start = State::new(ranks, each);
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        assert!(
            state.replies.iter().all(|replies| *replies <= room.replies),
            "a reply without room"
        );
        for awake in 1..=everybody {
            let stands = state.next(room, awake, answers).is_empty();
            assert!(!stands || !state.has_work_within(awake), "{state:?}");
        }
        let next = state.next(room, everybody, answers);
        assert_eq!(next.is_empty(), state.is_over());
        for state in next {
            if seen.insert(state.clone()) {
                open.push(state);
            }
        }
    }
    seen.len()
}

#[test]
fn short_lanes_never_stop() {
    let all: fn(usize, usize) -> bool = |_, _| true;
    let some: fn(usize, usize) -> bool = |from, to| from < to;
    let mut states = 0;
    for answers in [all, some] {
        for (requests, replies) in [(1, 1), (2, 1), (1, 2), (3, 2)] {
            let room = Room { requests, replies };
            states += explore(2, 5, room, answers);
        }
        let room = Room {
            requests: 1,
            replies: 1,
        };
        states += explore(3, 1, room, answers);
    }
    println!("{states} states");
    assert!(states > 1000);
}
