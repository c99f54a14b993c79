// UNSAFETY: iovec descriptors are made of addresses; the maker of one vouches for them.
#![expect(
    unsafe_code,
    reason = "iovec descriptors are made of addresses, which RawMemory::new takes on the maker's word"
)]
//! Descriptors of memory in pieces.

use super::rank::Buf;
use portals_shim::{MdMemory, Memory, RawMemory, Region, Segment};
use std::sync::Mutex;

/// Regions that iovec descriptors were made of. They are never unmapped, because a descriptor may
/// outlive the body that made it.
static KEPT: Mutex<Vec<Region>> = Mutex::new(Vec::new());

/// An iovec of whole buffers; an empty one stands for an entry of length 0. `start` is what events
/// show as its address.
pub(super) fn iovec(bufs: &[&Buf], start: u64) -> MdMemory {
    let segments: Vec<Segment> = bufs.iter().map(|b| b.segment()).collect();
    KEPT.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .extend(bufs.iter().map(|b| b.region().clone()));
    // SAFETY: every segment lies in a region that `KEPT` now keeps mapped for the life of the
    // process, and regions are never borrowed by references.
    let memory = unsafe { RawMemory::new(Memory::Iovec { start, segments }) };
    MdMemory::Raw(memory)
}
