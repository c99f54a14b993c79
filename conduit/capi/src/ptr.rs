// UNSAFETY: a C caller's pointers are bare addresses; here they become slices and values.
#![expect(unsafe_code, reason = "a C caller's pointers become slices and values")]
//! Memory of a C caller.

use std::ffi::c_void;

use crate::state;

/// The bytes at `p`; none for a length of 0, whatever `p` is.
///
/// # Safety
/// `len` bytes at `p` are readable and not written while the result is in use.
pub(crate) unsafe fn bytes<'a>(p: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 || p.is_null() {
        return &[];
    }
    // SAFETY: the condition of this function; not null.
    unsafe { std::slice::from_raw_parts(p.cast(), len) }
}

/// Ends the process where a call names an array of `count` elements by null.
pub(crate) fn given<T>(call: &str, array: *const T, count: usize) {
    if count > 0 && array.is_null() {
        state::fatal(&format!("{call}: NULL for {count} elements"));
    }
}

/// Element `i` of an array.
///
/// # Safety
/// The array has more than `i` elements.
pub(crate) unsafe fn at<T: Copy>(p: *const T, i: usize) -> T {
    // SAFETY: the condition of this function.
    unsafe { p.wrapping_add(i).read_unaligned() }
}

/// Stores element `i` of an array.
///
/// # Safety
/// The array has more than `i` elements, which may be written.
pub(crate) unsafe fn set<T>(p: *mut T, i: usize, value: T) {
    // SAFETY: the condition of this function.
    unsafe { p.wrapping_add(i).write_unaligned(value) };
}

/// The number an address is.
pub(crate) fn address<T>(p: *const T) -> u64 {
    p.expose_provenance() as u64
}
