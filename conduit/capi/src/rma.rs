// UNSAFETY: entries that C calls, and memory of the caller that operations use after they return.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and operations use its memory after they return"
)]
//! Puts, gets, memset.
//!
//! Every function's condition is the same: the local memory has `nbytes` bytes, readable for a put and writable for a
//! get, and stays so, unchanged by others, until the specification of the call says that it is free.

use conduit::{Conduit, Counted, Handle, RmaError};
use std::ffi::{c_int, c_void};

use crate::state::Phase;
use crate::{ptr, state, sync, trace};

/// The result of starting an operation.
pub(crate) fn started<R>(call: &str, result: Result<R, RmaError>) -> R {
    match result {
        Ok(value) => value,
        Err(error) => state::fatal(&format!("{call}: {error}")),
    }
}

/// A handle as C has it.
pub(crate) fn raw(handle: Handle) -> *mut c_void {
    std::ptr::without_provenance_mut(handle.into_raw() as usize)
}

/// In debug builds, that both addresses of a call without `bulk` suit an object of its size.
fn aligned(call: &str, len: usize, addresses: [u64; 2]) {
    if state::checked()
        && matches!(len, 2 | 4 | 8)
        && addresses.iter().any(|a| !a.is_multiple_of(len as u64))
    {
        state::fatal(&format!("{call}: an address is not a multiple of {len}"));
    }
}

/// A put or get that needs nothing but a bounds check and a copy.
macro_rules! near {
    ($method:ident($($argument:expr),*)) => {
        // SAFETY: the condition of the function that this is in.
        state::near().is_some_and(|n| unsafe { n.$method($($argument),*) })
    };
}

/// Whether a call's memory at `node` is that of the own node and not looked at, as ranges of debug builds are.
pub(crate) fn is_own(node: u32) -> bool {
    // Up to the end: another thread may be about to end the process.
    node == state::me() && state::phase() >= Phase::Attached && !state::checked()
}

/// Whether the address is the own rank's ([`is_own`]), in a call for which null is wrong.
pub(crate) fn is_own_at<T>(node: u32, there: *const T) -> bool {
    is_own(node) && !there.is_null()
}

/// A put or get of the own node's memory outside of its segment, which GASNet makes by a copy unless it is a debug build.
macro_rules! own {
    ($node:ident, $dest:ident, $src:ident, $n:ident, $done:expr) => {
        if is_own_at($node, $dest) && !$src.is_null() {
            // SAFETY: the condition of the function that this is in; the ranges may overlap.
            unsafe { std::ptr::copy($src.cast::<u8>(), $dest.cast::<u8>(), $n) };
            return $done;
        }
    };
}

macro_rules! puts {
    ($blocking:ident, $nb:ident, $nbi:ident, $bulk:literal, $names:expr) => {
        #[doc = concat!("`", stringify!($blocking), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $blocking(
            node: u32,
            dest: *mut c_void,
            src: *mut c_void,
            n: usize,
        ) {
            let call = stringify!($blocking);
            let to = ptr::address(dest);
            if near!(put_raw(node, to, src.cast(), n)) {
                return;
            }
            if !$bulk {
                aligned(call, n, [to, ptr::address(src)]);
            }
            // SAFETY: the condition of this function.
            unsafe { trace::put($names[0], node, to, src, n) };
            own!(node, dest, src, n, ());
            let handle = state::attached(call, |c| {
                // SAFETY: the condition of this function; the memory is free when this returns.
                unsafe { c.put_awaited_raw(node, to, src.cast(), n) }
            });
            sync::wait_handle(call, started(call, handle));
        }

        #[doc = concat!("`", stringify!($nb), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $nb(
            node: u32,
            dest: *mut c_void,
            src: *mut c_void,
            n: usize,
        ) -> *mut c_void {
            let call = stringify!($nb);
            let to = ptr::address(dest);
            if near!(put_raw(node, to, src.cast(), n)) {
                return std::ptr::null_mut();
            }
            if !$bulk {
                aligned(call, n, [to, ptr::address(src)]);
            }
            // SAFETY: the condition of this function.
            unsafe { trace::put($names[1], node, to, src, n) };
            own!(node, dest, src, n, std::ptr::null_mut());
            let handle = state::attached(call, |c| {
                // SAFETY: the condition of this function.
                unsafe { c.put_nb_raw(node, to, src.cast(), n, $bulk) }
            });
            raw(started(call, handle))
        }

        #[doc = concat!("`", stringify!($nbi), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $nbi(node: u32, dest: *mut c_void, src: *mut c_void, n: usize) {
            let call = stringify!($nbi);
            let to = ptr::address(dest);
            if near!(put_raw(node, to, src.cast(), n)) {
                return;
            }
            if !$bulk {
                aligned(call, n, [to, ptr::address(src)]);
            }
            // SAFETY: the condition of this function.
            unsafe { trace::put($names[2], node, to, src, n) };
            own!(node, dest, src, n, ());
            let result = state::attached_own(call, |c| {
                // SAFETY: the condition of this function.
                unsafe { c.put_nbi_raw(node, to, src.cast(), n, $bulk) }
            });
            started(call, result);
        }
    };
}

macro_rules! gets {
    ($blocking:ident, $nb:ident, $nbi:ident, $bulk:literal, $names:expr) => {
        #[doc = concat!("`", stringify!($blocking), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $blocking(
            dest: *mut c_void,
            node: u32,
            src: *mut c_void,
            n: usize,
        ) {
            let call = stringify!($blocking);
            let from = ptr::address(src);
            if near!(get_raw(dest.cast(), node, from, n)) {
                return;
            }
            if !$bulk {
                aligned(call, n, [ptr::address(dest), from]);
            }
            trace::get($names[0], dest, node, src, n);
            own!(node, dest, src, n, ());
            let handle = state::attached(call, |c| {
                // SAFETY: the condition of this function.
                unsafe { c.get_awaited_raw(dest.cast(), node, from, n) }
            });
            sync::wait_handle(call, started(call, handle));
        }

        #[doc = concat!("`", stringify!($nb), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $nb(
            dest: *mut c_void,
            node: u32,
            src: *mut c_void,
            n: usize,
        ) -> *mut c_void {
            let call = stringify!($nb);
            let from = ptr::address(src);
            if near!(get_raw(dest.cast(), node, from, n)) {
                return std::ptr::null_mut();
            }
            if !$bulk {
                aligned(call, n, [ptr::address(dest), from]);
            }
            trace::get($names[1], dest, node, src, n);
            own!(node, dest, src, n, std::ptr::null_mut());
            let handle = state::attached(call, |c| {
                // SAFETY: the condition of this function.
                unsafe { c.get_nb_raw(dest.cast(), node, from, n) }
            });
            raw(started(call, handle))
        }

        #[doc = concat!("`", stringify!($nbi), "`.")]
        ///
        /// # Safety
        /// See the head of this file.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $nbi(dest: *mut c_void, node: u32, src: *mut c_void, n: usize) {
            let call = stringify!($nbi);
            let from = ptr::address(src);
            if near!(get_raw(dest.cast(), node, from, n)) {
                return;
            }
            if !$bulk {
                aligned(call, n, [ptr::address(dest), from]);
            }
            trace::get($names[2], dest, node, src, n);
            own!(node, dest, src, n, ());
            let result = state::attached_own(call, |c| {
                // SAFETY: the condition of this function.
                unsafe { c.get_nbi_raw(dest.cast(), node, from, n) }
            });
            started(call, result);
        }
    };
}

puts!(
    gasnet_put,
    gasnet_put_nb,
    gasnet_put_nbi,
    false,
    ["PUT", "PUT_NB", "PUT_NBI"]
);
puts!(
    gasnet_put_bulk,
    gasnet_put_nb_bulk,
    gasnet_put_nbi_bulk,
    true,
    ["PUT_BULK", "PUT_NB_BULK", "PUT_NBI_BULK"]
);
gets!(
    gasnet_get,
    gasnet_get_nb,
    gasnet_get_nbi,
    false,
    ["GET", "GET_NB", "GET_NBI"]
);
gets!(
    gasnet_get_bulk,
    gasnet_get_nb_bulk,
    gasnet_get_nbi_bulk,
    true,
    ["GET_BULK", "GET_NB_BULK", "GET_NBI_BULK"]
);

/// # Safety
/// See the head of this file.
unsafe fn memset(
    (call, name): (&str, &'static str),
    counted: Counted,
    (node, dest, value, n): (u32, *mut c_void, c_int, usize),
) -> Handle {
    // SAFETY: no memory is named.
    unsafe { trace::put(name, node, ptr::address(dest), std::ptr::null(), n) };
    if is_own_at(node, dest) {
        // SAFETY: the condition of this function: of a memset the memory there is local too.
        unsafe { dest.cast::<u8>().write_bytes(value as u8, n) };
        return Handle::DONE;
    }
    let set = |c: &Conduit| c.memset_quietly(node, ptr::address(dest), value as u8, n, counted);
    started(call, state::attached_own(call, set))
}

/// `gasnet_memset`.
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_memset(node: u32, dest: *mut c_void, value: c_int, n: usize) {
    let call = "gasnet_memset";
    let names = (call, "MEMSET");
    // SAFETY: the condition of this function.
    let handle = unsafe { memset(names, Counted::Explicit, (node, dest, value, n)) };
    sync::wait_handle(call, handle);
}

/// `gasnet_memset_nb`.
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_memset_nb(
    node: u32,
    dest: *mut c_void,
    value: c_int,
    n: usize,
) -> *mut c_void {
    let names = ("gasnet_memset_nb", "MEMSET_NB");
    // SAFETY: the condition of this function.
    raw(unsafe { memset(names, Counted::Explicit, (node, dest, value, n)) })
}

/// `gasnet_memset_nbi`.
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_memset_nbi(node: u32, dest: *mut c_void, value: c_int, n: usize) {
    let names = ("gasnet_memset_nbi", "MEMSET_NBI");
    // SAFETY: the condition of this function.
    let handle = unsafe { memset(names, Counted::Implicit, (node, dest, value, n)) };
    debug_assert_eq!(handle, Handle::DONE);
}
