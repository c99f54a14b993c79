//! Ranks and the messages between them, for tests: a network that is harsher than any, where whatever was sent may
//! arrive at any time and in any order.

use super::*;
use crate::holder::State;
use crate::tests::Memory;
use std::hash::{Hash, Hasher};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Move {
        from: u32,
        to: u32,
        number: u32,
        new: Vec<Unit>,
        old: Vec<Unit>,
    },
    Moved {
        from: u32,
        to: u32,
        number: u32,
        answers: Vec<Result<u32, u8>>,
    },
    Recall {
        from: u32,
        to: u32,
        unit: Unit,
    },
}

/// One transfer: units at a peer, then perhaps units at home, or units at home alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Transfer {
    pub(crate) there: Option<(u32, Span)>,
    pub(crate) here: Option<Span>,
    /// It finds once that its unit at the peer, the only one, was pinned before all its memory was there.
    pub(crate) renews: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// For units at the peer.
    Waits,
    /// Has them, if it needs any; needs those at home.
    There,
    /// Goes on.
    Runs,
}

#[derive(Clone, Debug)]
pub(crate) struct Rank {
    pub(crate) holder: Holder<u32>,
    pub(crate) owner: Owner<u32>,
    pub(crate) memory: Memory,
    /// Transfers by ticket.
    pub(crate) transfers: Vec<Option<(Transfer, Stage)>>,
    /// A unit that is being taken away.
    pub(crate) forgets: Option<Unit>,
    /// Transfers that ended without their memory.
    pub(crate) refused: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) messages: Vec<Message>,
    pub(crate) limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ask {
        rank: u32,
        ticket: u32,
        transfer: Transfer,
    },
    /// A transfer has its units at the peer and takes those at home.
    Home {
        rank: u32,
        ticket: u32,
    },
    Finish {
        rank: u32,
        ticket: u32,
    },
    /// Gives its unit at the peer back and asks for it anew.
    Renew {
        rank: u32,
        ticket: u32,
    },
    Deliver(usize),
    Forget {
        rank: u32,
        unit: Unit,
    },
}

impl World {
    pub(crate) fn new(nodes: u32, limits: Limits, most: usize, tickets: usize) -> Self {
        let rank = |_| Rank {
            holder: Holder::new(limits, nodes),
            owner: Owner::new(limits, nodes),
            memory: Memory::new(most),
            transfers: vec![None; tickets],
            forgets: None,
            refused: 0,
        };
        Self {
            ranks: (0..nodes).map(rank).collect(),
            messages: Vec::new(),
            limits,
        }
    }

    /// What goes on without anything new.
    pub(crate) fn ongoing(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..self.messages.len()).map(Step::Deliver).collect();
        for (rank, r) in (0..).zip(&self.ranks) {
            for (ticket, t) in (0..).zip(&r.transfers) {
                if matches!(t, Some((Transfer { renews: true, .. }, Stage::There))) {
                    steps.push(Step::Renew { rank, ticket });
                }
                match t {
                    Some((
                        Transfer {
                            here: Some(span), ..
                        },
                        Stage::There,
                    )) => {
                        let mut tried = r.clone();
                        if tried.owner.acquire(*span, &mut tried.memory) != Err(OwnError::Busy) {
                            steps.push(Step::Home { rank, ticket });
                        }
                    }
                    Some((_, Stage::Runs | Stage::There)) => {
                        steps.push(Step::Finish { rank, ticket })
                    }
                    _ => {}
                }
            }
        }
        steps
    }

    pub(crate) fn apply(&mut self, step: Step) {
        match step {
            Step::Ask {
                rank,
                ticket,
                transfer,
            } => {
                let r = &mut self.ranks[rank as usize];
                let stage = match transfer.there {
                    Some((peer, span)) => match ask(&mut r.holder, peer, span, ticket) {
                        Asked::Ready => Stage::There,
                        Asked::Waits => Stage::Waits,
                    },
                    None => Stage::There,
                };
                r.transfers[ticket as usize] = Some((transfer, stage));
            }
            Step::Home { rank, ticket } => {
                let r = &mut self.ranks[rank as usize];
                let Some((t, stage)) = &mut r.transfers[ticket as usize] else {
                    panic!("no transfer")
                };
                match r.owner.acquire(t.here.unwrap(), &mut r.memory) {
                    Ok(()) => *stage = Stage::Runs,
                    Err(OwnError::Refused { .. }) => {
                        if let Some((peer, span)) = t.there {
                            r.holder.release(peer, span);
                        }
                        r.refused += 1;
                        r.transfers[ticket as usize] = None;
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            Step::Finish { rank, ticket } => {
                let r = &mut self.ranks[rank as usize];
                let (t, _) = r.transfers[ticket as usize].take().unwrap();
                if let Some(span) = t.here {
                    r.owner.release(span, &mut r.memory);
                }
                if let Some((peer, span)) = t.there {
                    release(&mut r.holder, peer, span);
                }
            }
            Step::Renew { rank, ticket } => {
                let r = &mut self.ranks[rank as usize];
                let Some((t, stage)) = &mut r.transfers[ticket as usize] else {
                    panic!("no transfer")
                };
                let (peer, span) = t.there.unwrap();
                t.renews = false;
                r.holder.renew(peer, span.first);
                release(&mut r.holder, peer, span);
                let asked = ask(&mut r.holder, peer, span, ticket);
                assert_eq!(asked, Asked::Waits, "it has to be asked for");
                *stage = Stage::Waits;
            }
            Step::Deliver(at) => match self.messages.remove(at) {
                Message::Move {
                    from,
                    to,
                    number,
                    new,
                    old,
                } => {
                    let r = &mut self.ranks[to as usize];
                    let m = Move { number, new, old };
                    let moved = r.owner.handle_move(from, &m, &mut r.memory).unwrap();
                    let answers = moved.answers.into_iter().map(|a| a.map_err(Refusal::code));
                    self.messages.push(Message::Moved {
                        from: to,
                        to: from,
                        number,
                        answers: answers.collect(),
                    });
                }
                Message::Moved {
                    from,
                    to,
                    number,
                    answers,
                } => {
                    let answers = answers.into_iter();
                    let answers = answers.map(|a| a.map_err(|c| Refusal::from_code(c).unwrap()));
                    let moved = Moved {
                        number,
                        answers: answers.collect(),
                    };
                    let r = &mut self.ranks[to as usize];
                    r.holder.handle_moved(from, moved).unwrap();
                }
                Message::Recall { from, to, unit } => {
                    self.ranks[to as usize].holder.handle_recall(from, unit);
                }
            },
            Step::Forget { rank, unit } => {
                let r = &mut self.ranks[rank as usize];
                if !r.owner.forget(unit, unit, &mut r.memory) {
                    r.forgets = Some(unit);
                }
            }
        }
        self.settle();
    }

    /// Sends what there is to send; ends waits that are over.
    fn settle(&mut self) {
        for (rank, r) in (0..).zip(&mut self.ranks) {
            while let Some((to, m)) = r.holder.poll_move() {
                let Move { number, new, old } = m;
                let from = rank;
                self.messages.push(Message::Move {
                    from,
                    to,
                    number,
                    new,
                    old,
                });
            }
            while let Some((to, unit)) = r.owner.poll_recall() {
                let from = rank;
                self.messages.push(Message::Recall { from, to, unit });
            }
            while let Some(o) = r.holder.poll_outcome() {
                let slot = &mut r.transfers[o.ticket as usize];
                let Some((_, stage)) = slot else {
                    panic!("an outcome of no transfer")
                };
                assert_eq!(*stage, Stage::Waits);
                match o.result {
                    Ok(()) => *stage = Stage::There,
                    Err(_) => {
                        *slot = None;
                        r.refused += 1;
                    }
                }
            }
            if r.forgets.is_some_and(|u| r.owner.is_gone(u, u)) {
                r.forgets = None;
            }
        }
    }

    /// The invariants of the crate.
    pub(crate) fn check(&self) {
        for (rank, r) in (0u32..).zip(&self.ranks) {
            self.check_owner(rank, r);
            for (peer, p) in (0u32..).zip(&r.holder.peers) {
                let owner = &self.ranks[peer as usize];
                assert!(p.taken <= self.limits.share, "share");
                let mut moving: Vec<Unit> = vec![];
                for f in p.flights.iter().flatten() {
                    moving.extend(f.new.iter().chain(&f.old));
                }
                let all = moving.len();
                moving.sort_unstable();
                moving.dedup();
                assert_eq!(moving.len(), all, "one request for a unit at a time");
                if all == 0 {
                    let held = owner.owner.table.iter();
                    let held = held.filter(|(_, b)| b.holders.contains(&rank)).count();
                    assert_eq!((held, held), (p.table.len(), p.taken as usize), "one truth");
                }
                for (unit, hose) in p.table.iter() {
                    if let State::Held(key) = &hose.state {
                        assert!(owner.memory.is_good(unit, *key), "pinned");
                    }
                }
            }
            for (t, stage) in r.transfers.iter().flatten() {
                if let Some((peer, span)) = t.there
                    && *stage != Stage::Waits
                {
                    let memory = &self.ranks[peer as usize].memory;
                    for unit in span.units() {
                        let key = r.holder.key(peer, unit).expect("held");
                        assert!(memory.is_good(unit, *key), "a transfer to an unpinned unit");
                    }
                }
                if let Some(span) = t.here
                    && *stage == Stage::Runs
                {
                    for unit in span.units() {
                        let key = r.owner.key(unit).expect("held");
                        assert!(
                            r.memory.pinned.contains(&(unit, *key)),
                            "a transfer of an unpinned unit"
                        );
                    }
                }
            }
        }
    }

    fn check_owner(&self, rank: u32, r: &Rank) {
        let o = &r.owner;
        assert_eq!(o.table.len(), r.memory.pinned.len());
        for (unit, b) in o.table.iter() {
            assert!(
                r.memory.pinned.contains(&(unit, b.key)),
                "pinned under its key"
            );
            let idle = b.users == 0 && b.holders.is_empty();
            let slot = o.table.find(unit).unwrap();
            assert_eq!(
                idle,
                o.table.is_queued(slot),
                "victims are idle, and all of them"
            );
            assert!(!(idle && b.going));
        }
        let own = o
            .table
            .iter()
            .filter(|(_, b)| b.users > 0 || b.holders.is_empty());
        assert_eq!(own.count() as u32, o.own);
        assert!(o.own <= self.limits.victims, "victims");
        let budget = self.limits.share * (self.ranks.len() as u32 - 1) + self.limits.victims;
        assert!(o.table.len() as u32 <= budget, "budget");
        for (from, held) in (0..).zip(&o.held) {
            let count = o.table.iter().filter(|(_, b)| b.holders.contains(&from));
            assert_eq!(count.count() as u32, *held);
            assert!(*held <= self.limits.share, "share");
            assert!(from != rank || *held == 0);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        let idle = |r: &Rank| r.transfers.iter().all(Option::is_none) && r.forgets.is_none();
        self.messages.is_empty() && self.ranks.iter().all(idle)
    }
}

/// Asks as a rank does: what is a single unit and held needs no more than a look.
fn ask(holder: &mut Holder<u32>, peer: u32, span: Span, ticket: Ticket) -> Asked {
    if span.count == 1 && holder.hit(peer, span.first).is_some() {
        return Asked::Ready;
    }
    holder.ask(peer, span, ticket).unwrap()
}

fn release(holder: &mut Holder<u32>, peer: u32, span: Span) {
    match holder.held_by(peer, span.first).map(|(grip, _)| grip) {
        Some(grip) if span.count == 1 => holder.release_one(peer, grip),
        _ => holder.release(peer, span),
    }
}

/// Keys are known by whether they are good; counts, and places in tables, decide nothing.
impl Hash for World {
    fn hash<H: Hasher>(&self, h: &mut H) {
        let good = |rank: u32, unit, key: u32| self.ranks[rank as usize].memory.is_good(unit, key);
        for (rank, r) in (0u32..).zip(&self.ranks) {
            for (peer, p) in (0u32..).zip(&r.holder.peers) {
                let mut all: Vec<_> = p
                    .table
                    .iter()
                    .map(|(unit, hose)| {
                        let state = match &hose.state {
                            State::Pending => 0,
                            State::Leaving => 1,
                            State::Held(key) => 2 + u8::from(good(peer, unit, *key)),
                        };
                        (unit, state, hose.users, hose.recalled)
                    })
                    .collect();
                all.sort_unstable();
                all.hash(h);
                p.table.queue_order().collect::<Vec<_>>().hash(h);
                p.taken.hash(h);
                for f in &p.flights {
                    f.as_ref().map(|f| (&f.new, &f.old, f.freed)).hash(h);
                }
                let mut started: Vec<u32> = p.started.iter().map(|w| w.ticket).collect();
                started.sort_unstable();
                started.hash(h);
                for w in &p.waiting {
                    w.ticket.hash(h);
                }
            }
            let o = &r.owner;
            let mut all: Vec<_> = o
                .table
                .iter()
                .map(|(unit, b)| {
                    let mut holders = b.holders.clone();
                    holders.sort_unstable();
                    (unit, holders, b.users, b.going, good(rank, unit, b.key))
                })
                .collect();
            all.sort_unstable();
            all.hash(h);
            o.table.queue_order().collect::<Vec<_>>().hash(h);
            r.transfers.hash(h);
            r.forgets.hash(h);
        }
        // Of one request there is one reply on its way, so its keys matter by being good.
        for m in &self.messages {
            match m {
                Message::Moved {
                    from,
                    to,
                    number,
                    answers,
                } => {
                    let flight = &self.ranks[*to as usize].holder.peers[*from as usize].flights
                        [*number as usize];
                    let new = flight
                        .as_ref()
                        .map(|f| f.new.as_slice())
                        .unwrap_or_default();
                    let answers = new.iter().zip(answers);
                    let known = answers.map(|(u, a)| a.map(|key| good(*from, *u, key)));
                    (from, to, number, known.collect::<Vec<_>>()).hash(h);
                }
                other => other.hash(h),
            }
        }
    }
}
