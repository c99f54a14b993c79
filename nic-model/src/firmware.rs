//! The seam between the chip and the program on its embedded processor.

use crate::defs::map::{self, HtMapEntry};
use crate::defs::niccb::Counter;
use crate::defs::packet::Control;
use crate::fabric::Fabric;
use crate::host::{HostFault, HostMemories};
use crate::params::Machine;
use crate::queue::Event;
use crate::time::{SimDuration, SimTime};
use crate::topology::NodeId;
use crate::trace::What;
use crate::transfer::{
    Delivery, Deposit, EngineBusy, RxHandle, RxHeader, RxReport, StaleMessage, TransferFault,
    TxJob, Upcall,
};

/// The program of one node's embedded processor, called at the instants its hardware reports.
///
/// Callbacks take no time by themselves: work that costs is announced with
/// [`FirmwareContext::spend`] and done in [`Firmware::work`]. Nothing the host or a peer does may
/// make a callback panic.
pub trait Firmware {
    /// The host has written the command write index of `mailbox`. The value is the host's and may
    /// be absurd.
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: u32, index: u32);

    /// A message's first packet has come through the node port.
    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader);

    /// Another node's firmware says something. Unknown words are to be ignored.
    fn control_arrived(&mut self, ctx: &mut FirmwareContext<'_>, source: NodeId, word: Control) {
        let _ = (ctx, source, word);
    }

    /// The transmit engine has finished and is idle.
    fn tx_done(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        token: u64,
        result: Result<(), TransferFault>,
    );

    /// The last payload packet of a message has been consumed; its handle is stale now.
    fn rx_done(&mut self, ctx: &mut FirmwareContext<'_>, token: u64, report: RxReport);

    /// The oldest piece of work announced with [`FirmwareContext::spend`] is finished.
    fn work(&mut self, ctx: &mut FirmwareContext<'_>);

    /// A timer set with [`FirmwareContext::alarm`] has run out.
    fn alarm(&mut self, ctx: &mut FirmwareContext<'_>, token: u64);
}

/// What the firmware can do to its chip during a callback.
#[allow(
    missing_debug_implementations,
    reason = "holds a borrowed memory without Debug"
)]
pub struct FirmwareContext<'a> {
    pub(crate) fabric: &'a mut Fabric,
    pub(crate) memory: &'a mut (dyn HostMemories + 'a),
    pub(crate) node: NodeId,
    /// The callback's instant, later after each blocking read.
    pub(crate) at: SimTime,
}

impl FirmwareContext<'_> {
    /// The present; moves within a callback only by blocking reads.
    #[must_use]
    pub fn now(&self) -> SimTime {
        self.at
    }

    /// The node this processor sits on.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Whether the machine has a node of this number.
    #[must_use]
    pub fn node_exists(&self, node: NodeId) -> bool {
        self.fabric.network.topology.contains(node)
    }

    /// Nodes of the machine.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.fabric.network.topology.nodes()
    }

    /// Whether packets from here have a way to `node`. A transmit to one that has not ends with
    /// [`TransferFault::Unreachable`].
    pub fn is_reachable(&mut self, node: NodeId) -> bool {
        self.fabric.network.is_reachable(self.node, node)
    }

    /// The machine's parameters.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.fabric.machine
    }

    /// Keeps the processor busy for `cost` after all work announced before; then
    /// [`Firmware::work`] is called. Work finishes in the order it was announced.
    pub fn spend(&mut self, cost: SimDuration) {
        self.fabric.trace.spend(self.node, cost);
        let processor = &mut self.fabric.chips[self.node.index()].processor;
        if let Some(end) = processor.announce(self.at, cost) {
            self.fabric.queue.push(end, Event::Work { node: self.node });
        }
    }

    /// Goes on working for `cost` within the present piece of work: what the callback does next
    /// happens that much later, and work announced before waits.
    pub fn busy(&mut self, cost: SimDuration) {
        self.at += cost;
        self.fabric.chips[self.node.index()]
            .processor
            .stall(self.at);
    }

    /// Tells whoever watches this world of something that the firmware does now; with
    /// [`What::Work`], what the present piece of work was.
    pub fn trace(&mut self, what: What<'_>) {
        self.fabric.trace.note(self.at, self.node, what);
    }

    /// Calls [`Firmware::alarm`] with `token` after `delay`.
    pub fn alarm(&mut self, delay: SimDuration, token: u64) {
        self.fabric.queue.push(
            self.at + delay,
            Event::Alarm {
                node: self.node,
                token,
            },
        );
    }

    /// Says `word` to the firmware of `to`; nothing happens when there is no such node.
    pub fn send_control(&mut self, to: NodeId, word: Control) {
        if self.node_exists(to) {
            self.fabric.send_control(self.node, self.at, to, word);
        }
    }

    /// Stops this node for `reason`, one of [`crash`](crate::defs::niccb::crash): no callback
    /// comes any more.
    pub fn crash(&mut self, reason: u32) {
        self.fabric.stop(self.node, reason, self.at);
    }

    /// Incoming messages that hold a CAM entry.
    #[must_use]
    pub fn cam_in_use(&self) -> u32 {
        self.fabric.chips[self.node.index()].rx.in_use()
    }

    /// Whether a message with a destination waits for packets.
    #[must_use]
    pub fn awaits_packets(&self) -> bool {
        self.fabric.chips[self.node.index()].rx.awaits_packets()
    }

    /// Ends every incoming message that has had a destination, and no packet, since `before`, as
    /// [`TransferFault::Truncated`]: its sender is gone.
    pub fn cut_silent(&mut self, before: SimTime) {
        self.fabric.cut_silent(self.node, before);
    }

    /// Reads a word of SRAM; zero outside or unaligned.
    #[must_use]
    pub fn sram_read32(&self, address: u32) -> u32 {
        self.fabric.chips[self.node.index()]
            .sram_read(address)
            .unwrap_or(0)
    }

    /// Writes a word of SRAM; nothing happens outside or unaligned.
    pub fn sram_write32(&mut self, address: u32, value: u32) {
        self.fabric.chips[self.node.index()].sram_write(address, value);
    }

    /// Adds to a counter, wrapping.
    pub fn count(&mut self, counter: Counter, amount: u32) {
        self.fabric.chips[self.node.index()].count(counter, amount);
    }

    /// Sets a counter.
    pub fn set_counter(&mut self, counter: Counter, value: u32) {
        self.sram_write32(counter.address(), value);
    }

    /// The host physical address behind a firmware address, through the HT map. Only the slots
    /// that lie below the chip's own registers (0 to 14) translate.
    #[must_use]
    pub fn translate(&self, address: u32) -> Option<u64> {
        let slot = address >> 28;
        if slot == map::HT_SLOTS - 1 {
            return None;
        }
        let entry = self.fabric.chips[self.node.index()].ht_map[slot as usize];
        HtMapEntry(entry).translate(address)
    }

    /// Reads host memory; the processor waits for the answer.
    ///
    /// # Errors
    /// [`HostFault`], counted, when the range is not mapped.
    pub fn host_read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        let stall = self.fabric.machine.chip.ht_read_latency;
        self.at += stall;
        self.fabric.chips[self.node.index()]
            .processor
            .stall(self.at);
        self.fabric.host_read(self.memory, self.node, address, buf)
    }

    /// Writes host memory behind everything written before; the processor does not wait. A range
    /// that is not mapped is counted.
    pub fn host_write(&mut self, address: u64, data: &[u8]) {
        let write = self.fabric.posted.put(self.node, address, data);
        let at = self.at + self.fabric.machine.chip.ht_write_latency;
        self.fabric.queue.push(
            at,
            Event::HostWrite {
                node: self.node,
                write,
            },
        );
    }

    /// Whether host memory can be written, as a look at the translation of its pages says before a
    /// posted write; a range that cannot is counted as the write would be.
    pub fn host_writable(&mut self, address: u64, length: usize) -> bool {
        self.fabric
            .host_writable(self.memory, self.node, address, length)
            .is_ok()
    }

    /// Interrupts the host, behind everything written before.
    pub fn raise_interrupt(&mut self) {
        self.count(Counter::INTERRUPTS, 1);
        let at = self.at + self.fabric.machine.chip.ht_write_latency;
        self.fabric
            .queue
            .push(at, Event::Interrupt { node: self.node });
    }

    /// Hands a message to the transmit engine.
    ///
    /// # Errors
    /// [`EngineBusy`] until [`Firmware::tx_done`] for the last one.
    pub fn start_tx(&mut self, job: TxJob) -> Result<(), EngineBusy> {
        self.fabric.start_tx(self.node, self.at, job, None, false)
    }

    /// Starts the transmit of a datagram; the target's engine tells its firmware.
    ///
    /// # Errors
    /// [`EngineBusy`] until [`Firmware::tx_done`] for the last one.
    pub fn start_tx_datagram(&mut self, job: TxJob) -> Result<(), EngineBusy> {
        self.fabric.start_tx(self.node, self.at, job, None, true)
    }

    /// Starts a transmit with a header packet that the firmware has built in SRAM:
    /// its first [`TxJob::header_length`] bytes, which need not be fetched from the host.
    ///
    /// # Errors
    /// [`EngineBusy`] until [`Firmware::tx_done`] for the last one.
    pub fn start_tx_built(&mut self, job: TxJob, header: [u8; 64]) -> Result<(), EngineBusy> {
        self.fabric
            .start_tx(self.node, self.at, job, Some(header), false)
    }

    /// Gives the payload of a message its destination; no segments drain it.
    ///
    /// # Errors
    /// [`StaleMessage`] when it has one already or has ended.
    pub fn deposit(&mut self, message: RxHandle, deposit: Deposit) -> Result<(), StaleMessage> {
        self.fabric.deposit(self.node, self.at, message, deposit)
    }
}

/// Passes one upcall to the firmware.
pub(crate) fn deliver<F: Firmware>(
    firmware: &mut F,
    ctx: &mut FirmwareContext<'_>,
    upcall: Upcall,
) {
    let chip = &ctx.fabric.chips[ctx.node.index()];
    if chip.faults.crashed.is_some() {
        return;
    }
    match upcall {
        Upcall::Mailbox { mailbox, index } => firmware.mailbox_written(ctx, mailbox, index),
        Upcall::Work => firmware.work(ctx),
        Upcall::Alarm { token } => firmware.alarm(ctx, token),
        Upcall::TxDone { token, result } => firmware.tx_done(ctx, token, result),
        Upcall::Rx(Delivery::Control { source, word }) => {
            firmware.control_arrived(ctx, source, word);
        }
        Upcall::Rx(Delivery::Header(header)) => firmware.header_arrived(ctx, &header),
        Upcall::Rx(Delivery::Done { token, report }) => firmware.rx_done(ctx, token, report),
    }
}
