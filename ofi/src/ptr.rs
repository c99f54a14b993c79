// UNSAFETY: a C caller's pointers are bare addresses; here they are checked for NULL and wrapped, so that the entries handle them
// with little further unsafe code.
#![expect(unsafe_code, reason = "reads and writes through pointers of C callers")]
//! Pointers of a C caller.

use crate::abi::{Iovec, errno};
use ofi_engine::memory::{Buffer, MOST_PIECES};
use portals_shim::Segment;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What an entry gives: a number, or an error of libfabric.
pub(crate) type Outcome<T = isize> = Result<T, i32>;

/// The body of an entry: an error becomes negative, and a panic an error.
pub(crate) fn entry(body: impl FnOnce() -> Outcome) -> isize {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => -(error as isize),
        Err(_) => -(errno::OTHER as isize),
    }
}

/// An entry that gives an `int`.
pub(crate) fn entry_int(body: impl FnOnce() -> Outcome) -> c_int {
    entry(body) as c_int
}

/// Where the caller wants a result.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// NULL is an error.
    ///
    /// # Safety
    /// `p` is null or may be written while the value lives.
    pub(crate) unsafe fn new(p: *mut T) -> Outcome<Self> {
        if p.is_null() {
            Err(errno::INVAL)
        } else {
            Ok(Self(p))
        }
    }

    /// Reads something of what is there.
    pub(crate) fn get<R>(&self, look: impl FnOnce(&T) -> R) -> R
    where
        T: Copy,
    {
        // SAFETY: `new` was promised that the pointer may be written, so there is a `T`, of which every value is one.
        look(&unsafe { self.0.read_unaligned() })
    }

    /// Stores the result.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: `new` was promised that the pointer may be written.
        unsafe { self.0.write_unaligned(value) };
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

/// What the caller points at, for a while; NULL is `None`.
///
/// # Safety
/// `p` is null or points at an aligned `T` that nobody else uses while the borrow lasts.
pub(crate) unsafe fn borrow<'a, T>(p: *mut T) -> Option<&'a mut T> {
    // SAFETY: the condition above.
    unsafe { p.as_mut() }
}

/// Bytes of the caller's; `ENOMEM` if they are more than there is memory for.
///
/// # Safety
/// `p` is null or points at so many bytes.
pub(crate) unsafe fn bytes(p: *const c_void, len: usize) -> Outcome<Vec<u8>> {
    if p.is_null() {
        return Err(errno::INVAL);
    }
    let mut copy = Vec::new();
    copy.try_reserve_exact(len).map_err(|_| errno::NOMEM)?;
    // SAFETY: not null, so it points at `len` bytes by the condition above, and as many can be reserved, so a slice has them.
    copy.extend_from_slice(unsafe { std::slice::from_raw_parts(p.cast::<u8>(), len) });
    Ok(copy)
}

/// Writes bytes to where the caller wants them.
///
/// # Safety
/// `p` is null or has room for them.
pub(crate) unsafe fn write_bytes(p: *mut c_void, bytes: &[u8]) -> Outcome<()> {
    if p.is_null() {
        return if bytes.is_empty() {
            Ok(())
        } else {
            Err(errno::INVAL)
        };
    }
    // SAFETY: not null, so there is room by the condition above, and what is Rust's does not overlap it.
    unsafe {
        p.cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
    };
    Ok(())
}

/// Room that a caller gives for more about a failure, which is left as it is: where it is, if it has any bytes.
pub(crate) fn kept((room, len): (*mut c_void, usize)) -> *mut c_void {
    if len > 0 { room } else { std::ptr::null_mut() }
}

/// Writes a text to where the caller wants it, as far as there is room.
///
/// # Safety
/// `p` is null or has so much room.
pub(crate) unsafe fn write_text(p: *mut c_char, room: usize, text: &CStr) {
    let mut bytes = text.to_bytes_with_nul().to_vec();
    bytes.truncate(room);
    if let Some(last) = bytes.last_mut() {
        *last = 0;
    }
    // SAFETY: the condition above. A null pointer gets nothing.
    let _ = unsafe { write_bytes(p.cast(), &bytes) };
}

/// A value at the `index`th place of an array of the caller's.
///
/// # Safety
/// `p` has so many places.
pub(crate) unsafe fn write_at<T>(p: *mut T, index: usize, value: T) {
    // SAFETY: the condition above.
    let place = unsafe { p.add(index) };
    // SAFETY: the condition above.
    unsafe { place.write_unaligned(value) };
}

/// A string of the caller's.
///
/// # Safety
/// `p` is null or points at a string that ends with 0.
pub(crate) unsafe fn string(p: *const c_char) -> Option<String> {
    if p.is_null() {
        return None;
    }
    // SAFETY: not null, so it is a string by the condition above.
    Some(unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
}

/// Memory that the caller lends for an operation.
///
/// # Safety
/// Until the completion of the operation the memory may be read, and for receives and reads written, as libfabric's callers
/// promise.
pub(crate) unsafe fn buffer(p: *const c_void, len: usize) -> Outcome<Buffer> {
    if p.is_null() && len > 0 {
        return Err(errno::INVAL);
    }
    let piece = Segment {
        addr: p.expose_provenance() as u64,
        len: len as u64,
    };
    // SAFETY: the condition above.
    Ok(unsafe { Buffer::of_piece(piece) })
}

/// Memory in pieces that the caller lends for an operation.
///
/// # Safety
/// `iov` is null or points at `count` pieces; of each holds what [`buffer`] asks for.
pub(crate) unsafe fn buffers(iov: *const Iovec, count: usize) -> Outcome<Buffer> {
    if count > MOST_PIECES || (iov.is_null() && count > 0) {
        return Err(errno::INVAL);
    }
    let piece = |index| {
        // SAFETY: there are `count` pieces, by the condition above.
        let piece = unsafe { read(iov.wrapping_add(index)) }.ok_or(errno::INVAL)?;
        Ok((piece.base.cast_const(), piece.len))
    };
    // SAFETY: the condition above.
    unsafe { gathered((0..count).map(piece)) }
}

/// The memory of pieces, each an address and a length, without a list of them where it is one piece.
///
/// # Safety
/// Each piece is what [`buffer`] asks for.
pub(crate) unsafe fn gathered(
    pieces: impl Iterator<Item = Outcome<(*const c_void, usize)>>,
) -> Outcome<Buffer> {
    let mut wrong = None;
    let segments = pieces.map_while(|piece| match piece {
        Ok((base, len)) if !base.is_null() || len == 0 => Some(Segment {
            addr: base.expose_provenance() as u64,
            len: len as u64,
        }),
        other => {
            wrong = Some(other.err().unwrap_or(errno::INVAL));
            None
        }
    });
    // SAFETY: the condition above.
    let gathered = unsafe { Buffer::new(segments) };
    wrong.map_or(gathered.ok_or(errno::INVAL), Err)
}
