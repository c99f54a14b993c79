//! Match entries and the ordered match lists of the portal table (rule 5).
//!
//! A list is threaded through the entries (`prev`, `next`), so inserting next to an entry and
//! unlinking cost O(1) and the walk from head to tail is the specification's order.

use crate::handle::{MdHandle, MeHandle};
use crate::table::Table;
use crate::types::{ProcessId, Unlink};

#[derive(Debug)]
pub(crate) struct Me {
    pub(crate) match_id: ProcessId,
    pub(crate) match_bits: u64,
    pub(crate) ignore_bits: u64,
    pub(crate) unlink: Unlink,
    pub(crate) pt_index: u32,
    pub(crate) md: Option<MdHandle>,
    prev: Option<MeHandle>,
    next: Option<MeHandle>,
}

impl Me {
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
            prev: None,
            next: None,
        }
    }

    pub(crate) fn admits(&self, initiator: ProcessId, bits: u64) -> bool {
        self.match_id.admits(initiator) && (self.match_bits ^ bits) & !self.ignore_bits == 0
    }

    /// Whether some message could satisfy both entries.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let ids = |a: u32, b: u32| a == crate::types::ANY || b == crate::types::ANY || a == b;
        ids(self.match_id.nid, other.match_id.nid)
            && ids(self.match_id.pid, other.match_id.pid)
            && (self.match_bits ^ other.match_bits) & !(self.ignore_bits | other.ignore_bits) == 0
    }
}

/// One portal index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MatchList {
    head: Option<MeHandle>,
    tail: Option<MeHandle>,
    len: usize,
}

/// All entries of an interface and the lists they form.
#[derive(Debug)]
pub(crate) struct MatchTable {
    interface: u8,
    entries: Table<Me>,
    lists: alloc::vec::Vec<MatchList>,
}

impl MatchTable {
    pub(crate) fn new(interface: u8, portals: usize) -> Self {
        Self {
            interface,
            entries: Table::new(),
            lists: alloc::vec![MatchList::default(); portals],
        }
    }

    pub(crate) fn get(&self, me: MeHandle) -> Option<&Me> {
        self.entries.get(me.key(self.interface)?)
    }

    pub(crate) fn get_mut(&mut self, me: MeHandle) -> Option<&mut Me> {
        self.entries.get_mut(me.key(self.interface)?)
    }

    /// Entries on all lists.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

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
            next: self.lists.get(pt_index as usize).and_then(|l| l.head),
        }
    }

    pub(crate) fn push_front(&mut self, me: Me) -> Option<MeHandle> {
        let at = self.lists.get(me.pt_index as usize)?.head;
        self.link(me, None, at)
    }

    pub(crate) fn push_back(&mut self, me: Me) -> Option<MeHandle> {
        let at = self.lists.get(me.pt_index as usize)?.tail;
        self.link(me, at, None)
    }

    pub(crate) fn insert_before(&mut self, base: MeHandle, me: Me) -> Option<MeHandle> {
        let prev = self.get(base)?.prev;
        self.link(me, prev, Some(base))
    }

    pub(crate) fn insert_after(&mut self, base: MeHandle, me: Me) -> Option<MeHandle> {
        let next = self.get(base)?.next;
        self.link(me, Some(base), next)
    }

    fn link(
        &mut self,
        mut me: Me,
        prev: Option<MeHandle>,
        next: Option<MeHandle>,
    ) -> Option<MeHandle> {
        let pt = me.pt_index as usize;
        me.prev = prev;
        me.next = next;
        let (slot, generation) = self.entries.insert(me)?;
        let handle = MeHandle::of(self.interface, generation, slot);
        match prev.and_then(|p| self.get_mut(p)) {
            Some(p) => p.next = Some(handle),
            None => self.lists[pt].head = Some(handle),
        }
        match next.and_then(|n| self.get_mut(n)) {
            Some(n) => n.prev = Some(handle),
            None => self.lists[pt].tail = Some(handle),
        }
        self.lists[pt].len += 1;
        Some(handle)
    }

    pub(crate) fn remove(&mut self, me: MeHandle) -> Option<Me> {
        let entry = self.entries.remove(me.key(self.interface)?)?;
        let pt = entry.pt_index as usize;
        match entry.prev.and_then(|p| self.get_mut(p)) {
            Some(p) => p.next = entry.next,
            None => self.lists[pt].head = entry.next,
        }
        match entry.next.and_then(|n| self.get_mut(n)) {
            Some(n) => n.prev = entry.prev,
            None => self.lists[pt].tail = entry.prev,
        }
        self.lists[pt].len -= 1;
        Some(entry)
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.lists.fill(MatchList::default());
    }
}

pub(crate) struct Walk<'a> {
    table: &'a MatchTable,
    next: Option<MeHandle>,
}

impl<'a> Iterator for Walk<'a> {
    type Item = (MeHandle, &'a Me);

    fn next(&mut self) -> Option<Self::Item> {
        let handle = self.next?;
        let me = self.table.get(handle)?;
        self.next = me.next;
        Some((handle, me))
    }
}
