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
    /// | 63..48 | *ours*: sequence number of the message, per source and destination |
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
}

/// Flits of a packet with `payload` bytes.
#[must_use]
pub const fn flits(payload: usize) -> u64 {
    1 + payload.div_ceil(FLIT_LEN) as u64
}

const _: () = assert!(flits(PACKET_PAYLOAD) == PACKET_FLITS);
