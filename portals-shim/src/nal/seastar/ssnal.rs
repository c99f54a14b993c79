//! SSNAL: the host driver of the chip in generic mode, below the libraries of a node's processes.
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
//! * Data that fits the 64-byte header packet after the header (16 bytes, 8 of a getput; less where
//!   the machine's `inline_data` says so) rides in the header packet: its source may be reused at
//!   once, and the target needs no second interrupt.
//! * A request that cannot be answered any more ends with a failure: see `lost.rs`.

mod failure;

use super::accel::takeover::Orphans;
use super::header::{self, PACKET};
use super::lost::{self, Awaited};
use super::memory::{self, NodeMemory};
use super::process::Process;
use crate::place;
use firmware_sim::accel::TRIES;
use nic_model::defs::command::{self, Command, OpCode, flags};
use nic_model::defs::event::{EventType, EventWord};
use nic_model::defs::pending::{MessageWord, UPPER_PENDING_LEN, UpperPending, status};
use nic_model::{HostParams, Machine, SimDuration};
use portals_core::{
    Body, Deposit, Header, Incoming, NiFail, OpId, ReplyOut, Segment, Swap, Transmit,
};
use std::collections::{BTreeMap, VecDeque};
use zerocopy::{FromBytes, IntoBytes};

/// Where kernel memory holds the event ring: 32-bit words.
pub(super) const EVENT_RING: u64 = 0;
/// Entries of the event ring.
pub(super) const EVENTS: u32 = 4096;
/// Where kernel memory holds the upper pendings.
pub(super) const UPPER_PENDINGS: u64 = 0x1_0000;
/// Pendings for transmits; those for receives follow.
pub(super) const TX_PENDINGS: u16 = 512;
/// All pendings: as many as the generic process is recalled to have had.
pub(super) const PENDINGS: u16 = 1274;
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

/// A header that the kernel has matched, for whoever watches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matched {
    pub(super) source: u16,
    pub(super) bits: u64,
    pub(super) searched: u32,
    pub(super) outcome: &'static str,
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
    /// Whose operation it is, by index.
    process: usize,
    /// Target's place in the machine.
    node: u16,
    packet: [u8; PACKET],
    packet_len: usize,
    payload: Vec<command::Segment>,
    length: u32,
    after: AfterTx,
    /// Kernel buffers to free at the end.
    buffers: Vec<KernelBuffer>,
    /// What it says.
    header: Header,
    /// How often it has been given up.
    tries: u8,
}

/// What waits for the end of a deposit.
#[derive(Debug)]
enum AfterRx {
    /// With the answer to send if it fails.
    Deposit(OpId, Option<Header>),
    /// The data of a getput is in the kernel buffer.
    Swap {
        swap: Swap,
        buffer: u64,
        length: usize,
    },
}

/// A transmit at the chip.
#[derive(Debug)]
struct Sent {
    process: usize,
    after: AfterTx,
    buffers: Vec<KernelBuffer>,
    header: Header,
    tries: u8,
}

/// A deposit at the chip.
#[derive(Debug)]
struct Expected {
    process: usize,
    after: AfterRx,
    /// The list of pieces, where there is one.
    list: Option<KernelBuffer>,
}

/// The data of a message that a library has accepted.
struct Arrived<'a> {
    pending: u16,
    /// What rode in the header packet.
    inline: &'a [u8],
    /// Whether payload waits for a destination.
    follows: bool,
    /// The answer to send if the data cannot be placed.
    failure: Option<Header>,
}

/// The driver of one node.
#[derive(Debug)]
pub(super) struct Ssnal {
    /// The node's own id.
    nid: u32,
    nodes: u32,
    costs: HostParams,
    max_message: u64,
    max_segments: usize,
    pub(super) memory: NodeMemory,
    tx_free: VecDeque<u16>,
    /// By transmit pending.
    tx: Vec<Option<Sent>>,
    backlog: VecDeque<Outgoing>,
    /// By receive pending.
    rx: Vec<Option<Expected>>,
    commands: VecDeque<[u8; command::COMMAND_LEN]>,
    cost: SimDuration,
    pub(super) counters: DriverCounters,
    /// Bytes of a header packet that may be used.
    packet: usize,
    awaited: Awaited,
    /// The transmit pending of each send that its end event is to end.
    sending: BTreeMap<(usize, OpId), u16>,
    /// The last header matched.
    pub(super) matched: Option<Matched>,
    /// Memory of processes that stays pinned: by process and first byte, one byte past the end, and by how many.
    pinned: BTreeMap<(usize, u64, u64), u32>,
    /// What processes had under way on the NIC when the kernel took them over.
    pub(super) orphans: Orphans,
}

impl Ssnal {
    pub(super) fn new(nid: u32, nodes: u32, machine: &Machine, memory: NodeMemory) -> Self {
        Self {
            nid,
            nodes,
            costs: machine.host,
            max_message: u64::from(machine.chip.max_message),
            max_segments: machine.chip.max_segments.min(u32::from(u16::MAX)) as usize,
            memory,
            tx_free: (0..TX_PENDINGS).collect(),
            tx: (0..TX_PENDINGS).map(|_| None).collect(),
            backlog: VecDeque::new(),
            rx: (0..PENDINGS).map(|_| None).collect(),
            commands: VecDeque::new(),
            cost: SimDuration::ZERO,
            counters: DriverCounters::default(),
            packet: header::LEN + machine.protocol.inline_data as usize,
            awaited: Awaited::default(),
            sending: BTreeMap::new(),
            matched: None,
            pinned: BTreeMap::new(),
            orphans: Orphans::default(),
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

    /// Processor time besides what the driver itself counts.
    pub(super) fn spend(&mut self, cost: SimDuration) {
        self.cost += cost;
    }

    fn copied(&mut self, bytes: usize) {
        if bytes > 0 {
            self.cost += self.costs.memcpy_fixed + self.costs.memcpy_rate.time(bytes as u64);
        }
    }

    /// Reads the memory of a process; `None` on a fault.
    pub(super) fn gather(&mut self, process: usize, segments: &[Segment]) -> Option<Vec<u8>> {
        let out = self.memory.gather(process, segments)?;
        self.copied(out.len());
        Some(out)
    }

    /// Writes the memory of a process; `false` on a fault.
    pub(super) fn scatter(&mut self, process: usize, segments: &[Segment], data: &[u8]) -> bool {
        self.copied(data.len());
        self.memory.scatter(process, segments, data)
    }

    /// Pins memory from now on, or unpins it. The cost of both is in that of pinning.
    pub(super) fn pin(&mut self, process: usize, memory: Segment, begins: bool) {
        let place = (process, memory.addr, memory.addr.saturating_add(memory.len));
        if begins {
            *self.pinned.entry(place).or_default() += 1;
            let page = u64::from(self.costs.page_size);
            if page > 0 {
                self.cost += self.costs.pin_page * (place.2.div_ceil(page) - memory.addr / page);
            }
        } else if let Some(count) = self.pinned.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.pinned.remove(&place);
            }
        }
    }

    /// Whether memory stays pinned after a transfer; ranges that begin before it are looked at from the nearest on, of
    /// which at most a few overlap.
    fn is_pinned(&self, process: usize, s: &Segment) -> bool {
        let upto = ..=(process, s.addr, u64::MAX);
        let near = self.pinned.range(upto).rev().take(4);
        let end = s.addr.saturating_add(s.len);
        near.take_while(|((p, ..), _)| *p == process)
            .any(|((_, _, stop), _)| end <= *stop)
    }

    /// The physical pieces of process memory, pinned; `None` when they are more than the chip takes.
    fn pieces(&mut self, process: usize, segments: &[Segment]) -> Option<Vec<command::Segment>> {
        let page = u64::from(self.costs.page_size);
        let mut pieces = Vec::new();
        for s in segments.iter().filter(|s| s.len > 0) {
            let (mut at, mut left) = (s.addr, s.len);
            while left > 0 {
                let run = match page {
                    0 => left,
                    page => left.min(page - at % page),
                };
                pieces.push(piece(memory::of_process(process, at), run));
                at = at.wrapping_add(run);
                left -= run;
            }
        }
        if page > 0 && !segments.iter().all(|s| self.is_pinned(process, s)) {
            self.cost += self.costs.pin_page * pieces.len() as u64;
        }
        (pieces.len() <= self.max_segments).then_some(pieces)
    }

    // ---- sending ----

    /// Sends a message of process `process`, which is not for this node.
    pub(super) fn send(&mut self, processes: &mut [Process], process: usize, tx: &Transmit) {
        let after = tx.op.map_or(AfterTx::Nothing, AfterTx::Send);
        self.transmit(processes, process, &tx.header, &tx.payload, after);
    }

    /// A message of `header` alone; `None` when its target cannot exist.
    fn outgoing(&mut self, process: usize, header: &Header) -> Option<Outgoing> {
        self.cost += self.costs.header_build;
        let node = place::node_index(header.target.nid).filter(|n| *n < self.nodes)?;
        let (bytes, packet_len) = header::encode(header);
        let mut packet = [0; PACKET];
        packet[..packet_len].copy_from_slice(&bytes[..packet_len]);
        Some(Outgoing {
            process,
            node: node as u16,
            packet,
            packet_len,
            payload: Vec::new(),
            length: 0,
            after: AfterTx::Nothing,
            buffers: Vec::new(),
            header: *header,
            tries: 0,
        })
    }

    /// User data for which the header packet has room.
    fn room(&self, out: &Outgoing) -> usize {
        self.packet.saturating_sub(out.packet_len)
    }

    /// Gives `out` data that the kernel holds: in the header packet, or else from a kernel buffer.
    fn carry(&mut self, out: &mut Outgoing, data: &[u8]) {
        if data.len() <= self.room(out) {
            out.packet[out.packet_len..out.packet_len + data.len()].copy_from_slice(data);
            out.packet_len += data.len();
            return;
        }
        let at = self.memory.alloc(data.len());
        if let Some(buffer) = self.memory.kernel(at, data.len()) {
            buffer.copy_from_slice(data);
        }
        out.buffers.push((at, data.len()));
        out.payload.push(piece(at, data.len() as u64));
        out.length = data.len() as u32;
    }

    /// Queues `header` with the bytes of `segments`. What `after` names ends when the data has
    /// been read: at once when it fits the header packet, else at the transmit's end event.
    fn transmit(
        &mut self,
        processes: &mut [Process],
        process: usize,
        header: &Header,
        segments: &[Segment],
        after: AfterTx,
    ) {
        let length: u64 = segments.iter().map(|s| s.len).sum();
        let fits = length <= self.max_message;
        let Some(mut out) = self.outgoing(process, header).filter(|_| fits) else {
            return self.not_sent(processes, process, header, after);
        };
        let small = length <= self.room(&out) as u64;
        let aligned = segments.iter().all(|s| s.addr & 3 == 0);
        if small || !aligned {
            let Some(data) = self.gather(process, segments) else {
                self.counters.faults += 1;
                return self.not_sent(processes, process, header, after);
            };
            self.carry(&mut out, &data);
            // The data has left the process's memory.
            self.ended(processes, process, after, NiFail::OK);
        } else {
            let Some(pieces) = self.pieces(process, segments) else {
                self.counters.faults += 1;
                return self.not_sent(processes, process, header, after);
            };
            out.payload = pieces;
            out.length = length as u32;
            out.after = after;
        }
        let op = match out.after {
            AfterTx::Send(op) => Some(op),
            AfterTx::Nothing | AfterTx::Reply(_) => None,
        };
        self.awaited.asked(out.node.into(), process, header, op);
        self.backlog.push_back(out);
        self.pump();
    }

    /// Sends bytes the kernel holds.
    fn transmit_bytes(&mut self, process: usize, header: &Header, data: &[u8]) {
        if let Some(mut out) = self.outgoing(process, header) {
            self.carry(&mut out, data);
            self.backlog.push_back(out);
            self.pump();
        }
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
            let wants_interrupt = self.costs.tx_interrupt == 1
                || !matches!(out.after, AfterTx::Nothing)
                || self.tx_free.len() < TX_LOW;
            let transmit = command::Transmit {
                op: OpCode::TRANSMIT,
                flags: if wants_interrupt { flags::INTERRUPT } else { 0 },
                nid: out.node.into(),
                length: out.length.into(),
                address: address.into(),
                pending_index: pending.into(),
                header_length: (out.packet_len as u16).into(),
                segments: segments.into(),
                reserved: [0; 42],
            };
            self.commands.push_back(transmit.to_entry());
            if let AfterTx::Send(op) = out.after {
                self.sending.insert((out.process, op), pending);
            }
            self.tx[usize::from(pending)] = Some(Sent {
                process: out.process,
                after: out.after,
                buffers: out.buffers,
                header: out.header,
                tries: out.tries,
            });
        }
    }

    fn ended(&mut self, processes: &mut [Process], process: usize, after: AfterTx, fail: NiFail) {
        let Some(ni) = processes.get_mut(process).map(|p| &mut p.ni) else {
            return;
        };
        match after {
            AfterTx::Nothing => return,
            AfterTx::Send(op) => ni.send_end(op, fail),
            AfterTx::Reply(op) => ni.reply_end(op, fail),
        }
        self.cost += self.costs.event_post;
    }

    /// The data of an operation that was begun elsewhere has left its memory.
    pub(super) fn send_ended(
        &mut self,
        processes: &mut [Process],
        process: usize,
        op: OpId,
        fail: NiFail,
    ) {
        self.ended(processes, process, AfterTx::Send(op), fail);
    }

    /// The same for a reply.
    pub(super) fn reply_ended(
        &mut self,
        processes: &mut [Process],
        process: usize,
        op: OpId,
        fail: NiFail,
    ) {
        self.ended(processes, process, AfterTx::Reply(op), fail);
    }

    fn tx_ended(&mut self, processes: &mut [Process], pending: u16, fail: NiFail) {
        let Some(sent) = self.tx.get_mut(usize::from(pending)).and_then(Option::take) else {
            self.counters.unknown_events += 1;
            return;
        };
        let at = UPPER_PENDINGS + UPPER_PENDING_LEN * u64::from(pending);
        let upper = self.memory.kernel(at, UPPER_PENDING_LEN as usize);
        let undelivered = fail != NiFail::OK
            && upper
                .and_then(|bytes| UpperPending::read_from_bytes(bytes).ok())
                .is_some_and(|upper| upper.status.get() == status::UNDELIVERED);
        for (at, len) in sent.buffers {
            self.memory.free(at, len);
        }
        if fail != NiFail::OK {
            self.counters.faults += 1;
        }
        self.tx_free.push_back(pending);
        if let AfterTx::Send(op) = sent.after {
            self.sending.remove(&(sent.process, op));
        }
        if undelivered && let Some(process) = processes.get_mut(sent.process) {
            process.ni.lost(sent.header.target);
        }
        self.ended(processes, sent.process, sent.after, fail);
        if fail != NiFail::OK {
            self.not_delivered(processes, sent.process, &sent.header);
        }
        if undelivered && sent.tries < TRIES {
            self.answer_again(sent.process, &sent.header, sent.tries + 1);
        }
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
    fn receive(
        &mut self,
        pending: u16,
        pieces: &[command::Segment],
        length: u64,
        process: usize,
        after: AfterRx,
    ) {
        let mut list = None;
        let (address, byte, segments) = match pieces {
            [] => (0, 0, 0),
            [one] => (one.address.get(), one.byte.get() as u16, 0),
            many => {
                let bytes = many.as_bytes();
                let at = self.memory.alloc(bytes.len());
                if let Some(buffer) = self.memory.kernel(at, bytes.len()) {
                    buffer.copy_from_slice(bytes);
                }
                list = Some((at, bytes.len()));
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
        self.rx[usize::from(pending)] = Some(Expected {
            process,
            after,
            list,
        });
    }

    fn header_arrived(&mut self, processes: &mut [Process], pending: u16) {
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
        let decoded = header::decode(packet, self.nid).ok();
        let found = decoded.and_then(|(header, data_at)| {
            let is = |p: &Process| p.ni.config().id.pid == header.target.pid;
            Some((header, data_at, processes.iter().position(is)?))
        });
        let Some((header, data_at, process)) = found else {
            self.counters.bad_headers += 1;
            return self.release(pending);
        };
        let inline = &packet[data_at..];
        let follows = message.has_payload();
        self.cost += self.costs.match_fixed;
        self.matched = Some(Matched {
            source: message.source(),
            bits: header.match_bits,
            searched: 0,
            outcome: "no match",
        });
        let failed = packet[header::FLAGS_AT] & header::FAILED != 0;
        if let Body::Ack { .. } | Body::Reply { .. } = header.body {
            let known = self.answered(processes, process, &header, failed);
            if failed {
                self.release(pending);
                if known && let Some(request) = lost::request_of(&header) {
                    self.will_not_be_answered(processes, process, &request);
                }
                return;
            }
        }
        match processes[process].ni.handle_header(&header) {
            Incoming::Dropped(_) => {
                self.release(pending);
            }
            Incoming::Acked => {
                self.matched = None;
                self.cost += self.costs.event_post;
                self.release(pending);
            }
            Incoming::Deposit(d) => {
                self.searched(d.searched);
                let arrived = Arrived {
                    pending,
                    inline,
                    follows,
                    failure: lost::refusal(&header),
                };
                self.deposit(processes, process, &d, arrived);
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
                self.transmit(processes, process, &header, &segments, AfterTx::Reply(op));
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
                        process,
                        AfterRx::Swap {
                            swap,
                            buffer,
                            length,
                        },
                    );
                } else {
                    self.release(pending);
                    self.swap(processes, process, swap, inline);
                }
            }
        }
    }

    pub(super) fn searched(&mut self, entries: u32) {
        if let Some(matched) = &mut self.matched {
            matched.searched = entries;
            matched.outcome = "taken";
        }
        self.cost += self.costs.match_entry * u64::from(entries);
    }

    fn deposit(
        &mut self,
        processes: &mut [Process],
        process: usize,
        d: &Deposit,
        arrived: Arrived<'_>,
    ) {
        let Arrived {
            pending,
            inline,
            follows,
            failure,
        } = arrived;
        if follows && d.length > 0 {
            if let Some(pieces) = self.pieces(process, &d.segments) {
                let after = AfterRx::Deposit(d.op, failure);
                return self.receive(pending, &pieces, d.length, process, after);
            }
            self.counters.faults += 1;
            self.release(pending);
            return self.deposited(processes, process, d.op, NiFail::FAIL, failure);
        }
        self.release(pending);
        let keep = inline.len().min(d.length as usize);
        let whole = follows || keep as u64 == d.length;
        let placed = keep == 0 || self.scatter(process, &d.segments, &inline[..keep]);
        if !placed {
            self.counters.faults += 1;
        }
        let fail = if placed && whole {
            NiFail::OK
        } else {
            NiFail::FAIL
        };
        self.deposited(processes, process, d.op, fail, failure);
    }

    pub(super) fn deposited(
        &mut self,
        processes: &mut [Process],
        process: usize,
        op: OpId,
        fail: NiFail,
        failure: Option<Header>,
    ) {
        self.cost += self.costs.event_post;
        if let Some(ack) = processes[process].ni.deposit_end(op, fail) {
            self.transmit_bytes(process, &ack, &[]);
        }
        if fail != NiFail::OK
            && let Some(failure) = failure
        {
            self.say_failed(process, &failure);
        }
    }

    pub(super) fn swap(
        &mut self,
        processes: &mut [Process],
        process: usize,
        swap: Swap,
        new: &[u8],
    ) {
        let keep = swap.length as usize;
        let old = self
            .gather(process, &swap.segments)
            .filter(|_| new.len() >= keep);
        let Some(old) = old else {
            self.counters.faults += 1;
            processes[process].ni.swap_end(swap.op, NiFail::FAIL);
            return self.say_failed(process, &swap.header);
        };
        let stored = self.scatter(process, &swap.segments, &new[..keep]);
        self.cost += self.costs.event_post;
        let fail = if stored { NiFail::OK } else { NiFail::FAIL };
        processes[process].ni.swap_end(swap.op, fail);
        self.transmit_bytes(process, &swap.header, &old);
    }

    fn rx_ended(&mut self, processes: &mut [Process], pending: u16, fail: NiFail) {
        let Some(expected) = self.rx.get_mut(usize::from(pending)).and_then(Option::take) else {
            self.counters.unknown_events += 1;
            return;
        };
        if let Some((at, len)) = expected.list {
            self.memory.free(at, len);
        }
        if fail != NiFail::OK {
            self.counters.faults += 1;
        }
        let process = expected.process;
        match expected.after {
            AfterRx::Deposit(op, failure) => {
                self.deposited(processes, process, op, fail, failure);
            }
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
                    self.swap(processes, process, swap, &data);
                } else {
                    processes[process].ni.swap_end(swap.op, fail);
                    self.say_failed(process, &swap.header);
                }
            }
        }
    }

    /// Takes one word of the event ring.
    pub(super) fn handle_event(&mut self, processes: &mut [Process], word: EventWord) {
        let index = word.index();
        match word.kind() {
            EventType::TX_END => self.tx_ended(processes, index, NiFail::OK),
            EventType::TX_FAILED => self.tx_ended(processes, index, NiFail::FAIL),
            EventType::HEADER => self.header_arrived(processes, index),
            EventType::RX_DONE | EventType::DROPPED => self.rx_ended(processes, index, NiFail::OK),
            EventType::RX_FAILED => self.rx_ended(processes, index, NiFail::FAIL),
            EventType::MOVED_END => self.orphan_ended(processes, index, NiFail::OK),
            EventType::MOVED_FAILED => self.orphan_ended(processes, index, NiFail::FAIL),
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
