//! Packets, routers and links.
//!
//! A packet's head crosses a router in `router_hop` and a link in `link_wire`; its flits occupy
//! the link one after the other, so that a packet behind it waits. Only the head is followed
//! (cut-through): the tail's time is added once, at the node port. All packets of a pair take
//! one path, and every link is a queue, so a pair's packets stay in order.

use crate::defs::packet::{PACKET_PAYLOAD, PacketHeader, flits};
use crate::params::Machine;
use crate::queue::{Event, EventQueue};
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Port, Topology};

/// A packet on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) header: PacketHeader,
    /// Valid bytes of `payload`.
    pub(crate) length: u8,
    /// Its end-to-end CRC will not hold.
    pub(crate) corrupt: bool,
    pub(crate) payload: [u8; PACKET_PAYLOAD],
}

/// Queues per node: six links, the node port, the injection port.
const PORTS: usize = 8;
const INJECT: usize = 7;

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) topology: Topology,
    hop: SimDuration,
    wire: SimDuration,
    flit: SimDuration,
    /// When each port of each node is free again.
    free_at: Vec<SimTime>,
    packets: Vec<Packet>,
    vacant: Vec<u32>,
    hops: u64,
}

impl Network {
    pub(crate) fn new(machine: &Machine, topology: Topology) -> Self {
        Self {
            hop: machine.network.router_hop,
            wire: machine.network.link_wire,
            flit: machine.flit_wire_time(),
            free_at: vec![SimTime::ZERO; topology.nodes() * PORTS],
            packets: Vec::new(),
            vacant: Vec::new(),
            hops: 0,
            topology,
        }
    }

    /// Routers crossed by all packets so far.
    pub(crate) fn packet_hops(&self) -> u64 {
        self.hops
    }

    /// Packets that are somewhere between injection and [`Network::remove`].
    pub(crate) fn packets_in_flight(&self) -> usize {
        self.packets.len() - self.vacant.len()
    }

    /// Takes the port for a packet of `flits` that is there at `now`; when its head leaves.
    fn occupy(&mut self, node: NodeId, port: usize, now: SimTime, flits: u64) -> SimTime {
        let free_at = &mut self.free_at[node.index() * PORTS + port];
        let depart = now.max(*free_at);
        *free_at = depart + self.flit * flits;
        depart
    }

    /// A packet enters the router of its source.
    pub(crate) fn inject(&mut self, queue: &mut EventQueue, now: SimTime, packet: Packet) {
        let node = NodeId(packet.header.source());
        let flits = flits(usize::from(packet.length));
        let index = match self.vacant.pop() {
            Some(index) => {
                self.packets[index as usize] = packet;
                index
            }
            None => {
                self.packets.push(packet);
                (self.packets.len() - 1) as u32
            }
        };
        let depart = self.occupy(node, INJECT, now, flits);
        queue.push(
            depart,
            Event::Router {
                node,
                packet: index,
            },
        );
    }

    /// A packet's head is at the input of the router of `node`.
    pub(crate) fn route(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        packet: u32,
    ) {
        self.hops += 1;
        let at = &self.packets[packet as usize];
        let flits = flits(usize::from(at.length));
        let port = self.topology.route(node, NodeId(at.header.destination()));
        let depart = self.occupy(node, port as usize, now, flits);
        match port {
            Port::Node => queue.push(
                depart + self.hop + self.flit * flits,
                Event::Delivered { node, packet },
            ),
            link => {
                let next = self.topology.neighbour(node, link);
                queue.push(
                    depart + self.hop + self.wire,
                    Event::Router { node: next, packet },
                );
            }
        }
    }

    pub(crate) fn packet(&self, packet: u32) -> &Packet {
        &self.packets[packet as usize]
    }

    /// The packet has been consumed.
    pub(crate) fn remove(&mut self, packet: u32) {
        self.vacant.push(packet);
    }
}
