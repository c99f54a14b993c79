//! The upper pending: the 128 bytes of host memory through which host and firmware hand over a
//! message.

use bitfield::bitfield;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::Segment;

/// Bytes of an upper pending.
pub const UPPER_PENDING_LEN: u64 = 128;
/// Offset of the header within an upper pending.
pub const HEADER_OFFSET: u64 = 64;
/// Offset of the room for three segments within an upper pending.
pub const SEGMENTS_OFFSET: u64 = 16;
/// Offset of the status word within an upper pending.
pub const STATUS_OFFSET: u64 = 4;

/// One upper pending. Words 0 and 1 are those of public drivers, the rest is *ours*.
///
/// Transmit: the host fills `header` (and may use `segments`), the firmware writes `status`.
/// Receive: the firmware writes `message`, `status`, `header` before the header event, and
/// `status`, `deposited`, `discarded` before the end event.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UpperPending {
    /// A [`MessageWord`].
    pub message: U32,
    /// One of [`status`].
    pub status: U32,
    /// Payload bytes in host memory.
    pub deposited: U32,
    /// Payload bytes thrown away.
    pub discarded: U32,
    /// Room for a short segment array.
    pub segments: [Segment; 3],
    /// The header packet: 48 bytes of header, up to 16 bytes of data.
    pub header: [u8; 64],
}

const _: () = assert!(size_of::<UpperPending>() == UPPER_PENDING_LEN as usize);
const _: () = assert!(std::mem::offset_of!(UpperPending, header) == HEADER_OFFSET as usize);
const _: () = assert!(std::mem::offset_of!(UpperPending, segments) == SEGMENTS_OFFSET as usize);
const _: () = assert!(std::mem::offset_of!(UpperPending, status) == STATUS_OFFSET as usize);

/// Values of the status word.
pub mod status {
    /// The message has not ended.
    pub const IN_PROGRESS: u32 = 0;
    /// The message has ended well.
    pub const DONE: u32 = 1;
    /// The payload was dropped as asked.
    pub const DROPPED: u32 = 2;
    /// *Ours:* the message was lost: no path leads to the peer, or the payload failed its CRC.
    pub const FAILED: u32 = 3;
    /// *Ours:* transmit only: the peer has not taken the message for as long as the firmware
    /// tries.
    pub const UNDELIVERED: u32 = 4;
    /// *Ours:* host memory could not be read or written.
    pub const FAULT: u32 = 5;
}

/// The lower pending: 32 bytes of SRAM in which the firmware shows what it does with a message.
/// *Ours.* The firmware writes it and never reads it, so what a host writes there is harmless.
pub mod lower {
    /// Offset of the state, one of [`state`].
    pub const STATE: u32 = 0;
    /// Offset of the peer's NID.
    pub const NID: u32 = 4;
    /// Offset of the sequence number.
    pub const SEQUENCE: u32 = 8;
    /// Offset of the payload's length in bytes.
    pub const LENGTH: u32 = 12;

    /// Values of the state word.
    pub mod state {
        /// The host's (transmit) or free (receive).
        pub const IDLE: u32 = 0;
        /// Queued for the transmit engine, at it, or not yet acknowledged.
        pub const SENDING: u32 = 1;
        /// The host has the header and is to answer.
        pub const HEADER: u32 = 2;
        /// At the receive engine.
        pub const DEPOSIT: u32 = 3;
        /// Done; to be released by the host.
        pub const ENDED: u32 = 4;
    }
}

bitfield! {
    /// Word 0 of a receive pending.
    ///
    /// | bits | field |
    /// |---|---|
    /// | 15..0 | *ours*: source node |
    /// | 22..16 | *ours*: bytes of the header packet, 1 to 64 |
    /// | 23 | *ours*: payload follows |
    /// | 29..24, 31 | zero |
    /// | 30 | datagram (IP) |
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct MessageWord(pub u32);
    impl Debug;
    /// Source node.
    pub u16, source, set_source: 15, 0;
    /// Bytes of the header packet.
    pub u16, header_length, set_header_length: 22, 16;
    /// Whether payload follows.
    pub has_payload, set_has_payload: 23;
    /// Whether it is a datagram.
    pub datagram, set_datagram: 30;
}
