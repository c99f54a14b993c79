//! The side that owns the memory: what is pinned here, for whom, and what may go.
//!
//! | state | peers that hold it | own transfers | pinned |
//! |---|---|---|---|
//! | A | 0 | 0 | no, no record |
//! | B | 0 | 0 | yes, in the queue of victims |
//! | C | 0 | some | yes |
//! | D | some | some | yes |
//! | E | some | 0 | yes |
//!
//! B, C and D count against `victims`; D and E against what peers may hold. So a request of a peer that keeps to
//! its share is served at once, whatever this rank does itself: the ground on which nothing deadlocks.

use crate::message::{Answer, Move, Moved, Refusal};
use crate::stats::Counts;
use crate::table::Table;
use crate::{Limits, Span, Unit};

/// What pins memory. The machine decides; this does.
pub trait Pins {
    /// What reaches a pinned unit.
    type Key: Clone;
    /// Pins the memory of `unit`, or what of it exists.
    ///
    /// # Errors
    /// [`Refusal::Unmapped`] where there is none, [`Refusal::Limit`] where the system wants no more pinned.
    fn pin(&mut self, unit: Unit) -> Result<Self::Key, Refusal>;
    /// Unpins it; nothing uses it any more.
    fn unpin(&mut self, unit: Unit, key: Self::Key);
    /// A pinned unit is wanted again: memory that has come to it since is pinned too, if that is possible, and `key`
    /// reaches it and all that it did. Copies of the old key reach what they did.
    fn renew(&mut self, _unit: Unit, _key: &mut Self::Key) {}
}

/// Why memory is not pinned for an own transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnError {
    /// Other transfers use the room; it comes back when they release it.
    #[error("every unit that may be pinned is in use")]
    Busy,
    /// It can never be.
    #[error("a transfer of {count} units where {most} may be pinned")]
    TooMany {
        /// Units asked for.
        count: u32,
        /// Most at a time.
        most: u32,
    },
    /// The memory cannot be pinned.
    #[error("{unit} cannot be pinned: {refusal}")]
    Refused {
        /// The first that could not.
        unit: Unit,
        /// Why.
        refusal: Refusal,
    },
}

/// A request that no rank of this job makes. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// There is no such rank.
    #[error("it comes from rank {from} of {nodes}")]
    Nobody {
        /// Who it says it is.
        from: u32,
        /// Ranks.
        nodes: u32,
    },
    /// It would hold more than its share.
    #[error("it would hold {held} units where its share is {share}")]
    Share {
        /// After the move.
        held: u32,
        /// What all ranks were given.
        share: u32,
    },
    /// It gives back what it does not hold, or asks for what it does.
    #[error("it names {unit}, which it {}", if *.holds { "holds" } else { "does not hold" })]
    Unit {
        /// Which.
        unit: Unit,
        /// Whether it holds it.
        holds: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Bucket<K> {
    pub(crate) key: K,
    /// Ranks that hold a firehose on it; as many entries over all buckets as firehoses, so memory is bounded.
    pub(crate) holders: Vec<u32>,
    /// Own transfers under way.
    pub(crate) users: u32,
    /// Its memory is about to go: nobody new gets it, and it is unpinned after its last use.
    pub(crate) going: bool,
}

/// Memory of this rank.
#[derive(Clone, Debug)]
pub struct Owner<K> {
    pub(crate) table: Table<Bucket<K>>,
    /// Buckets in B, C and D.
    pub(crate) own: u32,
    /// Units held by each rank.
    pub(crate) held: Vec<u32>,
    limits: Limits,
    counts: Counts,
    /// Who has to give back what.
    recalls: Vec<(u32, Unit)>,
    /// First and last units that nobody is to get.
    barred: Vec<(Unit, Unit)>,
}

impl<K: Clone> Owner<K> {
    /// Nothing is pinned.
    #[must_use]
    pub fn new(limits: Limits, nodes: u32) -> Self {
        Self {
            table: Table::default(),
            own: 0,
            held: vec![0; nodes as usize],
            limits,
            counts: Counts::default(),
            recalls: Vec::new(),
            barred: Vec::new(),
        }
    }

    /// What happened since the start.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Units pinned.
    #[must_use]
    pub fn pinned(&self) -> u64 {
        self.table.len() as u64
    }

    /// The key of a pinned unit.
    #[must_use]
    pub fn key(&self, unit: Unit) -> Option<&K> {
        Some(&self.table.get(unit)?.key)
    }

    /// [`Owner::acquire`] of one unit, if that is pinned and nothing has to give way.
    #[inline]
    pub fn hit(&mut self, unit: Unit) -> Option<&K> {
        let slot = self.table.find(unit)?;
        let room = self.own < self.limits.victims;
        let bucket = self.table.at_mut(slot)?;
        let counted = bucket.users > 0 || bucket.holders.is_empty();
        if bucket.going || !(counted || room) {
            return None;
        }
        bucket.users += 1;
        self.own += u32::from(!counted);
        self.counts.hits += 1;
        self.table.unqueue(slot);
        Some(&self.table.at(slot)?.key)
    }

    /// Pins the units of `span` for an own transfer, all or none.
    ///
    /// # Errors
    /// See [`OwnError`]; nothing is held after one.
    pub fn acquire<P: Pins<Key = K>>(&mut self, span: Span, pins: &mut P) -> Result<(), OwnError> {
        let most = self.limits.victims;
        if span.count > most {
            let count = span.count;
            return Err(OwnError::TooMany { count, most });
        }
        // Units that will count and do not yet, and victims that will not be victims then.
        let (mut more, mut kept, mut missing) = (0, 0, 0);
        for unit in span.units() {
            match self.table.find(unit) {
                None if self.is_barred(unit) => return Err(OwnError::Busy),
                None => (more, missing) = (more + 1, missing + 1),
                Some(slot) => {
                    kept += u32::from(self.table.is_queued(slot));
                    let bucket = self.table.at(slot);
                    if bucket.is_some_and(|b| b.going) {
                        return Err(OwnError::Busy);
                    }
                    more +=
                        u32::from(bucket.is_some_and(|b| b.users == 0 && !b.holders.is_empty()));
                }
            }
        }
        let room = most - self.own + self.table.queued() - kept;
        if more > room {
            self.counts.waits += 1;
            return Err(OwnError::Busy);
        }
        for unit in span.units() {
            if let Some(slot) = self.table.find(unit) {
                self.table.unqueue(slot);
                if let Some(b) = self.table.at_mut(slot) {
                    self.own += u32::from(b.users == 0 && !b.holders.is_empty());
                    b.users += 1;
                }
            }
        }
        self.counts.hits += u64::from(span.count - missing);
        self.counts.misses += u64::from(missing);
        self.shrink(most - missing.min(most), pins);
        for unit in span.units() {
            if self.table.find(unit).is_some() {
                continue;
            }
            match self.pin(unit, pins) {
                Ok(key) => {
                    self.own += 1;
                    self.table.insert(unit, bucket(key, Vec::new(), 1));
                }
                Err(refusal) => {
                    // Those that have no record were not reached.
                    self.release(span, pins);
                    return Err(OwnError::Refused { unit, refusal });
                }
            }
        }
        Ok(())
    }

    /// The key of a pinned unit, with what has come to it ([`Pins::renew`]).
    pub fn renew<P: Pins<Key = K>>(&mut self, unit: Unit, pins: &mut P) -> Option<&K> {
        let bucket = self.table.get_mut(unit)?;
        if !bucket.going {
            pins.renew(unit, &mut bucket.key);
        }
        Some(&bucket.key)
    }

    /// An own transfer is over: gives back what [`Owner::acquire`] or [`Owner::hit`] gave.
    #[inline]
    pub fn release<P: Pins<Key = K>>(&mut self, span: Span, pins: &mut P) {
        match span.count {
            1 => self.leave(span.first, pins),
            _ => self.release_several(span, pins),
        }
    }

    fn release_several<P: Pins<Key = K>>(&mut self, span: Span, pins: &mut P) {
        // From the highest down, so that the lowest are the last to go and runs are unpinned together.
        for unit in span.units().rev() {
            self.leave(unit, pins);
        }
    }

    #[inline]
    fn leave<P: Pins<Key = K>>(&mut self, unit: Unit, pins: &mut P) {
        let Some(slot) = self.table.find(unit) else {
            return;
        };
        let Some(b) = self.table.at_mut(slot).filter(|b| b.users > 0) else {
            return;
        };
        b.users -= 1;
        if b.users > 0 {
            return;
        }
        if !b.holders.is_empty() {
            self.own -= 1;
        } else if b.going {
            self.drop_victim(unit, pins);
        } else {
            self.table.queue(slot);
        }
    }

    /// A unit that counts against `victims` and is used by nobody is unpinned.
    #[cold]
    fn drop_victim<P: Pins<Key = K>>(&mut self, unit: Unit, pins: &mut P) {
        if let Some(b) = self.table.remove(unit) {
            self.own -= 1;
            self.counts.unpins += 1;
            pins.unpin(unit, b.key);
        }
    }

    /// Unpins the oldest victims until at most `most` units count against them.
    fn shrink<P: Pins<Key = K>>(&mut self, most: u32, pins: &mut P) {
        while self.own > most && self.evict(pins) {}
    }

    fn evict<P: Pins<Key = K>>(&mut self, pins: &mut P) -> bool {
        let Some(unit) = self.table.queue_order().next() else {
            return false;
        };
        self.counts.evictions += 1;
        self.drop_victim(unit, pins);
        true
    }

    /// Pins; the system may want less pinned than the budget says, and then victims go.
    fn pin<P: Pins<Key = K>>(&mut self, unit: Unit, pins: &mut P) -> Result<K, Refusal> {
        loop {
            match pins.pin(unit) {
                Ok(key) => {
                    self.counts.pins += 1;
                    return Ok(key);
                }
                Err(Refusal::Limit) if self.evict(pins) => {}
                Err(refusal) => {
                    self.counts.refused += 1;
                    return Err(refusal);
                }
            }
        }
    }

    /// A peer gives firehoses back and takes others. Old ones go before new ones are pinned, so that the budget
    /// holds at every moment; those named new that are pinned already are taken first, so that none is unpinned
    /// only to be pinned again.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub fn handle_move<P: Pins<Key = K>>(
        &mut self,
        from: u32,
        m: &Move,
        pins: &mut P,
    ) -> Result<Moved<K>, MoveError> {
        self.check(from, m)?;
        self.counts.moves += 1;
        let mut answers: Vec<Option<Answer<K>>> = vec![None; m.new.len()];
        for (unit, answer) in m.new.iter().zip(&mut answers) {
            let Some(slot) = self.table.find(*unit) else {
                continue;
            };
            self.table.unqueue(slot);
            let Some(b) = self.table.at_mut(slot) else {
                continue;
            };
            if b.going {
                *answer = Some(Err(Refusal::Going));
                continue;
            }
            pins.renew(*unit, &mut b.key);
            // From B to E, what counted as a victim counts as the peer's.
            self.own -= u32::from(b.users == 0 && b.holders.is_empty());
            b.holders.push(from);
            *answer = Some(Ok(b.key.clone()));
            self.counts.hits += 1;
        }
        for unit in &m.old {
            self.give_back(from, *unit, pins);
        }
        self.shrink(self.limits.victims, pins);
        for (unit, answer) in m.new.iter().zip(&mut answers) {
            if answer.is_none() {
                let pinned = match self.is_barred(*unit) {
                    true => Err(Refusal::Going),
                    false => self.pin(*unit, pins),
                };
                self.counts.misses += 1;
                if let Ok(key) = &pinned {
                    self.table.insert(*unit, bucket(key.clone(), vec![from], 0));
                }
                *answer = Some(pinned);
            }
        }
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        if let Some(held) = self.held.get_mut(from as usize) {
            *held += answers.iter().filter(|a| a.is_ok()).count() as u32;
            *held -= m.old.len() as u32;
        }
        Ok(Moved {
            number: m.number,
            answers,
        })
    }

    fn check(&self, from: u32, m: &Move) -> Result<(), MoveError> {
        let nodes = self.held.len() as u32;
        let held = *self
            .held
            .get(from as usize)
            .ok_or(MoveError::Nobody { from, nodes })?;
        let holds = |unit: &Unit| {
            let bucket = self.table.get(*unit);
            bucket.is_some_and(|b| b.holders.contains(&from))
        };
        for (at, unit) in m.new.iter().enumerate() {
            if holds(unit) || m.new[..at].contains(unit) {
                let (unit, holds) = (*unit, true);
                return Err(MoveError::Unit { unit, holds });
            }
        }
        for (at, unit) in m.old.iter().enumerate() {
            if !holds(unit) || m.old[..at].contains(unit) {
                let (unit, holds) = (*unit, false);
                return Err(MoveError::Unit { unit, holds });
            }
        }
        let after = u64::from(held) + m.new.len() as u64 - m.old.len() as u64;
        let share = self.limits.share;
        if after > u64::from(share) {
            let held = u32::try_from(after).unwrap_or(u32::MAX);
            return Err(MoveError::Share { held, share });
        }
        Ok(())
    }

    fn give_back<P: Pins<Key = K>>(&mut self, from: u32, unit: Unit, pins: &mut P) {
        let Some(slot) = self.table.find(unit) else {
            return;
        };
        let Some(b) = self.table.at_mut(slot) else {
            return;
        };
        b.holders.retain(|h| *h != from);
        if b.users > 0 || !b.holders.is_empty() {
            return;
        }
        let going = b.going;
        self.own += 1;
        if going {
            self.drop_victim(unit, pins);
        } else {
            self.table.queue(slot);
        }
    }

    /// Memory from `first` to `last` is about to go, or to move: what nobody uses is unpinned, the rest is not
    /// given to anybody new. Returns whether nothing of it is pinned any more; if not, peers have to be told
    /// ([`Owner::poll_recall`]), and [`Owner::is_gone`] says when it is.
    pub fn forget<P: Pins<Key = K>>(&mut self, first: Unit, last: Unit, pins: &mut P) -> bool {
        let units: Vec<Unit> = self
            .table
            .iter()
            .map(|(unit, _)| unit)
            .filter(|u| (first..=last).contains(u))
            .collect();
        for unit in units {
            let Some(b) = self.table.get_mut(unit) else {
                continue;
            };
            if b.users == 0 && b.holders.is_empty() {
                self.drop_victim(unit, pins);
            } else if !std::mem::replace(&mut b.going, true) {
                self.recalls.extend(b.holders.iter().map(|h| (*h, unit)));
            }
        }
        self.is_gone(first, last)
    }

    /// What is pinned from `first` to `last`, in no order.
    pub fn pinned_within(&self, first: Unit, last: Unit) -> impl Iterator<Item = &K> {
        let units = self.table.iter();
        units
            .filter(move |(u, _)| (first..=last).contains(u))
            .map(|(_, bucket)| &bucket.key)
    }

    /// Whether nothing from `first` to `last` is pinned.
    #[must_use]
    pub fn is_gone(&self, first: Unit, last: Unit) -> bool {
        !self.table.iter().any(|(u, _)| (first..=last).contains(&u))
    }

    /// Until [`Owner::unbar`] nothing from `first` to `last` is pinned anew. Whoever waits until all of it is gone needs
    /// that: what goes first could be back before the last goes.
    pub fn bar(&mut self, first: Unit, last: Unit) {
        self.barred.push((first, last));
    }

    /// Takes one [`Owner::bar`] back.
    pub fn unbar(&mut self, first: Unit, last: Unit) {
        if let Some(at) = self.barred.iter().position(|b| *b == (first, last)) {
            self.barred.swap_remove(at);
        }
    }

    fn is_barred(&self, unit: Unit) -> bool {
        let mut barred = self.barred.iter();
        barred.any(|(first, last)| (*first..=*last).contains(&unit))
    }

    /// Whether [`Owner::poll_recall`] has one.
    #[must_use]
    #[inline(always)]
    pub fn has_recalls(&self) -> bool {
        !self.recalls.is_empty()
    }

    /// Whom to ask for which unit back.
    pub fn poll_recall(&mut self) -> Option<(u32, Unit)> {
        self.recalls.pop()
    }

    /// Everything that nobody uses is unpinned.
    pub fn clear<P: Pins<Key = K>>(&mut self, pins: &mut P) {
        while self.evict(pins) {}
    }
}

fn bucket<K>(key: K, holders: Vec<u32>, users: u32) -> Bucket<K> {
    Bucket {
        key,
        holders,
        users,
        going: false,
    }
}
