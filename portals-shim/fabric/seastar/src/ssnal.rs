//! SSNAL: the host driver of the chip in generic mode, below the libraries of a node's processes.
//!
//! It performs no register access itself. [`Ssnal::poll_command`] gives the mailbox commands to
//! write, [`Ssnal::handle_event`] takes the event words that the firmware posted, and
//! [`Ssnal::take_cost`] says how much processor time the work since the last call took; the kernel
//! does the rest.
//!
//! | file | decides |
//! |---|---|
//! | `ssnal/transmit.rs` | what rides in the header packet, transmit pendings, their end |
//! | `ssnal/receive.rs` | what a header does, where its data goes |
//! | `ssnal/failure.rs` | who is told of a message that fails |
//!
//! # Invariants
//!
//! * A transmit pending belongs to the host from its TX_END until the next transmit that names it.
//! * A receive pending belongs to the host from its HEADER event until `Release`, or until the end
//!   event of a `Receive` with the release flag.
//! * Data that fits the 64-byte header packet after the header (16 bytes, 8 of a getput; less where
//!   the machine's `inline_data` says so) rides in the header packet: its source may be reused at
//!   once, and the target needs no second interrupt.
//! * A request that cannot be answered any more ends with a failure: see `lost.rs`. Its send has ended
//!   before: SEND_END comes before ACK and REPLY_END, whoever says that the node has failed, and when.

mod failure;
mod receive;
mod transmit;

use super::accel::takeover::Orphans;
use super::header;
use super::lost::{Awaited, Request};
use super::memory::{self, NodeMemory};
use super::process::Process;
use nic_model::defs::command;
use nic_model::defs::event::{EventType, EventWord, RejectedCommand};
use nic_model::defs::pending::UPPER_PENDING_LEN;
use nic_model::{HostParams, Machine, SimDuration};
use portals_core::{NiFail, OpId, Segment};
use receive::Expected;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use transmit::{Outgoing, Sent};

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
const _: () = assert!(PENDINGS <= RejectedCommand::PENDINGS, "refusals name them");
/// Kernel memory of fixed use.
pub(super) const KERNEL_MEMORY: usize =
    (UPPER_PENDINGS + UPPER_PENDING_LEN * PENDINGS as u64) as usize;

/// Where kernel memory holds the context table, in jobs that have one.
pub(super) const CONTEXTS: u64 = KERNEL_MEMORY as u64;

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
    /// Nodes of which the RAS controller has said that they have failed.
    failed: BTreeSet<u32>,
    /// Requests that were being sent when their initiator had forgotten the target.
    forgotten: Vec<Request>,
    /// Processes of this node that have left, in an open simulation.
    left: BTreeSet<usize>,
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
            failed: BTreeSet::new(),
            forgotten: Vec::new(),
            left: BTreeSet::new(),
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

    /// Pins memory from now on, or unpins it. The cost of both is in that of pinning, and memory that is pinned is not pinned
    /// again.
    pub(super) fn pin(&mut self, process: usize, memory: Segment, begins: bool) {
        let place = (process, memory.addr, memory.addr.saturating_add(memory.len));
        if begins {
            let already = self.is_pinned(process, &memory);
            let count = self.pinned.entry(place).or_default();
            *count = count.saturating_add(1);
            let page = u64::from(self.costs.page_size);
            if page > 0 && !already {
                self.cost += self.costs.pin_page * (place.2.div_ceil(page) - memory.addr / page);
            }
        } else if let Some(count) = self.pinned.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.pinned.remove(&place);
            }
        }
    }

    /// Drops what is known of a process that has left.
    pub(super) fn forget_process(&mut self, process: usize) {
        self.pinned.retain(|(of, ..), _| *of != process);
        self.forgotten.retain(|request| request.process != process);
        self.left.insert(process);
    }

    /// Whether a process has left.
    pub(super) fn has_left(&self, process: usize) -> bool {
        self.left.contains(&process)
    }

    /// Nodes of the machine.
    pub(super) const fn nodes(&self) -> u32 {
        self.nodes
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

    /// The firmware has refused a command: what it asked for ends as one that fails.
    pub(super) fn refused(&mut self, processes: &mut [Process], refused: RejectedCommand) {
        self.counters.rejected += 1;
        match refused.pending() {
            // Nobody waits for an end.
            None => {}
            Some(pending) if pending < TX_PENDINGS => {
                self.tx_over(processes, pending, NiFail::FAIL, true);
            }
            Some(pending) => {
                // A refusal leaves the pending as it was.
                self.release(pending);
                self.rx_ended(processes, pending, NiFail::FAIL);
            }
        }
    }

    /// Takes one word of the event ring, which is no refusal.
    pub(super) fn handle_event(&mut self, processes: &mut [Process], word: EventWord) {
        let index = word.index();
        match word.kind() {
            EventType::TX_END => self.tx_ended(processes, index, NiFail::OK),
            EventType::TX_FAILED => self.tx_ended(processes, index, NiFail::FAIL),
            EventType::TX_FAULT => self.tx_ended(processes, index, NiFail::SEGV),
            EventType::HEADER => self.header_arrived(processes, index),
            EventType::RX_DONE | EventType::DROPPED => self.rx_ended(processes, index, NiFail::OK),
            EventType::RX_FAILED => self.rx_ended(processes, index, NiFail::FAIL),
            EventType::RX_FAULT => self.rx_ended(processes, index, NiFail::SEGV),
            EventType::MOVED_END => self.orphan_ended(processes, index, NiFail::OK),
            EventType::MOVED_FAILED => self.orphan_ended(processes, index, NiFail::FAIL),
            EventType::MOVED_FAULT => self.orphan_ended(processes, index, NiFail::SEGV),
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
