//! Memory that a NIC, a peer or the simulation may read and write at any time.
// UNSAFETY: maps anonymous memory and copies through raw pointers, because other agents write it
// concurrently and no Rust reference may ever point into it.
#![expect(
    unsafe_code,
    reason = "mapping memory that other agents write; see the line above"
)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a region call was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system has no memory to map.
    #[error("cannot map {len} bytes of memory")]
    Map {
        /// Bytes wanted.
        len: usize,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// An access past the end.
    #[error("bytes {offset}..{offset}+{len} are not within a region of {size} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Size of the region.
        size: usize,
    },
    /// An atomic access at an odd place.
    #[error("offset {offset} is not a multiple of 8")]
    Unaligned {
        /// Byte offset.
        offset: usize,
    },
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping is plain memory owned by this value; every access goes through raw copies
// or atomics, none through references, so threads may share it (data races are the user's
// protocol's business and touch bytes only).
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: base and len are those of the successful mmap in `Region::new`, and this is
            // the last owner (Arc), so nothing uses the range any more.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len) };
        }
    }
}

/// Page-aligned zeroed memory, shared by clones, freed with the last one.
///
/// Any thread may call every method; concurrent accesses to the same bytes, local or remote, see
/// some mixture of old and new bytes unless the program orders them (events, barriers).
#[derive(Clone, Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps `len` bytes (rounded up to pages).
    pub fn new(len: usize) -> Result<Self, RegionError> {
        let page = rustix::param::page_size();
        let map_len = len
            .max(1)
            .checked_next_multiple_of(page)
            .unwrap_or(usize::MAX & !(page - 1));
        // SAFETY: an anonymous private mapping at an address the kernel chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                map_len,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE,
            )
        }
        .map_err(|e| RegionError::Map {
            len: map_len,
            source: e.into(),
        })?;
        let base = NonNull::new(base).ok_or_else(|| RegionError::Map {
            len: map_len,
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        Ok(Self {
            mapping: Arc::new(Mapping { base, len: map_len }),
        })
    }

    /// Address of the first byte; stable for the region's life.
    pub fn addr(&self) -> u64 {
        self.mapping.base.as_ptr().expose_provenance() as u64
    }

    /// Bytes, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Never true: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, RegionError> {
        match offset.checked_add(len) {
            // `wrapping_add` keeps the mapping's provenance and needs no promise; the range check
            // of this line is what the copies below rely on.
            Some(end) if end <= self.mapping.len => {
                Ok(self.mapping.base.as_ptr().cast::<u8>().wrapping_add(offset))
            }
            _ => Err(RegionError::OutOfRange {
                offset,
                len,
                size: self.mapping.len,
            }),
        }
    }

    /// Copies out.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), RegionError> {
        let from = self.at(offset, out.len())?;
        // SAFETY: `at` checked the source range against the live mapping; `out` is an exclusive
        // Rust slice, so it cannot overlap memory nobody has references to.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies in.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), RegionError> {
        let to = self.at(offset, data.len())?;
        // SAFETY: `at` checked the destination range against the live mapping; see `read`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Copies within or between regions; overlap is allowed.
    pub fn copy_from(
        &self,
        offset: usize,
        from: &Region,
        from_offset: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        let src = from.at(from_offset, len)?;
        let dst = self.at(offset, len)?;
        // SAFETY: both ranges were checked by `at`; `copy` allows overlap.
        unsafe { std::ptr::copy(src, dst, len) };
        Ok(())
    }

    /// Sets bytes.
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), RegionError> {
        let to = self.at(offset, len)?;
        // SAFETY: `at` checked the range.
        unsafe { std::ptr::write_bytes(to, value, len) };
        Ok(())
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64, RegionError> {
        if !offset.is_multiple_of(8) {
            return Err(RegionError::Unaligned { offset });
        }
        let p = self.at(offset, 8)?;
        // SAFETY: in range by `at`, 8-aligned by the check above (the base is page aligned), and
        // alive as long as `self`; an atomic may be written by others at any time.
        Ok(unsafe { AtomicU64::from_ptr(p.cast()) })
    }

    /// An 8-byte aligned load.
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Result<u64, RegionError> {
        Ok(self.word(offset)?.load(order))
    }

    /// An 8-byte aligned store.
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> Result<(), RegionError> {
        self.word(offset)?.store(value, order);
        Ok(())
    }

    /// An 8-byte aligned exclusive-or; returns the old value.
    pub fn fetch_xor_u64(
        &self,
        offset: usize,
        value: u64,
        order: Ordering,
    ) -> Result<u64, RegionError> {
        Ok(self.word(offset)?.fetch_xor(value, order))
    }
}

/// A promise that addresses may be read and written by the library.
#[derive(Clone, Debug)]
pub struct RawMemory {
    pub(crate) memory: portals_core::Memory,
}

impl RawMemory {
    /// # Safety
    ///
    /// Every byte of `memory` stays mapped, and is not borrowed by Rust references that forbid the
    /// accesses, from now until the MD made of it is unlinked and no operation is under way on it.
    /// Destinations (put targets, get sources' replies) must be writable.
    pub unsafe fn new(memory: portals_core::Memory) -> Self {
        Self { memory }
    }
}

/// Copies bytes between described memory and buffers, on behalf of fabrics that move data with the
/// processor. The segments come from MDs, whose makers promised them ([`RawMemory::new`], or a
/// [`Region`] kept alive by its interface).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalCopy;

impl LocalCopy {
    /// Appends the bytes of `segments` to `out`.
    pub(crate) fn gather(segments: &[portals_core::Segment], out: &mut Vec<u8>) {
        for s in segments {
            let len = s.len as usize;
            out.reserve(len);
            let from = std::ptr::with_exposed_provenance::<u8>(s.addr as usize);
            let at = out.len();
            // SAFETY: `from` is valid for `len` bytes by the promise of the MD's maker, which
            // `Ni` keeps until the operation's `*_end`; the destination was just reserved.
            unsafe { std::ptr::copy(from, out.as_mut_ptr().wrapping_add(at), len) };
            // SAFETY: `len` bytes past `at` were just initialised within the reserved capacity.
            unsafe { out.set_len(at + len) };
        }
    }

    /// Copies the bytes of `segments` to the start of `out`; stops at the end of the shorter one.
    pub(crate) fn gather_into(segments: &[portals_core::Segment], out: &mut [u8]) {
        let mut out = out;
        for s in segments {
            let len = out.len().min(s.len as usize);
            let (to, rest) = out.split_at_mut(len);
            let from = std::ptr::with_exposed_provenance::<u8>(s.addr as usize);
            // SAFETY: `from` is valid for `len <= s.len` bytes by the promise of the MD's maker,
            // which `Ni` keeps until the operation's `*_end`; `to` has `len` bytes.
            unsafe { std::ptr::copy(from, to.as_mut_ptr(), len) };
            out = rest;
        }
    }

    /// Places `data` into `segments`; stops at the end of the shorter one.
    pub(crate) fn scatter(segments: &[portals_core::Segment], mut data: &[u8]) {
        for s in segments {
            let len = data.len().min(s.len as usize);
            let to = std::ptr::with_exposed_provenance_mut::<u8>(s.addr as usize);
            // SAFETY: `to` is valid for `len <= s.len` bytes by the promise of the MD's maker,
            // which `Ni` keeps until the operation's `*_end`.
            unsafe { std::ptr::copy(data.as_ptr(), to, len) };
            data = &data[len..];
        }
    }
}

/// Lets other processes of this user read and write this one's memory, where a security module
/// would restrict that to ancestors. Failure means there is no such restriction to lift.
pub(crate) fn permit_memory_access() {
    const PR_SET_PTRACER: libc::c_int = 0x5961_6d61;
    // SAFETY: this prctl takes integers only and changes nothing but a permission.
    let _ = unsafe { libc::prctl(PR_SET_PTRACER, libc::c_ulong::MAX, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_past_the_end_are_refused() {
        let r = Region::new(100).unwrap();
        let size = r.len();
        assert!(r.write(size - 2, &[1, 2]).is_ok());
        assert!(r.write(size - 1, &[1, 2]).is_err());
        assert!(r.read(usize::MAX, &mut [0; 2]).is_err());
        assert!(r.load_u64(4, Ordering::Relaxed).is_err());
        assert!(r.load_u64(size, Ordering::Relaxed).is_err());
    }
}
