//! A node's kernel: it owns the Portals state of its process, as Catamount's did. The process traps
//! into it; the chip interrupts it.
//!
//! The kernel never looks at a clock. [`Kernel::trap`] and [`Kernel::interrupt_step`] are told when
//! they run and say when the processor is free again; the simulation orders them.

use super::memory::NodeMemory;
use super::ssnal::{EVENT_RING, EVENTS, PENDINGS, Ssnal, TX_PENDINGS, UPPER_PENDINGS};
use crate::call::{Answer, Call};
use crate::library::Library;
use nic_model::defs::command::{COMMAND_LEN, Command, InitEq, InitProcess, MarkAlive, OpCode};
use nic_model::defs::event::EventWord;
use nic_model::defs::{mailbox, map};
use nic_model::{HostParams, Machine, NodeId, RegisterIo, SimDuration, SimTime};
use portals_core::{EqHandle, Error, Ni, NiConfig};
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

/// The kernel of one node.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) node: NodeId,
    pub(super) library: Library<Ssnal>,
    costs: HostParams,
    /// When the processor can take the next trap or interrupt.
    pub(super) free_at: SimTime,
    /// The interrupt handler runs.
    pub(super) handling: bool,
    /// An interrupt came while the handler ran, or waits for a call of the process.
    pub(super) interrupt_again: bool,
    next_event: u32,
    command_write: u32,
    /// The chip's read index as last seen; across HyperTransport a look is dear.
    command_read: u32,
}

impl Kernel {
    pub(super) fn new(
        node: NodeId,
        config: NiConfig,
        nodes: u32,
        machine: &Machine,
        memory: NodeMemory,
    ) -> Self {
        let driver = Ssnal::new(
            config.id,
            nodes,
            machine.host,
            u64::from(machine.chip.max_message),
            memory,
        );
        Self {
            node,
            library: Library::new(Ni::new(config), driver),
            costs: machine.host,
            free_at: SimTime::ZERO,
            handling: false,
            interrupt_again: false,
            next_event: 0,
            command_write: 0,
            command_read: 0,
        }
    }

    pub(super) fn driver(&mut self) -> &mut Ssnal {
        &mut self.library.nal
    }

    /// The boot commands, in order; each is to be answered by a result before the next.
    pub(super) fn boot_commands(pid: u32, jid: u32, uid: u32) -> [[u8; COMMAND_LEN]; 3] {
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

    /// Writes one command if the ring has room.
    pub(super) fn write_command(
        &mut self,
        io: &mut dyn RegisterIo,
        command: &[u8; COMMAND_LEN],
    ) -> bool {
        let next = mailbox::next_command(self.command_write);
        if next == self.command_read {
            self.command_read =
                io.read32(mailbox::address(MAILBOX, mailbox::COMMAND_READ)) % mailbox::COMMANDS;
            if next == self.command_read {
                return false;
            }
        }
        mailbox::write_command(io, MAILBOX, self.command_write, command);
        self.command_write = next;
        io.write32(mailbox::address(MAILBOX, mailbox::COMMAND_WRITE), next);
        true
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
    /// Returns when that is finished and whether commands are left because the mailbox is full.
    /// `registers` gives the chip's registers at an instant.
    pub(super) fn settle(
        &mut self,
        at: SimTime,
        mut write: impl FnMut(&mut Self, SimTime, &[u8; COMMAND_LEN]) -> bool,
    ) -> (SimTime, bool) {
        let mut now = at + self.driver().take_cost();
        while let Some(command) = self.driver().poll_command() {
            if !write(self, now, &command) {
                self.driver().unpoll_command(command);
                return (now, true);
            }
            now += self.costs.command_write;
        }
        (now, false)
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

    /// Executes a call; polls do not block here.
    pub(super) fn execute(&mut self, call: Call) -> Result<Answer, Error> {
        self.library.execute(call)
    }

    /// The first event of a waiting process's queues.
    pub(super) fn poll(&mut self, eqs: &[EqHandle]) -> Answer {
        match self.library.poll(eqs) {
            Ok(polled) => Answer::Polled(polled),
            Err(which) => Answer::BadQueue(which),
        }
    }

    /// From the interrupt line to the handler's first instruction.
    pub(super) fn interrupt_entry(&self) -> SimDuration {
        self.costs.interrupt_entry
    }

    /// Handles one word of the event ring at `now`. The work's commands are still to be written:
    /// call [`Kernel::settle`] with the time returned.
    pub(super) fn interrupt_step(&mut self, now: SimTime) -> HandlerStep {
        let at = EVENT_RING + 4 * u64::from(self.next_event);
        let Some(slot) = self.driver().memory.kernel(at, 4) else {
            return HandlerStep::Done(now + self.costs.interrupt_exit);
        };
        let word = EventWord(slot.first_chunk().map_or(0, |w| u32::from_le_bytes(*w)));
        if word.is_empty() {
            return HandlerStep::Done(now + self.costs.interrupt_exit);
        }
        slot.fill(0);
        self.next_event = (self.next_event + 1) % EVENTS;
        let Library { ni, nal, .. } = &mut self.library;
        nal.handle_event(ni, word);
        HandlerStep::More(now + self.costs.eq_read)
    }
}
