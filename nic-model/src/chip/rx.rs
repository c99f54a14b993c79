//! The receive engine: sorts packets into messages, holds payload at the node port until the
//! firmware gives it a destination, then deposits it at the receive rate.
//!
//! A message with payload holds an entry of the CAM from its header to its last packet. When all
//! are taken, later messages wait in the network, in order, or (`exhaustion` of the machine's
//! protocol) the firmware sees their headers and the engine throws their payload away. Payload of
//! a message without destination waits without holding up other messages.
//!
//! Packets of a message count up from its number: a packet that is missing fails the message as a
//! wrong end-to-end CRC does.

use std::collections::{BTreeMap, VecDeque};

use super::control;
use crate::defs::niccb::Counter;
use crate::defs::packet::{kind, vc};
use crate::fabric::Fabric;
use crate::host::HostMemories;
use crate::network::Packet;
use crate::queue::Event;
use crate::time::{SimDuration, SimTime};
use crate::topology::NodeId;
use crate::transfer::{
    Delivery, Deposit, DmaSegment, RxHandle, RxHeader, RxReport, StaleMessage, TransferFault,
    Upcall,
};

/// Whether it is the header of a message with payload.
fn takes_entry(delivery: &Delivery) -> bool {
    matches!(delivery, Delivery::Header(header) if header.payload.is_some())
}

#[derive(Debug, Default)]
pub(crate) struct RxEngine {
    messages: Vec<Message>,
    vacant: Vec<u32>,
    /// The message each source is in the middle of.
    current: BTreeMap<u16, u32>,
    /// CAM entries taken.
    in_use: u32,
    /// Headers without CAM entry, and what came behind them, oldest first.
    waiting: VecDeque<Delivery>,
    /// Packets with a destination: message and packet.
    ready: VecDeque<(u32, u32)>,
    /// An [`Event::RxStep`] is on its way.
    busy: bool,
    /// Payload bytes at the port.
    port_bytes: u64,
}

#[derive(Debug, Default)]
struct Message {
    generation: u32,
    /// Number of the next packet.
    sequence: u16,
    /// When the last packet came, or the destination.
    last_heard: SimTime,
    /// Packets without destination.
    held: VecDeque<u32>,
    /// Packets held or ready.
    packets: u32,
    ended: bool,
    destination: Option<Destination>,
    fault: Option<TransferFault>,
}

#[derive(Debug)]
struct Destination {
    segments: Vec<DmaSegment>,
    segment: usize,
    offset: u32,
    deposited: u32,
    discarded: u32,
    token: u64,
}

impl Destination {
    /// Moves the cursor over up to `wanted` bytes of one segment: their address and count.
    fn advance(&mut self, wanted: usize) -> Option<(u64, usize)> {
        loop {
            let segment = self.segments.get(self.segment)?;
            let rest = (segment.length - self.offset) as usize;
            if rest == 0 {
                self.segment += 1;
                self.offset = 0;
                continue;
            }
            let count = rest.min(wanted);
            let address = segment.address.wrapping_add(u64::from(self.offset));
            self.offset += count as u32;
            return Some((address, count));
        }
    }
}

impl RxEngine {
    fn message(&mut self, handle: RxHandle) -> Option<&mut Message> {
        let message = self.messages.get_mut(handle.index as usize)?;
        (message.generation == handle.generation).then_some(message)
    }

    /// A record for the message that begins now.
    fn begin(&mut self, source: u16, sequence: u16, now: SimTime) -> RxHandle {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.messages.push(Message::default());
            (self.messages.len() - 1) as u32
        });
        let message = &mut self.messages[index as usize];
        message.sequence = sequence.wrapping_add(1);
        message.last_heard = now;
        message.ended = false;
        message.fault = None;
        self.current.insert(source, index);
        RxHandle {
            index,
            generation: message.generation,
        }
    }
}

impl RxEngine {
    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Whether a message with a destination has not ended.
    pub(crate) fn awaits_packets(&self) -> bool {
        let waits = |&m: &u32| self.messages[m as usize].destination.is_some();
        self.current.values().any(waits)
    }

    /// Forgets every message; the packets it held.
    pub(crate) fn stop(&mut self) -> Vec<u32> {
        let held = self.messages.iter_mut().flat_map(|m| m.held.drain(..));
        let packets = held.chain(self.ready.drain(..).map(|r| r.1)).collect();
        *self = Self {
            busy: self.busy,
            ..Self::default()
        };
        packets
    }
}

impl Fabric {
    /// A packet has come through the node port.
    pub(crate) fn packet_delivered(&mut self, node: NodeId, index: u32) {
        let packet = *self.network.packet(index);
        if self.chips[node.index()].faults.crashed.is_some() {
            self.chips[node.index()].count(Counter::DEAD_PACKETS, 1);
            self.network.remove(index);
            return;
        }
        match packet.header.kind() {
            kind::PAYLOAD => self.payload_packet(node, index, &packet),
            kind::CONTROL => {
                let word = control::word(self.network.payload(index));
                self.network.remove(index);
                match word.filter(|_| !packet.corrupt) {
                    Some(word) => {
                        let source = NodeId(packet.header.source());
                        let delivery = Delivery::Control { source, word };
                        // What asks about messages does not pass those that wait.
                        let waiting = &mut self.chips[node.index()].rx.waiting;
                        if packet.header.vc() < vc::RESPONSE && !waiting.is_empty() {
                            waiting.push_back(delivery);
                        } else {
                            self.admit(node, delivery);
                        }
                    }
                    None => self.chips[node.index()].count(Counter::BAD_CONTROL, 1),
                }
            }
            _ => {
                let mut bytes = [0; 64];
                bytes[..usize::from(packet.length)].copy_from_slice(self.network.payload(index));
                self.network.remove(index);
                self.header_packet(node, &packet, bytes);
            }
        }
    }

    fn payload_packet(&mut self, node: NodeId, index: u32, packet: &Packet) {
        let chip = &mut self.chips[node.index()];
        let source = packet.header.source();
        let message = chip.rx.current.get(&source).copied();
        let Some(at) = message else {
            chip.count(Counter::PACKETS_DRAINED, 1);
            self.network.remove(index);
            return;
        };
        let rx = &mut chip.rx;
        rx.port_bytes += u64::from(packet.length);
        let port_bytes = u32::try_from(rx.port_bytes).unwrap_or(u32::MAX);
        let message = &mut rx.messages[at as usize];
        message.packets += 1;
        let missing = message.sequence != packet.header.sequence();
        message.sequence = packet.header.sequence().wrapping_add(1);
        message.last_heard = self.now;
        if packet.corrupt || missing {
            message.fault.get_or_insert(TransferFault::Crc);
        }
        if packet.header.last() {
            message.ended = true;
            rx.current.remove(&source);
        }
        if message.destination.is_some() {
            rx.ready.push_back((at, index));
            self.rx_kick(node, self.now);
        } else {
            message.held.push_back(index);
        }
        self.chips[node.index()].count_max(Counter::PORT_HIGH_WATER, port_bytes);
    }

    fn header_packet(&mut self, node: NodeId, packet: &Packet, bytes: [u8; 64]) {
        let header = packet.header;
        let source = header.source();
        let chip = &mut self.chips[node.index()];
        if let Some(at) = chip.rx.current.remove(&source) {
            self.cut(node, at);
        }
        let holds = self.machine.protocol.exhaustion == 0;
        let chip = &mut self.chips[node.index()];
        let follows = !header.last();
        let full = follows && chip.rx.in_use >= self.machine.chip.cam_entries;
        let overflow = full && !holds;
        let now = self.now;
        let payload = (follows && !overflow).then(|| chip.rx.begin(source, header.sequence(), now));
        let delivery = RxHeader {
            source: NodeId(source),
            sequence: header.sequence(),
            length: packet.length as u8,
            bytes,
            corrupt: packet.corrupt,
            datagram: header.kind() == kind::DATAGRAM,
            overflow,
            payload,
        };
        // A message behind a waiting one waits too: headers reach the firmware in order.
        if full {
            chip.count(Counter::CAM_OVERFLOW, 1);
        }
        if (full && holds) || !chip.rx.waiting.is_empty() {
            chip.rx.waiting.push_back(Delivery::Header(delivery));
        } else {
            self.admit(node, Delivery::Header(delivery));
        }
    }

    /// The rest of a message will not come.
    fn cut(&mut self, node: NodeId, at: u32) {
        let message = &mut self.chips[node.index()].rx.messages[at as usize];
        message.fault.get_or_insert(TransferFault::Truncated);
        message.ended = true;
        self.finish_if_ended(node, at);
    }

    /// Ends the messages with a destination that have waited for a packet since `before`.
    pub(crate) fn cut_silent(&mut self, node: NodeId, before: SimTime) {
        let rx = &mut self.chips[node.index()].rx;
        let silent = |&m: &u32| {
            let message = &rx.messages[m as usize];
            message.destination.is_some() && message.packets == 0 && message.last_heard < before
        };
        let cut: Vec<(u16, u32)> = rx
            .current
            .iter()
            .filter(|(_, m)| silent(m))
            .map(|(source, m)| (*source, *m))
            .collect();
        for (source, at) in cut {
            self.chips[node.index()].rx.current.remove(&source);
            self.cut(node, at);
        }
    }

    /// Shows a header to the firmware, with a CAM entry for its payload.
    fn admit(&mut self, node: NodeId, delivery: Delivery) {
        let chip = &mut self.chips[node.index()];
        if takes_entry(&delivery) {
            chip.rx.in_use += 1;
            let in_use = chip.rx.in_use;
            chip.sram_write(Counter::CAM_IN_USE.address(), in_use);
            chip.sram_write(
                Counter::CAM_FREELIST.address(),
                self.machine.chip.cam_entries.saturating_sub(in_use),
            );
            chip.count_max(Counter::CAM_HIGH_WATER, in_use);
        }
        self.upcalls.push_back((node, Upcall::Rx(delivery)));
    }

    pub(crate) fn deposit(
        &mut self,
        node: NodeId,
        now: SimTime,
        handle: RxHandle,
        deposit: Deposit,
    ) -> Result<(), StaleMessage> {
        let rx = &mut self.chips[node.index()].rx;
        let Some(message) = rx.message(handle).filter(|m| m.destination.is_none()) else {
            return Err(StaleMessage(handle));
        };
        message.last_heard = now;
        let (token, segments) = (deposit.token, &deposit.segments);
        self.trace.rx_start(now, node, token, segments);
        message.destination = Some(Destination {
            segments: deposit.segments,
            segment: 0,
            offset: 0,
            deposited: 0,
            discarded: 0,
            token: deposit.token,
        });
        let held = std::mem::take(&mut message.held);
        rx.ready
            .extend(held.iter().map(|&packet| (handle.index, packet)));
        self.rx_kick(node, now);
        self.finish_if_ended(node, handle.index);
        Ok(())
    }

    /// Starts on the next packet, if there is one and the engine is idle.
    fn rx_kick(&mut self, node: NodeId, now: SimTime) {
        let rx = &mut self.chips[node.index()].rx;
        if rx.busy {
            return;
        }
        if let Some(&(_, packet)) = rx.ready.front() {
            rx.busy = true;
            let length = u64::from(self.network.packet(packet).length);
            let time = self.machine.chip.rx_rate.time(length);
            let time = SimDuration(time.0.saturating_sub(self.network.lead(packet, now).0));
            let at = now + self.chips[node.index()].faults.dma(time);
            self.queue.push(at, Event::RxStep { node });
        }
    }

    pub(crate) fn rx_step(&mut self, memory: &mut dyn HostMemories, node: NodeId) {
        let rx = &mut self.chips[node.index()].rx;
        rx.busy = false;
        let Some((at, index)) = rx.ready.pop_front() else {
            return;
        };
        let packet = *self.network.packet(index);
        let mut data = std::mem::take(&mut self.scratch);
        data.clear();
        data.extend_from_slice(self.network.payload(index));
        self.network.remove(index);
        let rx = &mut self.chips[node.index()].rx;
        rx.port_bytes -= u64::from(packet.length);
        let message = &mut rx.messages[at as usize];
        message.packets -= 1;
        if let Some(mut destination) = message.destination.take() {
            let mut fault = message.fault;
            self.deposit_packet(memory, node, &data, &mut destination, &mut fault);
            let message = &mut self.chips[node.index()].rx.messages[at as usize];
            message.destination = Some(destination);
            message.fault = fault;
        }
        self.scratch = data;
        self.rx_kick(node, self.now);
        self.finish_if_ended(node, at);
    }

    /// Writes what of one packet has a place; after a fault the rest of the message is thrown
    /// away.
    fn deposit_packet(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        data: &[u8],
        destination: &mut Destination,
        fault: &mut Option<TransferFault>,
    ) {
        let mut done = 0;
        while done < data.len() && fault.is_none() {
            let Some((address, count)) = destination.advance(data.len() - done) else {
                break;
            };
            match self.host_write(memory, node, address, &data[done..done + count]) {
                Ok(()) => done += count,
                Err(error) => *fault = Some(TransferFault::Payload(error)),
            }
        }
        if done == 0 {
            self.chips[node.index()].count(Counter::PACKETS_DRAINED, 1);
        }
        destination.deposited = destination.deposited.saturating_add(done as u32);
        destination.discarded = destination
            .discarded
            .saturating_add((data.len() - done) as u32);
    }

    /// Reports a message whose last packet has been consumed, and lets a waiting one in.
    fn finish_if_ended(&mut self, node: NodeId, at: u32) {
        let chip = &mut self.chips[node.index()];
        let rx = &mut chip.rx;
        let message = &mut rx.messages[at as usize];
        if !message.ended || message.packets > 0 {
            return;
        }
        let Some(destination) = message.destination.take() else {
            return;
        };
        let fault = message.fault.take();
        message.generation = message.generation.wrapping_add(1);
        rx.vacant.push(at);
        rx.in_use = rx.in_use.saturating_sub(1);
        let in_use = rx.in_use;
        chip.sram_write(Counter::CAM_IN_USE.address(), in_use);
        chip.sram_write(
            Counter::CAM_FREELIST.address(),
            self.machine.chip.cam_entries.saturating_sub(in_use),
        );
        if fault.is_some() {
            chip.count(Counter::TRANSFERS_FAILED, 1);
        }
        let report = RxReport {
            deposited: destination.deposited,
            discarded: destination.discarded,
            fault,
        };
        let done = Delivery::Done {
            token: destination.token,
            report,
        };
        self.upcalls.push_back((node, Upcall::Rx(done)));
        while let Some(delivery) = self.chips[node.index()].rx.waiting.pop_front() {
            if takes_entry(&delivery)
                && self.chips[node.index()].rx.in_use >= self.machine.chip.cam_entries
            {
                self.chips[node.index()].rx.waiting.push_front(delivery);
                break;
            }
            self.admit(node, delivery);
        }
    }
}
