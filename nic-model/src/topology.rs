//! The shape of the network: nodes on a 3-D grid, with or without the links that close each
//! dimension into a ring, and the fixed dimension-order route between any two.

mod link_name;
mod places;

use std::fmt;

use thiserror::Error;

pub use link_name::{LinkName, LinkNameError};

/// A node of the machine, which is also its network address (NID).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl NodeId {
    /// The node as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a grid cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A dimension has no node.
    #[error("a dimension of {0:?} is zero")]
    Empty([u16; 3]),
    /// More nodes than a 15-bit destination can name.
    #[error("{0} nodes are more than the 32768 that a packet header can address")]
    TooLarge(u64),
    /// A node is to sit where the grid has no place.
    #[error("place {place} of node {node} is not one of the {places} places of the grid")]
    NoPlace {
        /// The node.
        node: NodeId,
        /// Where it is to sit.
        place: u16,
        /// How many places there are.
        places: usize,
    },
    /// Two nodes are to sit at one place.
    #[error("place {place} has two nodes, {first} and {second}")]
    PlaceTwice {
        /// The place.
        place: u16,
        /// The node with the lower number.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
}

/// A router output: one of six links or the port of the node itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Port {
    /// Towards larger x.
    XPlus,
    /// Towards smaller x.
    XMinus,
    /// Towards larger y.
    YPlus,
    /// Towards smaller y.
    YMinus,
    /// Towards larger z.
    ZPlus,
    /// Towards smaller z.
    ZMinus,
    /// To the node.
    Node,
}

impl Port {
    /// The links, in the order of their numbers.
    pub const LINKS: [Self; 6] = [
        Self::XPlus,
        Self::XMinus,
        Self::YPlus,
        Self::YMinus,
        Self::ZPlus,
        Self::ZMinus,
    ];

    /// The port of this number; 6 and more are the node's.
    #[must_use]
    pub const fn from_index(index: usize) -> Self {
        match index {
            0 => Self::XPlus,
            1 => Self::XMinus,
            2 => Self::YPlus,
            3 => Self::YMinus,
            4 => Self::ZPlus,
            5 => Self::ZMinus,
            _ => Self::Node,
        }
    }

    /// The number of the port, 0 to 6.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The port at the other end of the link; the node's port is its own.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Node => Self::Node,
            link => Self::from_index(link as usize ^ 1),
        }
    }

    /// The dimension a link runs along, 0 to 2; `None` for the node's port.
    #[must_use]
    pub const fn axis(self) -> Option<usize> {
        match self {
            Self::Node => None,
            link => Some(link as usize / 2),
        }
    }

    /// The name that fault files and traces use: `x+` to `z-`, or `node`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XPlus => "x+",
            Self::XMinus => "x-",
            Self::YPlus => "y+",
            Self::YMinus => "y-",
            Self::ZPlus => "z+",
            Self::ZMinus => "z-",
            Self::Node => "node",
        }
    }
}

/// An x * y * z grid of nodes. Place `p` is at `x = p % X, y = p / X % Y, z = p / X / Y`, and node `n` sits at
/// place `n` unless [`Topology::placed`] says otherwise.
#[derive(Debug, Clone)]
pub struct Topology {
    dims: [u16; 3],
    wrap: [bool; 3],
    /// By node.
    coords: Vec<[u16; 3]>,
    /// The node at each place; empty while it is that of the same number.
    at: Vec<NodeId>,
}

impl Topology {
    /// Nodes one packet header can address (15-bit destination).
    pub const MAX_NODES: u64 = 1 << 15;

    /// A grid whose dimensions are rings.
    ///
    /// # Errors
    /// [`TopologyError`] when a dimension is zero or the nodes are too many.
    pub fn torus(dims: [u16; 3]) -> Result<Self, TopologyError> {
        Self::grid(dims, [true; 3])
    }

    /// A grid whose dimensions end.
    ///
    /// # Errors
    /// [`TopologyError`] when a dimension is zero or the nodes are too many.
    pub fn mesh(dims: [u16; 3]) -> Result<Self, TopologyError> {
        Self::grid(dims, [false; 3])
    }

    /// The smallest near-cubic torus that holds `nodes` nodes (some positions may stay idle).
    ///
    /// # Errors
    /// [`TopologyError`] when `nodes` is zero or too large.
    pub fn for_nodes(nodes: u16) -> Result<Self, TopologyError> {
        if nodes == 0 {
            return Err(TopologyError::Empty([0; 3]));
        }
        let mut dims = [1u16; 3];
        let mut axis = 0;
        while dims.iter().map(|&d| u64::from(d)).product::<u64>() < u64::from(nodes) {
            dims[axis] += 1;
            axis = (axis + 1) % 3;
        }
        Self::torus(dims)
    }

    /// A grid of which the dimensions with `wrap` are rings and the others end. Red Storm is a
    /// mesh in x and y.
    ///
    /// # Errors
    /// [`TopologyError`] when a dimension is zero or the nodes are too many.
    pub fn grid(dims: [u16; 3], wrap: [bool; 3]) -> Result<Self, TopologyError> {
        if dims.contains(&0) {
            return Err(TopologyError::Empty(dims));
        }
        let nodes = dims.iter().map(|&d| u64::from(d)).product::<u64>();
        if nodes > Self::MAX_NODES {
            return Err(TopologyError::TooLarge(nodes));
        }
        let mut coords = Vec::new();
        for z in 0..dims[2] {
            for y in 0..dims[1] {
                for x in 0..dims[0] {
                    coords.push([x, y, z]);
                }
            }
        }
        Ok(Self {
            dims,
            wrap,
            coords,
            at: Vec::new(),
        })
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.coords.len()
    }

    /// The extent of each dimension.
    #[must_use]
    pub fn dims(&self) -> [u16; 3] {
        self.dims
    }

    /// Which dimensions are rings.
    #[must_use]
    pub fn wraps(&self) -> [bool; 3] {
        self.wrap
    }

    /// Where `node` sits. It must be a node of the grid.
    #[must_use]
    pub fn coordinates(&self, node: NodeId) -> [u16; 3] {
        self.coords[node.index()]
    }

    /// Whether `node` has a link at `port`: not at the end of a dimension that is no ring, and
    /// not in a dimension of one node.
    #[must_use]
    pub fn has_link(&self, node: NodeId, port: Port) -> bool {
        let (Some(axis), true) = (port.axis(), self.contains(node)) else {
            return false;
        };
        let (at, extent) = (self.coords[node.index()][axis], self.dims[axis]);
        extent > 1 && (self.wrap[axis] || !self.at_end(at, extent, port))
    }

    /// Whether the link `port` of a node at coordinate `at` is the one that closes the ring.
    fn at_end(&self, at: u16, extent: u16, port: Port) -> bool {
        if port.index().is_multiple_of(2) {
            at + 1 == extent
        } else {
            at == 0
        }
    }

    /// Whether the link `port` of `node` closes a ring: it is the ring's dateline.
    #[must_use]
    pub fn is_wrap_link(&self, node: NodeId, port: Port) -> bool {
        port.axis().is_some_and(|axis| {
            let at = self.coords[node.index()][axis];
            self.has_link(node, port) && self.at_end(at, self.dims[axis], port)
        })
    }

    /// Whether `node` is one of the grid.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        node.index() < self.coords.len()
    }

    /// The output that the router of `here` chooses for `destination`: x before y before z, the
    /// shorter way round a ring, plus when both are equal. Both must be nodes of the grid.
    ///
    /// A machine may break ties otherwise ([`network.tie_break`](crate::NetworkParams::tie_break)), and dead links
    /// change routes: [`World::path`](crate::World::path) knows both.
    #[must_use]
    pub fn route(&self, here: NodeId, destination: NodeId) -> Port {
        const PORTS: [[Port; 2]; 3] = [
            [Port::XPlus, Port::XMinus],
            [Port::YPlus, Port::YMinus],
            [Port::ZPlus, Port::ZMinus],
        ];
        let (from, to) = (self.coords[here.index()], self.coords[destination.index()]);
        for axis in 0..3 {
            if from[axis] == to[axis] {
                continue;
            }
            let forward = to[axis] > from[axis];
            let distance = from[axis].abs_diff(to[axis]);
            let plus = if self.wrap[axis] && u32::from(distance) * 2 > u32::from(self.dims[axis]) {
                !forward
            } else {
                forward
            };
            // Exactly half way round a ring: both ways are equal, plus is the rule.
            let plus =
                plus || (self.wrap[axis] && u32::from(distance) * 2 == u32::from(self.dims[axis]));
            return PORTS[axis][usize::from(!plus)];
        }
        Port::Node
    }

    /// The node at the other end of the link `port` of `here`; `here` itself for [`Port::Node`].
    #[must_use]
    pub fn neighbour(&self, here: NodeId, port: Port) -> NodeId {
        let (axis, plus) = match port {
            Port::XPlus => (0, true),
            Port::XMinus => (0, false),
            Port::YPlus => (1, true),
            Port::YMinus => (1, false),
            Port::ZPlus => (2, true),
            Port::ZMinus => (2, false),
            Port::Node => return here,
        };
        let mut at = self.coords[here.index()];
        let extent = self.dims[axis];
        at[axis] = match (plus, at[axis]) {
            (true, n) if n + 1 == extent => 0,
            (true, n) => n + 1,
            (false, 0) => extent - 1,
            (false, n) => n - 1,
        };
        self.node_at(at)
    }

    /// The node at these coordinates, which are of the grid.
    pub(crate) fn node_at(&self, at: [u16; 3]) -> NodeId {
        let place = self.place(at);
        self.at
            .get(usize::from(place))
            .copied()
            .unwrap_or(NodeId(place))
    }

    /// The number of the place at these coordinates, which are of the grid.
    #[must_use]
    pub fn place(&self, [x, y, z]: [u16; 3]) -> u16 {
        x + self.dims[0] * (y + self.dims[1] * z)
    }

    /// Links between two nodes of the grid.
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        let (a, b) = (self.coords[from.index()], self.coords[to.index()]);
        (0..3)
            .map(|axis| {
                let direct = a[axis].abs_diff(b[axis]);
                u32::from(if self.wrap[axis] {
                    direct.min(self.dims[axis] - direct)
                } else {
                    direct
                })
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(topology: &Topology, from: NodeId, to: NodeId) -> u32 {
        let (mut here, mut links) = (from, 0);
        loop {
            match topology.route(here, to) {
                Port::Node => return links,
                port => here = topology.neighbour(here, port),
            }
            links += 1;
            assert!(links < 1_000, "no route from {from} to {to}");
        }
    }

    #[test]
    fn every_route_is_a_shortest_one() {
        for topology in [
            Topology::torus([5, 4, 3]).unwrap(),
            Topology::mesh([5, 4, 3]).unwrap(),
            Topology::grid([4, 3, 5], [false, false, true]).unwrap(),
            Topology::torus([2, 1, 1]).unwrap(),
        ] {
            for a in 0..topology.nodes() {
                for b in 0..topology.nodes() {
                    let (a, b) = (NodeId(a as u16), NodeId(b as u16));
                    assert_eq!(walk(&topology, a, b), topology.distance(a, b));
                }
            }
        }
    }

    #[test]
    fn links_end_where_the_dimension_ends() {
        let red = Topology::grid([3, 2, 4], [false, false, true]).unwrap();
        assert!(!red.has_link(NodeId(0), Port::XMinus));
        assert!(red.has_link(NodeId(0), Port::XPlus));
        assert!(red.is_wrap_link(NodeId(0), Port::ZMinus));
        assert!(!red.is_wrap_link(NodeId(0), Port::ZPlus));
        let links = |t: &Topology| {
            (0..t.nodes())
                .flat_map(|n| Port::LINKS.map(|p| t.has_link(NodeId(n as u16), p)))
                .filter(|&there| there)
                .count()
        };
        // Both directions of 2*2*4 + 3*1*4 + 3*2*4 cables.
        assert_eq!(links(&red), 2 * (16 + 12 + 24));
        for node in 0..red.nodes() {
            let node = NodeId(node as u16);
            for port in Port::LINKS {
                if red.has_link(node, port) {
                    let other = red.neighbour(node, port);
                    assert_eq!(red.neighbour(other, port.opposite()), node);
                }
            }
        }
    }

    #[test]
    fn absurd_grids_are_refused() {
        assert_eq!(
            Topology::torus([0, 1, 1]).unwrap_err(),
            TopologyError::Empty([0, 1, 1])
        );
        assert_eq!(
            Topology::mesh([64, 64, 64]).unwrap_err(),
            TopologyError::TooLarge(262_144)
        );
        assert_eq!(Topology::for_nodes(2).unwrap().nodes(), 2);
        assert!(Topology::for_nodes(27).unwrap().nodes() >= 27);
    }
}
