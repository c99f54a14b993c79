//! The context table: what the firmware keeps in host memory of peers that have no source structure.
//! *Ours*; adapters of InfiniBand keep their queue pairs' state so.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a [`PeerContext`].
pub const CONTEXT_LEN: u64 = 8;

/// What outlives the source structure of a peer. Zeroes say that it never had one.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct PeerContext {
    /// Number of the next message to it.
    pub tx_next: U16,
    /// Number of its next message.
    pub rx_next: U16,
    /// [`flags`].
    pub flags: U32,
}

const _: () = assert!(size_of::<PeerContext>() == CONTEXT_LEN as usize);

/// Flags of a [`PeerContext`].
pub mod flags {
    /// One of the peer's messages has been taken, or skipped.
    pub const TAKEN: u32 = 1;
    /// The peer has been told that a number is missing.
    pub const NACKED: u32 = 2;
    /// The peer is to be told the first number of the next messages: earlier ones were given up.
    pub const SYNC: u32 = 4;
}
