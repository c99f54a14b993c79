//! The packet: one header flit and up to eight data flits of 8 bytes.

use bitfield::bitfield;

/// Bytes of a flit's data.
pub const FLIT_LEN: usize = 8;
/// Payload bytes of a packet.
pub const PACKET_PAYLOAD: usize = 64;
/// Flits of the longest packet.
pub const PACKET_FLITS: u64 = 9;

bitfield! {
    /// The header flit's 8 bytes.
    ///
    /// | bits | field |
    /// |---|---|
    /// | 14..0 | destination |
    /// | 25..15 | age |
    /// | 28..26 | virtual channel |
    /// | 29 | tail |
    /// | 44..30 | *ours*: source |
    /// | 46..45 | *ours*: kind, see [`kind`] |
    /// | 47 | *ours*: last packet of its message |
    /// | 63..48 | *ours*: number of the message, per source and destination; of a payload packet its place (from 1) added to that |
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct PacketHeader(pub u64);
    impl Debug;
    /// Destination node.
    pub u16, destination, set_destination: 14, 0;
    /// Age, for output arbitration.
    pub u16, age, set_age: 25, 15;
    /// Virtual channel.
    pub u8, vc, set_vc: 28, 26;
    /// Last flit.
    pub tail, set_tail: 29;
    /// Source node.
    pub u16, source, set_source: 44, 30;
    /// One of [`kind`].
    pub u8, kind, set_kind: 46, 45;
    /// Last packet of its message.
    pub last, set_last: 47;
    /// Sequence number of the message.
    pub u16, sequence, set_sequence: 63, 48;
}

/// Kinds of packets; *ours*.
pub mod kind {
    /// The first packet of a message: header and inline data.
    pub const HEADER: u8 = 0;
    /// A later packet of a message.
    pub const PAYLOAD: u8 = 1;
    /// A word between two firmwares: no message, see [`Control`](super::Control).
    pub const CONTROL: u8 = 2;
    /// The first packet of a datagram.
    pub const DATAGRAM: u8 = 3;
}

/// Virtual channels; a packet that crosses a dateline is on the next.
pub mod vc {
    /// Messages, datagrams, questions.
    pub const REQUEST: u8 = 0;
    /// Acknowledgements and refusals.
    pub const RESPONSE: u8 = 2;
}

bitfield! {
    /// The 8 bytes of a [`kind::CONTROL`] packet; *ours*.
    ///
    /// | bits | field |
    /// |---|---|
    /// | 7..0 | what it says, see [`control`] |
    /// | 15..8 | [reason](reason) of a refusal |
    /// | 31..16 | sequence number |
    /// | 63..32 | zero |
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Control(pub u64);
    impl Debug;
    /// One of [`control`].
    pub u8, what, set_what: 7, 0;
    /// Why a message was refused.
    pub u8, reason, set_reason: 15, 8;
    /// A sequence number.
    pub u16, sequence, set_sequence: 31, 16;
}

impl Control {
    /// The word that says `what` about `sequence`.
    #[must_use]
    pub fn new(what: u8, reason: u8, sequence: u16) -> Self {
        let mut word = Self(0);
        word.set_what(what);
        word.set_reason(reason);
        word.set_sequence(sequence);
        word
    }
}

/// What a [`Control`] packet says.
pub mod control {
    /// Every message before this number has been taken.
    pub const ACK: u8 = 1;
    /// This message was refused; send it and all behind it again.
    pub const NACK: u8 = 2;
    /// Answer with the number expected next; this is the number after the last one sent.
    pub const PROBE: u8 = 3;
    /// The message of this number will not come: expect the next.
    pub const SKIP: u8 = 4;
    /// The next message has this number, whatever was expected.
    pub const SYNC: u8 = 5;
}

/// Why a message was refused.
pub mod reason {
    /// A number before it is missing.
    pub const SEQUENCE: u8 = 1;
    /// No receive pending.
    pub const RX_PENDING: u8 = 2;
    /// No CAM entry.
    pub const CAM: u8 = 3;
    /// No source structure.
    pub const SOURCE: u8 = 4;
}

/// Flits of a packet with `payload` bytes.
#[must_use]
pub const fn flits(payload: usize) -> u64 {
    1 + payload.div_ceil(FLIT_LEN) as u64
}

const _: () = assert!(flits(PACKET_PAYLOAD) == PACKET_FLITS);
