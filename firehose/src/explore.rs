//! Every state that two ranks can reach, with three pages each and room for two.

use super::*;
use crate::tests::limits;
use crate::world::{Message, Step, Transfer, World};
use explorer::{Visited, explore};

/// What the ranks do, each with so many transfers at a time as they have tickets.
#[derive(Clone, Debug)]
struct Play {
    world: World,
    /// By rank.
    wants: [&'static [Transfer]; 2],
    /// Units that a rank may take away.
    forgets: [&'static [u64]; 2],
}

impl std::hash::Hash for Play {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        self.world.hash(h);
    }
}

impl explorer::World for Play {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = self.world.ongoing();
        for (rank, r) in (0u32..).zip(&self.world.ranks) {
            // Tickets are alike: the first that is free.
            if let Some(ticket) = r.transfers.iter().position(Option::is_none) {
                steps.extend(self.wants[rank as usize].iter().map(|t| Step::Ask {
                    rank,
                    ticket: ticket as u32,
                    transfer: *t,
                }));
            }
            // A late recall is played with one, not with any number of them.
            let recalls = self.world.messages.iter();
            let recalls = recalls.filter(|m| matches!(m, Message::Recall { .. }));
            if r.forgets.is_none() && recalls.count() < 2 {
                let units = self.forgets[rank as usize].iter().map(|u| Unit(*u));
                let there = units.filter(|u| !r.owner.is_gone(*u, *u));
                steps.extend(there.map(|unit| Step::Forget { rank, unit }));
            }
        }
        steps
    }

    fn is_new(step: &Step) -> bool {
        matches!(step, Step::Ask { .. } | Step::Forget { .. })
    }

    fn apply(&mut self, step: Step) {
        self.world.apply(step);
    }

    fn canonical(mut self) -> Self {
        self.world.messages.sort_unstable_by(|a, b| {
            let kind = |m: &Message| match m {
                Message::Moved {
                    from, to, number, ..
                } => (1, *from, *to, *number),
                Message::Move {
                    from, to, number, ..
                } => (0, *from, *to, *number),
                Message::Recall { from, to, unit } => (2, *from, *to, unit.0 as u32),
            };
            kind(a).cmp(&kind(b))
        });
        self
    }

    fn check(&self) {
        self.world.check();
    }

    fn is_done(&self) -> bool {
        self.world.is_done()
    }
}

const fn pages(first: u64, count: u32) -> Span {
    Span {
        first: Unit(first),
        count,
        stride: 1,
    }
}

const fn at(peer: u32, first: u64, count: u32) -> Transfer {
    Transfer {
        there: Some((peer, pages(first, count))),
        here: None,
        renews: false,
    }
}

const fn home(first: u64, count: u32) -> Transfer {
    Transfer {
        there: None,
        here: Some(pages(first, count)),
        renews: false,
    }
}

const fn both(peer: u32, there: u64, here: u64) -> Transfer {
    Transfer {
        there: Some((peer, pages(there, 1))),
        here: Some(pages(here, 1)),
        renews: false,
    }
}

const fn renewing(peer: u32, unit: u64) -> Transfer {
    Transfer {
        renews: true,
        ..at(peer, unit, 1)
    }
}

/// Two ranks, `tickets` transfers of each at a time, `share` and `victims` units; the system pins at most `most`.
fn play(
    (share, victims, most): (u32, u32, usize),
    tickets: usize,
    wants: [&'static [Transfer]; 2],
    forgets: [&'static [u64]; 2],
) -> Visited {
    let start = Play {
        world: World::new(2, limits(share, victims), most, tickets),
        wants,
        forgets,
    };
    let visited = explore(start, 2_000_000);
    println!("{} states, {} steps", visited.states, visited.steps);
    visited
}

/// One rank transfers, of one and two of three pages, three transfers at a time; the other uses its own pages.
#[test]
fn three_transfers_of_one_rank_and_the_owner() {
    const THERE: &[Transfer] = &[
        at(1, 0, 1),
        at(1, 1, 1),
        at(1, 2, 1),
        at(1, 0, 2),
        at(1, 1, 2),
    ];
    const HERE: &[Transfer] = &[home(0, 1), home(1, 1), home(2, 1), home(0, 2), home(1, 2)];
    let visited = play((2, 2, 9), 2, [THERE, HERE], [&[], &[]]);
    assert!(visited.states > 10_000, "{visited:?}");
}

/// The same with three transfers at a time, whose requests overtake each other.
#[test]
fn requests_that_overtake() {
    const THERE: &[Transfer] = &[at(1, 0, 1), at(1, 1, 1), at(1, 2, 1), at(1, 1, 2)];
    let visited = play((2, 2, 9), 3, [THERE, &[]], [&[], &[]]);
    assert!(visited.states > 1000, "{visited:?}");
}

/// Both ways at once; each transfer needs a page at the peer and one at home.
#[test]
fn both_ways_with_pages_at_both_ends() {
    const OF_0: &[Transfer] = &[both(1, 0, 0), both(1, 1, 1), both(1, 2, 0)];
    const OF_1: &[Transfer] = &[both(0, 0, 0), both(0, 1, 1), both(0, 2, 2)];
    let visited = play((2, 2, 9), 1, [OF_0, OF_1], [&[], &[]]);
    assert!(visited.states > 6000, "{visited:?}");
    const FEWER: &[Transfer] = &[both(0, 0, 0), both(0, 1, 1)];
    let visited = play((2, 2, 9), 2, [OF_0, FEWER], [&[], &[]]);
    assert!(visited.states > 10_000, "{visited:?}");
}

/// With room for one page of each kind, and two transfers at a time.
#[test]
fn room_for_one() {
    const OF_0: &[Transfer] = &[both(1, 0, 0), both(1, 1, 1)];
    const OF_1: &[Transfer] = &[both(0, 0, 0), home(1, 1)];
    let visited = play((1, 1, 9), 2, [OF_0, OF_1], [&[], &[]]);
    assert!(visited.states > 4000, "{visited:?}");
}

/// The owner takes memory away at any moment, and memory comes back.
#[test]
fn memory_that_goes_at_any_moment() {
    const THERE: &[Transfer] = &[at(1, 0, 1), at(1, 1, 1), at(1, 2, 1), at(1, 0, 2)];
    const HERE: &[Transfer] = &[home(0, 1)];
    let visited = play((2, 2, 9), 2, [THERE, HERE], [&[], &[0]]);
    assert!(visited.states > 10_000, "{visited:?}");
}

/// Memory comes to units that are held, and transfers ask for them anew; the owner uses them, and takes one away.
#[test]
fn memory_that_comes_to_units_that_are_held() {
    const THERE: &[Transfer] = &[renewing(1, 0), at(1, 0, 1), at(1, 1, 1), renewing(1, 2)];
    const HERE: &[Transfer] = &[home(0, 1)];
    let visited = play((2, 2, 9), 2, [THERE, HERE], [&[], &[0]]);
    assert!(visited.states > 10_000, "{visited:?}");
    let visited = play((1, 1, 9), 3, [THERE, &[]], [&[], &[]]);
    assert!(visited.states > 1000, "{visited:?}");
}

/// The system pins less than the budget allows: transfers are refused, and nothing is lost by it.
#[test]
fn the_system_wants_less_pinned() {
    const THERE: &[Transfer] = &[
        at(1, 0, 1),
        at(1, 1, 1),
        at(1, 2, 1),
        at(1, 0, 2),
        at(1, 1, 2),
    ];
    const HERE: &[Transfer] = &[home(0, 1), home(1, 2)];
    let visited = play((2, 2, 2), 2, [THERE, HERE], [&[], &[]]);
    assert!(visited.states > 10_000, "{visited:?}");
}
