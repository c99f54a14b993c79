//! Transfers, as the engines of a chip, its firmware and the trace speak of them.

use thiserror::Error;

use crate::defs::packet::Control;
use crate::host::HostFault;
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
    /// No path leads to the destination; the rest was not sent.
    #[error("no path to the destination")]
    Unreachable,
    /// The next message of the same source began before this one ended.
    #[error("message ended early")]
    Truncated,
}

/// The transmit engine is already at work; start the next message from
/// [`Firmware::tx_done`](crate::Firmware::tx_done).
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
    /// Target node, which must exist ([`FirmwareContext::node_exists`](crate::FirmwareContext::node_exists)); the own one goes through
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
    /// Comes back in [`Firmware::tx_done`](crate::Firmware::tx_done).
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
    /// Whether it begins a datagram.
    pub datagram: bool,
    /// Payload follows, but no CAM entry was left: the engine throws it away, `payload` is `None`.
    pub overflow: bool,
    /// The payload that follows; it waits until [`FirmwareContext::deposit`](crate::FirmwareContext::deposit).
    pub payload: Option<RxHandle>,
}

/// Where the payload of an incoming message goes.
#[derive(Debug, Clone)]
pub struct Deposit {
    /// The buffer's pieces, in order. Payload beyond them is discarded.
    pub segments: Vec<DmaSegment>,
    /// Comes back in [`Firmware::rx_done`](crate::Firmware::rx_done).
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

/// What the receive engine reports.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delivery {
    Header(RxHeader),
    Control { source: NodeId, word: Control },
    Done { token: u64, report: RxReport },
}

/// What a chip reports to its firmware.
#[derive(Debug)]
pub(crate) enum Upcall {
    Mailbox {
        mailbox: u32,
        index: u32,
    },
    Work,
    Alarm {
        token: u64,
    },
    TxDone {
        token: u64,
        result: Result<(), TransferFault>,
    },
    Rx(Delivery),
}
