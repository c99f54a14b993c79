//! SSNAL: the host driver of the chip in generic mode, as a [`Nal`] of a node kernel's library.
//!
//! It performs no register access itself. [`Ssnal::poll_command`] gives the mailbox commands to
//! write, [`Ssnal::handle_event`] takes the event words that the firmware posted, and
//! [`Ssnal::take_cost`] says how much processor time the work since the last call took; the kernel
//! does the rest.
//!
//! # Invariants
//!
//! * A transmit pending belongs to the host from its TX_END until the next transmit that names it.
//! * A receive pending belongs to the host from its HEADER event until `Release`, or until the end
//!   event of a `Receive` with the release flag.
//! * Data that fits the 64-byte header packet after the header (16 bytes, 8 of a getput) rides in the header packet: its source may be
//!   reused at once, and the target needs no second interrupt.

use super::header::{self, PACKET};
use super::memory::{self, NodeMemory};
use crate::nal::Nal;
use nic_model::defs::command::{self, Command, OpCode, flags};
use nic_model::defs::event::{EventType, EventWord};
use nic_model::defs::pending::{MessageWord, UPPER_PENDING_LEN, UpperPending};
use nic_model::{HostMemory, HostParams, SimDuration};
use portals_core::{
    Deposit, Header, Incoming, Ni, NiFail, OpId, ProcessId, ReplyOut, Segment, Swap, Transmit,
};
use std::collections::VecDeque;
use zerocopy::{FromBytes, IntoBytes};

/// Where kernel memory holds the event ring: 32-bit words.
pub(super) const EVENT_RING: u64 = 0;
/// Entries of the event ring.
pub(super) const EVENTS: u32 = 4096;
/// Where kernel memory holds the upper pendings.
pub(super) const UPPER_PENDINGS: u64 = 0x1_0000;
/// Pendings for transmits, then as many for receives.
pub(super) const TX_PENDINGS: u16 = 64;
/// All pendings.
pub(super) const PENDINGS: u16 = 2 * TX_PENDINGS;
/// Kernel memory of fixed use.
pub(super) const KERNEL_MEMORY: usize =
    (UPPER_PENDINGS + UPPER_PENDING_LEN * PENDINGS as u64) as usize;
/// With fewer transmit pendings left, every transmit asks for an interrupt at its end, so that the
/// driver is sure to get one back.
const TX_LOW: usize = 8;

/// What a driver counts besides the chip's own registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DriverCounters {
    /// Header packets that were not Portals headers of this process.
    pub(super) bad_headers: u64,
    /// Commands that the firmware refused.
    pub(super) rejected: u64,
    /// Event words of no known kind.
    pub(super) unknown_events: u64,
    /// Headers that failed their CRC.
    pub(super) crc_errors: u64,
    /// Messages whose memory could not be reached.
    pub(super) faults: u64,
}

/// Address and length.
type KernelBuffer = (u64, usize);

/// What waits for the end of a transmit.
#[derive(Clone, Copy, Debug)]
enum AfterTx {
    Nothing,
    Send(OpId),
    Reply(OpId),
}

/// A message on its way to the chip.
#[derive(Debug)]
struct Outgoing {
    nid: u16,
    packet: [u8; PACKET],
    packet_len: usize,
    payload: Vec<command::Segment>,
    length: u32,
    after: AfterTx,
    /// Kernel buffers to free at the end.
    buffers: Vec<KernelBuffer>,
}

/// What waits for the end of a deposit.
#[derive(Debug)]
enum AfterRx {
    Deposit(OpId),
    /// The data of a getput is in the kernel buffer.
    Swap {
        swap: Swap,
        buffer: u64,
        length: usize,
    },
}

/// The driver of one node with one process.
#[derive(Debug)]
pub(super) struct Ssnal {
    own: ProcessId,
    nodes: u32,
    costs: HostParams,
    max_message: u64,
    pub(super) memory: NodeMemory,
    tx_free: VecDeque<u16>,
    /// By transmit pending: what its end means, and the buffers to free.
    tx: Vec<Option<(AfterTx, Vec<KernelBuffer>)>>,
    backlog: VecDeque<Outgoing>,
    /// By receive pending, from its HEADER event on.
    rx: Vec<Option<(AfterRx, Option<KernelBuffer>)>>,
    commands: VecDeque<[u8; command::COMMAND_LEN]>,
    cost: SimDuration,
    pub(super) counters: DriverCounters,
}

impl Ssnal {
    pub(super) fn new(
        own: ProcessId,
        nodes: u32,
        costs: HostParams,
        max_message: u64,
        memory: NodeMemory,
    ) -> Self {
        Self {
            own,
            nodes,
            costs,
            max_message,
            memory,
            tx_free: (0..TX_PENDINGS).collect(),
            tx: (0..TX_PENDINGS).map(|_| None).collect(),
            backlog: VecDeque::new(),
            rx: (0..PENDINGS).map(|_| None).collect(),
            commands: VecDeque::new(),
            cost: SimDuration::ZERO,
            counters: DriverCounters::default(),
        }
    }

    /// The next command for the mailbox.
    pub(super) fn poll_command(&mut self) -> Option<[u8; command::COMMAND_LEN]> {
        self.commands.pop_front()
    }

    /// Takes a command back that the mailbox had no room for.
    pub(super) fn unpoll_command(&mut self, command: [u8; command::COMMAND_LEN]) {
        self.commands.push_front(command);
    }

    /// Processor time of the work since the last call, command writes not included.
    pub(super) fn take_cost(&mut self) -> SimDuration {
        std::mem::take(&mut self.cost)
    }

    fn copied(&mut self, bytes: usize) {
        self.cost += self.costs.memcpy_fixed + self.costs.memcpy_rate.time(bytes as u64);
    }

    /// Reads process memory; `None` on a fault.
    fn gather(&mut self, segments: &[Segment]) -> Option<Vec<u8>> {
        let total: u64 = segments.iter().map(|s| s.len).sum();
        let mut out = vec![0; usize::try_from(total).ok()?];
        let mut at = 0;
        for s in segments {
            let end = at + s.len as usize;
            self.memory
                .read(memory::of_process(s.addr), &mut out[at..end])
                .ok()?;
            at = end;
        }
        self.copied(out.len());
        Some(out)
    }

    /// Writes process memory; `false` on a fault.
    fn scatter(&mut self, segments: &[Segment], mut data: &[u8]) -> bool {
        self.copied(data.len());
        for s in segments {
            let n = data.len().min(s.len as usize);
            if self
                .memory
                .write(memory::of_process(s.addr), &data[..n])
                .is_err()
            {
                return false;
            }
            data = &data[n..];
        }
        true
    }

    // ---- sending ----

    /// Queues `header` with the bytes of `segments`. What `after` names ends when the data has
    /// been read: at once when it fits the header packet, else at the transmit's end event.
    fn transmit(&mut self, ni: &mut Ni, header: &Header, segments: &[Segment], after: AfterTx) {
        self.cost += self.costs.header_build;
        let length: u64 = segments.iter().map(|s| s.len).sum();
        let (bytes, header_len) = header::encode(header);
        let mut packet = [0; PACKET];
        packet[..header_len].copy_from_slice(&bytes[..header_len]);
        let mut out = Outgoing {
            nid: header.target.nid as u16,
            packet,
            packet_len: header_len,
            payload: Vec::new(),
            length: 0,
            after,
            buffers: Vec::new(),
        };
        if header.target.nid >= self.nodes || length > self.max_message {
            return self.ended(ni, after, NiFail::FAIL);
        }
        let small = length <= (PACKET - header_len) as u64;
        let aligned = segments.iter().all(|s| s.addr & 3 == 0);
        if small || !aligned {
            let Some(data) = self.gather(segments) else {
                self.counters.faults += 1;
                return self.ended(ni, after, NiFail::FAIL);
            };
            if small {
                out.packet[header_len..header_len + data.len()].copy_from_slice(&data);
                out.packet_len += data.len();
            } else {
                let at = self.memory.alloc(data.len());
                if let Some(buffer) = self.memory.kernel(at, data.len()) {
                    buffer.copy_from_slice(&data);
                }
                out.buffers.push((at, data.len()));
                out.payload.push(piece(at, data.len() as u64));
                out.length = data.len() as u32;
            }
            // The data has left the process's memory.
            self.ended(
                ni,
                std::mem::replace(&mut out.after, AfterTx::Nothing),
                NiFail::OK,
            );
        } else {
            out.payload.extend(
                segments
                    .iter()
                    .filter(|s| s.len > 0)
                    .map(|s| piece(memory::of_process(s.addr), s.len)),
            );
            out.length = length as u32;
        }
        self.backlog.push_back(out);
        self.pump();
    }

    /// Sends bytes the kernel holds.
    fn transmit_bytes(&mut self, header: &Header, data: &[u8]) {
        self.cost += self.costs.header_build;
        let (bytes, header_len) = header::encode(header);
        let mut packet = [0; PACKET];
        packet[..header_len].copy_from_slice(&bytes[..header_len]);
        let mut out = Outgoing {
            nid: header.target.nid as u16,
            packet,
            packet_len: header_len,
            payload: Vec::new(),
            length: 0,
            after: AfterTx::Nothing,
            buffers: Vec::new(),
        };
        if header.target.nid >= self.nodes {
            return;
        }
        if data.len() <= PACKET - header_len {
            out.packet[header_len..header_len + data.len()].copy_from_slice(data);
            out.packet_len += data.len();
        } else {
            let at = self.memory.alloc(data.len());
            if let Some(buffer) = self.memory.kernel(at, data.len()) {
                buffer.copy_from_slice(data);
            }
            out.buffers.push((at, data.len()));
            out.payload.push(piece(at, data.len() as u64));
            out.length = data.len() as u32;
        }
        self.backlog.push_back(out);
        self.pump();
    }

    /// Turns queued messages into commands while there are pendings.
    fn pump(&mut self) {
        while !self.backlog.is_empty() {
            let Some(pending) = self.tx_free.pop_front() else {
                return;
            };
            let Some(mut out) = self.backlog.pop_front() else {
                return;
            };
            let at = UPPER_PENDINGS + UPPER_PENDING_LEN * u64::from(pending);
            let mut upper = UpperPending::read_from_bytes(&[0; UPPER_PENDING_LEN as usize]).ok();
            let (mut address, mut segments) = (0u64, 0u16);
            match out.payload.as_slice() {
                [] => {}
                [one] => address = one.address.get(),
                many => {
                    segments = many.len() as u16;
                    let bytes = many.as_bytes();
                    let array = self.memory.alloc(bytes.len());
                    out.buffers.push((array, bytes.len()));
                    if let Some(buffer) = self.memory.kernel(array, bytes.len()) {
                        buffer.copy_from_slice(bytes);
                    }
                    address = array >> 2;
                }
            }
            if let Some(upper) = upper.as_mut() {
                upper.header = out.packet;
                if let Some(memory) = self.memory.kernel(at, UPPER_PENDING_LEN as usize) {
                    memory.copy_from_slice(upper.as_bytes());
                }
            }
            let wants_interrupt =
                !matches!(out.after, AfterTx::Nothing) || self.tx_free.len() < TX_LOW;
            let transmit = command::Transmit {
                op: OpCode::TRANSMIT,
                flags: if wants_interrupt { flags::INTERRUPT } else { 0 },
                nid: out.nid.into(),
                length: out.length.into(),
                address: address.into(),
                pending_index: pending.into(),
                header_length: (out.packet_len as u16).into(),
                segments: segments.into(),
                reserved: [0; 42],
            };
            self.commands.push_back(transmit.to_entry());
            self.tx[usize::from(pending)] = Some((out.after, out.buffers));
        }
    }

    fn ended(&mut self, ni: &mut Ni, after: AfterTx, fail: NiFail) {
        match after {
            AfterTx::Nothing => return,
            AfterTx::Send(op) => ni.send_end(op, fail),
            AfterTx::Reply(op) => ni.reply_end(op, fail),
        }
        self.cost += self.costs.event_post;
    }

    fn tx_ended(&mut self, ni: &mut Ni, pending: u16, fail: NiFail) {
        let Some((after, buffers)) = self.tx.get_mut(usize::from(pending)).and_then(Option::take)
        else {
            self.counters.unknown_events += 1;
            return;
        };
        for (at, len) in buffers {
            self.memory.free(at, len);
        }
        if fail != NiFail::OK {
            self.counters.faults += 1;
        }
        self.tx_free.push_back(pending);
        self.ended(ni, after, fail);
        self.pump();
    }

    // ---- receiving ----

    fn release(&mut self, pending: u16) {
        let release = command::Release {
            op: OpCode::RELEASE,
            reserved: [0; 15],
            pending_index: pending.into(),
            reserved2: [0; 46],
        };
        self.commands.push_back(release.to_entry());
    }

    /// Asks for the payload of a receive pending.
    fn receive(&mut self, pending: u16, pieces: &[command::Segment], length: u64, after: AfterRx) {
        let mut array = None;
        let (address, byte, segments) = match pieces {
            [] => (0, 0, 0),
            [one] => (one.address.get(), one.byte.get() as u16, 0),
            many => {
                let bytes = many.as_bytes();
                let at = self.memory.alloc(bytes.len());
                if let Some(buffer) = self.memory.kernel(at, bytes.len()) {
                    buffer.copy_from_slice(bytes);
                }
                array = Some((at, bytes.len()));
                (at >> 2, 0, many.len() as u16)
            }
        };
        let receive = command::Receive {
            op: OpCode::RECEIVE,
            flags: flags::RELEASE,
            segments: segments.into(),
            length: (length as u32).into(),
            address: address.into(),
            pending_index: pending.into(),
            byte: byte.into(),
            reserved: [0; 44],
        };
        self.commands.push_back(receive.to_entry());
        self.rx[usize::from(pending)] = Some((after, array));
    }

    fn header_arrived(&mut self, ni: &mut Ni, pending: u16) {
        let at = UPPER_PENDINGS + UPPER_PENDING_LEN * u64::from(pending);
        let upper = self
            .memory
            .kernel(at, UPPER_PENDING_LEN as usize)
            .and_then(|bytes| UpperPending::read_from_bytes(bytes).ok());
        let Some(upper) = upper.filter(|_| pending < PENDINGS) else {
            self.counters.unknown_events += 1;
            return;
        };
        let message = MessageWord(upper.message.get());
        let packet = &upper.header[..usize::from(message.header_length()).min(PACKET)];
        let decoded = header::decode(packet, self.own.nid);
        let Ok((header, data_at)) = decoded else {
            self.counters.bad_headers += 1;
            return self.release(pending);
        };
        if header.target.pid != self.own.pid {
            self.counters.bad_headers += 1;
            return self.release(pending);
        }
        let inline = &packet[data_at..];
        let follows = message.has_payload();
        self.cost += self.costs.match_fixed;
        match ni.handle_header(&header) {
            Incoming::Dropped(_) => {
                self.release(pending);
            }
            Incoming::Acked => {
                self.cost += self.costs.event_post;
                self.release(pending);
            }
            Incoming::Deposit(d) => {
                self.searched(d.searched);
                self.deposit(ni, pending, &d, inline, follows);
            }
            Incoming::Reply(ReplyOut {
                op,
                header,
                segments,
                searched,
                ..
            }) => {
                self.searched(searched);
                self.release(pending);
                self.transmit(ni, &header, &segments, AfterTx::Reply(op));
            }
            Incoming::Swap(swap) => {
                self.searched(swap.searched);
                if follows {
                    let length = header.payload_len() as usize;
                    let buffer = self.memory.alloc(length);
                    self.receive(
                        pending,
                        &[piece(buffer, length as u64)],
                        length as u64,
                        AfterRx::Swap {
                            swap,
                            buffer,
                            length,
                        },
                    );
                } else {
                    self.release(pending);
                    self.swap(ni, swap, inline);
                }
            }
        }
    }

    fn searched(&mut self, entries: u32) {
        self.cost += self.costs.match_entry * u64::from(entries);
    }

    fn deposit(&mut self, ni: &mut Ni, pending: u16, d: &Deposit, inline: &[u8], follows: bool) {
        if follows && d.length > 0 {
            let pieces: Vec<_> = d
                .segments
                .iter()
                .filter(|s| s.len > 0)
                .map(|s| piece(memory::of_process(s.addr), s.len))
                .collect();
            return self.receive(pending, &pieces, d.length, AfterRx::Deposit(d.op));
        }
        self.release(pending);
        let keep = inline.len().min(d.length as usize);
        let whole = follows || keep as u64 == d.length;
        let placed = keep == 0 || self.scatter(&d.segments, &inline[..keep]);
        if !placed {
            self.counters.faults += 1;
        }
        self.deposited(
            ni,
            d.op,
            if placed && whole {
                NiFail::OK
            } else {
                NiFail::FAIL
            },
        );
    }

    fn deposited(&mut self, ni: &mut Ni, op: OpId, fail: NiFail) {
        self.cost += self.costs.event_post;
        if let Some(ack) = ni.deposit_end(op, fail) {
            self.transmit_bytes(&ack, &[]);
        }
    }

    fn swap(&mut self, ni: &mut Ni, swap: Swap, new: &[u8]) {
        let keep = swap.length as usize;
        let old = self.gather(&swap.segments).filter(|_| new.len() >= keep);
        let Some(old) = old else {
            self.counters.faults += 1;
            return ni.swap_end(swap.op, NiFail::FAIL);
        };
        let stored = self.scatter(&swap.segments, &new[..keep]);
        self.cost += self.costs.event_post;
        ni.swap_end(swap.op, if stored { NiFail::OK } else { NiFail::FAIL });
        self.transmit_bytes(&swap.header, &old);
    }

    fn rx_ended(&mut self, ni: &mut Ni, pending: u16, fail: NiFail) {
        let Some((after, array)) = self.rx.get_mut(usize::from(pending)).and_then(Option::take)
        else {
            self.counters.unknown_events += 1;
            return;
        };
        if let Some((at, len)) = array {
            self.memory.free(at, len);
        }
        if fail != NiFail::OK {
            self.counters.faults += 1;
        }
        match after {
            AfterRx::Deposit(op) => self.deposited(ni, op, fail),
            AfterRx::Swap {
                swap,
                buffer,
                length,
            } => {
                let data = self
                    .memory
                    .kernel(buffer, length)
                    .map(|b| b.to_vec())
                    .unwrap_or_default();
                self.memory.free(buffer, length);
                if fail == NiFail::OK {
                    self.swap(ni, swap, &data);
                } else {
                    ni.swap_end(swap.op, fail);
                }
            }
        }
    }

    /// Takes one word of the event ring.
    pub(super) fn handle_event(&mut self, ni: &mut Ni, word: EventWord) {
        let index = word.index();
        match word.kind() {
            EventType::TX_END => self.tx_ended(ni, index, NiFail::OK),
            EventType::TX_FAILED => self.tx_ended(ni, index, NiFail::FAIL),
            EventType::HEADER => self.header_arrived(ni, index),
            EventType::RX_DONE | EventType::DROPPED => self.rx_ended(ni, index, NiFail::OK),
            EventType::RX_FAILED => self.rx_ended(ni, index, NiFail::FAIL),
            EventType::REJECTED => self.counters.rejected += 1,
            EventType::HEADER_CRC => self.counters.crc_errors += 1,
            _ => self.counters.unknown_events += 1,
        }
    }
}

/// A piece of physical memory as commands name it.
fn piece(address: u64, length: u64) -> command::Segment {
    command::Segment {
        address: (address >> 2).into(),
        length: (length as u32).into(),
        byte: ((address & 3) as u32).into(),
    }
}

impl Nal for Ssnal {
    fn send(&mut self, ni: &mut Ni, tx: Transmit) {
        let after = tx.op.map_or(AfterTx::Nothing, AfterTx::Send);
        self.transmit(ni, &tx.header, &tx.payload, after);
    }

    fn progress(&mut self, _ni: &mut Ni) -> bool {
        false
    }

    fn carries_own(&self) -> bool {
        true
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        (to.nid < self.nodes).then_some(u64::from(to.nid != self.own.nid))
    }
}
