//! The rules written down once more with plain lists, and long random runs.
//!
//! The plain machine knows for each rank, by unit, who holds it; everything else is counted anew each time. The
//! state machines must agree with it on every message, answer and pin.

use super::*;
use crate::tests::limits;
use crate::world::{Message, Stage, Step, Transfer, World};
use std::collections::{BTreeMap, BTreeSet};

/// What is pinned at one rank.
#[derive(Default)]
struct Plain {
    /// Holders and own users of what is pinned.
    pinned: BTreeMap<u64, (BTreeSet<u32>, u32)>,
    /// Idle units, the oldest first.
    victims: Vec<u64>,
    victims_limit: usize,
}

impl Plain {
    fn own(&self) -> usize {
        let counted = |v: &&(BTreeSet<u32>, u32)| v.1 > 0 || v.0.is_empty();
        self.pinned.values().filter(counted).count()
    }

    fn unpin_oldest(&mut self) {
        let unit = self.victims.remove(0);
        assert!(self.pinned.remove(&unit).is_some());
    }

    fn idle(&mut self, unit: u64) {
        if let Some((holders, users)) = self.pinned.get(&unit)
            && holders.is_empty()
            && *users == 0
        {
            self.victims.push(unit);
        }
    }

    fn acquire(&mut self, span: Span) -> bool {
        let units: Vec<u64> = span.units().map(|u| u.0).collect();
        // As if it had happened, without what may be unpinned for it.
        let busy = self
            .pinned
            .iter()
            .filter(|(u, p)| p.1 > 0 && !units.contains(u));
        let after = busy.count() + units.len();
        if after > self.victims_limit {
            return false;
        }
        self.victims.retain(|v| !units.contains(v));
        for u in &units {
            if let Some(p) = self.pinned.get_mut(u) {
                p.1 += 1;
            }
        }
        let missing: Vec<u64> = units
            .into_iter()
            .filter(|u| !self.pinned.contains_key(u))
            .collect();
        while self.own() + missing.len() > self.victims_limit {
            self.unpin_oldest();
        }
        for u in missing {
            self.pinned.insert(u, (BTreeSet::new(), 1));
        }
        true
    }

    fn release(&mut self, span: Span) {
        for unit in span.units().rev() {
            if let Some(p) = self.pinned.get_mut(&unit.0) {
                p.1 -= 1;
            }
            self.idle(unit.0);
        }
    }

    fn handle(&mut self, from: u32, new: &[Unit], old: &[Unit]) {
        self.victims.retain(|v| !new.contains(&Unit(*v)));
        for u in new {
            if let Some(p) = self.pinned.get_mut(&u.0) {
                p.0.insert(from);
            }
        }
        for u in old {
            if let Some(p) = self.pinned.get_mut(&u.0) {
                assert!(p.0.remove(&from));
            }
            self.idle(u.0);
        }
        while self.own() > self.victims_limit {
            self.unpin_oldest();
        }
        for u in new {
            let p = self.pinned.entry(u.0).or_default();
            p.0.insert(from);
        }
    }
}

/// What one rank holds at another: the oldest use first.
#[derive(Default)]
struct PlainHold {
    /// Idle units in order.
    idle: Vec<u64>,
    used: BTreeMap<u64, u32>,
    leaving: BTreeSet<u64>,
    /// Of those leaving the ones for which nothing was asked: their places are free with the answer.
    given: BTreeSet<u64>,
    /// To be given back after their last use.
    renewed: BTreeSet<u64>,
}

impl PlainHold {
    /// A use of a unit ends; `true`: the unit is given back.
    fn leave(&mut self, unit: u64) -> bool {
        let users = self.used.get_mut(&unit).unwrap();
        *users -= 1;
        if *users > 0 {
            return false;
        }
        self.used.remove(&unit);
        if !self.renewed.remove(&unit) {
            self.idle.push(unit);
            return false;
        }
        assert!(self.leaving.insert(unit) && self.given.insert(unit));
        true
    }
}

fn agree(world: &World, plain: &[Plain], rank: usize) {
    let owner = &world.ranks[rank].owner;
    let own: BTreeMap<u64, (BTreeSet<u32>, u32)> = owner
        .table
        .iter()
        .map(|(u, b)| (u.0, (b.holders.iter().copied().collect(), b.users)))
        .collect();
    assert_eq!(own, plain[rank].pinned);
    let order: Vec<u64> = owner.table.queue_order().map(|u| u.0).collect();
    assert_eq!(order, plain[rank].victims);
}

/// A million steps of five ranks, with 40 units each, of which a peer may hold 4 and 5 are for own transfers.
#[test]
fn a_million_steps_agree_with_plain_lists() {
    const RANKS: u32 = 5;
    const TICKETS: usize = 4;
    let mut world = World::new(RANKS, limits(4, 5), usize::MAX, TICKETS);
    let mut plain: Vec<Plain> = (0..RANKS)
        .map(|_| Plain {
            victims_limit: 5,
            ..Plain::default()
        })
        .collect();
    let mut holds: BTreeMap<(u32, u32), PlainHold> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(10);
    let (mut busy, mut renewed) = (0u64, 0u64);
    let span = |rng: &mut fastrand::Rng| Span {
        first: Unit(rng.u64(0..40).min(rng.u64(0..40))),
        count: rng.u32(1..4),
        stride: 1,
    };
    for n in 0..1_000_000u32 {
        let rank = rng.u32(0..RANKS);
        let r = &world.ranks[rank as usize];
        let ticket = rng.u32(0..TICKETS as u32);
        let step = match (rng.u8(0..4), r.transfers[ticket as usize]) {
            (0, None) => {
                let there = rng
                    .bool()
                    .then(|| ((rank + rng.u32(1..RANKS)) % RANKS, span(&mut rng)));
                let here = (there.is_none() || rng.bool()).then(|| span(&mut rng));
                let renews = there.is_some_and(|(_, s)| s.count == 1) && rng.u8(0..8) == 0;
                let transfer = Transfer {
                    there,
                    here,
                    renews,
                };
                Some(Step::Ask {
                    rank,
                    ticket,
                    transfer,
                })
            }
            (1, Some((Transfer { renews: true, .. }, Stage::There))) => {
                renewed += 1;
                Some(Step::Renew { rank, ticket })
            }
            (1, Some((Transfer { here: Some(s), .. }, Stage::There))) => {
                let goes = plain[rank as usize].acquire(s);
                let mut tried = r.clone();
                let really = tried.owner.acquire(s, &mut tried.memory);
                assert_eq!(really.is_ok(), goes, "{really:?}");
                busy += u64::from(!goes);
                goes.then_some(Step::Home { rank, ticket })
            }
            (1, Some((t, Stage::Runs | Stage::There))) => {
                if let Some(s) = t.here {
                    plain[rank as usize].release(s);
                }
                Some(Step::Finish { rank, ticket })
            }
            _ if world.messages.is_empty() => None,
            _ => Some(Step::Deliver(rng.usize(0..world.messages.len()))),
        };
        let Some(step) = step else { continue };
        let mut given = None;
        match step {
            Step::Deliver(at) => {
                if let Message::Move {
                    from, to, new, old, ..
                } = &world.messages[at]
                {
                    plain[*to as usize].handle(*from, new, old);
                }
                if let Message::Moved {
                    from, to, number, ..
                } = &world.messages[at]
                {
                    let flight = &world.ranks[*to as usize].holder.peers[*from as usize].flights
                        [*number as usize];
                    let hold = holds.entry((*to, *from)).or_default();
                    for u in &flight.as_ref().unwrap().old {
                        assert!(hold.leaving.remove(&u.0));
                        hold.given.remove(&u.0);
                    }
                }
            }
            Step::Finish { rank, ticket } | Step::Renew { rank, ticket } => {
                let (t, _) = world.ranks[rank as usize].transfers[ticket as usize].unwrap();
                if let Some((peer, s)) = t.there {
                    let hold = holds.entry((rank, peer)).or_default();
                    if matches!(step, Step::Renew { .. }) {
                        hold.renewed.insert(s.first.0);
                    }
                    let gone: Vec<Unit> = s.units().rev().filter(|u| hold.leave(u.0)).collect();
                    given = Some((rank, peer, gone));
                }
            }
            _ => {}
        }
        // What begins now is seen in the requests that come of it.
        let sent = world.messages.len() - usize::from(matches!(step, Step::Deliver(_)));
        let before = (started(&world), queue(&world));
        world.apply(step);
        follow(&world, &before, &mut holds, (sent, given));
        agree(&world, &plain, rank as usize);
        if n % 64 == 0 {
            world.check();
        }
    }
    let mut all = Counts::default();
    for r in &world.ranks {
        all = all.plus(r.holder.counts());
        assert_eq!(r.refused, 0);
    }
    println!("{all:?}, {busy} times no room at home");
    for (what, n) in [
        ("hits", all.hits),
        ("misses", all.misses),
        ("evictions", all.evictions),
        ("waits", all.waits),
        ("no room", busy),
        ("renewed", renewed),
    ] {
        assert!(n > 1000, "{what}: {n}");
    }
    while let Some(step) = world.ongoing().first().copied() {
        world.apply(step);
    }
    assert!(world.is_done(), "deadlock");
    world.check();
}

/// Transfers that wait for room, by rank and ticket, those of one peer in their order.
fn queue(world: &World) -> Vec<(u32, u32)> {
    let mut all = vec![];
    for (rank, r) in (0u32..).zip(&world.ranks) {
        let waiting = r.holder.peers.iter().flat_map(|p| &p.waiting);
        all.extend(waiting.map(|w| (rank, w.ticket)));
    }
    all
}

/// By rank, peer and ticket.
type Started = Vec<(u32, u32, u32, Span)>;

/// Transfers that have asked for their units, of all ranks.
fn started(world: &World) -> Started {
    let mut all = vec![];
    for (rank, r) in (0u32..).zip(&world.ranks) {
        for (ticket, t) in (0u32..).zip(&r.transfers) {
            let Some((
                Transfer {
                    there: Some((peer, span)),
                    ..
                },
                stage,
            )) = t
            else {
                continue;
            };
            let waiting = &r.holder.peers[*peer as usize].waiting;
            if *stage != Stage::Waits || waiting.iter().all(|w| w.ticket != ticket) {
                all.push((rank, *peer, ticket, *span));
            }
        }
    }
    all
}

/// Plays transfers that have started since `before` with plain lists; the requests must be the ones that these ask for.
fn follow(
    world: &World,
    (before, queue): &(Started, Vec<(u32, u32)>),
    holds: &mut BTreeMap<(u32, u32), PlainHold>,
    (sent, given): (usize, Option<(u32, u32, Vec<Unit>)>),
) {
    let mut requests: Vec<&Message> = world.messages.iter().skip(sent).collect();
    requests.retain(|m| matches!(m, Message::Move { .. }));
    if let Some((rank, peer, units)) = given {
        for unit in units {
            let back = requests.iter().position(|m| {
                let Message::Move {
                    from, to, new, old, ..
                } = m
                else {
                    return false;
                };
                (*from, *to) == (rank, peer) && new.is_empty() && *old == [unit]
            });
            requests.remove(back.expect("a unit that is given back"));
        }
    }
    let mut now = started(world);
    now.sort_by_key(|(rank, _, ticket, _)| {
        let place = queue.iter().position(|q| *q == (*rank, *ticket));
        place.unwrap_or(usize::MAX)
    });
    for (rank, peer, ticket, span) in now {
        if before.iter().any(|b| (b.0, b.2) == (rank, ticket)) {
            continue;
        }
        let hold = holds.entry((rank, peer)).or_default();
        let units: Vec<u64> = span.units().map(|u| u.0).collect();
        assert!(
            units
                .iter()
                .all(|u| !hold.leaving.contains(u) && !hold.renewed.contains(u)),
            "overtaking"
        );
        let fresh = |u: &&u64| !hold.used.contains_key(u) && !hold.idle.contains(u);
        let new: Vec<u64> = units.iter().filter(fresh).copied().collect();
        hold.idle.retain(|u| !units.contains(u));
        for u in &units {
            *hold.used.entry(*u).or_default() += 1;
        }
        let held = hold.idle.len() + hold.used.len() + hold.given.len();
        let over = held.saturating_sub(world.limits.share as usize);
        let old: Vec<u64> = hold.idle.drain(..over).collect();
        hold.leaving.extend(&old);
        if new.is_empty() {
            assert!(old.is_empty());
            continue;
        }
        let asked = requests.iter().position(|m| {
            let Message::Move {
                from,
                to,
                new: n,
                old: o,
                ..
            } = m
            else {
                return false;
            };
            (*from, *to) == (rank, peer)
                && n.iter().map(|u| u.0).eq(new.iter().copied())
                && o.iter().map(|u| u.0).eq(old.iter().copied())
        });
        requests.remove(asked.expect("a request for what is missing"));
    }
    assert!(requests.is_empty(), "{requests:?}");
}
