//! Memory of the process by address: what peers may reach of it, and what its own transfers name.
// UNSAFETY: in a job without segments any memory may be named by its address; it is checked against the kernel's list
// of mappings, and promised by the program (`Conduit::attach_everything`, `UserMem::new`).
#![expect(
    unsafe_code,
    reason = "in a job without segments memory is named by its address alone"
)]

use crate::memory::UserMem;
use crate::rma::segments::{HIGHEST, LOWEST};

use portals_shim::{Memory, RawMemory, Region};

/// All memory, for descriptors whose operations each name what they were lent.
pub(super) fn all_memory() -> RawMemory {
    // SAFETY: an operation on this descriptor names memory of a `UserMem`, whose maker promised it up to the end of
    // the operation, or a chunk of the conduit's own; nothing else of the range is touched.
    unsafe { RawMemory::new(Memory::contiguous(LOWEST, HIGHEST - LOWEST)) }
}

/// Memory that peers may reach.
pub(super) fn open_memory(base: u64, len: u64) -> RawMemory {
    // SAFETY: mapped and writable when it was looked up (`Maps::writable`), and until it is forgotten
    // (`Conduit::forget`), as the program promised with `Conduit::attach_everything`.
    unsafe { RawMemory::new(Memory::contiguous(base, len)) }
}

/// Memory of the own segment, which stays as long as the conduit; `None` beyond its end.
pub(super) fn segment_memory(region: &Region, offset: usize, len: usize) -> Option<UserMem> {
    let end = offset.checked_add(len).filter(|e| *e <= region.len())?;
    let addr = region.addr() as usize + (end - len);
    let addr = std::ptr::with_exposed_provenance_mut::<u8>(addr);
    // SAFETY: mapped by the region, which the conduit keeps to its end (`Attached`); nobody borrows memory of a region.
    Some(unsafe { UserMem::new(addr, len, 0) })
}

/// Copies bytes that a peer sent to memory that `Maps` holds.
pub(super) fn store(addr: u64, data: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
    // SAFETY: the caller has looked the range up (`Maps::holds`), and the program has promised that it shares it with
    // its peers (`Conduit::attach_everything`); the data is the conduit's own copy.
    unsafe { std::ptr::copy(data.as_ptr(), to, data.len()) }
}

/// Copies from memory that `Maps` holds.
pub(super) fn load(addr: u64, out: &mut [u8]) {
    let from = std::ptr::with_exposed_provenance::<u8>(addr as usize);
    // SAFETY: as in `store`; `out` is the conduit's own buffer.
    unsafe { std::ptr::copy(from, out.as_mut_ptr(), out.len()) }
}

/// First address and length of the calling thread's stack; `None` of the first thread, or where the C library does not know.
/// Where the system does not say which thread it is, it is taken for a later one, of whose stack nothing stays pinned.
pub(super) fn own_stack() -> Option<(u64, u64)> {
    if portals_shim::ids::is_first_thread() == Some(true) {
        return None;
    }
    // SAFETY: plain bytes, for which zeroes are good.
    let mut about: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: takes no memory.
    let this = unsafe { libc::pthread_self() };
    // SAFETY: the calling thread; the answer is written to `about`.
    if unsafe { libc::pthread_getattr_np(this, &raw mut about) } != 0 {
        return None;
    }
    let (mut from, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: filled in above; the answers are written to these.
    let asked =
        unsafe { libc::pthread_attr_getstack(&raw const about, &raw mut from, &raw mut len) };
    // SAFETY: filled in above, and not used any more.
    unsafe { libc::pthread_attr_destroy(&raw mut about) };
    (asked == 0).then(|| (from.addr() as u64, len as u64))
}
