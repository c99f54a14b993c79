//! The index of one match list: groups of entries by key, and one group for those without a key.
//!
//! An entry that compares all 64 bits has the key (nid, pid, bits), where nid and pid may be
//! [`ANY`]. The groups are found in an open table with linear probing, at most half full. The hash
//! is keyed with a seed made from the interface number, not from a clock or an address: equal
//! programs search equally. Only the own process adds keys; a peer only looks for them, in at most
//! `far` + 1 cells. When keys meet so badly that one is more than [`FAR`] cells from home the table
//! is built again with the next seed.

use super::groups::Group;
use super::{Me, NONE};
use crate::table::Table;
use crate::types::{ANY, ProcessId};
use alloc::vec::Vec;

/// The farthest cell from home. Among 131,072 keys at half load the farthest expected is about 40.
const FAR: usize = 128;
const LEAST: usize = 64;
/// Seeds tried for one size, before the table is doubled instead.
const SEEDS: u32 = 4;

/// What an entry without ignored bits compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    id: ProcessId,
    bits: u64,
}

impl Key {
    /// `None` for an entry that ignores bits.
    fn of(me: &Me) -> Option<Self> {
        (me.ignore_bits == 0).then_some(Self {
            id: me.match_id,
            bits: me.match_bits,
        })
    }

    /// Which halves of the id are open: bit 0 the nid, bit 1 the pid.
    fn class(self) -> usize {
        usize::from(self.id.nid == ANY) | usize::from(self.id.pid == ANY) << 1
    }

    fn hash(self, seed: u64) -> u32 {
        let id = u64::from(self.id.nid) << 32 | u64::from(self.id.pid);
        let h = mix(mix(self.bits ^ seed).wrapping_add(id ^ seed.rotate_left(32)));
        (h >> 32) as u32
    }
}

/// A bijection of 64 bits in which every input bit reaches every output bit (the finalizer of
/// MurmurHash3, which is in the public domain).
pub(super) const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// An empty group marks a free cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    group: Group,
}

impl Cell {
    const FREE: Self = Self {
        hash: 0,
        group: Group::EMPTY,
    };
}

#[derive(Debug)]
pub(super) struct Index {
    seed: u64,
    /// A power of two.
    cells: Vec<Cell>,
    /// Cells in use.
    keys: usize,
    /// No group is farther from home.
    far: usize,
    /// Entries of each class of keys.
    classes: [u32; 4],
    masked: Group,
}

impl Index {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: mix(seed),
            cells: alloc::vec![Cell::FREE; LEAST],
            keys: 0,
            far: 0,
            classes: [0; 4],
            masked: Group::EMPTY,
        }
    }

    /// The group of `key`.
    fn find(&self, entries: &Table<Me>, key: Key) -> Option<usize> {
        let hash = key.hash(self.seed);
        let mask = self.cells.len() - 1;
        for step in 0..=self.far {
            let at = (hash as usize).wrapping_add(step) & mask;
            let Cell { hash: h, group } = self.cells[at];
            if group.is_empty() {
                return None;
            }
            if h == hash && entries.at(group.first).and_then(Key::of) == Some(key) {
                return Some(at);
            }
        }
        None
    }

    /// Takes the first free cell from home. There is one: half of them are free.
    fn take(&mut self, hash: u32) -> usize {
        let mask = self.cells.len() - 1;
        let mut at = hash as usize & mask;
        while !self.cells[at].group.is_empty() {
            at = (at + 1) & mask;
        }
        self.far = self.far.max(self.distance(at, hash));
        self.cells[at].hash = hash;
        at
    }

    /// How far cell `at` is from where `hash` would put it.
    fn distance(&self, at: usize, hash: u32) -> usize {
        at.wrapping_sub(hash as usize) & (self.cells.len() - 1)
    }

    pub(super) fn insert(&mut self, entries: &mut Table<Me>, slot: u32) {
        let Some(me) = entries.at(slot) else { return };
        let Some(key) = Key::of(me) else {
            return self.masked.insert(entries, slot);
        };
        self.classes[key.class()] += 1;
        if let Some(at) = self.find(entries, key) {
            return self.cells[at].group.insert(entries, slot);
        }
        if (self.keys + 1) * 2 > self.cells.len() {
            self.rebuild(entries, self.cells.len() * 2);
        }
        let at = self.take(key.hash(self.seed));
        self.keys += 1;
        self.cells[at].group.insert(entries, slot);
        if self.far > FAR {
            self.scatter(entries);
        }
    }

    pub(super) fn remove(&mut self, entries: &mut Table<Me>, slot: u32) {
        let Some(me) = entries.at(slot) else { return };
        let Some(key) = Key::of(me) else {
            return self.masked.remove(entries, slot);
        };
        let Some(at) = self.find(entries, key) else {
            return;
        };
        self.classes[key.class()] -= 1;
        self.cells[at].group.remove(entries, slot);
        if self.cells[at].group.is_empty() {
            self.keys -= 1;
            self.close(at);
        }
    }

    /// Moves back the cells that were pushed past the freed cell `hole`.
    fn close(&mut self, mut hole: usize) {
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let cell = self.cells[at];
            if cell.group.is_empty() {
                break;
            }
            if self.distance(at, cell.hash) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = Cell::FREE;
    }

    /// Other seeds, or a larger table, until all groups are near home.
    fn scatter(&mut self, entries: &Table<Me>) {
        for attempt in 1..=SEEDS * 4 {
            self.seed = mix(self.seed);
            // Beyond a load of 1/64 crowding is no accident of the table's size.
            let grow = attempt % SEEDS == 0 && self.keys * 64 > self.cells.len();
            self.rebuild(entries, self.cells.len() << u32::from(grow));
            if self.far <= FAR {
                return;
            }
        }
    }

    /// Puts every group into a new table of `size` cells.
    fn rebuild(&mut self, entries: &Table<Me>, size: usize) {
        let old = core::mem::replace(&mut self.cells, alloc::vec![Cell::FREE; size]);
        self.far = 0;
        for cell in old {
            if let Some(key) = entries.at(cell.group.first).and_then(Key::of) {
                let at = self.take(key.hash(self.seed));
                self.cells[at].group = cell.group;
            }
        }
    }
}

/// The entries that may take a message, in list order.
pub(super) struct Candidates<'a> {
    entries: &'a Table<Me>,
    /// The next entry of each group, with its label.
    heads: [(u64, u32); 5],
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
            heads: [(0, NONE); 5],
            len: 0,
        };
        for (class, count) in index.classes.into_iter().enumerate() {
            let key = Key {
                id: ProcessId {
                    nid: if class & 1 == 0 { initiator.nid } else { ANY },
                    pid: if class & 2 == 0 { initiator.pid } else { ANY },
                },
                bits,
            };
            // The classes differ only for an initiator whose id is concrete.
            if count > 0
                && key.class() == class
                && let Some(at) = index.find(entries, key)
            {
                all.push(index.cells[at].group.first);
            }
        }
        all.push(index.masked.first);
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
    pub(super) fn home(&self, me: &Me) -> usize {
        Key::of(me).map_or(0, |key| key.hash(self.seed) as usize)
    }

    pub(super) fn farthest(&self) -> usize {
        self.far
    }

    fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        let groups = self.cells.iter().map(|c| c.group);
        groups.chain([self.masked]).filter(|g| !g.is_empty())
    }

    pub(super) fn tallest(&self, entries: &Table<Me>) -> usize {
        self.groups().map(|g| g.check(entries).1).max().unwrap_or(0)
    }

    /// Panics unless every group is found by its key and well formed; returns the entries in all.
    pub(super) fn check(&self, entries: &Table<Me>) -> usize {
        let used = self.cells.iter().filter(|c| !c.group.is_empty()).count();
        assert_eq!(used, self.keys);
        assert!(self.cells.len() >= 2 * used);
        for (at, cell) in self.cells.iter().enumerate() {
            if let Some(key) = entries.at(cell.group.first).and_then(Key::of) {
                assert_eq!(self.find(entries, key), Some(at));
                assert_eq!(cell.hash, key.hash(self.seed));
                assert!(self.distance(at, cell.hash) <= self.far);
            }
        }
        let keyed = self.classes.iter().sum::<u32>() as usize;
        let all = self.groups().map(|g| g.check(entries).0).sum();
        assert_eq!(keyed + self.masked.check(entries).0, all);
        all
    }
}
