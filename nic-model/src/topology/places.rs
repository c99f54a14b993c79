//! Which node sits at which place of the grid.

use super::{NodeId, Topology, TopologyError};
use crate::faults::draw;

/// Draws for places have a stream of their own.
const STREAM: u64 = 0x70_6c61_6365;

impl Topology {
    /// The same grid with node `n` at place `places[n]`. Nodes that `places` does not reach have the places that are left,
    /// in order.
    ///
    /// ```
    /// use nic_model::{NodeId, Topology};
    ///
    /// let ring = Topology::torus([8, 1, 1])?;
    /// assert_eq!(ring.distance(NodeId(0), NodeId(1)), 1);
    /// let far = ring.placed(&[0, 4])?;
    /// assert_eq!(far.distance(NodeId(0), NodeId(1)), 4);
    /// # Ok::<(), nic_model::TopologyError>(())
    /// ```
    ///
    /// # Errors
    /// [`TopologyError::NoPlace`], [`TopologyError::PlaceTwice`].
    pub fn placed(&self, places: &[u16]) -> Result<Self, TopologyError> {
        let unmapped = Self {
            at: Vec::new(),
            ..Self::grid(self.dims, self.wrap)?
        };
        let mut at: Vec<Option<NodeId>> = vec![None; self.nodes()];
        for (n, &place) in places.iter().enumerate() {
            let node = NodeId(u16::try_from(n).unwrap_or(u16::MAX));
            let places = self.nodes();
            let there = at.get_mut(usize::from(place));
            let there = there.ok_or(TopologyError::NoPlace {
                node,
                place,
                places,
            })?;
            if let Some(first) = there.replace(node) {
                let second = node;
                return Err(TopologyError::PlaceTwice {
                    place,
                    first,
                    second,
                });
            }
        }
        let mut next = places.len();
        let at: Vec<NodeId> = at
            .into_iter()
            .map(|node| {
                node.unwrap_or_else(|| {
                    next += 1;
                    NodeId((next - 1) as u16)
                })
            })
            .collect();
        let mut coords = unmapped.coords.clone();
        for (place, node) in at.iter().enumerate() {
            coords[node.index()] = unmapped.coords[place];
        }
        Ok(Self {
            coords,
            at,
            ..unmapped
        })
    }

    /// All places in an order that is drawn from `seed`.
    #[must_use]
    pub fn shuffled_places(&self, seed: u64) -> Vec<u16> {
        let mut places: Vec<u16> = (0..self.nodes()).map(|place| place as u16).collect();
        for left in (1..places.len()).rev() {
            let drawn = u128::from(draw(seed, STREAM, left as u64));
            let other = (drawn * (left as u128 + 1)) >> 64;
            places.swap(left, other as usize);
        }
        places
    }

    /// All places, block after block: a block has `side` places along each axis, fewer at the far ends of the grid. Blocks
    /// follow one another along x, then y, then z, as places within a block do. A side of 0 counts as 1.
    #[must_use]
    pub fn blocked_places(&self, side: u16) -> Vec<u16> {
        let side = side.max(1);
        let mut places: Vec<[u16; 3]> = Self::grid(self.dims, self.wrap)
            .map(|grid| grid.coords)
            .unwrap_or_default();
        let block = |at: &[u16; 3]| [at[2] / side, at[1] / side, at[0] / side];
        places.sort_by_key(|at| (block(at), [at[2], at[1], at[0]]));
        places.into_iter().map(|at| self.place(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Port;

    fn is_every_place(mut places: Vec<u16>, nodes: usize) -> bool {
        places.sort_unstable();
        places == (0..nodes as u16).collect::<Vec<_>>()
    }

    #[test]
    fn nodes_without_a_place_have_those_that_are_left() {
        let ring = Topology::torus([4, 1, 1]).unwrap();
        let placed = ring.placed(&[2, 0]).unwrap();
        let at = |n: u16| placed.coordinates(NodeId(n))[0];
        assert_eq!([at(0), at(1), at(2), at(3)], [2, 0, 1, 3]);
        let across = |n: u16| placed.neighbour(NodeId(n), Port::XPlus);
        assert_eq!(across(0), NodeId(3));
        assert_eq!(across(1), NodeId(2));
        assert!(placed.is_wrap_link(NodeId(3), Port::XPlus));
        // A second map takes the place of the first.
        let again = placed.placed(&[0, 1, 2, 3]).unwrap();
        assert_eq!(again.coordinates(NodeId(0)), [0, 0, 0]);
    }

    #[test]
    fn every_route_of_a_shuffled_grid_is_a_shortest_one() {
        let grid = Topology::grid([4, 3, 5], [false, false, true]).unwrap();
        let shuffled = grid.placed(&grid.shuffled_places(7)).unwrap();
        let nodes = || (0..grid.nodes()).map(|n| NodeId(n as u16));
        for (from, to) in nodes().flat_map(|a| nodes().map(move |b| (a, b))) {
            let (mut here, mut links) = (from, 0);
            while shuffled.route(here, to) != Port::Node {
                let port = shuffled.route(here, to);
                let other = shuffled.neighbour(here, port);
                assert_eq!(shuffled.neighbour(other, port.opposite()), here);
                (here, links) = (other, links + 1);
            }
            assert_eq!((here, links), (to, shuffled.distance(from, to)));
        }
    }

    #[test]
    fn a_seed_gives_one_order() {
        let grid = Topology::torus([4, 4, 4]).unwrap();
        let (seven, eight) = (grid.shuffled_places(7), grid.shuffled_places(8));
        assert_eq!(seven, grid.shuffled_places(7));
        assert_ne!(seven, eight);
        assert!(is_every_place(seven, 64) && is_every_place(eight, 64));
        assert_eq!(grid.shuffled_places(7)[..4], [22, 28, 8, 29]);
    }

    #[test]
    fn blocks_are_filled_one_after_another() {
        let grid = Topology::torus([4, 4, 1]).unwrap();
        let blocked = grid.blocked_places(2);
        assert_eq!(blocked[..8], [0, 1, 4, 5, 2, 3, 6, 7]);
        assert!(is_every_place(blocked, 16));
        assert_eq!(grid.blocked_places(1), (0..16).collect::<Vec<_>>());
        assert_eq!(grid.blocked_places(0), grid.blocked_places(1));
        let odd = Topology::mesh([3, 3, 3]).unwrap();
        assert!(is_every_place(odd.blocked_places(2), 27));
    }

    #[test]
    fn a_place_is_of_the_grid_and_of_one_node() {
        let ring = Topology::torus([4, 1, 1]).unwrap();
        let said = |places: &[u16]| ring.placed(places).unwrap_err().to_string();
        assert_eq!(
            said(&[0, 4]),
            "place 4 of node 1 is not one of the 4 places of the grid"
        );
        assert_eq!(said(&[3, 1, 3]), "place 3 has two nodes, 0 and 2");
        assert!(ring.placed(&[0, 1, 2, 3, 0]).is_err());
    }
}
