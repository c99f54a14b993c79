//! What the network has counted.

use super::router::Output;
use super::{Costs, Fidelity, NODE_PORT, Network, PORTS};
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Port};

/// Totals of the network since time zero.
///
/// `injected = delivered + lost + in_network`, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkStats {
    /// Packets that entered a node port. By message these and the following are units of up to
    /// `message_unit` bytes.
    pub injected: u64,
    /// Packets that a receive engine was given.
    pub delivered: u64,
    /// Packets that a fault took.
    pub lost: u64,
    /// Packets that a fault made fail their end-to-end CRC; they are delivered.
    pub corrupted: u64,
    /// Packets that were refused for want of a path.
    pub unreachable: u64,
    /// Packets between injection and delivery.
    pub in_network: u64,
    /// Routers crossed by packets.
    pub hops: u64,
    /// Packets that did not go on at once: for a busy output, or for credits.
    pub blocked: u64,
    /// Packets that were sent over a link again because their CRC had failed.
    pub crc_retries: u64,
    /// Wrong packets that a link's CRC of 16 bits did not find.
    pub crc_misses: u64,
}

/// What one output of a router has done since time zero: a link, or the port to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Packets sent, retries not counted.
    pub packets: u64,
    /// Flits sent, retries included.
    pub flits: u64,
    /// For how long it was busy.
    pub busy: SimDuration,
    /// Packets sent again because their CRC had failed.
    pub crc_retries: u32,
    /// Most flits of the buffer behind it that were spoken for: for each virtual channel of a
    /// link, for each class of the node's port. Zero when simulated by message.
    pub high_water: [u16; 4],
    /// Packets that wait for it now.
    pub waiting: u32,
    /// It is cut.
    pub dead: bool,
}

impl LinkStats {
    /// Parts per million of the time until `now` in which the output was busy.
    #[must_use]
    pub fn utilisation_ppm(&self, now: SimTime) -> u32 {
        let busy = u128::from(self.busy.as_ps()) * 1_000_000;
        u32::try_from(busy / u128::from(now.as_ps().max(1))).unwrap_or(u32::MAX)
    }
}

impl Network {
    /// What the output `port` of `node` has done; `None` if there is no such link.
    pub(crate) fn link(&self, node: NodeId, port: Port) -> Option<LinkStats> {
        if !(port == Port::Node && self.topology.contains(node)
            || self.topology.has_link(node, port))
        {
            return None;
        }
        let link = node.index() * PORTS + port.index();
        let output = &self.outputs[link];
        let Output { packets, flits, .. } = *output;
        Some(LinkStats {
            packets,
            flits,
            busy: self.costs.flit * flits + self.link_faults.stretched(link),
            crc_retries: output.retries,
            high_water: self.high_water(output, port),
            waiting: self.waiting(node, port.index()),
            dead: self.routes.is_dead(node, port),
        })
    }

    fn high_water(&self, output: &Output, port: Port) -> [u16; 4] {
        let capacity = capacity(&self.costs, port.index());
        match self.fidelity {
            Fidelity::Message => [0; 4],
            Fidelity::Packet => std::array::from_fn(|vc| capacity[vc] - output.least[vc]),
        }
    }

    /// Most flits that ever waited in the injection buffers of `node`.
    pub(crate) fn injection_high_water(&self, node: NodeId) -> u32 {
        self.injections
            .get(node.index())
            .map_or(0, |injection| injection.high_water)
    }
}

/// Credits of an output when all buffers behind it are empty.
pub(super) fn capacity(costs: &Costs, port: usize) -> [u16; 4] {
    if port == NODE_PORT {
        [costs.node_port, costs.node_port, 0, 0]
    } else {
        [costs.input_buffer; 4]
    }
}
