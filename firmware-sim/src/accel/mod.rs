//! Accelerated mode: the firmware holds a process's Portals state and serves it without its host.
//!
//! ```text
//!  process's mailbox --command--> Ni (portals-core, in SRAM) --+--> Tx engine, from user memory
//!  header packet ---------------> match                       +--> Rx engine, into user memory
//!                                                              +--> events, into rings in host memory
//!                                                              +--> completion of a command
//! ```
//!
//! | file | does |
//! |---|---|
//! | `mod.rs` | a process: set-up, tables, events |
//! | `command.rs` | the commands of its mailbox |
//! | `transfer.rs` | messages: out, in, their ends |
//! | `answers.rs` | acks and replies |
//! | `sram.rs` | what everything takes of SRAM |
//! | `moved.rs` | a process that goes to the kernel because SRAM is full |
//! | `wire.rs` | records in memory and the types of `portals-core` |
//!
//! # Rules
//!
//! 1. Commands of a mailbox are carried out in order. A put, get or getput that finds no transmit
//!    pending waits, and holds up those behind it.
//! 2. Everything that an operation writes into host memory is written in the order: data, events,
//!    completion. Posted writes keep that order, so whoever sees an event sees its data.
//! 3. A header without a free receive pending is refused as in generic mode; none is lost.
//! 4. A receive pending is taken from a header until its deposit has ended and its answer (ack,
//!    reply) has been sent; a transmit pending from a command until its message has been sent. The
//!    last one free does not wait for its answer: that waits in host memory, with its data. An answer without
//!    payload needs no receive pending. So two nodes never wait for one another's pendings.
//! 5. When a command would take more SRAM than there is, it is not carried out: the process goes to
//!    the kernel with everything it has, and its mailbox is dead.
//! 6. An answer that its peer does not take is sent again, at most [`TRIES`] times: whoever asked has
//!    no other way to know.
//! 7. A request to a node that has failed ends when its send has ended: SEND_END, then ACK or REPLY_END.
//! 8. Nothing that a process writes makes the firmware panic or reach another process's memory.

mod answers;
mod command;
mod moved;
mod sram;
mod transfer;
pub mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nic_model::FirmwareContext;
use nic_model::defs::accel::{EVENT_LEN, InitAccel, SMALL_BUFFER, flags};
use nic_model::defs::command::COMMAND_LEN;
use nic_model::defs::event::refusal;
use nic_model::defs::map::MAILBOX_COUNT;
use nic_model::defs::niccb::Counter;
use portals_core::{EqHandle, Error, Header, Limits, Ni, NiConfig, NiFail, OpId, ProcessId};
use zerocopy::IntoBytes;

use crate::answer;
use crate::awaited::{Answered, Awaited, Request};
use crate::header;
use crate::program::{GENERIC, SeaStarFirmware};
use wire::Outcome;

pub use moved::{Flight, Moved, moved_index};
pub(crate) use transfer::Reserved;

/// How often an answer is sent that has been given up.
pub const TRIES: u8 = 10;

/// A ring of events in host memory.
#[derive(Debug, Clone, Copy)]
struct Ring {
    /// Host physical address of entry 0.
    base: u64,
    count: u64,
    /// Events written so far.
    written: u64,
}

/// One accelerated process.
#[derive(Debug)]
pub(crate) struct Accel {
    ni: Ni,
    /// Host physical address of its completion.
    completion: u64,
    /// Answers written so far.
    answers: u32,
    /// Host physical address of its address 0.
    memory: u64,
    small_buffers: u64,
    nodes: u32,
    /// Node id of node 0.
    first_nid: u32,
    rings: BTreeMap<EqHandle, Ring>,
    /// By pending; the first half are for transmits.
    flights: Vec<Flight>,
    tx_free: VecDeque<u16>,
    rx_free: VecDeque<u16>,
    /// Pendings that it was set up with; those behind them are [`Accel::spill`]'s.
    pendings: u16,
    spare: VecDeque<u16>,
    /// A command that waits for a transmit pending.
    stalled: Option<[u8; COMMAND_LEN]>,
    /// By pending: the request it sends, to fail it when it cannot be delivered.
    requests: Vec<Option<Header>>,
    /// Pendings whose data has not ended, oldest first.
    sending: VecDeque<u16>,
    /// Requests whose answer has not come.
    awaited: Awaited,
    /// Nodes that have failed.
    failed: BTreeSet<u32>,
}

impl Accel {
    fn new(command: &InitAccel, node: u16, pendings: u16) -> Self {
        let limit = |v: u32| i32::try_from(v).unwrap_or(i32::MAX);
        let config = NiConfig {
            id: ProcessId::new(command.nid.get().into(), command.pid.get().into()),
            uid: command.uid.get(),
            jid: command.jid.get(),
            interface: command.interface,
            limits: Limits {
                max_mes: limit(command.max_mes.get()),
                max_mds: limit(command.max_mds.get()),
                max_eqs: limit(command.max_eqs.get()),
                max_ac_index: command.max_ac_index.into(),
                max_pt_index: command.max_pt_index.into(),
                max_md_iovecs: command.max_md_pieces.into(),
                max_me_list: limit(command.max_me_list.get()),
                max_getput_md: command.max_getput.into(),
            },
            get_send_events: command.flags & flags::GET_SEND_EVENTS != 0,
        };
        let mut ni = Ni::new(config);
        ni.export_events();
        // The firmware walks, and pays for each step.
        ni.walk_lists();
        Self {
            ni,
            completion: command.completion.get(),
            answers: 0,
            memory: command.memory.get(),
            small_buffers: command.small_buffers.get(),
            nodes: command.nodes.get(),
            first_nid: u32::from(command.nid.get()).wrapping_sub(u32::from(node)),
            rings: BTreeMap::new(),
            flights: (0..pendings).map(|_| Flight::Idle).collect(),
            tx_free: (0..pendings / 2).collect(),
            rx_free: (pendings / 2..pendings).collect(),
            pendings,
            spare: VecDeque::new(),
            stalled: None,
            requests: vec![None; usize::from(pendings)],
            sending: VecDeque::new(),
            awaited: Awaited::default(),
            failed: BTreeSet::new(),
        }
    }

    /// The node with this id, if the job has it.
    fn node_of(&self, nid: u32) -> Option<u16> {
        let node = nid.checked_sub(self.first_nid).filter(|n| *n < self.nodes);
        node.and_then(|n| u16::try_from(n).ok())
    }

    /// Host physical address of a process's address. No address leads out of its memory.
    fn physical(&self, address: u64) -> u64 {
        const WITHIN: u64 = (1 << 48) - 1;
        self.memory | (address & WITHIN)
    }

    /// An answer has come: the send of its request has ended, also if the peer's firmware has not
    /// said so yet. SEND_END comes before ACK and REPLY_START. After an answer that says that it has failed, the end of the send
    /// ends the request: its data may have been missing here.
    fn answered(&mut self, answer: &Header, flags: u8) -> Answered {
        let Some(node) = self.node_of(answer.source.nid) else {
            return Answered::Unknown;
        };
        let answered = self.awaited.answered(node.into(), 0, answer, flags);
        let Answered::Request(request) = &answered else {
            return answered;
        };
        if flags & header::FAILED == 0 {
            self.send_answered(request);
        } else if let Some((at, op)) = self.send_of(request)
            && let Some(pending) = self.sending.remove(at).map(usize::from)
        {
            self.flights[pending] = Flight::Refused(op);
            return Answered::Over;
        }
        answered
    }

    /// Where among [`Accel::sending`] the send of this request is, and of no other: the data of an equal
    /// one may still be read.
    fn send_of(&self, request: &Request) -> Option<(usize, OpId)> {
        let op = request.op?;
        let is_it = |pending: &u16| {
            let at = usize::from(*pending);
            matches!(self.flights.get(at), Some(Flight::Send(sent)) if *sent == op)
                && self.requests.get(at) == Some(&Some(request.header))
        };
        Some((self.sending.iter().position(is_it)?, op))
    }

    fn send_answered(&mut self, request: &Request) {
        let Some((at, op)) = self.send_of(request) else {
            return;
        };
        let Some(pending) = self.sending.remove(at).map(usize::from) else {
            return;
        };
        self.flights[pending] = Flight::Message;
        self.requests[pending] = None;
        self.ni.send_end(op, NiFail::OK);
    }

    /// `node` has failed: what it owes will not come.
    fn node_failed(&mut self, node: u32) {
        self.failed.insert(node);
        let mut awaited = std::mem::take(&mut self.awaited);
        for request in awaited.lost(node, |request| self.send_of(request).is_some()) {
            answer::fail(&mut self.ni, &request.header, NiFail::FAIL);
        }
        self.awaited = awaited;
    }

    fn small_buffer(&self, pending: u16) -> u64 {
        self.small_buffers + SMALL_BUFFER * u64::from(pending)
    }

    /// Puts a pending back.
    fn free(&mut self, pending: u16) -> Flight {
        let Some(flight) = self.flights.get_mut(usize::from(pending)) else {
            return Flight::Idle;
        };
        let was = std::mem::replace(flight, Flight::Idle);
        match pending {
            tx if tx < self.pendings / 2 => self.tx_free.push_back(tx),
            rx if rx < self.pendings => self.rx_free.push_back(rx),
            spilt => self.spare.push_back(spilt),
        }
        was
    }

    /// A place in host memory for an answer that waits for its peer; `None` when events cannot name
    /// more.
    fn spill(&mut self) -> Option<u16> {
        if let Some(place) = self.spare.pop_front() {
            return Some(place);
        }
        let place = u16::try_from(self.flights.len()).ok()?;
        if moved_index(0, place) != place {
            return None;
        }
        self.flights.push(Flight::Idle);
        self.requests.push(None);
        Some(place)
    }
}

/// All accelerated processes of a node; mailbox 0 is the generic process's.
pub(crate) type Accels = [Option<Box<Accel>>; MAILBOX_COUNT as usize];

impl SeaStarFirmware {
    /// Sets a process up, for the generic process.
    pub(crate) fn init_accel(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        command: &InitAccel,
    ) -> Result<(), u8> {
        let index = usize::from(command.process_index).wrapping_sub(1);
        if mailbox != 0 || !(1..MAILBOX_COUNT as usize).contains(&index) {
            return Err(refusal::PROCESS);
        }
        let pid = u32::from(command.pid.get());
        let taken = self.accels[index].is_some() || self.processes[index].is_some();
        if taken || self.orphaned[index] || self.accel_of(pid).is_some() {
            return Err(refusal::STATE);
        }
        let pendings = self.nic.pendings;
        if !self.sram_holds(u64::from(pendings) * sram::PENDING) {
            return Err(refusal::TABLE);
        }
        let process = Accel::new(command, ctx.node().0, pendings as u16);
        self.accels[index] = Some(Box::new(process));
        self.show_sram(ctx);
        Ok(())
    }

    /// The kernel says that the RAS controller has given `node` up: what it owes will not come.
    pub(crate) fn node_failed(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        node: u32,
    ) -> Result<(), u8> {
        if mailbox != GENERIC {
            return Err(refusal::PROCESS);
        }
        for index in 0..self.accels.len() {
            let Some(process) = &mut self.accels[index] else {
                continue;
            };
            process.node_failed(node);
            self.write_events(ctx, index);
        }
        Ok(())
    }

    /// Whether the pendings of a mailbox are those of an accelerated process, or of one that was.
    pub(crate) fn is_accelerated(&self, mailbox: usize) -> bool {
        self.accels.get(mailbox).is_some_and(Option::is_some)
            || self.orphaned.get(mailbox).is_some_and(|orphaned| *orphaned)
    }

    /// The accelerated process with this process id.
    pub(crate) fn accel_of(&self, pid: u32) -> Option<usize> {
        self.accels
            .iter()
            .position(|p| p.as_ref().is_some_and(|p| p.ni.config().id.pid == pid))
    }

    /// Writes the events that have come up into their rings.
    fn write_events(&mut self, ctx: &mut FirmwareContext<'_>, index: usize) {
        let Some(process) = &mut self.accels[index] else {
            return;
        };
        while let Some((eq, event)) = process.ni.poll_exported() {
            ctx.busy(self.nic.nic_event);
            let Some(ring) = process.rings.get_mut(&eq) else {
                ctx.count(Counter::EVENTS_LOST, 1);
                continue;
            };
            let at = ring.base + EVENT_LEN * (ring.written % ring.count);
            ring.written += 1;
            ctx.host_write(at, wire::event_record(&event).as_bytes());
            ctx.count(Counter::ACCEL_EVENTS, 1);
        }
    }

    /// Answers a command.
    fn answer(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        result: Result<Outcome, Error>,
    ) {
        self.write_events(ctx, index);
        if let Some(process) = &mut self.accels[index] {
            process.answers = process.answers.wrapping_add(1);
            let record = wire::completion(process.answers, result);
            ctx.host_write(process.completion, record.as_bytes());
        }
    }
}
