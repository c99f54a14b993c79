//! A node's kernel: it owns the Portals state of its processes, as Catamount's did. Processes trap
//! into it; the chip interrupts it.
//!
//! It does one thing at a time: a trap, the interrupt handler, or the delivery of a message between
//! two of its processes. Each process has a processor of its own to compute on; the first one's takes
//! the interrupts.
//!
//! The kernel never looks at a clock. [`Kernel::settle`] and [`Kernel::interrupt_step`] are told when
//! they run and say when the kernel is free again; the simulation orders them.

use super::local::{self, Local};
use super::memory::NodeMemory;
use super::process::{self, Process};
use super::ssnal::{
    CONTEXTS, EVENT_RING, EVENTS, Matched, PENDINGS, Ssnal, TX_PENDINGS, UPPER_PENDINGS,
};
use super::usermem::UserMemory;
use fabric_api::call::{Answer, Call, Polled, Taken};
use fabric_api::place;
use nic_model::defs::command::{COMMAND_LEN, Command, InitEq, InitProcess, MarkAlive, OpCode};
use nic_model::defs::event::{EventType, EventWord, RejectedCommand};
use nic_model::defs::ras::{Channel, RasEvent, event};
use nic_model::defs::{mailbox, map};
use nic_model::{HostParams, Machine, NodeId, RegisterIo, SimDuration, SimTime};
use portals_core::{EqHandle, Error, MdOptions, NiConfig, Segment};
use std::collections::VecDeque;
use zerocopy::FromZeros;

/// The generic process: index 1, mailbox 0, HT slot 8.
const GENERIC: u8 = 1;
const MAILBOX: u32 = 0;
const HT_SLOT: u32 = map::HT_HOST_SLOTS[0];

/// What one step of the interrupt handler did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandlerStep {
    /// An event was handled; look again at this time.
    More(SimTime),
    /// The ring is empty; the processor is free at this time.
    Done(SimTime),
}

/// What writing a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// There was room.
    pub(super) done: bool,
    /// Registers of the chip that were read.
    pub(super) reads: u64,
}

/// The kernel of one node.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) node: NodeId,
    nid: u32,
    /// By index.
    pub(super) processes: Vec<Process>,
    pub(super) driver: Ssnal,
    /// Messages between processes of this node that have not been delivered.
    local: VecDeque<Local>,
    /// A delivery of [`Kernel::local_step`] is on its way.
    pub(super) local_scheduled: bool,
    /// It came while the handler ran.
    pub(super) local_late: bool,
    /// Messages between processes of this node go through the chip, because the chip may have the
    /// state of their target.
    pub(super) uses_chip: bool,
    costs: HostParams,
    /// When the kernel can take the next trap or interrupt.
    pub(super) free_at: SimTime,
    /// Commands wait for room in the mailbox, and it will be looked at again.
    pub(super) retries: bool,
    /// The interrupt handler runs.
    pub(super) handling: bool,
    /// When it was entered.
    pub(super) handler_began: SimTime,
    /// Time that handlers have taken from the first process's processor.
    pub(super) stolen: SimDuration,
    /// An interrupt came while the handler ran, or waits for a call of the process.
    pub(super) interrupt_again: bool,
    next_event: u32,
    command_write: u32,
    /// The chip's read index as last seen; across HyperTransport a look is dear.
    command_read: u32,
    /// The word that the handler has taken last.
    last_event: EventWord,
    /// Words of this run of the handler.
    words: u32,
}

impl Kernel {
    /// The kernel of node `node` of `nodes`, with a process for each of `configs`.
    pub(super) fn new(
        node: NodeId,
        configs: &[NiConfig],
        nodes: u32,
        machine: &Machine,
        memory: NodeMemory,
    ) -> Self {
        let nid = place::nid(node.0.into());
        Self {
            node,
            nid,
            processes: configs.iter().map(|c| process::new(*c, nodes)).collect(),
            driver: Ssnal::new(nid, nodes, machine, memory),
            local: VecDeque::new(),
            local_scheduled: false,
            local_late: false,
            uses_chip: false,
            costs: machine.host,
            free_at: SimTime::ZERO,
            retries: false,
            handling: false,
            handler_began: SimTime::ZERO,
            stolen: SimDuration::ZERO,
            interrupt_again: false,
            next_event: 0,
            command_write: 0,
            command_read: 0,
            last_event: EventWord(0),
            words: 0,
        }
    }

    /// The boot commands, in order; each is to be answered by a result before the next. With `contexts` there is
    /// a table for the contexts of peers.
    pub(super) fn boot_commands(
        pid: u32,
        jid: u32,
        uid: u32,
        contexts: bool,
    ) -> [[u8; COMMAND_LEN]; 3] {
        let lower = map::HOST_SRAM;
        let control = lower + map::LOWER_PENDING_LEN * u32::from(PENDINGS);
        let mut init = InitProcess::new_zeroed();
        init.op = OpCode::INIT_PROCESS;
        init.process_index = GENERIC;
        init.pid = (pid as u16).into();
        init.jid = (jid as u16).into();
        init.uid = uid.into();
        init.num_pendings = PENDINGS.into();
        init.num_eqcbs = 1.into();
        init.pending_tx_limit = TX_PENDINGS.into();
        init.pending_table = lower.into();
        init.up_pending_table_ht = map::firmware_address(HT_SLOT, UPPER_PENDINGS).into();
        init.eqcb_table = control.into();
        if contexts {
            init.context_table_ht = map::firmware_address(HT_SLOT, CONTEXTS).into();
        }
        let mut eq = InitEq::new_zeroed();
        eq.op = OpCode::INIT_EQ;
        eq.process_index = GENERIC;
        eq.base = map::firmware_address(HT_SLOT, EVENT_RING).into();
        eq.count = EVENTS.into();
        let mut alive = MarkAlive::new_zeroed();
        alive.op = OpCode::MARK_ALIVE;
        alive.process_index = GENERIC;
        [init.to_entry(), eq.to_entry(), alive.to_entry()]
    }

    /// Maps kernel memory for the firmware and opens the interrupt line.
    pub(super) fn open_chip(io: &mut dyn RegisterIo) {
        if let Some(entry) = map::HtMapEntry::mapping(0) {
            io.write32(map::ht_slot(HT_SLOT), entry.0);
        }
        io.write32(map::HT_INTERRUPT, 0xFD00_0000);
    }

    /// Takes what the RAS controller has to say.
    pub(super) fn ras_interrupt(&mut self, io: &mut dyn RegisterIo) {
        while let Some(news) = RasEvent::take(Channel::EventDown, io) {
            if news.code == event::NODE_FAILED {
                let (node, accelerated) = (news.nid.into(), self.uses_chip);
                self.driver
                    .node_failed(&mut self.processes, node, accelerated);
            }
        }
    }

    /// Writes one command if the ring has room.
    pub(super) fn write_command(
        &mut self,
        io: &mut dyn RegisterIo,
        command: &[u8; COMMAND_LEN],
    ) -> Written {
        let next = mailbox::next_command(self.command_write);
        let mut written = Written {
            done: true,
            reads: 0,
        };
        if next == self.command_read {
            self.command_read =
                io.read32(mailbox::address(MAILBOX, mailbox::COMMAND_READ)) % mailbox::COMMANDS;
            written.reads = 1;
            if next == self.command_read {
                written.done = false;
                return written;
            }
        }
        mailbox::write_command(io, MAILBOX, self.command_write, command);
        self.command_write = next;
        io.write32(mailbox::address(MAILBOX, mailbox::COMMAND_WRITE), next);
        written
    }

    /// The next result of the result ring, if there is one.
    pub(super) fn take_result(io: &mut dyn RegisterIo) -> Option<u32> {
        let read = io.read32(mailbox::address(MAILBOX, mailbox::RESULT_READ));
        if read == io.read32(mailbox::address(MAILBOX, mailbox::RESULT_WRITE)) {
            return None;
        }
        let at = mailbox::RESULT_RING + 4 * (read % mailbox::RESULTS);
        let result = io.read32(mailbox::address(MAILBOX, at));
        io.write32(
            mailbox::address(MAILBOX, mailbox::RESULT_READ),
            mailbox::next_result(read),
        );
        Some(result)
    }

    /// Processor time for the work the driver has done, and its commands written, from `at` on.
    /// Returns when that is finished and whether the mailbox, which is full, is to be looked at again: one
    /// look at a time, however often the driver has more for it meanwhile.
    /// `registers` gives the chip's registers at an instant.
    pub(super) fn settle(
        &mut self,
        at: SimTime,
        mut write: impl FnMut(&mut Self, SimTime, &[u8; COMMAND_LEN]) -> Written,
    ) -> (SimTime, bool) {
        let mut now = at + self.driver.take_cost();
        while let Some(command) = self.driver.poll_command() {
            let written = write(self, now, &command);
            now += self.costs.register_read * written.reads;
            if !written.done {
                self.driver.unpoll_command(command);
                return (now, !std::mem::replace(&mut self.retries, true));
            }
            now += self.costs.command_write;
        }
        (now, false)
    }

    /// The chip takes no commands any more: those of the work the driver has done are thrown away.
    pub(super) fn forget_commands(&mut self, at: SimTime) -> SimTime {
        while self.driver.poll_command().is_some() {}
        at + self.driver.take_cost()
    }

    /// Cost of entering for `call`: event queues are read in user memory, everything else traps.
    pub(super) fn entry_cost(&self, call: &Call) -> SimDuration {
        match call {
            Call::EqPoll { eqs, .. } => self.costs.api_call + self.costs.eq_read * eqs.len() as u64,
            Call::EqPeek(_) => self.costs.api_call + self.costs.eq_read,
            _ => self.costs.api_call + self.costs.trap,
        }
    }

    /// Cost of noticing an event that a waiting process spins for.
    pub(super) fn wake_cost(&self) -> SimDuration {
        self.costs.eq_read
    }

    /// Executes a call of a process; polls do not block here.
    pub(super) fn execute(&mut self, process: usize, call: Call) -> Result<Answer, Error> {
        let result = self.enter(process, call);
        while let Some(tx) = self.processes[process].nal.sent.pop_front() {
            if tx.header.target.nid != self.nid || self.uses_chip {
                self.driver.send(&mut self.processes, process, &tx);
                continue;
            }
            let message = local::accept(
                &mut self.processes,
                &mut self.driver,
                &self.costs,
                process,
                &tx,
            );
            self.local.extend(message);
        }
        result
    }

    fn enter(&mut self, process: usize, call: Call) -> Result<Answer, Error> {
        let pinned = self.pinned_by(process, &call);
        let result = self.processes[process].execute(call);
        if let (Some((memory, begins)), Ok(_)) = (pinned, &result) {
            self.driver.pin(process, memory, begins);
        }
        result
    }

    /// Executes a call of a process whose operation is for a process that it does not know: the operation fails here.
    pub(super) fn execute_strayed(&mut self, process: usize, call: Call) -> Result<Answer, Error> {
        let result = self.enter(process, call);
        while let Some(tx) = self.processes[process].nal.sent.pop_front() {
            self.driver.refuse(&mut self.processes, process, &tx);
        }
        result
    }

    /// Takes a process in; returns its index.
    pub(super) fn admit(&mut self, config: NiConfig, memory: Box<dyn UserMemory>) -> usize {
        self.processes
            .push(process::new(config, self.driver.nodes()));
        self.driver.memory.admit(memory);
        self.processes.len() - 1
    }

    /// A process has ended: to others it is as if it had closed its interface.
    pub(super) fn dismiss(&mut self, process: usize) {
        // Nothing is refused here.
        let _ = self.processes[process].execute(Call::Close);
        self.driver.forget_process(process);
    }

    /// The memory that a call pins (`true`) or unpins for good.
    fn pinned_by(&self, process: usize, call: &Call) -> Option<(Segment, bool)> {
        let of = |md| {
            let s = self.processes[process].ni.md_query(md).ok()?;
            let memory = Segment {
                addr: s.start,
                len: s.length,
            };
            s.options
                .contains(MdOptions::PINNED)
                .then_some((memory, false))
        };
        match call {
            Call::MdAttach { desc, .. }
            | Call::MdBind { desc, .. }
            | Call::MeMdPost { desc, .. } => {
                let memory = Segment {
                    addr: desc.memory.start(),
                    len: desc.memory.user_length(),
                };
                let pins = desc
                    .options
                    .intersects(MdOptions::PINNED | MdOptions::RESIDENT);
                (pins && memory.len > 0).then_some((memory, true))
            }
            Call::MdUnlink(md) => of(*md),
            Call::MeUnlink(me) => of(self.processes[process].ni.me_md(*me)?),
            _ => None,
        }
    }

    /// When a message between processes of this node is due that was ready at `at`; `None` when
    /// there is none, or one is due already.
    pub(super) fn local_due(&mut self, at: SimTime) -> Option<SimTime> {
        if self.local.is_empty() || self.local_scheduled {
            return None;
        }
        self.local_scheduled = true;
        Some(at + self.costs.local_handoff)
    }

    /// Delivers the oldest message between processes of this node. The work's time is still to be
    /// taken: call [`Kernel::settle`].
    pub(super) fn local_step(&mut self) {
        self.local_scheduled = false;
        let Some(message) = self.local.pop_front() else {
            return;
        };
        let costs = self.costs;
        let caused = local::deliver(&mut self.processes, &mut self.driver, &costs, message);
        self.local.extend(caused);
    }

    /// The first event of a waiting process's queues.
    pub(super) fn poll(&mut self, process: usize, eqs: &[EqHandle]) -> Answer {
        let mut polled = Polled::default();
        match self.processes[process].poll(eqs, &mut polled) {
            Ok(taken) => Answer::Polled((taken != Taken::Nothing).then_some(polled)),
            Err(refused) => Answer::BadQueue(refused.which),
        }
    }

    /// Whether a peer of a process was lost, which no event of these queues says; told once.
    pub(super) fn has_lost(&mut self, process: usize, eqs: &[EqHandle]) -> bool {
        self.processes[process].ni.take_lost(eqs).is_some()
    }

    /// From the interrupt line to the handler's first instruction.
    pub(super) fn interrupt_entry(&self) -> SimDuration {
        self.costs.interrupt_entry
    }

    /// The word that the last step of the handler was for; empty when there was none.
    pub(super) fn take_event(&mut self) -> EventWord {
        std::mem::replace(&mut self.last_event, EventWord(0))
    }

    /// What the driver has matched since the last call.
    pub(super) fn take_match(&mut self) -> Option<Matched> {
        self.driver.matched.take()
    }

    /// Handles one word of the event ring at `now`. The work's commands are still to be written:
    /// call [`Kernel::settle`] with the time returned.
    ///
    /// A run ends after `most` words; there is another one then.
    pub(super) fn interrupt_step(&mut self, now: SimTime, most: u32) -> HandlerStep {
        if self.words >= most {
            self.words = 0;
            self.interrupt_again = true;
            return HandlerStep::Done(now + self.costs.interrupt_exit);
        }
        let at = EVENT_RING + 4 * u64::from(self.next_event);
        let Some(slot) = self.driver.memory.kernel(at, 4) else {
            return HandlerStep::Done(now + self.costs.interrupt_exit);
        };
        let word = EventWord(slot.first_chunk().map_or(0, |w| u32::from_le_bytes(*w)));
        if word.is_empty() {
            self.words = 0;
            return HandlerStep::Done(now + self.costs.interrupt_exit);
        }
        slot.fill(0);
        self.words += 1;
        self.last_event = word;
        self.next_event = (self.next_event + 1) % EVENTS;
        if word.kind() == EventType::REJECTED {
            let refused = RejectedCommand(word.index());
            self.driver.refused(&mut self.processes, refused);
        } else {
            self.driver.handle_event(&mut self.processes, word);
        }
        HandlerStep::More(now + self.costs.eq_read + self.costs.event_handle)
    }
}

#[cfg(test)]
mod tests;
