//! The main loop: hardware reports become pieces of work, work becomes actions.

use std::collections::VecDeque;

use nic_model::defs::command::COMMAND_LEN;
use nic_model::defs::event::EventWord;
use nic_model::defs::map::MAILBOX_COUNT;
use nic_model::defs::niccb::{self, Counter};
use nic_model::defs::packet::Control;
use nic_model::trace::What;
use nic_model::{
    AcceleratedParams, Firmware, FirmwareContext, FirmwareParams, Machine, NodeId, ProtocolParams,
    RxHeader, RxReport, SimDuration, TransferFault,
};

use crate::accel::{Accels, Moved};
use crate::contexts::WaitingQueue;
use crate::datagram::Datagrams;
use crate::mailbox::Mailbox;
use crate::process::{Budget, Process};
use crate::source::{Load, Owner, Sources};
use crate::tx::{Active, Queued, TxOutcome};

/// The process that takes messages in generic mode.
pub(crate) const GENERIC: usize = 0;
/// Version of the interface, as the control block shows it; *ours*.
const VERSION: u32 = 1;

/// Tokens of deposits. Of a message for a receive pending: process in bits 31..16, pending below.
pub(crate) mod token {
    /// The kind of a token.
    pub(crate) const KIND: u64 = 0xFF << 32;
    /// A datagram; the buffer's index in the low half.
    pub(crate) const DATAGRAM: u64 = 1 << 32;
    /// Nobody waits.
    pub(crate) const DRAIN: u64 = u64::MAX;
}

/// Tokens of alarms.
pub(crate) mod alarm {
    /// The kind of a token.
    pub(crate) const KIND: u64 = 0xFF << 32;
    /// A full event queue is looked at again; the process in the low half.
    pub(crate) const EVENTS: u64 = 0;
    /// The peers are looked after.
    pub(crate) const WATCH: u64 = 1 << 32;
    /// A back-off is over; the peer in the low half.
    pub(crate) const RESUME: u64 = 2 << 32;
    /// A full result ring is looked at again; the mailbox in the low half.
    pub(crate) const RESULTS: u64 = 3 << 32;
}

/// What a firmware without room for a message does (`exhaustion` of the machine's protocol).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhaustion {
    /// Lets it wait in the network.
    Wait,
    /// Refuses it and has it sent again.
    GoBackN,
    /// Stops the node.
    Panic,
}

/// A piece of work of the embedded processor; done after its cost, in order.
#[derive(Debug)]
pub(crate) enum Work {
    /// Look at a mailbox and fetch one command.
    Poll { mailbox: usize },
    /// Carry out a fetched command.
    Command {
        mailbox: usize,
        entry: [u8; COMMAND_LEN],
    },
    /// Take in a header.
    Header(RxHeader),
    /// Take in a word of another firmware.
    Control { nid: NodeId, word: Control },
    /// Acknowledge what has been taken.
    Acknowledge { nid: NodeId },
    /// Say something to another firmware.
    Say { nid: NodeId, word: Control },
    /// Tell the owner of a transmit of its end.
    TxEnd { owner: Owner, outcome: TxOutcome },
    /// Post the end of a datagram.
    DatagramEnd { index: u32, report: RxReport },
    /// Post the end of a deposit.
    RxEnd {
        process: usize,
        pending: u16,
        report: RxReport,
    },
}

impl Work {
    /// What a timeline calls it; a command names itself.
    fn name(&self) -> &'static str {
        match self {
            Self::Poll { .. } => "poll",
            Self::Command { .. } => "work",
            Self::Header(_) => "header",
            Self::Control { .. } => "control word",
            Self::Acknowledge { .. } => "acknowledge",
            Self::Say { .. } => "say",
            Self::TxEnd { .. } => "tx end",
            Self::DatagramEnd { .. } => "datagram end",
            Self::RxEnd { .. } => "rx end",
        }
    }
}

/// The firmware of one node.
#[derive(Debug)]
pub struct SeaStarFirmware {
    pub(crate) costs: FirmwareParams,
    work: VecDeque<Work>,
    pub(crate) mailboxes: [Mailbox; MAILBOX_COUNT as usize],
    pub(crate) processes: [Option<Process>; MAILBOX_COUNT as usize],
    pub(crate) sources: Sources,
    /// Firmware address of the host's context table.
    pub(crate) contexts: Option<u32>,
    /// Peers that messages are under way to.
    pub(crate) senders: usize,
    /// Messages that wait for a source structure.
    pub(crate) tx_waiting: WaitingQueue,
    /// What waits for the engine, oldest first.
    pub(crate) tx_queue: VecDeque<Queued>,
    /// The transmit at the engine.
    pub(crate) tx_active: Option<Active>,
    /// Headers that wait for a receive pending, oldest first.
    pub(crate) rx_waiting: VecDeque<RxHeader>,
    pub(crate) accels: Accels,
    /// Mailboxes whose process has been given to the kernel.
    pub(crate) orphaned: [bool; MAILBOX_COUNT as usize],
    /// Processes that the kernel has not taken over yet, oldest first.
    pub(crate) moved: VecDeque<Moved>,
    pub(crate) nic: AcceleratedParams,
    pub(crate) limits: ProtocolParams,
    pub(crate) exhaustion: Exhaustion,
    pub(crate) budget: Budget,
    pub(crate) datagrams: Datagrams,
    /// Messages sent and not acknowledged.
    pub(crate) load: Load,
    /// A look at the peers is due.
    pub(crate) watching: bool,
    booted: bool,
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
            contexts: None,
            senders: 0,
            tx_waiting: WaitingQueue::new(),
            tx_queue: VecDeque::new(),
            tx_active: None,
            rx_waiting: VecDeque::new(),
            accels: Accels::default(),
            orphaned: Default::default(),
            moved: VecDeque::new(),
            nic: machine.accelerated,
            limits: machine.protocol,
            exhaustion: match machine.protocol.exhaustion {
                0 => Exhaustion::Wait,
                1 => Exhaustion::GoBackN,
                _ => Exhaustion::Panic,
            },
            budget: Budget::new(machine),
            datagrams: Datagrams::new(),
            load: Load::default(),
            watching: false,
            booted: false,
        }
    }

    /// Fills the control block, once.
    fn boot(&mut self, ctx: &mut FirmwareContext<'_>) {
        if !std::mem::replace(&mut self.booted, true) {
            ctx.set_counter(Counter::VERSION, VERSION);
            ctx.set_counter(Counter::FOOD, niccb::ALIVE);
            ctx.set_counter(Counter::SOURCE_FREELIST, self.sources.free());
            ctx.set_counter(Counter::CAM_FREELIST, ctx.machine().chip.cam_entries);
            ctx.set_counter(Counter::TX_PENDING_HEAD, u32::MAX);
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
            Some(eq) => eq.post(ctx, event, interrupt, alarm::EVENTS | process as u64),
            None => ctx.count(Counter::EVENTS_LOST, 1),
        }
    }
}

impl Firmware for SeaStarFirmware {
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: u32, index: u32) {
        self.boot(ctx);
        self.doorbell(ctx, mailbox as usize, index);
    }

    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        self.boot(ctx);
        let cost = self.costs.rx_message + self.match_cost(ctx, header);
        self.later(ctx, cost, Work::Header(*header));
    }

    fn control_arrived(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId, word: Control) {
        self.boot(ctx);
        self.later(ctx, self.limits.control, Work::Control { nid, word });
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
        if let Some(work) = self.work.front() {
            ctx.trace(What::Working(work.name()));
        }
        match self.work.pop_front() {
            Some(Work::Poll { mailbox }) => self.poll(ctx, mailbox),
            Some(Work::Command { mailbox, entry }) => self.command(ctx, mailbox, &entry),
            Some(Work::Header(header)) => self.take_header(ctx, header),
            Some(Work::Control { nid, word }) => self.take_control(ctx, nid, word),
            Some(Work::Acknowledge { nid }) => self.send_ack(ctx, nid),
            Some(Work::Say { nid, word }) => ctx.send_control(nid, word),
            Some(Work::TxEnd { owner, outcome }) => self.tx_end(ctx, owner, outcome),
            Some(Work::DatagramEnd { index, report }) => self.datagram_end(ctx, index, report),
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
        match token & alarm::KIND {
            alarm::WATCH => self.look(ctx),
            alarm::RESUME => self.resume(ctx, NodeId(token as u16)),
            alarm::RESULTS => self.look_at_results(ctx, token as u32 as usize),
            _ => {
                let process = self.processes.get_mut(token as usize);
                if let Some(eq) = process.and_then(Option::as_mut).and_then(|p| p.eq.as_mut()) {
                    let held = eq.is_behind();
                    eq.retry(ctx, token);
                    if held && !eq.is_behind() {
                        self.poll_again(ctx, token as usize);
                    }
                }
            }
        }
    }
}
