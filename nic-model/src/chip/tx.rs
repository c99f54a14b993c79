//! The transmit engine: fetches a header and then the payload, burst by burst, and injects
//! packets.
//!
//! Reads are pipelined: the first burst costs the HyperTransport latency, each later one only its
//! bytes at the transmit rate.

use crate::defs::niccb::Counter;
use crate::defs::packet::{PACKET_PAYLOAD, PacketHeader, kind};
use crate::fabric::{Fabric, Upcall};
use crate::firmware::{EngineBusy, TransferFault, TxJob};
use crate::host::{HostFault, HostMemories};
use crate::network::Packet;
use crate::queue::Event;
use crate::time::SimTime;
use crate::topology::NodeId;

#[derive(Debug, Default)]
pub(crate) struct TxEngine {
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    job: TxJob,
    header_sent: bool,
    /// Payload bytes not yet fetched.
    left: u64,
    segment: usize,
    offset: u32,
}

impl Active {
    /// Moves the cursor over up to `wanted` bytes of one segment: their address and count.
    fn advance(&mut self, wanted: usize) -> Option<(u64, usize)> {
        loop {
            let segment = self.job.segments.get(self.segment)?;
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

    fn packet(&self, source: NodeId, kind: u8, last: bool, payload: &[u8]) -> Packet {
        let mut header = PacketHeader(0);
        header.set_destination(self.job.destination.0);
        header.set_source(source.0);
        header.set_kind(kind);
        header.set_last(last);
        header.set_tail(true);
        header.set_sequence(self.job.sequence);
        let mut bytes = [0; PACKET_PAYLOAD];
        bytes[..payload.len()].copy_from_slice(payload);
        Packet {
            header,
            length: payload.len() as u8,
            corrupt: false,
            payload: bytes,
        }
    }
}

impl Fabric {
    pub(crate) fn start_tx(
        &mut self,
        node: NodeId,
        now: SimTime,
        mut job: TxJob,
    ) -> Result<(), EngineBusy> {
        let engine = &mut self.chips[node.index()].tx;
        if engine.active.is_some() {
            return Err(EngineBusy);
        }
        job.header_length = job.header_length.clamp(1, PACKET_PAYLOAD as u8);
        let left = job.segments.iter().map(|s| u64::from(s.length)).sum();
        let chip = &self.machine.chip;
        let at = now + chip.ht_read_latency + chip.tx_rate.time(u64::from(job.header_length));
        engine.active = Some(Active {
            job,
            header_sent: false,
            left,
            segment: 0,
            offset: 0,
        });
        self.queue.push(at, Event::TxStep { node });
        Ok(())
    }

    pub(crate) fn tx_step(&mut self, memory: &mut dyn HostMemories, node: NodeId) {
        let Some(mut active) = self.chips[node.index()].tx.active.take() else {
            return;
        };
        let result = if active.header_sent {
            self.tx_burst(memory, node, &mut active)
        } else {
            self.tx_header(memory, node, &mut active)
        };
        if result.is_ok() && active.left > 0 {
            let next = active.left.min(u64::from(self.burst_len()));
            let at = self.now + self.machine.chip.tx_rate.time(next);
            self.chips[node.index()].tx.active = Some(active);
            self.queue.push(at, Event::TxStep { node });
            return;
        }
        if result.is_err() {
            self.chips[node.index()].count(Counter::TRANSFERS_FAILED, 1);
        }
        self.upcalls.push_back((
            node,
            Upcall::TxDone {
                token: active.job.token,
                result,
            },
        ));
    }

    /// Bytes of a burst, a whole number of packets.
    fn burst_len(&self) -> u32 {
        self.machine.chip.tx_burst / PACKET_PAYLOAD as u32 * PACKET_PAYLOAD as u32
    }

    fn tx_header(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        active: &mut Active,
    ) -> Result<(), TransferFault> {
        let mut header = [0; PACKET_PAYLOAD];
        let header = &mut header[..usize::from(active.job.header_length)];
        self.host_read(memory, node, active.job.header_address, header)
            .map_err(TransferFault::Header)?;
        active.header_sent = true;
        let packet = active.packet(node, kind::HEADER, active.left == 0, header);
        self.network.inject(&mut self.queue, self.now, packet);
        Ok(())
    }

    fn tx_burst(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        active: &mut Active,
    ) -> Result<(), TransferFault> {
        let mut burst = std::mem::take(&mut self.scratch);
        let length = active.left.min(u64::from(self.burst_len())) as usize;
        burst.resize(length, 0);
        let fetched = self.tx_fetch(memory, node, active, &mut burst);
        active.left -= length as u64;
        if fetched.is_ok() {
            let packets = length.div_ceil(PACKET_PAYLOAD);
            for (n, payload) in burst.chunks(PACKET_PAYLOAD).enumerate() {
                let last = active.left == 0 && n + 1 == packets;
                let packet = active.packet(node, kind::PAYLOAD, last, payload);
                self.network.inject(&mut self.queue, self.now, packet);
            }
        } else {
            // The receiver has the header already: end the message with a CRC that fails.
            let mut packet = active.packet(node, kind::PAYLOAD, true, &[]);
            packet.corrupt = true;
            self.network.inject(&mut self.queue, self.now, packet);
        }
        self.scratch = burst;
        fetched.map_err(TransferFault::Payload)
    }

    fn tx_fetch(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        active: &mut Active,
        burst: &mut [u8],
    ) -> Result<(), HostFault> {
        let mut filled = 0;
        while filled < burst.len() {
            let Some((address, count)) = active.advance(burst.len() - filled) else {
                break;
            };
            self.host_read(memory, node, address, &mut burst[filled..filled + count])?;
            filled += count;
        }
        Ok(())
    }
}
