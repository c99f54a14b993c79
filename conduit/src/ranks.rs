//! Who is who: the ranks of the job, and the interface's names for them.

use portals_shim::ProcessId;

/// The ranks of the job, of which this process is one.
///
/// # Invariants
///
/// Ranks are numbered from 0 without a gap, this one is among them, and none has the name of another.
#[derive(Debug)]
pub(crate) struct Ranks {
    me: u32,
    count: u32,
    names: Vec<ProcessId>,
}

impl Ranks {
    /// Names by rank, and which one is this process; `None` if there are more ranks than a `u32` counts, or `me` is none.
    pub(crate) fn new(me: u32, names: Vec<ProcessId>) -> Option<Self> {
        let count = u32::try_from(names.len()).ok()?;
        (me < count).then_some(Self { me, count, names })
    }

    /// This rank.
    #[inline(always)]
    pub(crate) fn me(&self) -> u32 {
        self.me
    }

    /// How many there are.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The rank that stands `distance` above this one, around the ring.
    pub(crate) fn above(&self, distance: u32) -> u32 {
        let count = u64::from(self.count);
        ((u64::from(self.me) + u64::from(distance)) % count) as u32
    }

    /// The rank that stands `distance` below this one, around the ring.
    pub(crate) fn below(&self, distance: u32) -> u32 {
        self.above(self.count - distance % self.count)
    }

    /// The interface's name of a rank; of a number that is none, a name that no process has.
    #[inline]
    pub(crate) fn name(&self, rank: u32) -> ProcessId {
        let name = self.names.get(rank as usize).copied();
        name.unwrap_or(ProcessId::ANY)
    }

    /// The rank of a name; a number that is none if it is of another job.
    pub(crate) fn of(&self, name: ProcessId) -> u32 {
        let found = self.names.iter().position(|own| *own == name);
        found.map_or(u32::MAX, |rank| rank as u32)
    }

    /// Whether `rank` has this name.
    #[inline]
    pub(crate) fn is(&self, rank: u32, name: ProcessId) -> bool {
        self.names.get(rank as usize) == Some(&name)
    }

    /// How many are on this rank's node, itself among them.
    pub(crate) fn on_this_node(&self) -> u64 {
        let here = self.name(self.me).nid;
        self.names.iter().filter(|name| name.nid == here).count() as u64
    }

    /// All ranks with their names, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, ProcessId)> {
        (0u32..).zip(self.names.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(me: u32, count: u32) -> Option<Ranks> {
        let name = |pid| ProcessId { nid: 7, pid };
        Ranks::new(me, (10..10 + count).map(name).collect())
    }

    #[test]
    fn a_rank_is_one_of_those_that_are_there() {
        assert!(ranks(2, 3).is_some());
        assert!(ranks(3, 3).is_none());
        assert!(ranks(0, 0).is_none());
    }

    #[test]
    fn names_and_numbers_belong_together() {
        let ranks = ranks(1, 3).unwrap();
        for (rank, name) in ranks.iter() {
            assert_eq!((ranks.name(rank), ranks.of(name)), (name, rank));
            assert!(ranks.is(rank, name) && !ranks.is((rank + 1) % 3, name));
        }
        let other = ProcessId { nid: 7, pid: 9 };
        assert!(ranks.of(other) >= ranks.count());
        assert_eq!(ranks.name(3), ProcessId::ANY);
    }

    #[test]
    fn those_on_this_node_are_counted() {
        let names = [(1, 1), (2, 1), (1, 2)].map(|(nid, pid)| ProcessId { nid, pid });
        let counted = |me| Ranks::new(me, names.to_vec()).unwrap().on_this_node();
        assert_eq!([0, 1, 2].map(counted), [2, 1, 2]);
    }

    #[test]
    fn distances_go_around_the_ring() {
        let ranks = ranks(1, 5).unwrap();
        assert_eq!([1, 3, 4, 9].map(|d| ranks.above(d)), [2, 4, 0, 0]);
        assert_eq!([1, 2, 4, 5].map(|d| ranks.below(d)), [0, 4, 2, 1]);
    }
}
