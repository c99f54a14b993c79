//! Scenarios, told one by one.

use super::*;

/// Keys are even numbers that are never given twice; a renewed one is odd, and the old one good as long as it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) pinned: Vec<(Unit, u32)>,
    pub(crate) next: u32,
    /// Units that cannot be pinned.
    pub(crate) absent: Vec<Unit>,
    /// Most units that the system lets be pinned.
    pub(crate) most: usize,
}

impl Memory {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    pub(crate) fn is_good(&self, unit: Unit, key: u32) -> bool {
        self.pinned
            .iter()
            .any(|(u, k)| *u == unit && (*k == key || *k == key | 1))
    }
}

impl Pins for Memory {
    type Key = u32;

    fn pin(&mut self, unit: Unit) -> Result<u32, Refusal> {
        assert!(self.pinned.iter().all(|(u, _)| *u != unit), "pinned twice");
        if self.absent.contains(&unit) {
            return Err(Refusal::Unmapped);
        }
        if self.pinned.len() >= self.most {
            return Err(Refusal::Limit);
        }
        self.next += 2;
        self.pinned.push((unit, self.next));
        Ok(self.next)
    }

    fn renew(&mut self, unit: Unit, key: &mut u32) {
        let pin = self.pinned.iter_mut().find(|p| **p == (unit, *key));
        let pin = pin.expect("renewed what is not pinned");
        (pin.1, *key) = (*key | 1, *key | 1);
    }

    fn unpin(&mut self, unit: Unit, key: u32) {
        let before = self.pinned.len();
        self.pinned.retain(|p| *p != (unit, key));
        assert_eq!(
            self.pinned.len() + 1,
            before,
            "unpinned what was not pinned"
        );
    }
}

pub(crate) const fn limits(share: u32, victims: u32) -> Limits {
    Limits {
        shape: Shape::Pages { log2: 12 },
        share,
        victims,
        per_message: 8,
    }
}

const fn span(first: u64, count: u32) -> Span {
    Span {
        first: Unit(first),
        count,
        stride: 1,
    }
}

/// Rank 0 holds, rank 1 owns.
struct Pair {
    holder: Holder<u32>,
    owner: Owner<u32>,
    memory: Memory,
}

impl Pair {
    fn new(share: u32, victims: u32) -> Self {
        let limits = limits(share, victims);
        Self {
            holder: Holder::new(limits, 2),
            owner: Owner::new(limits, 2),
            memory: Memory::new(100),
        }
    }

    /// Delivers all messages, in order; how many requests there were.
    fn talk(&mut self) -> usize {
        let mut n = 0;
        loop {
            while let Some((to, unit)) = self.owner.poll_recall() {
                assert_eq!(to, 0);
                self.holder.handle_recall(1, unit);
            }
            let Some((to, m)) = self.holder.poll_move() else {
                return n;
            };
            assert_eq!(to, 1);
            let moved = self.owner.handle_move(0, &m, &mut self.memory).unwrap();
            self.holder.handle_moved(1, moved).unwrap();
            n += 1;
        }
    }

    /// A whole transfer; how many requests it took.
    fn transfer(&mut self, s: Span) -> usize {
        let asked = self.holder.ask(1, s, 7).unwrap();
        let n = self.talk();
        if asked == Asked::Waits {
            let done = Outcome {
                ticket: 7,
                result: Ok(()),
            };
            assert_eq!(self.holder.poll_outcome(), Some(done));
        }
        for unit in s.units() {
            let key = *self.holder.key(1, unit).unwrap();
            assert!(self.memory.pinned.contains(&(unit, key)));
        }
        self.holder.release(1, s);
        n
    }
}

#[test]
fn a_miss_is_one_request_and_a_hit_is_none() {
    let mut p = Pair::new(3, 2);
    assert_eq!(p.transfer(span(0, 2)), 1);
    assert_eq!(p.transfer(span(0, 2)), 0);
    assert_eq!(p.transfer(span(1, 2)), 1);
    assert!(p.holder.hit(1, Unit(2)).is_some());
    p.holder.release(1, Span::one(Unit(2)));
    assert!(p.holder.hit(1, Unit(3)).is_none());
    let c = p.holder.counts();
    assert_eq!((c.hits, c.misses, c.moves, c.evictions), (4, 3, 2, 0));
}

#[test]
fn what_nobody_uses_can_be_let_go() {
    let mut p = Pair::new(4, 4);
    p.transfer(span(0, 3));
    let (grip, _) = p.holder.hit(1, Unit(1)).unwrap();
    p.holder.let_go(1);
    assert_eq!(p.talk(), 1);
    // What is used stays, and what was let go is a victim of its owner.
    assert_eq!((p.holder.held(), p.owner.held[0]), (1, 1));
    assert_eq!((p.owner.pinned(), p.owner.own), (3, 2));
    assert!(p.holder.hit(1, Unit(0)).is_none());
    p.holder.release_one(1, grip);
    p.holder.let_go(1);
    // It leaves: whoever wants it back waits for the answer.
    assert_eq!(p.holder.ask(1, span(1, 1), 3), Ok(Asked::Waits));
    assert_eq!(p.talk(), 2);
    assert_eq!((p.holder.held(), p.owner.held[0]), (1, 1));
    p.holder.let_go(0);
    p.holder.let_go(9);
    assert_eq!(p.talk(), 0);
}

#[test]
fn the_oldest_gives_way_and_stays_pinned_for_a_while() {
    let mut p = Pair::new(2, 1);
    for unit in [0, 1, 0, 2] {
        p.transfer(span(unit, 1));
    }
    // 1 was used longest ago: it is a victim, and back without being pinned anew.
    assert_eq!((p.owner.counts().pins, p.owner.own), (3, 1));
    assert_eq!(p.transfer(span(0, 1)), 0);
    assert_eq!(p.transfer(span(1, 1)), 1);
    assert_eq!((p.owner.counts().pins, p.owner.counts().unpins), (3, 0));
    // Of two victims there is room for one.
    p.transfer(span(5, 2));
    assert_eq!(p.owner.pinned(), 3);
}

#[test]
fn own_transfers_share_the_pins_of_peers_and_pay_for_them() {
    let mut p = Pair::new(2, 1);
    p.transfer(span(0, 2));
    p.owner.acquire(span(0, 1), &mut p.memory).unwrap();
    assert_eq!(p.owner.counts().pins, 2);
    assert_eq!(
        p.owner.acquire(span(1, 1), &mut p.memory),
        Err(OwnError::Busy)
    );
    assert!(p.owner.hit(Unit(1)).is_none() && p.owner.hit(Unit(0)).is_some());
    p.owner.release(span(0, 1), &mut p.memory);
    p.owner.release(span(0, 1), &mut p.memory);
    p.owner.acquire(span(1, 1), &mut p.memory).unwrap();
    assert_eq!(
        p.owner.acquire(span(8, 2), &mut p.memory),
        Err(OwnError::TooMany { count: 2, most: 1 })
    );
}

#[test]
fn what_cannot_be_pinned_is_refused_and_nothing_is_kept_of_it() {
    let mut p = Pair::new(4, 4);
    p.memory.absent = vec![Unit(2)];
    assert_eq!(p.holder.ask(1, span(0, 4), 1), Ok(Asked::Waits));
    p.talk();
    let refused = Outcome {
        ticket: 1,
        result: Err((Unit(2), Refusal::Unmapped)),
    };
    assert_eq!(p.holder.poll_outcome(), Some(refused));
    assert_eq!((p.holder.held(), p.owner.held[0]), (3, 3));
    assert_eq!(p.transfer(span(0, 2)), 0);
    let refused = OwnError::Refused {
        unit: Unit(2),
        refusal: Refusal::Unmapped,
    };
    assert_eq!(p.owner.acquire(span(1, 3), &mut p.memory), Err(refused));
    assert_eq!(p.owner.own, 0, "the peer's alone");
}

#[test]
fn the_systems_limit_takes_victims_first() {
    let mut p = Pair::new(2, 4);
    p.memory.most = 3;
    p.owner.acquire(span(10, 3), &mut p.memory).unwrap();
    p.owner.release(span(10, 3), &mut p.memory);
    p.transfer(span(0, 2));
    assert_eq!(p.owner.pinned(), 3);
    p.owner.acquire(span(20, 1), &mut p.memory).unwrap();
    let refused = OwnError::Refused {
        unit: Unit(30),
        refusal: Refusal::Limit,
    };
    assert_eq!(p.owner.acquire(span(30, 1), &mut p.memory), Err(refused));
}

/// The race of the original: the request that gives a unit up is overtaken by one that asks for it.
#[test]
fn a_unit_that_is_leaving_is_not_asked_for() {
    let mut p = Pair::new(1, 2);
    p.transfer(span(0, 1));
    assert_eq!(p.holder.ask(1, span(1, 1), 1), Ok(Asked::Waits));
    assert_eq!(p.holder.ask(1, span(0, 1), 2), Ok(Asked::Waits));
    let (_, first) = p.holder.poll_move().unwrap();
    assert_eq!((first.new, first.old), (vec![Unit(1)], vec![Unit(0)]));
    assert_eq!(p.holder.poll_move(), None);
}

#[test]
fn transfers_wait_in_order() {
    let mut p = Pair::new(2, 2);
    p.holder.ask(1, span(0, 1), 1).unwrap();
    p.talk();
    assert_eq!(p.holder.poll_outcome().map(|o| o.ticket), Some(1));
    assert_eq!(p.holder.ask(1, span(4, 2), 2), Ok(Asked::Waits));
    // It could have a place, and would keep the one before it from its two.
    assert_eq!(p.holder.ask(1, span(1, 1), 3), Ok(Asked::Waits));
    assert_eq!(p.talk(), 0);
    assert!(p.holder.hit(1, Unit(0)).is_none());
    p.holder.release(1, span(0, 1));
    p.talk();
    assert_eq!(p.holder.poll_outcome().map(|o| o.ticket), Some(2));
    p.holder.release(1, span(4, 2));
    p.talk();
    assert_eq!(p.holder.poll_outcome().map(|o| o.ticket), Some(3));
}

#[test]
fn memory_that_goes_is_recalled() {
    let mut p = Pair::new(3, 3);
    p.transfer(span(0, 2));
    p.owner.acquire(span(5, 1), &mut p.memory).unwrap();
    p.owner.release(span(5, 1), &mut p.memory);
    p.holder.hit(1, Unit(1)).unwrap();
    assert!(!p.owner.forget(Unit(0), Unit(9), &mut p.memory));
    assert_eq!(p.owner.pinned(), 2, "what nobody uses goes at once");
    p.talk();
    assert!(!p.owner.is_gone(Unit(0), Unit(9)));
    assert!(p.owner.is_gone(Unit(0), Unit(0)));
    // Asked for meanwhile, it is refused.
    let m = Move {
        number: 0,
        new: vec![Unit(1)],
        old: vec![],
    };
    let other = Owner::handle_move(&mut p.owner, 1, &m, &mut p.memory).unwrap();
    assert_eq!(other.answers, [Err(Refusal::Going)]);
    p.holder.release(1, span(1, 1));
    p.talk();
    assert!(p.owner.is_gone(Unit(0), Unit(9)));
    assert_eq!(p.holder.held(), 0);
    assert_eq!(p.transfer(span(0, 2)), 1, "and may come back");
}

/// Two units are to go; a peer gives the first back and asks for it again before it gives the second back.
#[test]
fn memory_that_goes_stays_gone_until_all_of_it_is() {
    let mut p = Pair::new(3, 3);
    p.transfer(span(0, 2));
    p.holder.hit(1, Unit(1)).unwrap();
    assert!(!p.owner.forget(Unit(0), Unit(1), &mut p.memory));
    p.owner.bar(Unit(0), Unit(1));
    p.talk();
    assert!(p.owner.is_gone(Unit(0), Unit(0)));
    assert_eq!(p.holder.ask(1, span(0, 1), 7), Ok(Asked::Waits));
    p.talk();
    let refused = p.holder.poll_outcome().map(|o| (o.ticket, o.result));
    assert_eq!(refused, Some((7, Err((Unit(0), Refusal::Going)))));
    let own = p.owner.acquire(span(0, 1), &mut p.memory);
    assert_eq!(own, Err(OwnError::Busy));
    p.holder.release(1, span(1, 1));
    p.talk();
    assert!(p.owner.is_gone(Unit(0), Unit(1)));
    p.owner.unbar(Unit(0), Unit(1));
    assert_eq!(p.transfer(span(0, 2)), 1, "and may come back");
}

#[test]
fn lies_are_refused_and_change_nothing() {
    let mut p = Pair::new(2, 2);
    p.transfer(span(0, 2));
    let ask = |new: &[u64], old: &[u64]| Move {
        number: 9,
        new: new.iter().map(|u| Unit(*u)).collect(),
        old: old.iter().map(|u| Unit(*u)).collect(),
    };
    let before = format!("{:?}", p.owner);
    let unit = |u, holds| {
        Err(MoveError::Unit {
            unit: Unit(u),
            holds,
        })
    };
    let mut lie = |from, m: Move| p.owner.handle_move(from, &m, &mut p.memory);
    assert_eq!(
        lie(2, ask(&[1], &[])),
        Err(MoveError::Nobody { from: 2, nodes: 2 })
    );
    assert_eq!(
        lie(0, ask(&[5], &[])),
        Err(MoveError::Share { held: 3, share: 2 })
    );
    assert_eq!(lie(0, ask(&[1], &[0])), unit(1, true));
    assert_eq!(lie(0, ask(&[5, 5], &[0, 1])), unit(5, true));
    assert_eq!(lie(0, ask(&[5], &[6])), unit(6, false));
    assert_eq!(lie(1, ask(&[5], &[1])), unit(1, false));
    assert_eq!(lie(0, ask(&[], &[1, 1])), unit(1, false));
    assert_eq!(format!("{:?}", p.owner), before);

    let reply = |number, answers| Moved { number, answers };
    assert_eq!(
        p.holder.handle_moved(1, reply(0, vec![])),
        Err(MovedError::Number { number: 0 })
    );
    assert_eq!(
        p.holder.handle_moved(5, reply(0, vec![])),
        Err(MovedError::Number { number: 0 })
    );
    p.holder.ask(1, span(3, 1), 1).unwrap();
    let two = reply(0, vec![Ok(1), Ok(2)]);
    assert_eq!(
        p.holder.handle_moved(1, two),
        Err(MovedError::Answers {
            answers: 2,
            units: 1
        })
    );
    p.holder.handle_recall(1, Unit(77));
    p.holder.handle_recall(9, Unit(0));
    p.talk();
    assert_eq!(p.holder.poll_outcome().map(|o| o.ticket), Some(1));
    assert_eq!(
        p.holder.ask(1, span(0, 3), 2),
        Err(AskError::TooMany { count: 3, most: 2 })
    );
    assert_eq!(
        p.holder.ask(2, span(0, 1), 2),
        Err(AskError::Nobody { peer: 2, nodes: 2 })
    );
}
