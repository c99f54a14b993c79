//! The transmit engine: fetches a header and then the payload, burst by burst, and injects
//! packets.
//!
//! Reads are pipelined: the first burst costs the HyperTransport latency, each later one only its
//! bytes at the transmit rate.

use crate::defs::niccb::Counter;
use crate::defs::packet::{self, PACKET_PAYLOAD, PacketHeader, kind};
use crate::fabric::Fabric;
use crate::host::{HostFault, HostMemories};
use crate::queue::Event;
use crate::time::SimTime;
use crate::topology::NodeId;
use crate::transfer::{EngineBusy, TransferFault, TxJob, Upcall};

#[derive(Debug, Default)]
pub(crate) struct TxEngine {
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    job: TxJob,
    /// The header packet, when it need not be fetched.
    built: Option<[u8; PACKET_PAYLOAD]>,
    header_sent: bool,
    datagram: bool,
    /// Payload packets sent.
    packets: u16,
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

    /// The header of the next packet. A payload packet's number goes up from its message's, so
    /// that one which is missing shows.
    fn packet_header(&mut self, source: NodeId, kind: u8, last: bool) -> PacketHeader {
        if kind == packet::kind::PAYLOAD {
            self.packets = self.packets.wrapping_add(1);
        }
        let mut header = PacketHeader(0);
        header.set_destination(self.job.destination.0);
        header.set_source(source.0);
        header.set_kind(kind);
        header.set_last(last);
        header.set_tail(true);
        header.set_vc(packet::vc::REQUEST);
        header.set_sequence(self.job.sequence.wrapping_add(self.packets));
        header
    }
}

impl TxEngine {
    /// Forgets the message it is at.
    pub(crate) fn stop(&mut self) {
        self.active = None;
    }
}

impl Fabric {
    pub(crate) fn start_tx(
        &mut self,
        node: NodeId,
        now: SimTime,
        mut job: TxJob,
        built: Option<[u8; PACKET_PAYLOAD]>,
        datagram: bool,
    ) -> Result<(), EngineBusy> {
        let faults = self.chips[node.index()].faults;
        let engine = &mut self.chips[node.index()].tx;
        if engine.active.is_some() {
            return Err(EngineBusy);
        }
        job.header_length = job.header_length.clamp(1, PACKET_PAYLOAD as u8);
        let left = job.segments.iter().map(|s| u64::from(s.length)).sum();
        let chip = &self.machine.chip;
        let mut time = chip.tx_rate.time(u64::from(job.header_length));
        if built.is_none() {
            time += chip.ht_read_latency;
        }
        let at = now + faults.dma(time);
        let message = (job.destination, job.sequence);
        self.trace.tx_start(now, node, message, left);
        engine.active = Some(Active {
            job,
            built,
            header_sent: false,
            datagram,
            packets: 0,
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
        // Without room at the node port the engine holds what it has fetched.
        let next = match active.header_sent {
            true => active.left.min(u64::from(self.burst_len())) as usize,
            false => usize::from(active.job.header_length),
        };
        if !self.network.room(node, false, next) {
            self.chips[node.index()].tx.active = Some(active);
            return;
        }
        // Reads are pipelined behind the first, which fetches the header where that is in host memory.
        let first_read = !active.header_sent && active.built.is_some();
        let result = if active.header_sent {
            self.tx_burst(memory, node, &mut active)
        } else {
            self.tx_header(memory, node, &mut active)
        };
        if result.is_ok() && active.left > 0 {
            let next = active.left.min(u64::from(self.burst_len()));
            let mut time = self.machine.chip.tx_rate.time(next);
            if first_read {
                time += self.machine.chip.ht_read_latency;
            }
            let chip = &mut self.chips[node.index()];
            let at = self.now + chip.faults.dma(time);
            chip.tx.active = Some(active);
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

    /// Bytes of a burst, a whole number of packets and at least one.
    fn burst_len(&self) -> u32 {
        let unit = self.network.unit() as u32;
        (self.machine.chip.tx_burst / unit * unit).max(unit)
    }

    fn tx_header(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        active: &mut Active,
    ) -> Result<(), TransferFault> {
        let mut header = active.built.unwrap_or([0; PACKET_PAYLOAD]);
        let header = &mut header[..usize::from(active.job.header_length)];
        if active.built.is_none() {
            self.host_read(memory, node, active.job.header_address, header)
                .map_err(TransferFault::Header)?;
        }
        active.header_sent = true;
        let kind = if active.datagram {
            kind::DATAGRAM
        } else {
            kind::HEADER
        };
        let flit = active.packet_header(node, kind, active.left == 0);
        self.network
            .inject(&mut self.queue, self.now, flit, false, header)
            .map_err(|_| TransferFault::Unreachable)
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
        let mut sent = Ok(());
        if fetched.is_ok() {
            let unit = self.network.unit();
            let packets = length.div_ceil(unit);
            for (n, payload) in burst.chunks(unit).enumerate() {
                let last = active.left == 0 && n + 1 == packets;
                let flit = active.packet_header(node, kind::PAYLOAD, last);
                let queue = &mut self.queue;
                sent = sent.and(self.network.inject(queue, self.now, flit, false, payload));
            }
        } else {
            // The receiver has the header already: end the message with a CRC that fails.
            let flit = active.packet_header(node, kind::PAYLOAD, true);
            let queue = &mut self.queue;
            sent = self.network.inject(queue, self.now, flit, true, &[]);
        }
        self.scratch = burst;
        fetched.map_err(TransferFault::Payload)?;
        sent.map_err(|_| TransferFault::Unreachable)
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
