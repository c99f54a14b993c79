//! Routers, links and node ports.
//!
//! ```text
//!            node port (NIC0, NIC1)                       node port
//!  Tx ──► [512 flits] ─┐                          ┌─► [512 flits] ──► Rx
//!                      ▼ crossbar                 │ (free when Rx takes the packet)
//!  link ──► [96 × 4 VC] ──► [16 per input, VC] ──►┤ output, 1 packet at a time
//!            input buffer     output buffer       └─► link ──► next router's input buffer
//!                  └──────── credits go back ◄─────────────────────────┘
//! ```
//!
//! A packet is followed as a whole, by its head (virtual cut-through): it goes on as soon as the
//! output is free and the next buffer has room for all its flits, and holds the link for as long
//! as its flits take. The tail's time is added once, at the node port. A packet that meets no
//! other costs one event per router.
//!
//! Two fidelities share everything but the movement: [`Fidelity::Packet`] is `router`;
//! [`Fidelity::Message`] follows units of many packets, see `message`.
//!
//! # Invariants
//!
//! * Without faults every packet that is injected comes out exactly once, at its destination, and
//!   those of a pair and class in the order of their injection. (One path for a pair, and every
//!   queue is first in, first out.)
//! * Requests use virtual channels 0 and 1, responses 2 and 3 and a node port of their own. So
//!   responses move whenever their receivers take them, whatever requests wait for.
//! * For each link and channel, at any time: free credits + credits on their way back + flits in
//!   the next input buffer or on the way there = `input_buffer`. Checked at each change in debug
//!   builds, and by recounting all packets in tests.
//! * No set of packets waits for itself, as long as receivers take what arrives: see `routes`.
//!   Receivers that do not take packets stop their senders, and whoever shares their path.
//! * A packet that is lost, by whatever fault, gives every credit back and is counted once.

mod link;
mod message;
mod router;
mod routes;
mod stats;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::defs::packet::{PACKET_PAYLOAD, PacketHeader};
use crate::faults::{Fault, Faults, FaultsError};
use crate::params::Machine;
use crate::queue::{Event, EventQueue};
use crate::time::{Rate, SimDuration, SimTime};
use crate::topology::{NodeId, Port, Topology};

use link::LinkFaults;
use router::{Output, Router};
use routes::{Routes, TieBreak, Way};
pub use stats::{LinkStats, NetworkStats};

/// How exactly the network is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fidelity {
    /// Packet by packet, with buffers, credits and arbitration.
    #[default]
    Packet,
    /// By pieces of messages of `message_unit` bytes: no virtual channels, no buffers in routers.
    /// For thousands of nodes.
    Message,
}

/// No path leads to the destination, or it is not a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("no path leads to node {0}")]
pub(crate) struct Unreachable(pub(crate) u16);

/// A packet on its way; its bytes are behind [`Network::payload`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    /// `vc` is 0 for requests and 2 for responses when it is injected.
    pub(crate) header: PacketHeader,
    /// Payload bytes.
    pub(crate) length: u16,
    /// Its end-to-end CRC will not hold.
    pub(crate) corrupt: bool,
}

/// What a packet goes through; bits of [`Slot::flags`].
mod flag {
    /// Takes a detour.
    pub(super) const DETOUR: u8 = 1;
    /// Has crossed the dateline of the present ring.
    pub(super) const CROSSED: u8 = 2;
    /// Will be thrown away at the next router.
    pub(super) const LOST: u8 = 4;
    /// Has left the last router.
    pub(super) const LEFT: u8 = 8;
    /// Not in use.
    pub(super) const VACANT: u8 = 16;
}

const NONE: u32 = u32::MAX;

/// A packet and where it is.
#[derive(Debug, Clone, Copy)]
struct Slot {
    packet: Packet,
    /// When it came to the present router.
    arrived: SimTime,
    to: [u16; 3],
    flits: u16,
    age: u16,
    /// The router it is at, or on its way to; its destination's once it has left the last.
    node: NodeId,
    /// The input queue there.
    input: u8,
    /// Where it goes from there, and on which virtual channel.
    output: u8,
    vc: u8,
    flags: u8,
    /// Behind it in its queue.
    next: u32,
    /// By message: how much longer than its event says it has been at the node port, in
    /// picoseconds.
    lead: u32,
}

impl Slot {
    /// 0 for requests, 1 for responses.
    fn class(&self) -> u8 {
        self.packet.header.vc() >> 1
    }
}

/// The transmit engine's side of a node port.
#[derive(Debug, Clone, Copy, Default)]
struct Injection {
    /// When the port is free again.
    free_at: SimTime,
    /// Flits of each class that no router has taken; by message, that no receiver has.
    flits: [u32; 2],
    /// Flits for which the engine waits to find room.
    wanted: [u32; 2],
    /// Most of both classes.
    high_water: u32,
}

/// A packet of a certain number that a fault is to meet.
#[derive(Debug, Clone, Copy)]
struct Marked {
    fault: Fault,
    seen: u64,
}

/// What the network calculates with.
#[derive(Debug, Clone, Copy)]
struct Costs {
    hop: SimDuration,
    wire: SimDuration,
    flit: SimDuration,
    credit: SimDuration,
    retry: SimDuration,
    rx_rate: Rate,
    age_clock: u64,
    age_bias: [u16; 2],
    age_select: u32,
    input_buffer: u16,
    output_buffer: u16,
    node_port: u16,
}

/// A packet's passage over a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crossing {
    /// Flits on the link, those that were sent again included.
    pub(crate) flits: u64,
    /// For how long they kept it busy.
    pub(crate) busy: SimDuration,
    /// How much later the head came than over a sound link.
    pub(crate) late: SimDuration,
}

/// What a recorder is told of the network beyond its events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Incident {
    /// A packet is lost; `node` is the router where it was noticed.
    Lost { node: NodeId, header: PacketHeader },
    /// A packet was sent over a link `times` more often than once.
    Retried {
        node: NodeId,
        port: Port,
        header: PacketHeader,
        times: u32,
    },
}

/// The network.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) topology: Topology,
    fidelity: Fidelity,
    costs: Costs,
    /// Payload bytes behind each slot.
    unit: usize,
    slots: Vec<Slot>,
    payloads: Vec<u8>,
    vacant: Vec<u32>,
    injections: Vec<Injection>,
    /// Seven for each node.
    outputs: Vec<Output>,
    routers: Vec<Router>,
    routes: Routes,
    link_faults: LinkFaults,
    marked: Vec<Marked>,
    /// Node ports with room again since the last [`Network::settle`].
    freed: Vec<NodeId>,
    stats: NetworkStats,
    /// Somebody takes the incidents.
    watched: bool,
    incidents: Vec<Incident>,
    /// Of packets whose last link was slow or sent them again, while somebody watches.
    held: BTreeMap<u32, Crossing>,
    /// Channel 1 is used behind datelines; only tests say no, to see what it is for.
    datelines: bool,
}

impl Network {
    /// A network at rest.
    pub(crate) fn new(
        machine: &Machine,
        topology: Topology,
        fidelity: Fidelity,
        faults: &Faults,
    ) -> Result<Self, FaultsError> {
        faults.check(&topology)?;
        let params = &machine.network;
        let flits = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let costs = Costs {
            hop: params.router_hop,
            wire: params.link_wire,
            flit: machine.flit_wire_time(),
            credit: params.credit_return,
            retry: params.link_retry,
            rx_rate: machine.chip.rx_rate,
            age_clock: params.age_clock_period.as_ps().max(1),
            age_bias: [params.request_age_bias, params.response_age_bias].map(flits),
            age_select: params.age_rr_select,
            input_buffer: flits(params.input_buffer),
            output_buffer: flits(params.output_buffer),
            node_port: flits(params.node_port),
        };
        let unit = match fidelity {
            Fidelity::Packet => PACKET_PAYLOAD,
            Fidelity::Message => {
                (params.message_unit as usize / PACKET_PAYLOAD * PACKET_PAYLOAD).max(PACKET_PAYLOAD)
            }
        };
        let nodes = topology.nodes();
        let marked = faults.script().filter(|fault| {
            matches!(
                fault,
                Fault::LostPacket { .. } | Fault::CorruptedPacket { .. }
            )
        });
        let routers = match fidelity {
            Fidelity::Packet => (0..nodes)
                .map(|n| Router::new(&topology, NodeId(n as u16)))
                .collect(),
            Fidelity::Message => Vec::new(),
        };
        Ok(Self {
            fidelity,
            unit,
            slots: Vec::new(),
            payloads: Vec::new(),
            vacant: Vec::new(),
            injections: vec![Injection::default(); nodes],
            outputs: Output::all(&costs, nodes),
            routers,
            routes: Routes::new(&topology, TieBreak::of(params.tie_break)),
            link_faults: LinkFaults::new(faults, &topology),
            marked: marked.map(|&fault| Marked { fault, seen: 0 }).collect(),
            freed: Vec::new(),
            stats: NetworkStats::default(),
            watched: false,
            incidents: Vec::new(),
            held: BTreeMap::new(),
            datelines: true,
            costs,
            topology,
        })
    }

    /// From now on both directions of a link run at so many percent of the normal rate.
    pub(crate) fn slow_link(&mut self, node: NodeId, port: Port, percent: u32) {
        self.link_faults
            .slow_down(&self.topology, node, port, percent);
    }

    /// What the link that `packet` has just crossed did for it.
    pub(crate) fn crossing(&self, packet: u32) -> Crossing {
        let flits = u64::from(self.slots[packet as usize].flits);
        self.held.get(&packet).copied().unwrap_or(Crossing {
            flits,
            busy: self.costs.flit * flits,
            late: SimDuration::ZERO,
        })
    }

    /// From now on incidents are kept until they are taken.
    pub(crate) fn watch(&mut self) {
        self.watched = true;
    }

    /// What has happened since the last call.
    pub(crate) fn take_incidents(&mut self) -> Vec<Incident> {
        std::mem::take(&mut self.incidents)
    }

    /// A packet that is lost is counted.
    fn count_lost(&mut self, index: u32) {
        self.stats.lost += 1;
        if self.watched {
            let slot = &self.slots[index as usize];
            self.incidents.push(Incident::Lost {
                node: slot.node,
                header: slot.packet.header,
            });
        }
    }

    /// Most payload bytes of one packet; a multiple of 64.
    pub(crate) fn unit(&self) -> usize {
        self.unit
    }

    /// How exactly the network is simulated.
    pub(crate) fn fidelity(&self) -> Fidelity {
        self.fidelity
    }

    pub(crate) fn packet(&self, packet: u32) -> &Packet {
        &self.slots[packet as usize].packet
    }

    /// The bytes of a packet.
    pub(crate) fn payload(&self, packet: u32) -> &[u8] {
        let at = packet as usize * self.unit;
        &self.payloads[at..at + usize::from(self.packet(packet).length)]
    }

    /// How long before `now` the receive engine, if it was idle, could have begun with a packet
    /// that has arrived at `now`. Zero unless it stands for many packets.
    pub(crate) fn lead(&self, packet: u32, now: SimTime) -> SimDuration {
        let slot = &self.slots[packet as usize];
        SimDuration(match slot.arrived == now {
            true => slot.lead.into(),
            false => 0,
        })
    }

    /// Packets that are somewhere between injection and [`Network::remove`].
    pub(crate) fn packets_in_flight(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Flits of a packet with `length` bytes; of several packets when it is longer than one.
    fn flits(length: usize) -> u16 {
        (length.div_ceil(8) + length.div_ceil(PACKET_PAYLOAD).max(1)) as u16
    }

    /// Whether the transmit engine of `node` may inject `length` bytes. If not, it has a
    /// [`Event::TxStep`] when it may.
    pub(crate) fn room(&mut self, node: NodeId, response: bool, length: usize) -> bool {
        let flits: u32 = (0..length.max(1))
            .step_by(self.unit)
            .map(|at| u32::from(Self::flits((length - at).min(self.unit))))
            .sum();
        let limit = self.injection_limit();
        let injection = &mut self.injections[node.index()];
        let class = usize::from(response);
        if injection.flits[class] == 0 || injection.flits[class] + flits <= limit {
            return true;
        }
        injection.wanted[class] = flits;
        false
    }

    fn injection_limit(&self) -> u32 {
        match self.fidelity {
            Fidelity::Packet => u32::from(self.costs.node_port),
            // What Tx, the path and Rx hold between them.
            Fidelity::Message => 4 * u32::from(Self::flits(self.unit)),
        }
    }

    /// Flits have left an injection buffer.
    fn injection_drained(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        class: usize,
        flits: u16,
    ) {
        let limit = self.injection_limit();
        let injection = &mut self.injections[node.index()];
        injection.flits[class] = injection.flits[class].saturating_sub(u32::from(flits));
        let (held, wanted) = (injection.flits[class], injection.wanted[class]);
        if wanted != 0 && (held == 0 || held + wanted <= limit) {
            injection.wanted[class] = 0;
            queue.push(now, Event::TxStep { node });
        }
    }

    /// A packet enters the node port of its source.
    ///
    /// # Errors
    /// [`Unreachable`], counted; nothing was injected.
    pub(crate) fn inject(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        header: PacketHeader,
        corrupt: bool,
        payload: &[u8],
    ) -> Result<(), Unreachable> {
        let source = NodeId(header.source());
        let destination = NodeId(header.destination());
        let way = if self.topology.contains(destination) && self.topology.contains(source) {
            self.routes.way(&self.topology, source, destination)
        } else {
            Way::None
        };
        if way == Way::None {
            self.stats.unreachable += 1;
            return Err(Unreachable(destination.0));
        }
        let flits = Self::flits(payload.len());
        let slot = Slot {
            packet: Packet {
                header,
                length: payload.len() as u16,
                corrupt,
            },
            arrived: now,
            to: self.topology.coordinates(destination),
            flits,
            age: 0,
            node: source,
            input: 0,
            output: 0,
            vc: header.vc() & 2,
            flags: if way == Way::Detour { flag::DETOUR } else { 0 },
            next: NONE,
            lead: 0,
        };
        let index = self.store(slot, payload);
        self.stats.injected += 1;
        self.meet_marks(index, source, destination);
        let injection = &mut self.injections[source.index()];
        injection.flits[usize::from(slot.class())] += u32::from(flits);
        injection.high_water = injection
            .high_water
            .max(injection.flits[0] + injection.flits[1]);
        match self.fidelity {
            Fidelity::Packet => self.enter_router(queue, now, index),
            Fidelity::Message => self.send_unit(queue, now, index),
        }
        Ok(())
    }

    fn store(&mut self, slot: Slot, payload: &[u8]) -> u32 {
        let index = match self.vacant.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.payloads.resize(self.slots.len() * self.unit, 0);
                (self.slots.len() - 1) as u32
            }
        };
        let at = index as usize * self.unit;
        self.payloads[at..at + payload.len()].copy_from_slice(payload);
        index
    }

    /// Faults of the script that name a certain packet.
    fn meet_marks(&mut self, index: u32, from: NodeId, to: NodeId) {
        let mut corrupt = false;
        for mark in &mut self.marked {
            match mark.fault {
                Fault::LostPacket {
                    source,
                    destination,
                    packet,
                } if (source, destination) == (from, to) => {
                    if mark.seen == packet {
                        self.slots[index as usize].flags |= flag::LOST;
                    }
                    mark.seen += 1;
                }
                Fault::CorruptedPacket {
                    source,
                    destination,
                    packet,
                } if (source, destination) == (from, to) => {
                    corrupt |= mark.seen == packet;
                    mark.seen += 1;
                }
                _ => {}
            }
        }
        if corrupt {
            self.corrupt(index, index.into());
        }
    }

    /// Makes a bit wrong, which `bits` choose, and the end-to-end CRC with it.
    fn corrupt(&mut self, index: u32, bits: u64) {
        let packet = &mut self.slots[index as usize].packet;
        packet.corrupt = true;
        self.stats.corrupted += 1;
        if packet.length > 0 {
            let bit = bits % (u64::from(packet.length) * 8);
            self.payloads[index as usize * self.unit + bit as usize / 8] ^= 1 << (bit % 8);
        }
    }

    /// A packet has come through the node port; false if a fault has taken it.
    pub(crate) fn arrive(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        if slot.flags & flag::LOST != 0 {
            self.count_lost(index);
            self.remove(index);
            return false;
        }
        slot.packet.header.set_age(slot.age);
        slot.packet.header.set_vc(slot.vc);
        self.stats.delivered += 1;
        true
    }

    /// The packet has been consumed: its place in the node port's buffer is free.
    pub(crate) fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.flags = flag::VACANT;
        let (node, class, flits) = (slot.node, slot.class(), slot.flits);
        self.vacant.push(index);
        match self.fidelity {
            Fidelity::Packet => {
                let output = &mut self.outputs[node.index() * PORTS + NODE_PORT];
                output.credits[usize::from(class)] += flits;
                if output.waiting != 0 {
                    self.freed.push(node);
                }
            }
            Fidelity::Message => {
                let source = NodeId(self.slots[index as usize].packet.header.source());
                self.injections[source.index()].flits[usize::from(class)] -= u32::from(flits);
                if self.injections[source.index()].wanted[usize::from(class)] != 0 {
                    self.freed.push(source);
                }
            }
        }
    }

    /// Lets go what [`Network::remove`] has made room for. Called after each event.
    pub(crate) fn settle(&mut self, queue: &mut EventQueue, now: SimTime) {
        while let Some(node) = self.freed.pop() {
            match self.fidelity {
                Fidelity::Packet => self.kick(queue, now, node, NODE_PORT),
                Fidelity::Message => {
                    for class in 0..2 {
                        self.injection_drained(queue, now, node, class, 0);
                    }
                }
            }
        }
    }

    /// Throws a packet away that is in no buffer.
    fn lose(&mut self, index: u32) {
        self.count_lost(index);
        self.slots[index as usize].flags = flag::VACANT;
        self.vacant.push(index);
    }

    /// Whether a path leads from `source` to `destination`.
    pub(crate) fn is_reachable(&mut self, source: NodeId, destination: NodeId) -> bool {
        self.topology.contains(source)
            && self.topology.contains(destination)
            && self.routes.way(&self.topology, source, destination) != Way::None
    }

    /// The links from `source` to `destination`, if there is a way.
    pub(crate) fn path(
        &mut self,
        source: NodeId,
        destination: NodeId,
    ) -> Option<Vec<(NodeId, Port)>> {
        if !(self.topology.contains(source) && self.topology.contains(destination)) {
            return None;
        }
        self.routes.path(&self.topology, source, destination)
    }

    /// Cuts links; packets of the pairs whose path changes are lost.
    pub(crate) fn kill_links(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        links: &[(NodeId, Port)],
    ) {
        let mut before = self.routes.clone();
        self.routes.kill(&self.topology, links);
        for index in 0..self.slots.len() {
            let slot = self.slots[index];
            if slot.flags & (flag::VACANT | flag::LEFT | flag::LOST) != 0 {
                continue;
            }
            let header = slot.packet.header;
            let (from, to) = (NodeId(header.source()), NodeId(header.destination()));
            let same =
                before.path(&self.topology, from, to) == self.routes.path(&self.topology, from, to);
            if !same {
                self.slots[index].flags |= flag::LOST;
            }
        }
        if self.fidelity == Fidelity::Packet {
            for &(node, port) in links {
                let other = self.topology.neighbour(node, port);
                self.drain_output(queue, now, node, port.index());
                self.drain_output(queue, now, other, port.opposite().index());
            }
        }
    }

    /// Totals of the network.
    pub(crate) fn stats(&self) -> NetworkStats {
        NetworkStats {
            in_network: self.stats.injected - self.stats.delivered - self.stats.lost,
            ..self.stats
        }
    }
}

/// Outputs of a node: six links and the node port.
const PORTS: usize = 7;
const NODE_PORT: usize = Port::Node as usize;

#[cfg(test)]
mod tests;
