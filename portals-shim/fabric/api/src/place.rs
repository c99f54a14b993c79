//! Where ranks are: the one place that knows node and process ids.
//!
//! Node ids count from 1 on every fabric, because old programs take node id 0 for "the own node".
//! Ranks fill nodes in order: with R ranks on a node, rank r is on node `r / R + 1` and has the
//! process id [`RANK_PID`] `+ r % R` there, unless it wishes for another.

use portals_core::ProcessId;
use std::ops::Range;

/// The first node id.
pub const FIRST_NID: u32 = 1;

/// The process id of the first rank on each node.
pub const RANK_PID: u32 = 128;

/// The largest process id; headers on the SeaStar have 16 bits for it, and all ones is no process.
pub const LARGEST_PID: u32 = 0xfffe;

/// The most ranks of one node.
pub const MOST_PER_NODE: u32 = 64;

/// The node id of the node at `index`, from 0.
pub const fn nid(index: u32) -> u32 {
    FIRST_NID + index
}

/// The index, from 0, of the node with id `nid`; `None` for an id below the first.
pub const fn node_index(nid: u32) -> Option<u32> {
    nid.checked_sub(FIRST_NID)
}

/// How many ranks share a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    per_node: u32,
}

impl Default for Placement {
    fn default() -> Self {
        Self::ONE
    }
}

impl Placement {
    /// Every rank on a node of its own.
    pub const ONE: Self = Self { per_node: 1 };

    /// `per_node` ranks on each node, the last may have fewer; 1 to [`MOST_PER_NODE`].
    pub const fn new(per_node: u32) -> Option<Self> {
        if per_node == 0 || per_node > MOST_PER_NODE {
            return None;
        }
        Some(Self { per_node })
    }

    /// Ranks of a node.
    pub const fn per_node(self) -> u32 {
        self.per_node
    }

    /// The process of a rank that wishes for nothing.
    pub const fn of(self, rank: u32) -> ProcessId {
        self.of_pid(rank, RANK_PID + rank % self.per_node)
    }

    /// The process of a rank that has process id `pid`.
    pub const fn of_pid(self, rank: u32, pid: u32) -> ProcessId {
        ProcessId::new(nid(rank / self.per_node), pid)
    }

    /// The ranks of the node with id `nid`, of a job without end.
    pub fn ranks_of(self, nid: u32) -> Range<usize> {
        let first = node_index(nid).and_then(|node| node.checked_mul(self.per_node));
        match first.and_then(|f| Some(f..f.checked_add(self.per_node)?)) {
            Some(ranks) => ranks.start as usize..ranks.end as usize,
            None => 0..0,
        }
    }

    /// The first rank of `to`'s node for which `is` says that it is `to`.
    pub fn find(self, to: ProcessId, mut is: impl FnMut(usize) -> bool) -> Option<usize> {
        self.ranks_of(to.nid).find(|rank| is(*rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_leads_back_to_its_rank() {
        for per_node in [1, 2, 3, MOST_PER_NODE] {
            let place = Placement::new(per_node).unwrap();
            for rank in 0..200 {
                let id = place.of(rank);
                assert!(id.nid >= 1 && id.pid >= RANK_PID);
                let found = place.find(id, |r| place.of(r as u32) == id);
                assert_eq!(found, Some(rank as usize));
            }
            assert_eq!(place.ranks_of(0), 0..0);
            assert_eq!(place.find(place.of(3), |_| false), None);
        }
        assert_eq!(Placement::new(0), None);
        assert_eq!(Placement::new(MOST_PER_NODE + 1), None);
    }
}
