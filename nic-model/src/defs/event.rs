//! Event words, firmware to host, and result codes.

use std::fmt;

/// Entries that the firmware requires of the generic event queue.
pub const EQ_MIN_ENTRIES: u32 = 1024;
/// Entries beyond which a queue is refused (*ours*).
pub const EQ_MAX_ENTRIES: u32 = 1 << 16;

/// The kind of an event, bits 31..16 of the word. Unknown values are to be counted, not fatal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(pub u16);

impl EventType {
    /// A transmit has ended; index: transmit pending.
    pub const TX_END: Self = Self(125);
    /// Datagram received; index: buffer.
    pub const DATAGRAM: Self = Self(126);
    /// Datagram buffers ran out.
    pub const DATAGRAM_EMPTY: Self = Self(127);
    /// *Ours:* a message header is in the upper pending; index: receive pending.
    pub const HEADER: Self = Self(128);
    /// *Ours:* the payload has been deposited; index: receive pending.
    pub const RX_DONE: Self = Self(129);
    /// *Ours:* the payload has been discarded as asked; index: receive pending.
    pub const DROPPED: Self = Self(130);
    /// *Ours:* a command was refused; index: [`RejectedCommand`].
    pub const REJECTED: Self = Self(131);
    /// *Ours:* there is no path to the peer, the peer did not take the message (see the pending's status word), or a datagram
    /// was not sent; index: transmit pending.
    pub const TX_FAILED: Self = Self(132);
    /// *Ours:* the payload of a deposit was lost or failed its CRC; index: receive pending.
    pub const RX_FAILED: Self = Self(133);
    /// *Ours:* a pending of a process that the kernel has taken over has ended; index: mailbox and
    /// pending.
    pub const MOVED_END: Self = Self(136);
    /// *Ours:* the same, with a failure.
    pub const MOVED_FAILED: Self = Self(137);
    /// *Ours:* a transmit could not read host memory; index: transmit pending.
    pub const TX_FAULT: Self = Self(138);
    /// *Ours:* a deposit could not write host memory; index: receive pending. The word says it, because the pending may carry
    /// another message when the host looks.
    pub const RX_FAULT: Self = Self(139);
    /// *Ours:* as [`Self::MOVED_END`], with host memory that could not be read or written.
    pub const MOVED_FAULT: Self = Self(140);
    /// A header failed its CRC; index: source node.
    pub const HEADER_CRC: Self = Self(135);
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::TX_END => "TX_END",
            Self::DATAGRAM => "DATAGRAM",
            Self::DATAGRAM_EMPTY => "DATAGRAM_EMPTY",
            Self::HEADER => "HEADER",
            Self::RX_DONE => "RX_DONE",
            Self::DROPPED => "DROPPED",
            Self::REJECTED => "REJECTED",
            Self::TX_FAILED => "TX_FAILED",
            Self::RX_FAILED => "RX_FAILED",
            Self::HEADER_CRC => "HEADER_CRC",
            Self::MOVED_END => "MOVED_END",
            Self::MOVED_FAILED => "MOVED_FAILED",
            Self::TX_FAULT => "TX_FAULT",
            Self::RX_FAULT => "RX_FAULT",
            Self::MOVED_FAULT => "MOVED_FAULT",
            Self(other) => return write!(f, "EventType({other})"),
        };
        f.write_str(name)
    }
}

/// One entry of an event queue: type in bits 31..16, index in bits 15..0; zero is empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EventWord(pub u32);

impl EventWord {
    /// The word for `kind` about `index`.
    #[must_use]
    pub const fn new(kind: EventType, index: u16) -> Self {
        Self((kind.0 as u32) << 16 | index as u32)
    }

    /// What happened.
    #[must_use]
    pub const fn kind(self) -> EventType {
        EventType((self.0 >> 16) as u16)
    }

    /// To which pending (or buffer, or command).
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0 as u16
    }

    /// Whether the entry holds no event.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for EventWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}[{}]", self.kind(), self.index())
    }
}

/// Index of a [`REJECTED`](EventType::REJECTED) event: the pending that waits for what was refused in bits 10..0, whether
/// there is one in bit 11, reason in bits 15..12 (*ours*).
///
/// It names the pending and not the command: by the time that a host hears of a refusal it may have written any number
/// of other commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectedCommand(pub u16);

impl RejectedCommand {
    /// Pendings that can be named, from 0 on.
    pub const PENDINGS: u16 = 1 << 11;
    const NAMED: u16 = Self::PENDINGS;

    /// The index for a command refused for `reason`, of `pending` if one waits for it.
    #[must_use]
    pub const fn new(pending: Option<u16>, reason: u8) -> Self {
        let named = match pending {
            Some(pending) if pending < Self::PENDINGS => Self::NAMED | pending,
            _ => 0,
        };
        Self((reason as u16) << 12 | named)
    }

    /// The transmit or receive pending that waits for an end which will not come.
    #[must_use]
    pub const fn pending(self) -> Option<u16> {
        match self.0 & Self::NAMED {
            0 => None,
            _ => Some(self.0 & (Self::PENDINGS - 1)),
        }
    }

    /// One of [`refusal`].
    #[must_use]
    pub const fn reason(self) -> u8 {
        (self.0 >> 12) as u8
    }
}

/// Result of a successful init process or mark alive.
pub const RESULT_OK: u32 = 0;
/// Result of a successful init event queue.
pub const RESULT_EQ_OK: u32 = 1;
/// *Ours:* set in the result of a refused command, with a [`refusal`] in the low byte.
pub const RESULT_REFUSED: u32 = 1 << 31;

/// Why a command is refused, at most 15; *ours*.
pub mod refusal {
    /// The op code is not known.
    pub const OP_CODE: u8 = 1;
    /// The process index is not one of the mailboxes, or not this mailbox's.
    pub const PROCESS: u8 = 2;
    /// The process has not been initialised, or is alive already.
    pub const STATE: u8 = 3;
    /// A table does not fit into SRAM, or a count is absurd.
    pub const TABLE: u8 = 4;
    /// A firmware address is not mapped or not aligned.
    pub const ADDRESS: u8 = 5;
    /// The event queue index or size is out of range.
    pub const EQ: u8 = 6;
    /// The pending index is out of range or of the other kind.
    pub const PENDING: u8 = 7;
    /// The pending is not in a state that allows the command.
    pub const PENDING_STATE: u8 = 8;
    /// The target node does not exist.
    pub const NODE: u8 = 9;
    /// A length is absurd, or the segments do not add up to it.
    pub const LENGTH: u8 = 10;
    /// A buffer does not start on a quad-byte, or a byte offset is above 3.
    pub const ALIGNMENT: u8 = 11;
    /// The segment array cannot be read, or is too long.
    pub const SEGMENTS: u8 = 12;
    /// Unknown flags.
    pub const FLAGS: u8 = 13;
    /// All source structures are taken.
    pub const SOURCES: u8 = 14;
}
