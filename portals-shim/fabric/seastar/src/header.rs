//! The Portals header on the wire, which the firmware of an accelerated process reads too.

pub(super) use firmware_sim::header::{AGAIN, FAILED, FLAGS_AT, LEN, PACKET, decode, encode};

/// Whether `len` bytes of data travel in a header packet that has room for `room`.
#[inline]
pub(crate) const fn is_short(len: u64, room: usize) -> bool {
    len <= room as u64
}
