// UNSAFETY: a C caller's pointers are bare addresses; here they are checked for NULL and wrapped,
// so that the entries handle them without further unsafe code.
#![expect(unsafe_code, reason = "reads and writes through pointers of C callers")]
//! Pointers of a C caller.
//!
//! Reads and writes are unaligned ones: a caller may keep its structures packed.

use portals_shim::{Error, Segment};
use std::ffi::c_void;
use std::ptr::NonNull;

use crate::types::PtlMdIovec;

/// Where the caller wants a result.
#[derive(Debug)]
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// NULL is [`Error::Segv`].
    ///
    /// # Safety
    /// `p` is null or may be written while the value lives.
    pub(crate) unsafe fn new(p: *mut T) -> Result<Self, Error> {
        NonNull::new(p).map(Self).ok_or(Error::Segv)
    }

    /// NULL is `None`: the caller does not want it.
    ///
    /// # Safety
    /// That of [`Out::new`].
    pub(crate) unsafe fn optional(p: *mut T) -> Option<Self> {
        NonNull::new(p).map(Self)
    }

    /// Stores the result.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: `new` or `optional` was promised that the pointer may be written.
        unsafe { self.0.write_unaligned(value) };
    }

    /// The address, for a handler.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

/// Reads what the caller points at; NULL is `None`.
///
/// # Safety
/// `p` is null or points at a `T`.
pub(crate) unsafe fn read<T: Copy>(p: *const T) -> Option<T> {
    // SAFETY: not null, so it points at a `T` by the condition above.
    (!p.is_null()).then(|| unsafe { p.read_unaligned() })
}

/// Reads an array of `count` elements; a null array is [`Error::Segv`] unless it is empty.
///
/// # Safety
/// `p` is null or points at `count` elements.
pub(crate) unsafe fn read_array<T: Copy>(p: *const T, count: usize) -> Result<Vec<T>, Error> {
    if p.is_null() && count > 0 {
        return Err(Error::Segv);
    }
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| Error::NoSpace)?;
    for i in 0..count {
        // SAFETY: element `i` of an array of `count` by the condition above.
        all.push(unsafe { p.wrapping_add(i).read_unaligned() });
    }
    Ok(all)
}

/// Writes an array; the caller said that it has room for `values`.
///
/// # Safety
/// `p` is null, and then nothing is written, or may be written for as many elements.
pub(crate) unsafe fn write_array<T: Copy>(p: *mut T, values: &[T]) {
    if p.is_null() {
        return;
    }
    for (i, value) in values.iter().enumerate() {
        // SAFETY: room for `values.len()` elements by the condition above.
        unsafe { p.wrapping_add(i).write_unaligned(*value) };
    }
}

/// The pieces of a caller's iovec array; [`Error::MdIllegal`] where no memory is.
///
/// # Safety
/// `start` is null, points at `count` entries, or at memory that is not mapped.
pub(crate) unsafe fn iovec(start: *const c_void, count: usize) -> Result<Vec<Segment>, Error> {
    let array = Segment {
        addr: start.expose_provenance() as u64,
        len: (count as u64).saturating_mul(size_of::<PtlMdIovec>() as u64),
    };
    if !is_mapped(&array) {
        return Err(Error::MdIllegal);
    }
    // SAFETY: by the condition above, and it is mapped.
    let entries: Vec<PtlMdIovec> = unsafe { read_array(start.cast(), count) }?;
    let segment = |e: &PtlMdIovec| Segment {
        addr: e.iov_base.expose_provenance() as u64,
        len: e.iov_len,
    };
    Ok(entries.iter().map(segment).collect())
}

/// Whether every page of the piece is mapped. Its protection is not looked at.
pub(crate) fn is_mapped(piece: &Segment) -> bool {
    let page = page_size();
    let Some(end) = piece.addr.checked_add(piece.len) else {
        return false;
    };
    if piece.len == 0 {
        return true;
    }
    let first = piece.addr & !(page - 1);
    let Ok(len) = usize::try_from(end - first) else {
        return false;
    };
    let address = std::ptr::without_provenance_mut::<c_void>(first as usize);
    // SAFETY: an asynchronous msync neither reads nor writes memory; the kernel looks the range up
    // and answers ENOMEM where a page of it is not mapped.
    unsafe { libc::msync(address, len, libc::MS_ASYNC) == 0 }
}

fn page_size() -> u64 {
    // SAFETY: a query without arguments in memory.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size)
        .ok()
        .filter(|s| s.is_power_of_two())
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_wrapping_pieces_are_not_mapped() {
        let data = [0u8; 100];
        let addr = data.as_ptr().expose_provenance() as u64;
        let mapped = |addr, len| is_mapped(&Segment { addr, len });
        assert!(mapped(addr, 100));
        assert!(mapped(8, 0));
        assert!(!mapped(8, 1));
        assert!(!mapped(addr, 1 << 46));
        assert!(!mapped(u64::MAX - 4, 2));
        assert!(!mapped(u64::MAX - 4, 8));
    }
}
