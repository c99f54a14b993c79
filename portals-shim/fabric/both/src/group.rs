//! Which ranks of a job share memory: the one place that decides it.
//!
//! Ranks may share memory if they are on one machine, speak one version of the shared-memory fabric, and were told
//! the same limit; and, where nodes are named (`--ranks-per-node` above 1), if they are on one node by name. Of these
//! the first so many ranks, up to the limit, share one memory, then the next, and so on.

use fabric_api::place::Placement;

/// A rank's place: two ranks may share memory exactly if theirs are equal.
///
/// A number, so that it travels beside a rank's address and costs no further exchange. Two places that differ are
/// equal with a probability of 2^-64; the memory that ranks of different machines would then look for is not found,
/// and they use the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot(u64);

impl Spot {
    pub(super) const BYTES: usize = 8;

    /// `most` as in [`FabricConfig::most_sharing`](fabric_api::config::FabricConfig::most_sharing).
    pub(super) fn new(host: &str, place: Placement, rank: u32, most: u32) -> Self {
        let named = place.per_node() > 1;
        let node = if named { place.of(rank).nid } else { 0 };
        let text = format!("{} {most} {node} {host}", fabric_shm::VERSION);
        Self(host::hash::fnv1a(text.as_bytes()))
    }

    pub(super) const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0.to_be_bytes()
    }

    /// What a peer has said; `None` if it makes no sense.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(u64::from_be_bytes(bytes.try_into().ok()?)))
    }
}

/// The ranks that share memory with `rank`, itself included, in ascending order; `spots` by rank, none for those that
/// share with nobody.
pub(super) fn group(rank: u32, spots: &[Option<Spot>], most: u32) -> Vec<u32> {
    let own = spots.get(rank as usize).copied().flatten();
    let Some(own) = own.filter(|_| most != 1) else {
        return vec![rank];
    };
    let same = (0..).zip(spots).filter(|(_, spot)| **spot == Some(own));
    let same: Vec<u32> = same.map(|(rank, _)| rank).collect();
    let size = match most {
        0 => same.len(),
        most => most as usize,
    };
    let group = same.chunks(size).find(|chunk| chunk.contains(&rank));
    group.map_or_else(|| vec![rank], <[u32]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everybody's group, if ranks with the same letter are on one machine.
    fn groups(hosts: &str, per_node: u32, most: u32) -> Vec<Vec<u32>> {
        let place = Placement::new(per_node).unwrap();
        let spot =
            |(rank, host): (u32, char)| Some(Spot::new(&host.to_string(), place, rank, most));
        let spots: Vec<_> = (0..).zip(hosts.chars()).map(spot).collect();
        (0..spots.len() as u32)
            .map(|rank| group(rank, &spots, most))
            .collect()
    }

    #[test]
    fn ranks_of_a_machine_share() {
        assert_eq!(
            groups("aabab", 1, 0),
            [
                vec![0, 1, 3],
                vec![0, 1, 3],
                vec![2, 4],
                vec![0, 1, 3],
                vec![2, 4]
            ]
        );
    }

    #[test]
    fn a_limit_cuts_machines_in_groups_and_one_is_none() {
        assert_eq!(
            groups("aaaaa", 1, 2),
            [vec![0, 1], vec![0, 1], vec![2, 3], vec![2, 3], vec![4]]
        );
        assert_eq!(groups("aaa", 1, 1), [[0], [1], [2]]);
        assert_eq!(groups("aa", 1, 7), [[0, 1], [0, 1]]);
    }

    #[test]
    fn named_nodes_are_machines_of_their_own() {
        assert_eq!(groups("aaaa", 2, 0), [[0, 1], [0, 1], [2, 3], [2, 3]]);
    }

    #[test]
    fn who_was_told_another_limit_or_nothing_shares_with_nobody_else() {
        let spot = |most| Some(Spot::new("a", Placement::ONE, 0, most));
        let spots = [spot(0), spot(0), spot(2), None];
        assert_eq!(group(0, &spots, 0), [0, 1]);
        assert_eq!(group(2, &spots, 2), [2]);
        assert_eq!(group(3, &spots, 0), [3]);
    }

    #[test]
    fn a_spot_travels_as_bytes() {
        let spot = Spot::new("host", Placement::ONE, 3, 0);
        assert_eq!(Spot::from_bytes(&spot.to_bytes()), Some(spot));
        assert_eq!(Spot::from_bytes(&[]), None);
        assert_eq!(Spot::from_bytes(&[0; 9]), None);
    }
}
