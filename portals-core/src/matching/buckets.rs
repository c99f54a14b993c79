//! The entries of one match list that ignore the same bits, in groups by key.
//!
//! The key of an entry is (nid, pid, the bits it compares), where nid and pid may be
//! [`ANY`]. The groups are found in an open table with linear probing, at most half full. The hash
//! is keyed with a seed made from the interface number, not from a clock or an address: equal
//! programs search equally. Only the own process adds keys; a peer only looks for them, in at most
//! `far` + 1 cells. When keys meet so badly that one is more than [`FAR`] cells from home the table
//! is built again with the next seed.
//!
//! A list of 100,000 entries fits no cache, so a delivery is arranged to wait for memory as rarely
//! as it can: cells are small (3 MB for 100,000 keys), and name both the first entry of the group,
//! for its key, and that entry's descriptor, so that the processor fetches the two at once. Keys are
//! kept beside the entries (1.6 MB), which are not touched when the first descriptor takes the
//! message.

use super::groups::Group;
use super::{Me, NONE};
use crate::handle::{Handle, MdHandle};
use crate::table::Table;
use crate::types::{ANY, ProcessId};
use alloc::vec::Vec;

/// The farthest cell from home. Among 131,072 keys at half load the farthest expected is about 40.
const FAR: usize = 128;
const LEAST: usize = 64;
/// Seeds tried for one size, before the table is doubled instead.
const SEEDS: u32 = 4;

/// What an entry compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) id: ProcessId,
    pub(super) bits: u64,
}

impl Key {
    /// Of no entry.
    pub(super) const BLANK: Self = Self {
        id: ProcessId::ANY,
        bits: 0,
    };

    pub(super) fn of(me: &Me) -> Self {
        Self {
            id: me.match_id,
            bits: me.match_bits & !me.ignore_bits,
        }
    }

    /// Which halves of the id are open: bit 0 the nid, bit 1 the pid.
    pub(super) fn class(self) -> usize {
        usize::from(self.id.nid == ANY) | usize::from(self.id.pid == ANY) << 1
    }

    /// The halves of one product, added without carry: keys of a pattern are spread by it as the tests show, and only the own
    /// process makes keys.
    #[inline(always)]
    fn hash(self, seed: u64) -> u32 {
        let id = u64::from(self.id.nid) << 32 | u64::from(self.id.pid);
        let (a, b) = (self.bits ^ seed, id ^ seed.rotate_left(32));
        let product = u128::from(a) * u128::from(b);
        let h = product as u64 ^ (product >> 64) as u64;
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

/// A group in the table; a free cell has none.
#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    /// The first entry of the group, or [`NONE`].
    first: u32,
    /// The descriptor of that entry, or [`Cell::NO_MD`].
    md: MdHandle,
}

impl Cell {
    const NO_MD: MdHandle = MdHandle(Handle::INVALID);
    const FREE: Self = Self {
        hash: 0,
        first: NONE,
        md: Self::NO_MD,
    };

    const fn is_free(self) -> bool {
        self.first == NONE
    }

    fn group(self, entries: &Table<Me>) -> Group {
        Group::beginning_with(entries, self.first)
    }

    fn set(&mut self, entries: &Table<Me>, group: Group) {
        self.first = group.first;
        let md = entries.at(group.first).and_then(|me| me.md);
        self.md = md.unwrap_or(Self::NO_MD);
    }

    fn md(self) -> Option<MdHandle> {
        (self.md != Self::NO_MD).then_some(self.md)
    }
}

#[derive(Debug)]
pub(super) struct Buckets {
    seed: u64,
    /// A power of two.
    cells: Vec<Cell>,
    /// Cells in use.
    keys: usize,
    /// No group is farther from home.
    far: usize,
    /// Entries of each class of keys.
    classes: [u32; 4],
    /// A bit for each class that has any.
    present: u8,
    /// An entry of the list, of these or not, before which none of these is; [`NONE`] if there are none.
    bound: u32,
}

impl Buckets {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: mix(seed),
            cells: alloc::vec![Cell::FREE; LEAST],
            keys: 0,
            far: 0,
            classes: [0; 4],
            present: 0,
            bound: NONE,
        }
    }

    /// Whether one of these may be before label `label`.
    #[inline(always)]
    pub(super) fn may_precede(&self, entries: &Table<Me>, label: u64) -> bool {
        entries.at(self.bound).is_some_and(|me| me.label < label)
    }

    /// The entry in a slot, which is or was of these or not, leaves the list; behind it is `next`.
    #[inline(always)]
    pub(super) fn leaves(&mut self, slot: u32, next: u32) {
        if self.bound == slot {
            self.bound = next;
        }
    }

    /// Whether every entry names its initiator whole.
    pub(super) fn is_concrete(&self) -> bool {
        self.present <= 1
    }

    /// The descriptor of the first entry of the group of `key`, if there is the group; `keys` are those of the
    /// entries by slot.
    #[inline]
    pub(super) fn first_md(&self, keys: &[Key], key: Key) -> Option<Option<MdHandle>> {
        let is_it = |slot: u32| keys.get(slot as usize) == Some(&key);
        Some(self.cells[self.find_by(key.hash(self.seed), is_it)?].md())
    }

    /// The first entry of each group that a message with this key may be taken by.
    #[inline(always)]
    pub(super) fn for_first(&self, entries: &Table<Me>, key: Key, mut ask: impl FnMut(u32)) {
        let open = key.class() as u8;
        let mut classes = self.present;
        while classes != 0 {
            let class = classes.trailing_zeros() as u8;
            classes &= classes - 1;
            // The classes differ only for an initiator whose id is concrete.
            if open & !class != 0 {
                continue;
            }
            let key = Key {
                id: ProcessId {
                    nid: if class & 1 == 0 { key.id.nid } else { ANY },
                    pid: if class & 2 == 0 { key.id.pid } else { ANY },
                },
                ..key
            };
            if let Some(at) = self.find(entries, key) {
                ask(self.cells[at].first);
            }
        }
    }

    /// The descriptor of an entry is another one.
    pub(super) fn note_md(&mut self, entries: &Table<Me>, slot: u32) {
        if let Some(key) = entries.at(slot).map(Key::of)
            && let Some(at) = self.find(entries, key)
        {
            let group = self.cells[at].group(entries);
            self.cells[at].set(entries, group);
        }
    }

    /// The cell of `key`.
    #[inline]
    fn find(&self, entries: &Table<Me>, key: Key) -> Option<usize> {
        self.find_by(key.hash(self.seed), |slot| {
            entries.at(slot).map(Key::of) == Some(key)
        })
    }

    /// The cell with this hash of which `is_it` says so, given the first entry of its group.
    #[inline(always)]
    fn find_by(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let mask = self.cells.len() - 1;
        let mut at = hash as usize & mask;
        for _ in 0..=self.far {
            let cell = self.cells[at];
            if cell.is_free() {
                return None;
            }
            if cell.hash == hash && is_it(cell.first) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Takes the first free cell from home for `cell`. There is one: half of them are free.
    #[inline(always)]
    fn take(&mut self, cell: Cell) {
        let mask = self.cells.len() - 1;
        let mut at = cell.hash as usize & mask;
        while !self.cells[at].is_free() {
            at = (at + 1) & mask;
        }
        self.far = self.far.max(self.distance(at, cell.hash));
        self.cells[at] = cell;
    }

    /// How far cell `at` is from where `hash` would put it.
    fn distance(&self, at: usize, hash: u32) -> usize {
        at.wrapping_sub(hash as usize) & (self.cells.len() - 1)
    }

    pub(super) fn insert(&mut self, entries: &mut Table<Me>, slot: u32) {
        let Some(me) = entries.at(slot) else { return };
        let key = Key::of(me);
        if !self.may_precede(entries, me.label) {
            self.bound = slot;
        }
        self.classes[key.class()] += 1;
        self.present |= 1 << key.class();
        let md = me.md.unwrap_or(Cell::NO_MD);
        let mut hash = key.hash(self.seed);
        let is_it = |slot| entries.at(slot).map(Key::of) == Some(key);
        if let Some(at) = self.find_by(hash, is_it) {
            return self.join(entries, at, slot);
        }
        if (self.keys + 1) * 2 > self.cells.len() {
            self.rebuild(entries, self.cells.len() * 2);
            hash = key.hash(self.seed);
        }
        // It is alone, as an entry is that is in no index.
        let first = slot;
        self.take(Cell { hash, first, md });
        self.keys += 1;
        if self.far > FAR {
            self.scatter(entries);
        }
    }

    /// Puts an entry beside others of its key, whose cell is `at`.
    #[inline(never)]
    fn join(&mut self, entries: &mut Table<Me>, at: usize, slot: u32) {
        let mut group = self.cells[at].group(entries);
        group.insert(entries, slot);
        self.cells[at].set(entries, group);
    }

    pub(super) fn remove(&mut self, entries: &mut Table<Me>, slot: u32) {
        let Some(me) = entries.at(slot) else { return };
        let (key, alone) = (Key::of(me), me.node.after == NONE);
        let is_it = |first| first == slot || entries.at(first).map(Key::of) == Some(key);
        let Some(at) = self.find_by(key.hash(self.seed), is_it) else {
            return;
        };
        let left = &mut self.classes[key.class()];
        *left -= 1;
        self.present ^= u8::from(*left == 0) << key.class();
        if alone && self.cells[at].first == slot {
            self.keys -= 1;
            self.close(at);
        } else {
            self.part(entries, at, slot);
        }
    }

    /// Takes an entry from others of its key, whose cell is `at`.
    #[inline(never)]
    fn part(&mut self, entries: &mut Table<Me>, at: usize, slot: u32) {
        let mut group = self.cells[at].group(entries);
        group.remove(entries, slot);
        self.cells[at].set(entries, group);
    }

    /// Moves back the cells that were pushed past the freed cell `hole`.
    fn close(&mut self, mut hole: usize) {
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let cell = self.cells[at];
            if cell.is_free() {
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
            if let Some(key) = entries.at(cell.first).map(Key::of) {
                let hash = key.hash(self.seed);
                self.take(Cell { hash, ..cell });
            }
        }
    }
}

#[cfg(test)]
impl Buckets {
    pub(super) fn home(&self, me: &Me) -> usize {
        Key::of(me).hash(self.seed) as usize
    }

    pub(super) fn farthest(&self) -> usize {
        self.far
    }

    pub(super) fn groups(&self, entries: &Table<Me>) -> impl Iterator<Item = Group> {
        let used = self.cells.iter().filter(|c| !c.is_free());
        used.map(|c| c.group(entries))
    }

    /// Panics unless every group is found by its key and well formed, and has `ignore_bits`; returns the entries in
    /// all.
    pub(super) fn check(&self, entries: &Table<Me>, ignore_bits: u64) -> usize {
        let used = self.cells.iter().filter(|c| !c.is_free()).count();
        assert_eq!(used, self.keys);
        assert!(self.cells.len() >= 2 * used);
        for (at, cell) in self.cells.iter().enumerate() {
            if let Some(first) = entries.at(cell.first) {
                let key = Key::of(first);
                assert_eq!(first.ignore_bits, ignore_bits);
                assert_eq!(self.find(entries, key), Some(at));
                assert_eq!((cell.hash, cell.md()), (key.hash(self.seed), first.md));
                assert!(self.distance(at, cell.hash) <= self.far);
            }
        }
        let keyed = self.classes.iter().sum::<u32>() as usize;
        let all: usize = self.groups(entries).map(|g| g.check(entries).0).sum();
        assert_eq!(keyed, all);
        let first = |group: Group| entries.at(group.first).map(|me| me.label);
        if let Some(least) = self.groups(entries).filter_map(first).min() {
            assert!(entries.at(self.bound).is_some_and(|me| me.label <= least));
        }
        let has = |class| self.present >> class & 1 == 1;
        assert!((0..4).all(|class| has(class) == (self.classes[class] > 0)));
        all
    }
}
