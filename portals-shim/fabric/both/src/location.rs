//! What a rank says of where it runs, beside its address on the device.

use super::group::Spot;
use fabric_api::place::Placement;
use host::processors::{self, Processors};

/// Where a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// Which memory it may share.
    pub(super) spot: Spot,
    /// Its machine. Nodes and groups that are named on one machine have the processors of that machine in common.
    machine: u64,
    processors: Processors,
}

impl Location {
    /// Of the calling thread; the arguments as in [`Spot::new`].
    pub(super) fn own(host: &str, place: Placement, rank: u32, most: u32) -> Self {
        Self {
            spot: Spot::new(host, place, rank, most),
            machine: host::hash::fnv1a(fabric_shm::machine_of(host).as_bytes()),
            processors: Processors::own(),
        }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.spot.to_bytes().to_vec();
        bytes.extend(self.machine.to_be_bytes());
        bytes.extend(self.processors.to_bytes());
        bytes
    }

    /// What a peer has said; `None` if it makes no sense.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (spot, rest) = bytes.split_first_chunk::<{ Spot::BYTES }>()?;
        let (machine, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            spot: Spot::from_bytes(spot)?,
            machine: u64::from_be_bytes(*machine),
            processors: Processors::from_bytes(rest)?,
        })
    }
}

/// Whether a rank has no processor of its own among the ranks of its machine; `all` by rank, none for those that have not
/// been asked. `at_once` as in [`processors::is_crowded`].
pub(super) fn is_crowded(rank: u32, all: &[Option<Location>], at_once: usize) -> bool {
    let Some(own) = all.get(rank as usize).copied().flatten() else {
        return false;
    };
    let here = (all.iter().flatten()).filter(|l| l.machine == own.machine);
    let sets: Vec<Processors> = here.map(|l| l.processors).collect();
    let before = all.iter().take(rank as usize).flatten();
    let number = before.filter(|l| l.machine == own.machine).count();
    processors::is_crowded(number, &sets, at_once)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank of a node on a machine that may run there.
    fn at(machine: &str, node: u32, on: &[usize]) -> Option<Location> {
        let place = Placement::new(2).unwrap();
        let host = format!("name/{machine}/ipc");
        Some(Location {
            processors: Processors::of(on),
            ..Location::own(&host, place, 2 * node, 0)
        })
    }

    #[test]
    fn ranks_of_a_machine_count_whatever_memory_they_share() {
        let all = [
            at("a", 0, &[0]),
            at("a", 1, &[0]),
            at("b", 2, &[0]),
            None,
            at("b", 3, &[1]),
        ];
        assert_ne!(all[0].unwrap().spot, all[1].unwrap().spot);
        let crowded = (0..5).filter(|r| is_crowded(*r, &all, 1));
        assert_eq!(crowded.collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn bound_ranks_are_a_crowd_only_where_they_share_a_processor() {
        let apart = [at("a", 0, &[0]), at("a", 0, &[1])];
        assert!(!is_crowded(0, &apart, 1) && !is_crowded(1, &apart, 1));
        let together = [at("a", 0, &[3]), at("a", 0, &[3])];
        assert!(is_crowded(0, &together, 1) && is_crowded(1, &together, 1));
    }

    #[test]
    fn a_location_travels_as_bytes() {
        for on in [&[][..], &[0], &[5, 64, 1023]] {
            let location = at("a", 1, on).unwrap();
            let mut bytes = location.to_bytes();
            assert_eq!(Location::from_bytes(&bytes), Some(location));
            bytes.pop();
            assert_eq!(Location::from_bytes(&bytes), None);
        }
        assert_eq!(Location::from_bytes(&[]), None);
    }
}
