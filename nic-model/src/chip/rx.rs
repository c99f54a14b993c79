//! The receive engine: sorts packets into messages, holds payload at the node port until the
//! firmware gives it a destination, then deposits it at the receive rate.
//!
//! A message holds an entry of the CAM from its header to its last packet; when all are taken,
//! later messages wait in the network, in order. Payload of a message without destination waits
//! without holding up other messages.

use std::collections::{BTreeMap, VecDeque};

use crate::defs::niccb::Counter;
use crate::defs::packet::kind;
use crate::fabric::{Fabric, Upcall};
use crate::firmware::{
    Deposit, DmaSegment, RxHandle, RxHeader, RxReport, StaleMessage, TransferFault,
};
use crate::host::HostMemories;
use crate::network::Packet;
use crate::queue::Event;
use crate::time::SimTime;
use crate::topology::NodeId;

/// What the engine tells the firmware.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delivery {
    Header(RxHeader),
    Done { token: u64, report: RxReport },
}

#[derive(Debug, Default)]
pub(crate) struct RxEngine {
    messages: Vec<Message>,
    vacant: Vec<u32>,
    /// The message each source is in the middle of.
    current: BTreeMap<u16, u32>,
    /// CAM entries taken.
    in_use: u32,
    /// Headers without CAM entry, oldest first.
    waiting: VecDeque<RxHeader>,
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
    sequence: u16,
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
    fn begin(&mut self, source: u16, sequence: u16) -> RxHandle {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.messages.push(Message::default());
            (self.messages.len() - 1) as u32
        });
        let message = &mut self.messages[index as usize];
        message.sequence = sequence;
        message.ended = false;
        message.fault = None;
        self.current.insert(source, index);
        RxHandle {
            index,
            generation: message.generation,
        }
    }
}

impl Fabric {
    /// A packet has come through the node port.
    pub(crate) fn packet_delivered(&mut self, node: NodeId, index: u32) {
        let packet = *self.network.packet(index);
        if packet.header.kind() == kind::HEADER {
            self.network.remove(index);
            self.header_packet(node, &packet);
            return;
        }
        let chip = &mut self.chips[node.index()];
        let source = packet.header.source();
        let message = chip.rx.current.get(&source).copied();
        let Some(at) =
            message.filter(|&m| chip.rx.messages[m as usize].sequence == packet.header.sequence())
        else {
            chip.count(Counter::PACKETS_DRAINED, 1);
            self.network.remove(index);
            return;
        };
        let rx = &mut chip.rx;
        rx.port_bytes += u64::from(packet.length);
        let port_bytes = u32::try_from(rx.port_bytes).unwrap_or(u32::MAX);
        let message = &mut rx.messages[at as usize];
        message.packets += 1;
        if packet.corrupt {
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

    fn header_packet(&mut self, node: NodeId, packet: &Packet) {
        let header = packet.header;
        let source = header.source();
        let chip = &mut self.chips[node.index()];
        if let Some(at) = chip.rx.current.remove(&source) {
            let message = &mut chip.rx.messages[at as usize];
            message.fault.get_or_insert(TransferFault::Truncated);
            message.ended = true;
            self.finish_if_ended(node, at);
        }
        let chip = &mut self.chips[node.index()];
        let payload = (!header.last()).then(|| chip.rx.begin(source, header.sequence()));
        let delivery = RxHeader {
            source: NodeId(source),
            sequence: header.sequence(),
            length: packet.length,
            bytes: packet.payload,
            corrupt: packet.corrupt,
            payload,
        };
        // A message behind a waiting one waits too: headers reach the firmware in order.
        let full = payload.is_some() && chip.rx.in_use >= self.machine.chip.cam_entries;
        if full || !chip.rx.waiting.is_empty() {
            if full {
                chip.count(Counter::CAM_OVERFLOW, 1);
            }
            chip.rx.waiting.push_back(delivery);
        } else {
            self.admit(node, delivery);
        }
    }

    /// Shows a header to the firmware, with a CAM entry for its payload.
    fn admit(&mut self, node: NodeId, header: RxHeader) {
        let chip = &mut self.chips[node.index()];
        if header.payload.is_some() {
            chip.rx.in_use += 1;
            let in_use = chip.rx.in_use;
            chip.sram_write(Counter::CAM_IN_USE.address(), in_use);
            chip.count_max(Counter::CAM_HIGH_WATER, in_use);
        }
        self.upcalls
            .push_back((node, Upcall::Rx(Delivery::Header(header))));
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
            let at = now + self.machine.chip.rx_rate.time(length);
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
        self.network.remove(index);
        let rx = &mut self.chips[node.index()].rx;
        rx.port_bytes -= u64::from(packet.length);
        let message = &mut rx.messages[at as usize];
        message.packets -= 1;
        if let Some(mut destination) = message.destination.take() {
            let mut fault = message.fault;
            let data = &packet.payload[..usize::from(packet.length)];
            self.deposit_packet(memory, node, data, &mut destination, &mut fault);
            let message = &mut self.chips[node.index()].rx.messages[at as usize];
            message.destination = Some(destination);
            message.fault = fault;
        }
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
        while let Some(header) = self.chips[node.index()].rx.waiting.pop_front() {
            if header.payload.is_some()
                && self.chips[node.index()].rx.in_use >= self.machine.chip.cam_entries
            {
                self.chips[node.index()].rx.waiting.push_front(header);
                break;
            }
            self.admit(node, header);
        }
    }
}
