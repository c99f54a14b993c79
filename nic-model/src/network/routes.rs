//! Routing tables, and detours round links that are dead.
//!
//! # The rules
//!
//! 1. x before y before z; along a ring the shorter way. When both are equal, [`TieBreak`] says
//!    which.
//! 2. A dead link on that way: the ring's other way, if the dimension is a ring and that way is
//!    whole. The order of dimensions stays, and no path goes round a ring more than once.
//! 3. When some ring is cut in two so that rule 2 does not help (two dead links of a ring, one of
//!    a dimension that is no ring, a dead router), **the machine runs as a mesh**: rule 1 without
//!    the links that close rings, and the pairs whose path is still cut take a *detour*: up links
//!    first and down links then, *up* being towards node 0 in a breadth-first order of what is
//!    left of the network.
//! 4. A pair without a path by these rules is unreachable. After rule 3 that means that the
//!    network is cut in two.
//!
//! # Why no packet waits for itself
//!
//! Packets of rules 1 and 2 hold channels in the order x, y, z. Within a ring they use channel 0
//! of their class up to and including the link that closes the ring, and channel 1 behind it:
//! channel 0 never waits for channel 0 beyond that link, and channel 1 never crosses it, because
//! no path is a whole round. That holds for each direction of a ring by itself, since the plus and
//! the minus links have buffers of their own and a packet never turns round within a ring: behind
//! a tie the chosen way is the shorter one. So it holds for every tie break. Under rule 3 nothing
//! crosses a closing link by rule 1, so channel 1 is free for detours; those wait only for channels
//! that come later in the up-then-down order.
//!
//! # Tables
//!
//! Rule 1 depends on two coordinates of one dimension only: two tables for each dimension, of even
//! and odd coordinates, indexed by the difference, stand for that part of all routers' tables. The nodes of a ring with dead
//! links are marked, and theirs is computed from the list of the ring's cuts. A detour has a table
//! for each destination, made when it is first needed.

use std::collections::{BTreeMap, VecDeque};

use crate::topology::{NodeId, Port, Topology};

/// [`Routes::next`] at the destination: the node's port.
pub(crate) const NODE: u8 = Port::Node as u8;
/// [`Routes::next`] where no rule gives a way.
pub(crate) const NO_WAY: u8 = 7;
/// In a node's entry for a dimension: the rest is the number of a ring with dead links.
const CUT: u32 = 1 << 31;

/// Which way a packet takes whose destination is exactly half way round a ring. Machine files have
/// the number.
///
/// The router where the packet enters the ring decides, by its own coordinate, as a routing table
/// can: a pair has one path, and the routers behind see one way that is shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TieBreak {
    /// 0: plus.
    Plus,
    /// 1: plus from even coordinates, minus from odd ones. Under all-to-all traffic both directions
    /// carry the same load.
    Parity,
}

impl TieBreak {
    /// That of a machine file.
    pub(crate) fn of(policy: u32) -> Self {
        match policy {
            0 => Self::Plus,
            _ => Self::Parity,
        }
    }

    /// Whether a packet at coordinate `at` of the ring goes plus.
    fn is_plus(self, at: u16) -> bool {
        self == Self::Plus || at.is_multiple_of(2)
    }
}

/// A ring, or a row of a dimension that is no ring, with dead links.
#[derive(Debug, Clone)]
struct Ring {
    extent: u16,
    /// The coordinates whose plus link is dead.
    cuts: Vec<u16>,
}

impl Ring {
    /// Whether the way from `a` to `b` is whole; `wrap` allows it past the end.
    fn is_whole(&self, a: u16, b: u16, plus: bool, wrap: bool) -> bool {
        if !wrap && (b > a) != plus {
            return false;
        }
        let extent = u32::from(self.extent);
        let behind = |from: u32, to: u32| (to + extent - from) % extent;
        let (a, b) = (u32::from(a), u32::from(b));
        self.cuts.iter().all(|&cut| {
            let cut = u32::from(cut);
            if plus {
                behind(a, cut) >= behind(a, b)
            } else {
                // The first link of the way down is the plus link of a - 1.
                behind(cut, (a + extent - 1) % extent) >= behind(b, a)
            }
        })
    }
}

/// How a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By rules 1 and 2.
    Ordered,
    /// By rule 3's detour.
    Detour,
    /// Not at all.
    None,
}

/// The tables of all routers.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    dims: [u16; 3],
    tie_break: TieBreak,
    /// Which dimensions are used as rings.
    wrap: [bool; 3],
    /// For each node and dimension: where in `table` the entry of coordinate 0 is, or a ring.
    rows: Vec<[u32; 3]>,
    table: Vec<u8>,
    rings: Vec<Ring>,
    /// Bits of each node's dead links; empty while none is.
    dead: Vec<u8>,
    /// By rule 3; position of each node in the up-then-down order.
    rank: Vec<u32>,
    detours: BTreeMap<u16, Box<[u8]>>,
}

impl Routes {
    pub(crate) fn new(topology: &Topology, tie_break: TieBreak) -> Self {
        let mut routes = Self {
            dims: topology.dims(),
            tie_break,
            wrap: topology.wraps(),
            rows: Vec::new(),
            table: Vec::new(),
            rings: Vec::new(),
            dead: Vec::new(),
            rank: Vec::new(),
            detours: BTreeMap::new(),
        };
        routes.fill(topology);
        routes
    }

    /// The tables of rule 1.
    fn fill(&mut self, topology: &Topology) {
        self.table.clear();
        let origin: [[u32; 2]; 3] =
            std::array::from_fn(|axis| [0, 1].map(|parity| self.fill_axis(axis, parity)));
        self.rows = (0..topology.nodes())
            .map(|n| {
                let at = topology.coordinates(NodeId(n as u16));
                std::array::from_fn(|axis| {
                    origin[axis][usize::from(at[axis] % 2)] - u32::from(at[axis])
                })
            })
            .collect();
    }

    /// Appends the table of a dimension for coordinates of `parity`; where the entry of its
    /// difference 0 is.
    fn fill_axis(&mut self, axis: usize, parity: u16) -> u32 {
        let extent = i64::from(self.dims[axis]);
        let origin = self.table.len() as u32 + u32::from(self.dims[axis]) - 1;
        for difference in 1 - extent..extent {
            let round = 2 * difference.abs();
            let plus = match self.wrap[axis] {
                true if round == extent => self.tie_break.is_plus(parity),
                true if round > extent => difference < 0,
                _ => difference > 0,
            };
            self.table.push(match difference {
                0 => NODE,
                _ => 2 * axis as u8 + u8::from(!plus),
            });
        }
        origin
    }

    /// Whether a link is dead somewhere.
    pub(crate) fn any_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// Whether the link `port` of `node` is dead.
    pub(crate) fn is_dead(&self, node: NodeId, port: Port) -> bool {
        self.any_dead() && self.dead[node.index()] & 1 << port.index() != 0
    }

    /// The output that the router of `node` has in its table for the node at `to`.
    #[inline]
    pub(crate) fn next(&self, topology: &Topology, node: NodeId, to: [u16; 3]) -> u8 {
        let rows = &self.rows[node.index()];
        for axis in 0..3 {
            let row = rows[axis];
            let port = if row & CUT == 0 {
                self.table[row as usize + usize::from(to[axis])]
            } else {
                self.next_in_ring(topology, node, axis, row & !CUT, to[axis])
            };
            if port != NODE {
                return port;
            }
        }
        NODE
    }

    #[cold]
    fn next_in_ring(
        &self,
        topology: &Topology,
        node: NodeId,
        axis: usize,
        ring: u32,
        to: u16,
    ) -> u8 {
        let (at, ring) = (topology.coordinates(node)[axis], &self.rings[ring as usize]);
        if at == to {
            return NODE;
        }
        let (wrap, extent) = (self.wrap[axis], u32::from(ring.extent));
        let up = (u32::from(to) + extent - u32::from(at)) % extent;
        // Half way round, one of both ways is cut: no tie is left.
        let plus = if wrap { 2 * up < extent } else { to > at };
        for plus in [plus, !plus] {
            if ring.is_whole(at, to, plus, wrap) {
                return 2 * axis as u8 + u8::from(!plus);
            }
        }
        NO_WAY
    }

    /// The output that a packet on a detour takes at `node`.
    pub(crate) fn next_of_detour(&self, node: NodeId, destination: NodeId) -> u8 {
        match self.detours.get(&destination.0) {
            Some(table) => table[node.index()],
            None => NO_WAY,
        }
    }

    /// How packets from `source` reach `destination`, after the tables for it have been made.
    pub(crate) fn way(&mut self, topology: &Topology, source: NodeId, destination: NodeId) -> Way {
        if !self.any_dead() || self.is_ordered(topology, source, destination) {
            return Way::Ordered;
        }
        if self.rank.is_empty() {
            return Way::None;
        }
        if !self.detours.contains_key(&destination.0) {
            let table = self.detour_table(topology, destination);
            self.detours.insert(destination.0, table);
        }
        if self.next_of_detour(source, destination) == NO_WAY {
            Way::None
        } else {
            Way::Detour
        }
    }

    /// Whether rules 1 and 2 lead from `source` to `destination`.
    fn is_ordered(&self, topology: &Topology, source: NodeId, destination: NodeId) -> bool {
        let to = topology.coordinates(destination);
        let mut node = source;
        loop {
            match self.next(topology, node, to) {
                NODE => return true,
                NO_WAY => return false,
                port => node = topology.neighbour(node, Port::from_index(usize::from(port))),
            }
        }
    }

    /// The links from `source` to `destination`; `None` where there is no way.
    pub(crate) fn path(
        &mut self,
        topology: &Topology,
        source: NodeId,
        destination: NodeId,
    ) -> Option<Vec<(NodeId, Port)>> {
        let way = self.way(topology, source, destination);
        if way == Way::None {
            return None;
        }
        let to = topology.coordinates(destination);
        let (mut node, mut links) = (source, Vec::new());
        loop {
            let port = match way {
                Way::Detour => self.next_of_detour(node, destination),
                _ => self.next(topology, node, to),
            };
            if port == NODE {
                return Some(links);
            }
            let port = Port::from_index(usize::from(port));
            links.push((node, port));
            node = topology.neighbour(node, port);
        }
    }

    /// Makes links dead, both directions of each, and the tables anew.
    pub(crate) fn kill(&mut self, topology: &Topology, links: &[(NodeId, Port)]) {
        if self.dead.is_empty() {
            self.dead = vec![0; topology.nodes()];
        }
        for &(node, port) in links {
            let other = topology.neighbour(node, port);
            self.dead[node.index()] |= 1 << port.index();
            self.dead[other.index()] |= 1 << port.opposite().index();
        }
        self.detours.clear();
        self.rank.clear();
        self.wrap = topology.wraps();
        self.fill(topology);
        if self.find_rings(topology) {
            self.wrap = [false; 3];
            self.fill(topology);
            self.find_rings(topology);
            self.order(topology);
        }
    }

    /// Marks the rings with dead links; whether one of them is cut in two.
    fn find_rings(&mut self, topology: &Topology) -> bool {
        self.rings.clear();
        let mut found = BTreeMap::new();
        for node in (0..topology.nodes()).map(|n| NodeId(n as u16)) {
            for axis in 0..3 {
                if !self.is_dead(node, Port::from_index(2 * axis)) {
                    continue;
                }
                let mut line = topology.coordinates(node);
                let cut = std::mem::take(&mut line[axis]);
                let ring: &mut Ring = found.entry((axis, line)).or_insert_with(|| Ring {
                    extent: self.dims[axis],
                    cuts: Vec::new(),
                });
                ring.cuts.push(cut);
            }
        }
        let mut severed = false;
        for ((axis, line), ring) in found {
            let last = ring.extent - 1;
            severed |= match (self.wrap[axis], ring.cuts.len()) {
                (true, cuts) => cuts > 1,
                (false, 1) => ring.cuts[0] != last,
                (false, _) => true,
            };
            let number = CUT | self.rings.len() as u32;
            for at in 0..ring.extent {
                let mut place = line;
                place[axis] = at;
                self.rows[topology.node_at(place).index()][axis] = number;
            }
            self.rings.push(ring);
        }
        severed
    }

    /// The living links of `node`, with what is at their other ends.
    fn living<'a>(
        &'a self,
        topology: &'a Topology,
        node: NodeId,
    ) -> impl Iterator<Item = (u8, NodeId)> + 'a {
        Port::LINKS
            .into_iter()
            .filter(move |&port| topology.has_link(node, port) && !self.is_dead(node, port))
            .map(move |port| (port as u8, topology.neighbour(node, port)))
    }

    /// The up-then-down order: breadth first from the first node of each part.
    fn order(&mut self, topology: &Topology) {
        let mut rank = vec![u32::MAX; topology.nodes()];
        let mut given = 0;
        let mut queue = VecDeque::new();
        for first in 0..topology.nodes() {
            if rank[first] == u32::MAX {
                rank[first] = given;
                given += 1;
                queue.push_back(NodeId(first as u16));
            }
            while let Some(node) = queue.pop_front() {
                for (_, next) in self.living(topology, node) {
                    if rank[next.index()] == u32::MAX {
                        rank[next.index()] = given;
                        given += 1;
                        queue.push_back(next);
                    }
                }
            }
        }
        self.rank = rank;
    }

    /// For each node its output towards `destination`: down where down links alone lead there,
    /// up otherwise. A node that goes down is followed by nodes that go down, so that no packet
    /// ever turns from down to up.
    fn detour_table(&self, topology: &Topology, destination: NodeId) -> Box<[u8]> {
        let nodes = topology.nodes();
        let mut table = vec![NO_WAY; nodes].into_boxed_slice();
        let mut distance = vec![u32::MAX; nodes];
        table[destination.index()] = NODE;
        distance[destination.index()] = 0;
        let mut queue = VecDeque::from([destination]);
        while let Some(node) = queue.pop_front() {
            for (port, before) in self.living(topology, node) {
                let down = self.rank[before.index()] < self.rank[node.index()];
                if down && distance[before.index()] == u32::MAX {
                    distance[before.index()] = distance[node.index()] + 1;
                    table[before.index()] = Port::from_index(usize::from(port)).opposite() as u8;
                    queue.push_back(before);
                }
            }
        }
        // Up links lead to lower ranks, whose ways are known first.
        let mut by_rank: Vec<usize> = (0..nodes).collect();
        by_rank.sort_unstable_by_key(|&n| self.rank[n]);
        for at in by_rank {
            if distance[at] != u32::MAX {
                continue;
            }
            let best = self
                .living(topology, NodeId(at as u16))
                .filter(|(_, up)| self.rank[up.index()] < self.rank[at])
                .filter(|(_, up)| distance[up.index()] != u32::MAX)
                .min_by_key(|(port, up)| (distance[up.index()], *port));
            if let Some((port, up)) = best {
                distance[at] = distance[up.index()] + 1;
                table[at] = port;
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_pairs(topology: &Topology) -> impl Iterator<Item = (NodeId, NodeId)> {
        let nodes = topology.nodes() as u16;
        (0..nodes).flat_map(move |a| (0..nodes).map(move |b| (NodeId(a), NodeId(b))))
    }

    #[test]
    fn tables_say_what_the_rule_says() {
        for topology in [
            Topology::torus([5, 4, 3]).unwrap(),
            Topology::mesh([3, 4, 2]).unwrap(),
            Topology::grid([4, 3, 6], [false, false, true]).unwrap(),
            Topology::torus([2, 1, 1]).unwrap(),
        ] {
            let routes = Routes::new(&topology, TieBreak::Plus);
            for (a, b) in all_pairs(&topology) {
                assert_eq!(
                    routes.next(&topology, a, topology.coordinates(b)),
                    topology.route(a, b) as u8,
                    "{a} to {b} of {:?}",
                    topology.dims()
                );
            }
        }
    }

    /// Packets on each link when every node sends one to every other, by port and node.
    fn all_to_all(topology: &Topology, routes: &mut Routes) -> [Vec<u32>; 6] {
        let mut loads = [0; 6].map(|_: i32| vec![0; topology.nodes()]);
        for (a, b) in all_pairs(topology) {
            let path = routes.path(topology, a, b).unwrap();
            assert_eq!(path.len() as u32, topology.distance(a, b), "{a} to {b}");
            for (node, port) in path {
                loads[port.index()][node.index()] += 1;
            }
        }
        loads
    }

    #[test]
    fn parity_loads_both_directions_of_even_rings_alike() {
        for dims in [[2, 1, 1], [4, 4, 1], [6, 4, 2], [8, 3, 10]] {
            let topology = Topology::torus(dims).unwrap();
            let topology = topology.placed(&topology.shuffled_places(3)).unwrap();
            let mut routes = Routes::new(&topology, TieBreak::Parity);
            let loads = all_to_all(&topology, &mut routes);
            for axis in 0..3 {
                let [plus, minus] = [2 * axis, 2 * axis + 1].map(|port| &loads[port]);
                let sum = |side: &[u32]| side.iter().sum::<u32>();
                assert_eq!(sum(plus), sum(minus), "axis {axis} of {dims:?}");
                if dims[axis] % 4 == 0 {
                    // Also link by link.
                    let one = plus[0];
                    assert!(plus.iter().chain(minus).all(|&load| load == one));
                }
            }
        }
        let ring = Topology::torus([4, 1, 1]).unwrap();
        let mut routes = Routes::new(&ring, TieBreak::Plus);
        let loads = all_to_all(&ring, &mut routes);
        assert_eq!((loads[0][0], loads[1][0]), (3, 1), "what parity is for");
    }

    /// Channels are numbered by ring, direction, class half and place; a path may only go up.
    #[test]
    fn paths_hold_channels_in_one_order_whatever_breaks_ties() {
        for dims in [[2, 4, 1], [6, 4, 2], [8, 1, 2]] {
            let topology = Topology::torus(dims).unwrap();
            for tie_break in [TieBreak::Plus, TieBreak::Parity] {
                let mut routes = Routes::new(&topology, tie_break);
                for (a, b) in all_pairs(&topology) {
                    let (mut crossed, mut before, mut axis) = (false, None, None);
                    for (node, port) in routes.path(&topology, a, b).unwrap() {
                        if axis != port.axis() {
                            (crossed, axis) = (false, port.axis());
                        }
                        let at = topology.coordinates(node)[port.index() / 2];
                        let along = match port.index() % 2 {
                            0 => at,
                            _ => dims[port.index() / 2] - 1 - at,
                        };
                        let channel = (port.index(), crossed, along);
                        assert!(before < Some(channel), "{a} to {b}: {before:?} {channel:?}");
                        before = Some(channel);
                        crossed |= topology.is_wrap_link(node, port);
                    }
                }
            }
        }
    }

    #[test]
    fn a_dead_link_changes_no_tie_that_does_not_need_it() {
        let topology = Topology::torus([4, 4, 1]).unwrap();
        let dead = (NodeId(0), Port::XPlus);
        let mut whole = Routes::new(&topology, TieBreak::Parity);
        let mut cut = whole.clone();
        cut.kill(&topology, &[dead]);
        assert_eq!(reachable(&topology, &mut cut), 16 * 16);
        for (a, b) in all_pairs(&topology) {
            let before = whole.path(&topology, a, b).unwrap();
            let uses = before.iter().any(|&(node, port)| {
                (node, port) == dead || (topology.neighbour(node, port), port.opposite()) == dead
            });
            let after = cut.path(&topology, a, b).unwrap();
            assert_eq!(before != after, uses, "{a} to {b}: {before:?}, {after:?}");
        }
    }

    #[test]
    fn a_dead_link_is_passed_wherever_its_nodes_sit() {
        let grid = Topology::torus([5, 4, 2]).unwrap();
        let topology = grid.placed(&grid.shuffled_places(1)).unwrap();
        let mut routes = Routes::new(&topology, TieBreak::Plus);
        routes.kill(&topology, &[(NodeId(7), Port::XPlus)]);
        assert_eq!(reachable(&topology, &mut routes), 40 * 40);
    }

    /// Every pair's path is walked; how many there are, and that none uses a dead link.
    fn reachable(topology: &Topology, routes: &mut Routes) -> usize {
        let mut count = 0;
        for (a, b) in all_pairs(topology) {
            let Some(path) = routes.path(topology, a, b) else {
                continue;
            };
            count += 1;
            assert!(path.len() < 4 * topology.nodes(), "{a} to {b}: {path:?}");
            assert!(path.iter().all(|&(node, port)| !routes.is_dead(node, port)));
        }
        count
    }

    #[test]
    fn a_dead_link_of_a_ring_is_passed_the_other_way_round() {
        let topology = Topology::torus([5, 4, 2]).unwrap();
        for port in Port::LINKS {
            let mut routes = Routes::new(&topology, TieBreak::Plus);
            routes.kill(&topology, &[(NodeId(7), port)]);
            assert_eq!(reachable(&topology, &mut routes), 40 * 40);
            assert_eq!(routes.wrap, [true; 3], "rings stay rings");
            assert!(routes.detours.is_empty());
        }
        let mut routes = Routes::new(&topology, TieBreak::Plus);
        routes.kill(&topology, &[(NodeId(0), Port::XPlus)]);
        let path = routes.path(&topology, NodeId(0), NodeId(1)).unwrap();
        let down = [0u16, 4, 3, 2].map(|n| (NodeId(n), Port::XMinus));
        assert_eq!(path, down);
    }

    #[test]
    fn every_node_that_is_connected_is_reached() {
        let torus = Topology::torus([4, 3, 3]).unwrap();
        let mesh = Topology::mesh([4, 3, 2]).unwrap();
        let mixed = Topology::grid([3, 3, 4], [false, false, true]).unwrap();
        for (topology, dead) in [
            (&mesh, vec![(NodeId(0), Port::XPlus)]),
            (
                &mesh,
                vec![(NodeId(23), Port::ZMinus), (NodeId(5), Port::YPlus)],
            ),
            (&mixed, vec![(NodeId(4), Port::YPlus)]),
            (
                &mixed,
                vec![(NodeId(4), Port::ZPlus), (NodeId(4), Port::ZMinus)],
            ),
            (
                &torus,
                vec![(NodeId(1), Port::XPlus), (NodeId(1), Port::XMinus)],
            ),
        ] {
            let mut routes = Routes::new(topology, TieBreak::Plus);
            routes.kill(topology, &dead);
            let nodes = topology.nodes();
            assert_eq!(reachable(topology, &mut routes), nodes * nodes, "{dead:?}");
        }
    }

    #[test]
    fn a_dead_router_is_passed_and_only_it_is_unreachable() {
        for topology in [
            Topology::torus([4, 3, 3]).unwrap(),
            Topology::mesh([4, 3, 3]).unwrap(),
        ] {
            let router = NodeId(17);
            let links = Port::LINKS.map(|port| (router, port));
            let links: Vec<_> = links
                .into_iter()
                .filter(|&(node, port)| topology.has_link(node, port))
                .collect();
            let mut routes = Routes::new(&topology, TieBreak::Plus);
            routes.kill(&topology, &links);
            // The others among themselves, and the node to itself.
            assert_eq!(reachable(&topology, &mut routes), 35 * 35 + 1);
        }
    }

    #[test]
    fn a_network_in_two_parts_says_so() {
        let topology = Topology::mesh([4, 1, 1]).unwrap();
        let mut routes = Routes::new(&topology, TieBreak::Plus);
        routes.kill(&topology, &[(NodeId(1), Port::XPlus)]);
        assert_eq!(reachable(&topology, &mut routes), 8);
        assert_eq!(routes.way(&topology, NodeId(0), NodeId(3)), Way::None);
        assert_eq!(routes.way(&topology, NodeId(0), NodeId(1)), Way::Ordered);
    }

    #[test]
    fn no_detour_turns_from_down_to_up() {
        let topology = Topology::torus([4, 4, 3]).unwrap();
        let mut routes = Routes::new(&topology, TieBreak::Plus);
        routes.kill(
            &topology,
            &[
                (NodeId(5), Port::YPlus),
                (NodeId(5), Port::YMinus),
                (NodeId(30), Port::ZPlus),
            ],
        );
        let mut detours = 0;
        for (a, b) in all_pairs(&topology) {
            let path = routes.path(&topology, a, b).unwrap();
            if routes.way(&topology, a, b) != Way::Detour {
                continue;
            }
            detours += 1;
            let mut down = false;
            for &(node, port) in &path {
                let next = topology.neighbour(node, port);
                let goes_down = routes.rank[next.index()] > routes.rank[node.index()];
                assert!(goes_down || !down, "{a} to {b}: {path:?}");
                down = goes_down;
            }
        }
        assert!(detours > 0);
    }
}
