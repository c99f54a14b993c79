//! Match entries and the ordered match lists of the portal table (rule 5).
//!
//! A list is threaded through the entries (`prev`, `next`), so inserting next to an entry and
//! unlinking need no search, and the walk from head to tail is the specification's order. A search walks; after one that
//! has looked at more than [`WALKED`] entries there is an [`Index`] of the list, but for an interface that always walks, and
//! as long as there is one it is kept up and searched instead. A list whose first entries take what comes, as those of
//! receives in their order do, is never sorted:
//!
//! ```text
//!  list      A ── B ── C ── D ── E ── F ── …      label: a number that grows from head to tail
//!            │    │    │    │    │    │
//!  all bits  A ───┼────C────┼────┼────┼─ …        group of one key (nid, pid, bits), by hash
//!            ·    B ───┼────┼────E────┼─ …        group of another key
//!  masked    ·    ·    ·    D ── ─ ── F ─ …       group of a key among entries that ignore the same bits
//! ```
//!
//! A message can only be taken by at most four groups (node and process id concrete or not) of the
//! entries that compare all 64 bits, four of those that ignore the same bits, for each of a few sets of
//! bits, and by the group of entries that ignore still others. Merging these by label
//! visits the candidates in the order of the list; entries with other keys cost nothing.

mod buckets;
mod groups;
mod index;
mod order;

#[cfg(test)]
mod tests;

use crate::handle::{MdHandle, MeHandle};
use crate::ni::MeSpec;
use crate::table::Table;
use crate::types::{ANY, ProcessId, Unlink};
use alloc::boxed::Box;
use buckets::Key;
use groups::Node;
use index::Index;

/// Entries that a search may look at in a list that does not get an index by it.
pub(crate) const WALKED: u32 = 32;
/// The longest list that has no index. Walking 16 entries costs about as much as finding one.
const SHORT: usize = 16;

/// No entry; above every slot.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Me {
    pub(crate) match_id: ProcessId,
    pub(crate) match_bits: u64,
    pub(crate) ignore_bits: u64,
    pub(crate) unlink: Unlink,
    pub(crate) pt_index: u32,
    /// Set by [`MatchTable::set_md`].
    pub(crate) md: Option<MdHandle>,
    /// Slots of the neighbours on the list.
    prev: u32,
    next: u32,
    /// Grows from head to tail while the list has an index, and means nothing while it has none.
    label: u64,
    /// Place in its group; as the label.
    node: Node,
}

impl Me {
    #[inline(always)]
    pub(crate) fn new(
        match_id: ProcessId,
        match_bits: u64,
        ignore_bits: u64,
        unlink: Unlink,
        pt_index: u32,
    ) -> Self {
        Self {
            match_id,
            match_bits,
            ignore_bits,
            unlink,
            pt_index,
            md: None,
            prev: NONE,
            next: NONE,
            label: 0,
            node: Node::ALONE,
        }
    }

    pub(crate) fn admits(&self, initiator: ProcessId, bits: u64) -> bool {
        (self.match_bits ^ bits) & !self.ignore_bits == 0 && self.match_id.admits(initiator)
    }

    /// Whether some message could satisfy both entries.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let ids = |a: u32, b: u32| a == ANY || b == ANY || a == b;
        ids(self.match_id.nid, other.match_id.nid)
            && ids(self.match_id.pid, other.match_id.pid)
            && (self.match_bits ^ other.match_bits) & !(self.ignore_bits | other.ignore_bits) == 0
    }
}

/// One portal index.
#[derive(Debug)]
struct MatchList {
    head: u32,
    tail: u32,
    len: usize,
    /// Made after a search has looked at more than [`WALKED`] entries, dropped when the list shrinks to [`SHORT`].
    index: Option<Box<Index>>,
}

impl MatchList {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
        index: None,
    };
}

/// What a message asks of a descriptor: something if that takes it. No function, of which there would be one for both ways of
/// searching.
pub(crate) trait Take<T>: Copy {
    fn of(&self, md: MdHandle) -> Option<T>;
}

/// All entries of an interface and the lists they form.
#[derive(Debug)]
pub(crate) struct MatchTable {
    interface: u8,
    entries: Table<Me>,
    /// What each slot's entry compares, if it is in an index, beside the entries because a search touches nothing else of
    /// most. Of an entry that ignores bits it means nothing.
    keys: alloc::vec::Vec<Key>,
    lists: alloc::vec::Vec<MatchList>,
    /// No list gets an index.
    walks: bool,
}

impl MatchTable {
    pub(crate) fn new(interface: u8, portals: usize) -> Self {
        Self {
            interface,
            entries: Table::new(),
            keys: alloc::vec::Vec::new(),
            lists: (0..portals).map(|_| MatchList::EMPTY).collect(),
            walks: false,
        }
    }

    /// No list gets an index from now on.
    pub(crate) fn walk_always(&mut self) {
        self.walks = true;
    }

    #[inline]
    pub(crate) fn get(&self, me: MeHandle) -> Option<&Me> {
        self.entries.get(me.key(self.interface)?)
    }

    fn get_mut(&mut self, me: MeHandle) -> Option<&mut Me> {
        self.entries.get_mut(me.key(self.interface)?)
    }

    fn handle(&self, slot: u32) -> MeHandle {
        MeHandle::of(self.interface, self.entries.generation(slot), slot)
    }

    /// The slot of a live entry.
    #[inline]
    pub(crate) fn slot(&self, me: MeHandle) -> Option<u32> {
        let key = me.key(self.interface)?;
        self.entries.get(key).map(|_| key.0)
    }

    /// The entry in a slot that is in use.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<&Me> {
        self.entries.at(slot)
    }

    /// Portal indexes.
    pub(crate) fn portals(&self) -> usize {
        self.lists.len()
    }

    /// Entries on all lists.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn list_len(&self, pt_index: u32) -> usize {
        self.lists.get(pt_index as usize).map_or(0, |l| l.len)
    }

    /// The lowest portal index whose list is empty.
    pub(crate) fn first_empty(&self) -> Option<u32> {
        self.lists.iter().position(|l| l.len == 0).map(|i| i as u32)
    }

    /// Head to tail.
    pub(crate) fn walk(&self, pt_index: u32) -> Walk<'_> {
        Walk {
            table: self,
            next: self.lists.get(pt_index as usize).map_or(NONE, |l| l.head),
        }
    }

    /// The first descriptor, in list order, of an entry that admits the message, for which `take`
    /// returns something; with the number of entries looked at: those visited, not those before it. To be followed by
    /// [`MatchTable::searched`] where they were more than [`WALKED`], or all.
    #[inline(always)]
    pub(crate) fn search<T>(
        &self,
        pt_index: u32,
        initiator: ProcessId,
        bits: u64,
        take: impl Take<T>,
    ) -> Option<(T, u32)> {
        let list = self.lists.get(pt_index as usize)?;
        if let Some(index) = &list.index {
            let key = Key {
                id: initiator,
                bits,
            };
            return index.search(&self.entries, &self.keys, key, &mut |md| take.of(md));
        }
        let (mut looked, mut at) = (0, list.head);
        while let Some(me) = self.entries.at(at) {
            looked += 1;
            if me.admits(initiator, bits)
                && let Some(md) = me.md
                && let Some(taken) = take.of(md)
            {
                return Some((taken, looked));
            }
            at = me.next;
        }
        None
    }

    /// A search of a list has looked at many entries: the next one has an index, if the list is long.
    #[cold]
    #[inline(never)]
    pub(crate) fn searched(&mut self, pt_index: u32) {
        let list = self.lists.get(pt_index as usize);
        if list.is_some_and(|l| l.index.is_none() && l.len > WALKED as usize) && !self.walks {
            self.make_index(pt_index as usize);
        }
    }

    /// Attaches a descriptor to an entry, or takes it away.
    pub(crate) fn set_md(&mut self, me: MeHandle, md: Option<MdHandle>) {
        let Some(entry) = self.get_mut(me) else {
            return;
        };
        entry.md = md;
        let pt_index = entry.pt_index as usize;
        if let Some(index) = self.lists.get_mut(pt_index).and_then(|l| l.index.as_mut()) {
            index.note_md(&self.entries, me.0.slot());
        }
    }

    pub(crate) fn push_front(&mut self, me: Me) -> Option<MeHandle> {
        let at = self.lists.get(me.pt_index as usize)?.head;
        self.link_apart(me, NONE, at)
    }

    pub(crate) fn push_back(&mut self, me: Me) -> Option<MeHandle> {
        let at = self.lists.get(me.pt_index as usize)?.tail;
        self.link_apart(me, at, NONE)
    }

    /// Before the entry in a slot that is in use.
    pub(crate) fn insert_before(&mut self, base: u32, me: Me) -> Option<MeHandle> {
        let prev = self.entries.at(base)?.prev;
        self.link_apart(me, prev, base)
    }

    /// Behind the entry in a slot that is in use.
    pub(crate) fn insert_after(&mut self, base: u32, me: Me) -> Option<MeHandle> {
        let next = self.entries.at(base)?.next;
        self.link_apart(me, base, next)
    }

    /// Inserts an entry with a descriptor before the base, made where it stays ([`MatchTable::insert_before`]). Part of
    /// its caller, which adds one for each message.
    #[inline(always)]
    pub(crate) fn post_before(
        &mut self,
        base: u32,
        spec: &MeSpec,
        md: MdHandle,
    ) -> Option<MeHandle> {
        let (prev, pt_index) = self.entries.at(base).map(|me| (me.prev, me.pt_index))?;
        self.link(pt_index, prev, base, |label| Me {
            match_id: spec.match_id,
            match_bits: spec.match_bits,
            ignore_bits: spec.ignore_bits,
            unlink: spec.unlink,
            pt_index,
            md: Some(md),
            prev,
            next: base,
            label,
            node: Node::ALONE,
        })
    }

    #[inline(never)]
    fn link_apart(&mut self, me: Me, prev: u32, next: u32) -> Option<MeHandle> {
        self.link(me.pt_index, prev, next, |label| Me {
            prev,
            next,
            label,
            ..me
        })
    }

    /// Adds the entry that `make` makes with its label.
    #[inline(always)]
    fn link(
        &mut self,
        pt_index: u32,
        prev: u32,
        next: u32,
        make: impl FnOnce(u64) -> Me,
    ) -> Option<MeHandle> {
        let list = self.lists.get_mut(pt_index as usize)?;
        let label = match list.index {
            Some(_) => order::between(&mut self.entries, prev, next).0,
            None => 0,
        };
        let (slot, generation) = self.entries.insert_with(|| make(label))?;
        match self.entries.at_mut(prev) {
            Some(p) => p.next = slot,
            None => list.head = slot,
        }
        match self.entries.at_mut(next) {
            Some(n) => n.prev = slot,
            None => list.tail = slot,
        }
        list.len += 1;
        if list.index.is_some() {
            self.index(pt_index as usize, slot);
        }
        Some(MeHandle::of(self.interface, generation, slot))
    }

    /// What the entry in a slot compares, for the index that it is put into.
    fn note_key(&mut self, slot: u32) {
        let Some(me) = self.entries.at(slot) else {
            return;
        };
        if slot as usize >= self.keys.len() {
            self.keys.resize(slot as usize + 1, Key::BLANK);
        }
        self.keys[slot as usize] = Key {
            id: me.match_id,
            bits: me.match_bits,
        };
    }

    /// Puts a new entry into the index of its list.
    #[inline(never)]
    fn index(&mut self, pt_index: usize, slot: u32) {
        self.note_key(slot);
        if let Some(index) = self.lists.get_mut(pt_index).and_then(|l| l.index.as_mut()) {
            index.insert(&mut self.entries, slot);
        }
    }

    /// Makes an index of a list.
    fn make_index(&mut self, pt_index: usize) {
        let Some(head) = self.lists.get(pt_index).map(|list| list.head) else {
            return;
        };
        order::label_all(&mut self.entries, head);
        let mut index = Box::new(Index::new(u64::from(self.interface)));
        let mut at = head;
        while let Some(me) = self.entries.at_mut(at) {
            // An earlier index had it elsewhere.
            me.node = Node::ALONE;
            let next = me.next;
            self.note_key(at);
            index.insert(&mut self.entries, at);
            at = next;
        }
        if let Some(list) = self.lists.get_mut(pt_index) {
            list.index = Some(index);
        }
    }

    /// Takes an entry off its list; `None` if there is none.
    pub(crate) fn remove(&mut self, me: MeHandle) -> Option<()> {
        let slot = self.slot(me)?;
        self.unlink(slot)
    }

    /// Takes the entry in a slot, which is in use, off its list.
    #[inline(always)]
    pub(crate) fn unlink(&mut self, slot: u32) -> Option<()> {
        let entry = self.entries.at(slot)?;
        let (prev, next) = (entry.prev, entry.next);
        let list = self.lists.get_mut(entry.pt_index as usize)?;
        if let Some(index) = &mut list.index {
            index.remove(&mut self.entries, slot);
        }
        self.entries.free(slot);
        match self.entries.at_mut(prev) {
            Some(p) => p.next = next,
            None => list.head = next,
        }
        match self.entries.at_mut(next) {
            Some(n) => n.prev = prev,
            None => list.tail = prev,
        }
        list.len -= 1;
        if list.index.is_some() && list.len <= SHORT {
            list.index = None;
        }
        Some(())
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.lists.fill_with(|| MatchList::EMPTY);
    }
}

pub(crate) struct Walk<'a> {
    table: &'a MatchTable,
    next: u32,
}

impl<'a> Iterator for Walk<'a> {
    type Item = (MeHandle, &'a Me);

    fn next(&mut self) -> Option<Self::Item> {
        let slot = self.next;
        let me = self.table.entries.at(slot)?;
        self.next = me.next;
        Some((self.table.handle(slot), me))
    }
}
