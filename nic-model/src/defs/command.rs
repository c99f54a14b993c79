//! Mailbox commands: 64 bytes each, little endian, op code in byte 0.
//!
//! Op codes 0 to 2 and 13 are those of public drivers; 3, 4 and 5 are *ours*.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a command entry.
pub const COMMAND_LEN: usize = 64;

/// What a command asks for: byte 0 of the entry. Any other value is rejected and counted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct OpCode(pub u8);

impl OpCode {
    /// [`InitProcess`].
    pub const INIT_PROCESS: Self = Self(0);
    /// [`MarkAlive`].
    pub const MARK_ALIVE: Self = Self(1);
    /// [`InitEq`].
    pub const INIT_EQ: Self = Self(2);
    /// *Ours:* [`Transmit`].
    pub const TRANSMIT: Self = Self(3);
    /// *Ours:* [`Receive`].
    pub const RECEIVE: Self = Self(4);
    /// *Ours:* [`Release`].
    pub const RELEASE: Self = Self(5);
    /// [`SendDatagram`].
    pub const DATAGRAM: Self = Self(13);
}

/// The types whose bytes are a whole command entry.
pub trait Command: Sized {
    /// The entry as the mailbox holds it.
    fn to_entry(&self) -> [u8; COMMAND_LEN];

    /// The command in a mailbox entry; the caller has looked at the op code.
    fn from_entry(entry: &[u8; COMMAND_LEN]) -> Self;
}

macro_rules! commands {
    ($($name:ident),+) => {$(
        impl Command for $name {
            fn to_entry(&self) -> [u8; COMMAND_LEN] {
                zerocopy::transmute!(*self)
            }

            fn from_entry(entry: &[u8; COMMAND_LEN]) -> Self {
                zerocopy::transmute!(*entry)
            }
        }
        const _: () = assert!(size_of::<$name>() == COMMAND_LEN);
    )+};
}
commands!(
    InitProcess,
    MarkAlive,
    InitEq,
    Transmit,
    Receive,
    Release,
    SendDatagram
);

/// Tells the firmware where the tables of a process are. Result 0, or a
/// [refusal](super::event::refusal).
///
/// The generic process has index 1 and mailbox 0. Pendings `0..pending_tx_limit` are for
/// transmits and belong to the host until a [`Transmit`] names them; the rest are for receives
/// and belong to the firmware until an event names them.
///
/// The SRAM tables must lie between `HOST_SRAM` and `NICCB`. Firmware addresses must be 4-byte
/// aligned and mapped at both ends of their table; a table across two HT slots needs slots that
/// map consecutive memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InitProcess {
    /// [`OpCode::INIT_PROCESS`].
    pub op: OpCode,
    /// 1 for the generic process; the mailbox of index `p` is `p - 1`.
    pub process_index: u8,
    /// Zero.
    pub reserved: [u8; 2],
    /// Process id.
    pub pid: U16,
    /// Job id, low half.
    pub jid: U16,
    /// Entries of both pending tables.
    pub num_pendings: U16,
    /// Entries of the descriptor table (accelerated processes).
    pub num_memds: U16,
    /// Entries of the table of event queue control blocks; at least 1.
    pub num_eqcbs: U16,
    /// First pending for receives.
    pub pending_tx_limit: U16,
    /// SRAM address of the lower pendings, 32 B each.
    pub pending_table: U32,
    /// Host virtual address of the upper pendings, low half; of no use to the firmware.
    pub up_pending_table: U32,
    /// Firmware address (through the HT map) of the upper pendings, 128 B each.
    pub up_pending_table_ht: U32,
    /// SRAM address of the descriptor table (accelerated processes).
    pub memd_table: U32,
    /// SRAM address of the event queue control blocks, 32 B each.
    pub eqcb_table: U32,
    /// Firmware address of the header table (accelerated processes).
    pub shdr_table_ht: U32,
    /// Firmware address of the result block (accelerated processes).
    pub result_block: U32,
    /// Firmware address of the event heap (accelerated processes).
    pub eqheap: U32,
    /// Bytes of the event heap.
    pub eqheap_length: U32,
    /// Firmware address of the table of small-message buffers (accelerated processes).
    pub smb_table: U32,
    /// User id.
    pub uid: U32,
    /// *Ours:* firmware address of the context table of the generic process: a zeroed
    /// [`PeerContext`](super::context::PeerContext) for each node of the machine. Zero: there is none, and
    /// the node talks to as many peers as the firmware has source structures.
    pub context_table_ht: U32,
}

/// Lets messages in for a process that has an event queue; before, they are drained and counted.
/// Result 0, or a [refusal](super::event::refusal).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MarkAlive {
    /// [`OpCode::MARK_ALIVE`].
    pub op: OpCode,
    /// Index of the process; see [`InitProcess`].
    pub process_index: u8,
    /// Zero.
    pub reserved: [u8; 62],
}

/// Tells the firmware where an event queue is. Result 1, or a
/// [refusal](super::event::refusal).
///
/// The queue is a ring of little-endian u32 in host memory; zero is an empty entry. The firmware
/// writes entries in order, the host zeroes what it has read.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InitEq {
    /// [`OpCode::INIT_EQ`].
    pub op: OpCode,
    /// *Ours:* as in [`InitProcess`]; zero means the process whose mailbox this is.
    pub process_index: u8,
    /// Which queue; the generic process uses queue 0.
    pub eqcb_index: U16,
    /// Firmware address (through the HT map), 4-byte aligned.
    pub base: U32,
    /// Entries, at least [`EQ_MIN_ENTRIES`](super::event::EQ_MIN_ENTRIES).
    pub count: U32,
    /// Zero.
    pub reserved2: [u8; 52],
}

/// *Ours.* Sends one message: a header packet from the upper pending, then the payload.
///
/// The header of `header_length` bytes (at most 64: a 48-byte header and up to 16 inline bytes)
/// is at offset 64 of upper pending `pending_index`. Ends with event
/// [`TX_END`](super::event::EventType::TX_END), [`TX_FAILED`](super::event::EventType::TX_FAILED) or
/// [`TX_FAULT`](super::event::EventType::TX_FAULT), after which pending and buffers are the
/// host's again. The first fields are where the datagram command has them.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Transmit {
    /// [`OpCode::TRANSMIT`].
    pub op: OpCode,
    /// [`flags::INTERRUPT`].
    pub flags: u8,
    /// Target node; the own one is allowed.
    pub nid: U16,
    /// Payload bytes, 0 for a header-only message.
    pub length: U32,
    /// Of the payload when `segments` is 0, else of an array of [`Segment`]; in quad-bytes
    /// (host physical >> 2).
    pub address: U64,
    /// A transmit pending.
    pub pending_index: U16,
    /// Bytes of the header packet, 1 to 64.
    pub header_length: U16,
    /// Entries of the segment array; 0 when `address` is the payload itself. The lengths must
    /// add up to `length`.
    pub segments: U16,
    /// Zero.
    pub reserved: [u8; 42],
}

/// *Ours.* Deposits the payload of the message that a receive pending holds.
///
/// The first `length` payload bytes go to host memory, the rest is discarded; length 0 drops it
/// all. Ends with event [`RX_DONE`](super::event::EventType::RX_DONE),
/// [`DROPPED`](super::event::EventType::DROPPED) (length 0),
/// [`RX_FAILED`](super::event::EventType::RX_FAILED) or
/// [`RX_FAULT`](super::event::EventType::RX_FAULT). A refused one leaves the pending as it was:
/// the host must answer again or release it.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Receive {
    /// [`OpCode::RECEIVE`].
    pub op: OpCode,
    /// [`flags::RELEASE`], [`flags::SILENT`].
    pub flags: u8,
    /// Entries of the segment array; 0 when `address` is the buffer itself. The lengths must
    /// add up to `length`.
    pub segments: U16,
    /// Bytes to keep.
    pub length: U32,
    /// Of the buffer when `segments` is 0, else of an array of [`Segment`]; in quad-bytes.
    pub address: U64,
    /// A receive pending whose header event has been posted.
    pub pending_index: U16,
    /// Byte within the first quad-byte of the buffer, 0 to 3 (only with `segments` 0).
    pub byte: U16,
    /// Zero.
    pub reserved: [u8; 44],
}

/// *Ours.* Gives a receive pending back to the firmware. A payload that was never asked for is
/// drained and counted. No event.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Release {
    /// [`OpCode::RELEASE`].
    pub op: OpCode,
    /// Zero.
    pub reserved: [u8; 15],
    /// A receive pending whose header event has been posted.
    pub pending_index: U16,
    /// Zero.
    pub reserved2: [u8; 46],
}

/// Sends a datagram: a 4-byte [`DatagramHeader`](super::datagram::DatagramHeader) and what
/// follows it, from one piece of host memory. Not acknowledged, not repeated; ends with
/// [`TX_END`](super::event::EventType::TX_END) or
/// [`TX_FAILED`](super::event::EventType::TX_FAILED).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SendDatagram {
    /// [`OpCode::DATAGRAM`].
    pub op: OpCode,
    /// Zero.
    pub reserved: u8,
    /// Target node.
    pub nid: U16,
    /// Quad-bytes less one, the header included.
    pub length: U32,
    /// Of the datagram's header, in quad-bytes (host physical >> 2).
    pub address: U64,
    /// A transmit pending.
    pub pending_index: U16,
    /// Zero.
    pub reserved2: [u8; 46],
}

/// *Ours.* One piece of a scattered buffer, in host memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Segment {
    /// In quad-bytes (host physical >> 2).
    pub address: U64,
    /// Bytes of the piece.
    pub length: U32,
    /// Byte within the first quad-byte, 0 to 3; receive only, a transmit must have 0 (the
    /// driver bounces).
    pub byte: U32,
}

const _: () = assert!(size_of::<Segment>() == 16);

/// Flags of [`Transmit`] and [`Receive`]; *ours*. Other bits must be zero.
pub mod flags {
    /// Transmit: raise the interrupt with the end event.
    pub const INTERRUPT: u8 = 1 << 0;
    /// Receive: give the pending back to the firmware when the message has ended; its upper part
    /// may be overwritten as soon as the end event is posted.
    pub const RELEASE: u8 = 1 << 1;
    /// Receive: post no end event and raise no interrupt, unless the transfer fails.
    pub const SILENT: u8 = 1 << 2;
}
