//! The seam between the chip and the program on its embedded processor.

use thiserror::Error;

use crate::chip::rx::Delivery;
use crate::defs::map::{self, HtMapEntry};
use crate::defs::niccb::Counter;
use crate::fabric::{Fabric, Upcall};
use crate::host::{HostFault, HostMemories};
use crate::params::Machine;
use crate::queue::Event;
use crate::time::{SimDuration, SimTime};
use crate::topology::NodeId;

/// Why a transfer ended without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TransferFault {
    /// The header could not be read; nothing was sent.
    #[error("header not readable: {0}")]
    Header(HostFault),
    /// Host memory failed during the payload; the receiver sees a failed CRC.
    #[error("payload not reachable: {0}")]
    Payload(HostFault),
    /// The payload failed its end-to-end CRC.
    #[error("payload failed its crc")]
    Crc,
    /// The next message of the same source began before this one ended.
    #[error("message ended early")]
    Truncated,
}

/// The transmit engine is already at work; start the next message from
/// [`Firmware::tx_done`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("transmit engine is busy")]
pub struct EngineBusy;

/// The incoming message has ended, or has been given a destination already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("incoming message {0:?} has ended or has a destination")]
pub struct StaleMessage(pub RxHandle);

/// A contiguous piece of host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaSegment {
    /// Host physical byte address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// One message for the transmit engine.
#[derive(Debug, Clone)]
pub struct TxJob {
    /// Target node, which must exist ([`FirmwareContext::node_exists`]); the own one goes through
    /// the router's node port.
    pub destination: NodeId,
    /// Sequence number for the packets' headers.
    pub sequence: u16,
    /// Where the header packet's bytes are, host physical.
    pub header_address: u64,
    /// Bytes of the header packet, at most 64.
    pub header_length: u8,
    /// The payload's pieces, in order.
    pub segments: Vec<DmaSegment>,
    /// Comes back in [`Firmware::tx_done`].
    pub token: u64,
}

/// An incoming message whose payload is on its way or waits in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxHandle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The first packet of an incoming message.
#[derive(Debug, Clone, Copy)]
pub struct RxHeader {
    /// Source node.
    pub source: NodeId,
    /// Its sequence number for this node.
    pub sequence: u16,
    /// Bytes of the header packet.
    pub length: u8,
    /// The header packet, zero beyond `length`.
    pub bytes: [u8; 64],
    /// Whether the packet failed its CRC; the bytes cannot be trusted.
    pub corrupt: bool,
    /// The payload that follows; it waits until [`FirmwareContext::deposit`].
    pub payload: Option<RxHandle>,
}

/// Where the payload of an incoming message goes.
#[derive(Debug, Clone)]
pub struct Deposit {
    /// The buffer's pieces, in order. Payload beyond them is discarded.
    pub segments: Vec<DmaSegment>,
    /// Comes back in [`Firmware::rx_done`].
    pub token: u64,
}

/// How a deposit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxReport {
    /// Payload bytes in host memory.
    pub deposited: u32,
    /// Payload bytes thrown away.
    pub discarded: u32,
    /// What went wrong first, if anything.
    pub fault: Option<TransferFault>,
}

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

    /// The machine's parameters.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.fabric.machine
    }

    /// Keeps the processor busy for `cost` after all work announced before; then
    /// [`Firmware::work`] is called. Work finishes in the order it was announced.
    pub fn spend(&mut self, cost: SimDuration) {
        let processor = &mut self.fabric.chips[self.node.index()].processor;
        if let Some(end) = processor.announce(self.at, cost) {
            self.fabric.queue.push(end, Event::Work { node: self.node });
        }
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
        let write = self.fabric.posted.put(address, data);
        let at = self.at + self.fabric.machine.chip.ht_write_latency;
        self.fabric.queue.push(
            at,
            Event::HostWrite {
                node: self.node,
                write,
            },
        );
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
        self.fabric.start_tx(self.node, self.at, job)
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
    match upcall {
        Upcall::Mailbox { mailbox, index } => firmware.mailbox_written(ctx, mailbox, index),
        Upcall::Work => firmware.work(ctx),
        Upcall::Alarm { token } => firmware.alarm(ctx, token),
        Upcall::TxDone { token, result } => firmware.tx_done(ctx, token, result),
        Upcall::Rx(Delivery::Header(header)) => firmware.header_arrived(ctx, &header),
        Upcall::Rx(Delivery::Done { token, report }) => firmware.rx_done(ctx, token, report),
    }
}
