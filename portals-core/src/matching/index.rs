//! The index of one match list: [`Buckets`] for each of a few sets of ignored bits, and one group for entries that
//! ignore others.
//!
//! Programs have few ways to ignore bits: none, a protocol's, a source's, a tag's. The first [`MASKS`] that come up while
//! the list is long have buckets of their own as long as it is, so an entry is where it was put.

use super::buckets::{Buckets, Key};
use super::groups::Group;
use super::{Me, NONE};
use crate::handle::MdHandle;
use crate::table::Table;
use crate::types::ProcessId;
use alloc::vec::Vec;

/// Sets of ignored bits with buckets of their own, beside the empty one.
pub(super) const MASKS: usize = 6;
/// Groups that may take one message: of each set of ignored bits four classes of initiators, and the rest.
const HEADS: usize = (MASKS + 1) * 4 + 1;

#[derive(Debug)]
pub(super) struct Index {
    seed: u64,
    /// Entries that compare all bits.
    exact: Buckets,
    /// Others, by what they ignore.
    masked: Vec<(u64, Buckets)>,
    /// Those that ignore what came up when all [`MASKS`] were given away.
    rest: Group,
}

impl Index {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            exact: Buckets::new(seed),
            masked: Vec::new(),
            rest: Group::EMPTY,
        }
    }

    /// Searches the list of this index; see [`super::MatchTable::search`].
    #[inline(never)]
    pub(super) fn search<T>(
        &self,
        entries: &Table<Me>,
        keys: &[Key],
        key: Key,
        take: &mut dyn FnMut(MdHandle) -> Option<T>,
    ) -> Option<(T, u32)> {
        // Only one group can take it: ask its first entry.
        let alone = self.masked.is_empty() && self.rest.is_empty();
        if alone && self.exact.is_concrete() && key.class() == 0 {
            let md = self.exact.first_md(keys, key)?;
            if let Some(taken) = md.and_then(&mut *take) {
                return Some((taken, 1));
            }
        }
        // Usually the first of all candidates takes it: the others need no order.
        let first = self.first(entries, key);
        let md = entries.at(first).and_then(|me| me.md);
        if let Some(taken) = md.and_then(&mut *take) {
            return Some((taken, 1));
        }
        (1..)
            .zip(Candidates::new(self, entries, key.id, key.bits))
            .filter(|(_, me)| me.admits(key.id, key.bits))
            .find_map(|(looked, me)| Some((take(me.md?)?, looked)))
    }

    /// The first in list order of the entries that admit a message, or [`NONE`]; that too where the first candidate is one
    /// of the rest, which has to be asked.
    #[inline(always)]
    fn first(&self, entries: &Table<Me>, key: Key) -> u32 {
        let (mut least, mut first) = (u64::MAX, NONE);
        let mut ask = |slot: u32, least: &mut u64| {
            if let Some(me) = entries.at(slot)
                && me.label <= *least
            {
                (*least, first) = (me.label, slot);
            }
        };
        self.exact
            .for_first(entries, key, |slot| ask(slot, &mut least));
        for (mask, buckets) in &self.masked {
            // What a list has for all that nothing else takes is at its end, and need not be looked for.
            if !buckets.may_precede(entries, least) {
                continue;
            }
            let bits = key.bits & !mask;
            buckets.for_first(entries, Key { bits, ..key }, |slot| ask(slot, &mut least));
        }
        ask(self.rest.first, &mut least);
        if first == self.rest.first {
            NONE
        } else {
            first
        }
    }

    /// Where entries with these ignored bits are; `None` for the rest.
    fn buckets(&mut self, ignore_bits: u64) -> Option<&mut Buckets> {
        if ignore_bits == 0 {
            return Some(&mut self.exact);
        }
        let at = self
            .masked
            .iter()
            .position(|(mask, _)| *mask == ignore_bits)?;
        self.masked.get_mut(at).map(|(_, buckets)| buckets)
    }

    /// The descriptor of an entry is another one.
    pub(super) fn note_md(&mut self, entries: &Table<Me>, slot: u32) {
        let ignored = entries.at(slot).map_or(0, |me| me.ignore_bits);
        if let Some(buckets) = self.buckets(ignored) {
            buckets.note_md(entries, slot);
        }
    }

    pub(super) fn insert(&mut self, entries: &mut Table<Me>, slot: u32) {
        let Some(me) = entries.at(slot) else { return };
        let ignored = me.ignore_bits;
        if let Some(buckets) = self.buckets(ignored) {
            buckets.insert(entries, slot);
        } else if self.masked.len() < MASKS {
            let mut buckets = Buckets::new(self.seed);
            buckets.insert(entries, slot);
            self.masked.push((ignored, buckets));
        } else {
            self.rest.insert(entries, slot);
        }
    }

    pub(super) fn remove(&mut self, entries: &mut Table<Me>, slot: u32) {
        let Some(me) = entries.at(slot) else { return };
        let (ignored, next) = (me.ignore_bits, me.next);
        match self.buckets(ignored) {
            Some(buckets) => buckets.remove(entries, slot),
            None => self.rest.remove(entries, slot),
        }
        self.exact.leaves(slot, next);
        for (_, buckets) in &mut self.masked {
            buckets.leaves(slot, next);
        }
    }
}

/// The entries that may take a message, in list order.
pub(super) struct Candidates<'a> {
    entries: &'a Table<Me>,
    /// The next entry of each group, with its label.
    heads: [(u64, u32); HEADS],
    len: usize,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(
        index: &Index,
        entries: &'a Table<Me>,
        initiator: ProcessId,
        bits: u64,
    ) -> Self {
        let mut all = Self {
            entries,
            heads: [(0, NONE); HEADS],
            len: 0,
        };
        let key = |bits| Key {
            id: initiator,
            bits,
        };
        index
            .exact
            .for_first(entries, key(bits), |slot| all.push(slot));
        for (mask, buckets) in &index.masked {
            buckets.for_first(entries, key(bits & !mask), |slot| all.push(slot));
        }
        all.push(index.rest.first);
        all
    }

    fn push(&mut self, slot: u32) {
        if let Some(me) = self.entries.at(slot) {
            self.heads[self.len] = (me.label, slot);
            self.len += 1;
        }
    }
}

impl<'a> Iterator for Candidates<'a> {
    type Item = &'a Me;

    fn next(&mut self) -> Option<&'a Me> {
        let heads = &mut self.heads[..self.len];
        let least = (0..heads.len()).min_by_key(|&i| heads[i].0)?;
        let me = self.entries.at(heads[least].1)?;
        match self.entries.at(me.node.after) {
            Some(after) => heads[least] = (after.label, me.node.after),
            None => {
                heads[least] = heads[heads.len() - 1];
                self.len -= 1;
            }
        }
        Some(me)
    }
}

#[cfg(test)]
impl Index {
    pub(super) fn farthest(&self) -> usize {
        self.exact.farthest()
    }

    pub(super) fn tallest(&self, entries: &Table<Me>) -> usize {
        let masked = self.masked.iter().flat_map(|(_, b)| b.groups(entries));
        let rest = (!self.rest.is_empty()).then_some(self.rest);
        let groups = self.exact.groups(entries).chain(masked).chain(rest);
        groups.map(|g| g.check(entries).1).max().unwrap_or(0)
    }

    /// Panics unless every group is found by its key and well formed; returns the entries in all.
    pub(super) fn check(&self, entries: &Table<Me>) -> usize {
        let masked = self.masked.iter().map(|(mask, b)| b.check(entries, *mask));
        let masked: usize = masked.sum();
        self.exact.check(entries, 0) + masked + self.rest.check(entries).0
    }
}
