//! The library in a process of accelerated mode: commands into the process's own mailbox, answers and
//! events out of its own memory. It never traps, and nothing interrupts it.
//!
//! | file | does |
//! |---|---|
//! | `mod.rs` | a call: what it becomes, what its answer means |
//! | `ask.rs` | the commands |
//! | `known.rs` | what the library remembers of its descriptors |
//! | `ring.rs` | event queues in host memory |
//! | `takeover.rs` | the kernel's side when the firmware gives a process up |
//!
//! A call is one of three:
//!
//! * *read*: queues are looked at in memory (`eq_read` each), the distance is known;
//! * *posted*: a put or get of a descriptor that cannot refuse it ([`known`]) is written and the call
//!   returns; nobody waits for the NIC;
//! * *asked*: everything else waits for the [`Completion`] of its command, which it polls in memory.
//!
//! The memory that process and NIC share (completion, staging, rings) lies in the kernel's slot of the
//! node's address space; a kernel would map it into the process together with the mailbox.

mod ask;
mod known;
mod ring;
pub(super) mod takeover;
#[cfg(test)]
mod tests;

use super::kernel::Written;
use super::memory::NodeMemory;
use ask::Asked;
use fabric_api::call::{Answer, Call, Polled, Wait};
use fabric_api::place;
use firmware_sim::accel::wire;
use known::Known;
use nic_model::defs::accel::{Completion, InitAccel, MOVED, PLACES, SMALL_BUFFER, flags};
use nic_model::defs::command::{COMMAND_LEN, Command, OpCode};
use nic_model::defs::mailbox;
use nic_model::{HostParams, Machine, RegisterIo, SimDuration};
use portals_core::{EqHandle, Error, NiConfig, ProcessId, UnreadEvents};
use ring::Rings;
use zerocopy::FromBytes;

/// What a call has become.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is over.
    Over(Result<Answer, Error>),
    /// A command is to be written; the call is over then.
    Posted([u8; COMMAND_LEN]),
    /// A command is to be written, and its answer waited for.
    Asked([u8; COMMAND_LEN]),
}

/// What a process finds in its completion.
#[derive(Debug)]
pub(super) enum Found {
    /// Not the answer yet.
    Nothing,
    /// The answer.
    Answer(Result<Answer, Error>),
    /// The kernel has the process now; the call is to be made there.
    Moved,
}

/// How often the processor does what in a process of accelerated mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Commands that nobody waited for.
    pub(super) posted: u64,
    /// Commands that were waited for.
    pub(super) asked: u64,
    /// Reads of the mailbox's index.
    pub(super) register_reads: u64,
}

/// One process.
#[derive(Debug)]
pub(super) struct Accelerated {
    mailbox: u32,
    /// Index among the processes of the node.
    process: usize,
    own: ProcessId,
    nodes: u32,
    costs: HostParams,
    completion: u64,
    staging: u64,
    small_buffers: u64,
    command_write: u32,
    command_read: u32,
    answers: u32,
    asked: Option<Asked>,
    described: Option<ask::Described>,
    known: Known,
    rings: Rings,
    cost: SimDuration,
    pub(super) counts: Counts,
}

impl Accelerated {
    /// A process with mailbox `mailbox`, on a node that shares `memory` with it.
    pub(super) fn new(
        mailbox: u32,
        process: usize,
        config: &NiConfig,
        nodes: u32,
        machine: &Machine,
        memory: &mut NodeMemory,
    ) -> Self {
        Self {
            mailbox,
            process,
            own: config.id,
            nodes,
            costs: machine.host,
            completion: memory.alloc(size_of::<Completion>()),
            staging: memory.alloc(ask::STAGING),
            small_buffers: memory.reserve(PLACES * SMALL_BUFFER),
            command_write: 0,
            command_read: 0,
            answers: 0,
            asked: None,
            described: None,
            known: Known::default(),
            rings: Rings::default(),
            cost: SimDuration::ZERO,
            counts: Counts::default(),
        }
    }

    /// The command with which the kernel makes this process.
    pub(super) fn boot_command(&self, config: &NiConfig) -> [u8; COMMAND_LEN] {
        let limits = config.limits;
        let small = |v: i32| u8::try_from(v).unwrap_or(u8::MAX);
        let large = |v: i32| v.max(0).cast_unsigned();
        InitAccel {
            op: OpCode::INIT_ACCEL,
            process_index: self.mailbox as u8 + 1,
            interface: config.interface,
            flags: if config.get_send_events {
                flags::GET_SEND_EVENTS
            } else {
                0
            },
            nid: (config.id.nid as u16).into(),
            pid: (config.id.pid as u16).into(),
            uid: config.uid.into(),
            jid: config.jid.into(),
            nodes: self.nodes.into(),
            completion: self.completion.into(),
            memory: super::memory::of_process(self.process, 0).into(),
            small_buffers: self.small_buffers.into(),
            max_mes: large(limits.max_mes).into(),
            max_mds: large(limits.max_mds).into(),
            max_eqs: large(limits.max_eqs).into(),
            max_me_list: large(limits.max_me_list).into(),
            max_ac_index: small(limits.max_ac_index),
            max_pt_index: small(limits.max_pt_index),
            max_md_pieces: small(limits.max_md_iovecs),
            max_getput: small(limits.max_getput_md),
        }
        .to_entry()
    }

    /// Processor time since the last call of this.
    pub(super) fn take_cost(&mut self) -> SimDuration {
        std::mem::take(&mut self.cost)
    }

    /// Cost of noticing what a spinning process waits for.
    pub(super) fn wake_cost(&self) -> SimDuration {
        self.costs.eq_read
    }

    /// Begins a call. A poll does not block here.
    pub(super) fn begin(&mut self, call: &Call, memory: &mut NodeMemory) -> Begun {
        self.cost += self.costs.api_call;
        let result = match call {
            Call::EqPoll { eqs, .. } => {
                self.cost += self.costs.eq_read * eqs.len() as u64;
                Ok(self.poll(eqs, memory))
            }
            Call::EqPeek(eq) => {
                self.cost += self.costs.eq_read;
                match self.rings.peek(*eq, memory) {
                    None => Err(Error::EqInvalid),
                    Some(seen) => Ok(Answer::Polled(seen.map(|(event, dropped)| Polled {
                        event,
                        dropped,
                        which: 0,
                    }))),
                }
            }
            Call::Distance(to) => place::node_index(to.nid)
                .filter(|node| *node < self.nodes)
                .map(|_| Answer::Distance(u64::from(to.nid != self.own.nid)))
                .ok_or(Error::ProcessInvalid),
            Call::Paths => Ok(Answer::Paths(fabric_api::call::Paths::default())),
            Call::Compute(_) => Ok(Answer::Done),
            _ => return self.command(call, memory),
        };
        Begun::Over(result)
    }

    /// The first event of the queues, in the order of the list; none is taken where one of them is no queue.
    pub(super) fn poll(&mut self, eqs: &[EqHandle], memory: &mut NodeMemory) -> Answer {
        if let Some(which) = eqs.iter().position(|eq| !self.rings.is_queue(*eq)) {
            return Answer::BadQueue(which);
        }
        for (which, eq) in eqs.iter().enumerate() {
            match self.rings.take(*eq, memory) {
                None => return Answer::BadQueue(which),
                Some(None) => {}
                Some(Some((event, dropped))) => {
                    return Answer::Polled(Some(Polled {
                        event,
                        dropped,
                        which,
                    }));
                }
            }
        }
        Answer::Polled(None)
    }

    /// Writes a command if the mailbox has room.
    pub(super) fn write(
        &mut self,
        io: &mut dyn RegisterIo,
        entry: &[u8; COMMAND_LEN],
    ) -> (Written, SimDuration) {
        let next = mailbox::next_command(self.command_write);
        let mut written = Written {
            done: true,
            reads: 0,
        };
        let mut cost = SimDuration::ZERO;
        if next == self.command_read {
            let at = mailbox::address(self.mailbox, mailbox::COMMAND_READ);
            self.command_read = io.read32(at) % mailbox::COMMANDS;
            written.reads = 1;
            self.counts.register_reads += 1;
            cost += self.costs.register_read;
            if next == self.command_read {
                written.done = false;
                return (written, cost);
            }
        }
        mailbox::write_command(io, self.mailbox, self.command_write, entry);
        self.command_write = next;
        let doorbell = mailbox::address(self.mailbox, mailbox::COMMAND_WRITE);
        io.write32(doorbell, next);
        (written, cost + self.costs.command_write)
    }

    /// Looks at the completion.
    pub(super) fn look(&mut self, memory: &mut NodeMemory) -> Found {
        let Some(asked) = self.asked else {
            return Found::Nothing;
        };
        let record = memory
            .kernel(self.completion, size_of::<Completion>())
            .and_then(|bytes| Completion::read_from_bytes(bytes).ok());
        let Some(record) = record.filter(|r| r.tag.get() == self.answers) else {
            return Found::Nothing;
        };
        self.asked = None;
        let outcome = wire::outcome(&record, asked.kind);
        if outcome.is_err() {
            self.forget(asked.about, memory);
        }
        if record.code.get() == MOVED {
            return Found::Moved;
        }
        Found::Answer(outcome.and_then(|outcome| self.learn(asked.about, outcome, memory)))
    }

    /// The kernel takes the process over: what it has not read goes there, its memory back.
    pub(super) fn hand_over(&mut self, memory: &mut NodeMemory) -> Vec<UnreadEvents> {
        let unread = self.rings.unread(memory);
        for ring in self.rings.areas() {
            memory.unreserve(ring);
        }
        unread
    }

    pub(super) fn mailbox(&self) -> usize {
        self.mailbox as usize
    }

    pub(super) fn small_buffers(&self) -> u64 {
        self.small_buffers
    }

    /// Whether a poll may wait.
    pub(super) fn wait_of(call: &Call) -> Option<(fabric_api::call::EqList, Wait)> {
        match call {
            Call::EqPoll { eqs, wait } if *wait != Wait::No => Some((eqs.clone(), *wait)),
            _ => None,
        }
    }
}
