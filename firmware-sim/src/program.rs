//! The main loop: hardware reports become pieces of work, work becomes actions.

use std::collections::VecDeque;

use nic_model::defs::command::COMMAND_LEN;
use nic_model::defs::event::EventWord;
use nic_model::defs::map::MAILBOX_COUNT;
use nic_model::defs::niccb::Counter;
use nic_model::{
    Firmware, FirmwareContext, FirmwareParams, Machine, RxHeader, RxReport, SimDuration,
    TransferFault,
};

use crate::mailbox::Mailbox;
use crate::process::Process;
use crate::source::Sources;
use crate::tx::Queued;

/// A piece of work of the embedded processor; done after its cost, in order.
#[derive(Debug)]
pub(crate) enum Work {
    /// Look at a mailbox and fetch one command.
    Poll { mailbox: usize },
    /// Carry out a fetched command.
    Command {
        mailbox: usize,
        slot: u32,
        entry: [u8; COMMAND_LEN],
    },
    /// Take in a header.
    Header(RxHeader),
    /// Post the end of a transmit.
    TxEnd {
        process: usize,
        pending: u16,
        interrupt: bool,
        failed: bool,
    },
    /// Post the end of a deposit.
    RxEnd {
        process: usize,
        pending: u16,
        report: RxReport,
    },
}

/// The firmware of one node.
#[derive(Debug)]
pub struct SeaStarFirmware {
    pub(crate) costs: FirmwareParams,
    work: VecDeque<Work>,
    pub(crate) mailboxes: [Mailbox; MAILBOX_COUNT as usize],
    pub(crate) processes: [Option<Process>; MAILBOX_COUNT as usize],
    pub(crate) sources: Sources,
    /// Transmits that wait for the engine, oldest first.
    pub(crate) tx_queue: VecDeque<Queued>,
    /// The transmit at the engine.
    pub(crate) tx_active: Option<Queued>,
    /// Headers that wait for a receive pending, oldest first.
    pub(crate) rx_waiting: VecDeque<RxHeader>,
}

impl SeaStarFirmware {
    /// Firmware at boot, for one node of `machine`.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        Self {
            costs: machine.firmware,
            work: VecDeque::new(),
            mailboxes: Default::default(),
            processes: Default::default(),
            sources: Sources::new(machine.firmware.sources),
            tx_queue: VecDeque::new(),
            tx_active: None,
            rx_waiting: VecDeque::new(),
        }
    }

    /// Does `work` once the processor has spent `cost` on it.
    pub(crate) fn later(&mut self, ctx: &mut FirmwareContext<'_>, cost: SimDuration, work: Work) {
        self.work.push_back(work);
        ctx.spend(cost);
    }

    /// Posts an event to the queue of a process; lost (counted) when it has none.
    pub(crate) fn post(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        process: usize,
        event: EventWord,
        interrupt: bool,
    ) {
        match self.processes[process].as_mut().and_then(|p| p.eq.as_mut()) {
            Some(eq) => eq.post(ctx, event, interrupt, process as u64),
            None => ctx.count(Counter::EVENTS_LOST, 1),
        }
    }
}

impl Firmware for SeaStarFirmware {
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: u32, index: u32) {
        self.doorbell(ctx, mailbox as usize, index);
    }

    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        self.later(ctx, self.costs.rx_message, Work::Header(*header));
    }

    fn tx_done(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        _token: u64,
        result: Result<(), TransferFault>,
    ) {
        self.tx_finished(ctx, result);
    }

    fn rx_done(&mut self, ctx: &mut FirmwareContext<'_>, token: u64, report: RxReport) {
        self.rx_finished(ctx, token, report);
    }

    fn work(&mut self, ctx: &mut FirmwareContext<'_>) {
        ctx.count(Counter::HEARTBEAT, 1);
        match self.work.pop_front() {
            Some(Work::Poll { mailbox }) => self.poll(ctx, mailbox),
            Some(Work::Command {
                mailbox,
                slot,
                entry,
            }) => {
                self.command(ctx, mailbox, slot, &entry);
            }
            Some(Work::Header(header)) => self.take_header(ctx, header),
            Some(Work::TxEnd {
                process,
                pending,
                interrupt,
                failed,
            }) => {
                self.tx_end(ctx, process, pending, interrupt, failed);
            }
            Some(Work::RxEnd {
                process,
                pending,
                report,
            }) => {
                self.rx_end(ctx, process, pending, report);
            }
            None => {}
        }
    }

    fn alarm(&mut self, ctx: &mut FirmwareContext<'_>, token: u64) {
        let process = self
            .processes
            .get_mut(token as usize)
            .and_then(Option::as_mut);
        if let Some(eq) = process.and_then(|p| p.eq.as_mut()) {
            eq.retry(ctx, token);
        }
    }
}
