//! Every state that three ranks can reach with a few requests each, checked; and long random runs of many.
//!
//! The world is harsher than any network: a request is in its target's buffer the moment it is
//! sent, requests, replies and notices overtake each other as they like (each kind stays in order
//! between two ranks), and anything may be handled at any time, or not yet. Request buffers are
//! modelled by the credit: messages lie one behind the other, a buffer retires when less than a
//! full message is left, and takes messages again when all it held were handled.

use super::*;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// `from` wants to send `to` a request of `cost`.
    Send { from: usize, to: usize, cost: u16 },
    /// A request that waited goes.
    Resume { from: usize },
    /// The oldest request in the queue of this rank is handled.
    Request { at: usize },
    /// The oldest reply from a rank to a rank is handled.
    Reply { from: usize, to: usize },
    /// The oldest notice from a rank to a rank is handled.
    Notice { from: usize, to: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Buffers {
    size: u32,
    /// Of each that takes messages or waits to: unhandled messages, room left. The front takes.
    ready: VecDeque<(u32, u32)>,
    /// Retired ones, oldest first: unhandled messages.
    retired: VecDeque<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rank {
    credits: Credits,
    buffers: Buffers,
    /// Requests in the buffers, in order: sender, what its header says.
    queue: VecDeque<(usize, CreditByte)>,
    /// A request that waits for credits: to whom, cost, extra credits wanted.
    waits: Option<(usize, u16, u8)>,
    /// Replies and notices on their way from this rank, by target.
    replies: Vec<VecDeque<CreditByte>>,
    notices: Vec<VecDeque<Notice>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    ranks: Vec<Rank>,
    total: u64,
    least: u16,
    /// Requests that each rank may still begin.
    budget: u32,
    begun: Vec<u32>,
}

/// Who may send to whom, with which costs.
struct Traffic<'a> {
    pairs: &'a [(usize, usize)],
    costs: &'a [u16],
}

impl World {
    /// Request buffers are `counted` of `per_buffer` credits each, and one spare, as in [`Plan`].
    fn new(nodes: u32, per_node: u16, bank: u64, per_buffer: u64, knobs: Knobs) -> Self {
        let total = u64::from(per_node) * u64::from(nodes - 1) + bank;
        let counted = total.div_ceil(per_buffer);
        let plan = Plan {
            flow_control: true,
            dynamic: true,
            per_node,
            one_more: 0,
            bank,
            buffers: counted as u32 + 1,
            events: total,
        };
        // A buffer retires when less than a full message is left; that much is not counted.
        let size = per_buffer as u32 + u32::from(knobs.least);
        let rank = |me| Rank {
            credits: Credits::new(&plan, knobs, me, nodes),
            buffers: Buffers {
                size,
                ready: (0..plan.buffers).map(|_| (0, size)).collect(),
                retired: VecDeque::new(),
            },
            queue: VecDeque::new(),
            waits: None,
            replies: vec![VecDeque::new(); nodes as usize],
            notices: vec![VecDeque::new(); nodes as usize],
        };
        Self {
            ranks: (0..nodes).map(rank).collect(),
            total,
            least: knobs.least,
            budget: u32::MAX,
            begun: vec![0; nodes as usize],
        }
    }

    /// Each rank begins at most so many requests.
    fn with_budget(self, budget: u32) -> Self {
        Self { budget, ..self }
    }

    fn steps(&self, traffic: &Traffic<'_>) -> Vec<Step> {
        let mut steps = vec![];
        for &(from, to) in traffic.pairs {
            if self.ranks[from].waits.is_none() && self.begun[from] < self.budget {
                steps.extend(
                    traffic
                        .costs
                        .iter()
                        .map(|c| Step::Send { from, to, cost: *c }),
                );
            }
        }
        for (from, r) in self.ranks.iter().enumerate() {
            if let Some((to, cost, _)) = r.waits
                && r.credits.available(to as u32) >= cost
            {
                steps.push(Step::Resume { from });
            }
            if !r.queue.is_empty() {
                steps.push(Step::Request { at: from });
            }
            for to in 0..self.ranks.len() {
                if !r.replies[to].is_empty() {
                    steps.push(Step::Reply { from, to });
                }
                if !r.notices[to].is_empty() {
                    steps.push(Step::Notice { from, to });
                }
            }
        }
        steps
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Send { from, to, cost } => {
                if self.budget != u32::MAX {
                    self.begun[from] += 1;
                }
                let r = &mut self.ranks[from];
                if r.credits.take(to as u32, cost) {
                    self.put(from, to, cost, 0);
                } else {
                    let extra = r.credits.stall(to as u32, cost);
                    r.waits = Some((to, cost, extra));
                }
            }
            Step::Resume { from } => {
                if let Some((to, cost, extra)) = self.ranks[from].waits.take() {
                    assert!(self.ranks[from].credits.take(to as u32, cost));
                    self.put(from, to, cost, extra);
                }
            }
            Step::Request { at } => {
                let r = &mut self.ranks[at];
                if let Some((from, byte)) = r.queue.pop_front() {
                    r.buffers.handled();
                    let reply = r.credits.handle_request(from as u32, byte).unwrap();
                    r.replies[from].push_back(reply);
                }
                self.post(at);
            }
            Step::Reply { from, to } => {
                if let Some(byte) = self.ranks[from].replies[to].pop_front() {
                    let r = &mut self.ranks[to];
                    r.credits.handle_reply(from as u32, byte).unwrap();
                }
            }
            Step::Notice { from, to } => {
                if let Some(notice) = self.ranks[from].notices[to].pop_front() {
                    let r = &mut self.ranks[to];
                    r.credits.handle_notice(from as u32, notice).unwrap();
                }
                self.post(to);
            }
        }
    }

    fn put(&mut self, from: usize, to: usize, cost: u16, extra: u8) {
        let byte = self.ranks[from].credits.of_request(to as u32, cost, extra);
        let target = &mut self.ranks[to];
        target.buffers.land(u32::from(cost), u32::from(self.least));
        target.queue.push_back((from, byte));
    }

    fn post(&mut self, at: usize) {
        let r = &mut self.ranks[at];
        while let Some((to, notice)) = r.credits.poll_notice() {
            r.notices[to as usize].push_back(notice);
        }
    }

    /// Invariants 1 to 5 of the module for lender `y`.
    fn check(&self, y: usize) {
        let lender = &self.ranks[y];
        let lent: u64 = lender.credits.peers.iter().map(|p| u64::from(p.loan)).sum();
        assert_eq!(lent + lender.credits.bank, self.total, "conserved");
        let queued: u64 = lender.queue.iter().map(|(_, b)| u64::from(b.used)).sum();
        assert!(queued <= self.total, "the queue holds all requests");
        for (x, borrower) in self.ranks.iter().enumerate().filter(|(x, _)| *x != y) {
            let p = &borrower.credits.peers[y];
            let granted: u16 = lender.replies[x].iter().map(|b| u16::from(b.extra)).sum();
            let back: u16 = borrower.notices[y]
                .iter()
                .map(|n| match n {
                    Notice::Return { credits, .. } => *credits,
                    Notice::Revoke { .. } => 0,
                })
                .sum();
            let loan = lender.credits.peers[x].loan;
            assert_eq!(loan, p.send + granted + back, "two ledgers, one truth");
            let asking = lender.queue.iter().filter(|(from, _)| *from == x);
            let used: u16 = asking
                .map(|(_, b)| b)
                .chain(&lender.replies[x])
                .map(|b| u16::from(b.used))
                .sum();
            assert_eq!(p.in_use, used, "in use is what is unanswered");
            assert!(p.in_use <= p.send, "covered");
            assert!(p.send >= self.least, "live: a full message always");
            let notices = &lender.notices[x];
            let revokes = notices
                .iter()
                .filter(|n| matches!(n, Notice::Revoke { .. }))
                .count();
            assert!(revokes <= 1 && notices.len() <= 2, "bounded");
        }
    }

    /// The same state with epochs caught up with and counted from 0.
    fn canonical(mut self) -> Self {
        for r in &mut self.ranks {
            let epoch = std::mem::take(&mut r.credits.epoch);
            for p in &mut r.credits.peers {
                p.catch_up(epoch);
                p.as_of = 0;
            }
        }
        self
    }
}

impl Buffers {
    fn land(&mut self, cost: u32, least: u32) {
        let front = self.ready.front_mut().expect("the catch basin is hit");
        front.0 += 1;
        front.1 -= cost;
        if front.1 < least
            && let Some((messages, _)) = self.ready.pop_front()
        {
            self.retired.push_back(messages);
        }
    }

    /// Messages are handled in order, so the oldest buffer's first.
    fn handled(&mut self) {
        if let Some(left) = self.retired.front_mut() {
            *left -= 1;
            if *left == 0 {
                self.retired.pop_front();
                self.ready.push_back((0, self.size));
            }
        } else if let Some(front) = self.ready.front_mut() {
            front.0 -= 1;
        }
    }
}

/// A world and what its ranks want.
#[derive(Clone)]
struct Play<'a> {
    world: World,
    traffic: &'a Traffic<'a>,
}

impl Hash for Play<'_> {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.world.hash(h);
    }
}

impl explorer::World for Play<'_> {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        self.world.steps(self.traffic)
    }

    fn is_new(step: &Step) -> bool {
        matches!(step, Step::Send { .. })
    }

    fn apply(&mut self, step: Step) {
        self.world.apply(step);
    }

    fn canonical(mut self) -> Self {
        self.world = self.world.canonical();
        self
    }

    fn check(&self) {
        for y in 0..self.world.ranks.len() {
            self.world.check(y);
        }
    }

    fn is_done(&self) -> bool {
        self.world.ranks.iter().all(|r| r.waits.is_none())
    }
}

/// Visits every state; how many there are.
fn explore(world: World, traffic: &Traffic<'_>) -> usize {
    explorer::explore(Play { world, traffic }, 2_000_000).states
}

const SMALL: Knobs = Knobs {
    least: 1,
    most: 3,
    lend_limit: 1,
    revoke_limit: 1,
    targets: 1,
    epoch: 2,
};

/// One lender whose bank is short, two ranks that send to it: loans move to and fro.
#[test]
fn two_borrowers_of_one_lender() {
    let traffic = Traffic {
        pairs: &[(1, 0), (2, 0)],
        costs: &[1],
    };
    let world = World::new(3, 2, 1, 2, SMALL).with_budget(4);
    let states = explore(world, &traffic);
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

/// Messages of two sizes, so that buffers retire at different fill and a full message can wait
/// although there are credits.
#[test]
fn messages_of_two_sizes() {
    let traffic = Traffic {
        pairs: &[(1, 0), (2, 0)],
        costs: &[1, 2],
    };
    let knobs = Knobs {
        least: 2,
        lend_limit: 2,
        most: 4,
        ..SMALL
    };
    let states = explore(World::new(3, 2, 1, 3, knobs).with_budget(3), &traffic);
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

/// Both ways between two of the three, and a third that holds credits and sends.
#[test]
fn lenders_that_borrow() {
    let traffic = Traffic {
        pairs: &[(1, 0), (0, 1), (2, 0)],
        costs: &[1],
    };
    let states = explore(World::new(3, 1, 1, 2, SMALL).with_budget(2), &traffic);
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

/// A million random steps of 64 ranks whose banks are short; half the time few partners, then
/// others, so that credits have to move again.
#[test]
fn a_million_random_steps_of_64_ranks() {
    const RANKS: usize = 64;
    let knobs = Knobs {
        most: 60,
        epoch: 64,
        ..Knobs::DEFAULT
    };
    let mut world = World::new(RANKS as u32, 10, 40, 8184 / 16, knobs);
    let mut rng = fastrand::Rng::with_seed(64);
    for n in 0..1_000_000usize {
        let from = rng.usize(0..RANKS);
        let partner = (from + 1 + rng.usize(0..4) + n / 100_000 * 5) % RANKS;
        let start = rng.usize(0..RANKS);
        // The next rank from `start` on that `from` has something for.
        let due = |some: &dyn Fn(&Rank, usize) -> bool| {
            let mut all = (0..RANKS).map(|i| (start + i) % RANKS);
            all.find(|to| some(&world.ranks[from], *to))
                .unwrap_or(start)
        };
        let step = match rng.u8(0..8) {
            0..3 if world.ranks[from].waits.is_none() => Step::Send {
                from,
                to: (partner + usize::from(partner == from)) % RANKS,
                cost: [1, 1, 2, 8][rng.usize(0..4)],
            },
            0..5 => Step::Request { at: from },
            5 => Step::Notice {
                from,
                to: due(&|r, to| !r.notices[to].is_empty()),
            },
            _ => Step::Reply {
                from,
                to: due(&|r, to| !r.replies[to].is_empty()),
            },
        };
        world.apply(step);
        if let Some((to, cost, _)) = world.ranks[from].waits
            && world.ranks[from].credits.available(to as u32) >= cost
        {
            world.apply(Step::Resume { from });
        }
        if n % 64 == 0 {
            world.check(rng.usize(0..RANKS));
        }
    }
    for y in 0..RANKS {
        world.check(y);
    }
    let sum = |of: fn(Counts) -> u64| {
        world
            .ranks
            .iter()
            .map(|r| of(r.credits.counts()))
            .sum::<u64>()
    };
    println!(
        "stalls {} granted {} revokes {} recovered {} epochs {}",
        sum(|c| c.stalls),
        sum(|c| c.granted),
        sum(|c| c.revokes),
        sum(|c| c.recovered),
        sum(|c| c.epochs)
    );
    // Everything that can happen did.
    for (what, n) in [
        ("stalls", sum(|c| c.stalls)),
        ("granted", sum(|c| c.granted)),
        ("revokes", sum(|c| c.revokes)),
        ("recovered", sum(|c| c.recovered)),
        ("epochs", sum(|c| c.epochs)),
    ] {
        assert!(n > 100, "{what}: {n}");
    }
    let mut all = world;
    let nothing = Traffic {
        pairs: &[],
        costs: &[],
    };
    loop {
        let steps = all.steps(&nothing);
        if steps.is_empty() {
            break;
        }
        for step in steps {
            all.apply(step);
        }
    }
    assert!(all.ranks.iter().all(|r| r.waits.is_none()), "deadlock");
}
