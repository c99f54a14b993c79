//! Who is who: the ranks of the job, and their process ids.

use portals_shim::ProcessId;

/// The ranks of the job, of which this process is one.
///
/// # Invariants
///
/// Ranks are numbered from 0 without a gap, and this one is among them.
#[derive(Debug)]
pub(crate) struct Ranks {
    me: u32,
    count: u32,
    processes: Vec<ProcessId>,
}

impl Ranks {
    /// Process ids by rank, and which rank is this one; `None` if there are more than a `u32` counts, or `me` is none of them.
    pub(crate) fn new(me: u32, processes: Vec<ProcessId>) -> Option<Self> {
        let count = u32::try_from(processes.len()).ok()?;
        (me < count).then_some(Self {
            me,
            count,
            processes,
        })
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

    /// The process id of a rank; [`ProcessId::ANY`], which no process has, if there is no such rank.
    #[inline]
    pub(crate) fn process(&self, rank: u32) -> ProcessId {
        let process = self.processes.get(rank as usize).copied();
        process.unwrap_or(ProcessId::ANY)
    }

    /// The rank of a process; `u32::MAX`, which is none, if it is of another job.
    pub(crate) fn rank_of(&self, process: ProcessId) -> u32 {
        let found = self.processes.iter().position(|own| *own == process);
        found.map_or(u32::MAX, |rank| rank as u32)
    }

    /// Whether `rank` has this process id.
    #[inline]
    pub(crate) fn has(&self, rank: u32, process: ProcessId) -> bool {
        self.processes.get(rank as usize) == Some(&process)
    }

    /// How many are on this rank's node, itself among them.
    pub(crate) fn on_this_node(&self) -> u64 {
        let here = self.process(self.me).nid;
        let here = self.processes.iter().filter(|p| p.nid == here);
        here.count() as u64
    }

    /// All ranks with their process ids, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, ProcessId)> {
        (0u32..).zip(self.processes.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(me: u32, count: u32) -> Option<Ranks> {
        let process = |pid| ProcessId { nid: 7, pid };
        Ranks::new(me, (10..10 + count).map(process).collect())
    }

    #[test]
    fn a_rank_is_one_of_those_that_are_there() {
        assert!(ranks(2, 3).is_some());
        assert!(ranks(3, 3).is_none());
        assert!(ranks(0, 0).is_none());
    }

    #[test]
    fn ranks_and_process_ids_belong_together() {
        let ranks = ranks(1, 3).unwrap();
        for (rank, process) in ranks.iter() {
            assert_eq!(
                (ranks.process(rank), ranks.rank_of(process)),
                (process, rank)
            );
            assert!(ranks.has(rank, process) && !ranks.has((rank + 1) % 3, process));
        }
        let other = ProcessId { nid: 7, pid: 9 };
        assert!(ranks.rank_of(other) >= ranks.count());
        assert_eq!(ranks.process(3), ProcessId::ANY);
    }

    #[test]
    fn those_on_this_node_are_counted() {
        let all = [(1, 1), (2, 1), (1, 2)].map(|(nid, pid)| ProcessId { nid, pid });
        let counted = |me| Ranks::new(me, all.to_vec()).unwrap().on_this_node();
        assert_eq!([0, 1, 2].map(counted), [2, 1, 2]);
    }

    #[test]
    fn distances_go_around_the_ring() {
        let ranks = ranks(1, 5).unwrap();
        assert_eq!([1, 3, 4, 9].map(|d| ranks.above(d)), [2, 4, 0, 0]);
        assert_eq!([1, 2, 4, 5].map(|d| ranks.below(d)), [0, 4, 2, 1]);
    }
}
