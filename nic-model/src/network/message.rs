//! The coarse network: units of up to `message_unit` bytes instead of packets. A unit waits for
//! each output in the order in which it comes there, occupies it for as long as all its packets
//! take, and costs one event per router.
//!
//! What is kept: the bandwidth of every link and node port, the latency of every router, the order
//! of a pair, faults, real bytes, and back-pressure from a receiver to its senders (a sender has
//! at most four units between its engine and the receiver's). What is not: buffers of routers and
//! what they hold up, virtual channels, arbitration by age. The example `fidelity` measures what
//! that costs.
//!
//! A unit is known to the network when it has been fetched as a whole, but its first packet could
//! have left long before. So its head is followed from up to a unit's wire time in the past, and
//! the unit is given to the receive engine so early that its last packet is deposited when it
//! would be packet by packet. Both keep long messages at the rate of the slowest stage.

use super::routes::NODE;
use super::{Network, PORTS, Slot, flag};
use crate::defs::packet::{PACKET_FLITS, PACKET_PAYLOAD};
use crate::queue::{Event, EventQueue};
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Port};

impl Network {
    /// A unit that has been injected goes to its first router.
    pub(super) fn send_unit(&mut self, queue: &mut EventQueue, now: SimTime, index: u32) {
        let slot = &mut self.slots[index as usize];
        let (all, first) = occupancy(slot, self.costs.flit);
        let injection = &mut self.injections[slot.node.index()];
        let lead = all.as_ps() - first.as_ps();
        let at = SimTime(now.0.saturating_sub(lead)).max(injection.free_at);
        injection.free_at = at + all;
        slot.arrived = at;
        let event = Event::Router {
            node: slot.node,
            input: 0,
            packet: index,
        };
        queue.push(at.max(now), event);
    }

    /// A unit's head is at the crossbar of `node`, since `arrived`.
    pub(super) fn route_unit(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        index: u32,
    ) {
        self.stats.hops += 1;
        let slot = &mut self.slots[index as usize];
        let (all, first) = occupancy(slot, self.costs.flit);
        let destination = NodeId(slot.packet.header.destination());
        let port = if slot.flags & flag::DETOUR == 0 {
            self.routes.next(&self.topology, node, slot.to)
        } else {
            self.routes.next_of_detour(node, destination)
        };
        if slot.flags & flag::LOST != 0 || port > NODE {
            self.count_lost(index);
            self.remove(index);
            return;
        }
        let link = node.index() * PORTS + usize::from(port);
        let output = &mut self.outputs[link];
        if output.free_at > slot.arrived {
            self.stats.blocked += 1;
        }
        let mut at = slot.arrived.max(output.free_at);
        let counter = output.packets;
        output.packets += 1;
        output.flits += u64::from(slot.flits);
        output.free_at = at + all;
        let length = usize::from(slot.packet.length);
        if port == NODE {
            let (head, tail) = (at + self.costs.hop + first, at + self.costs.hop + all);
            let rest = length.saturating_sub(PACKET_PAYLOAD) as u64;
            let early = SimTime(tail.0.saturating_sub(self.costs.rx_rate.time(rest).as_ps()));
            let event = Event::Delivered {
                node,
                packet: index,
            };
            let wanted = head.max(early);
            slot.arrived = wanted.max(now);
            slot.lead = u32::try_from((slot.arrived - wanted).as_ps()).unwrap_or(u32::MAX);
            queue.push(slot.arrived, event);
            return;
        }
        if self.link_faults.any {
            let packets = length.div_ceil(PACKET_PAYLOAD).max(1) as u16;
            let delay = self.fail(index, link, (counter, packets), all, first);
            at += delay;
            self.outputs[link].free_at += delay;
        }
        let port = Port::from_index(usize::from(port));
        let next = self.topology.neighbour(node, port);
        let slot = &mut self.slots[index as usize];
        slot.arrived = at + self.costs.hop + self.costs.wire;
        slot.node = next;
        let event = Event::Router {
            node: next,
            input: (port.opposite() as u8) << 2 | slot.vc,
            packet: index,
        };
        queue.push(slot.arrived.max(now), event);
    }
}

/// For how long a unit occupies a link, and its first packet.
fn occupancy(slot: &Slot, flit: SimDuration) -> (SimDuration, SimDuration) {
    let flits = u64::from(slot.flits);
    (flit * flits, flit * flits.min(PACKET_FLITS))
}
