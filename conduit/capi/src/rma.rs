// UNSAFETY: entries that C calls, and memory of the caller that operations use after they return.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and operations use its memory after they return"
)]
//! Puts, gets, memset, values.
//!
//! Every function's condition is the same: the local memory has `nbytes` bytes, readable for a put and writable for a
//! get, and stays so, unchanged by others, until the specification of the call says that it is free.

use conduit::{Conduit, Counted, Handle, RmaError};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

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

/// Whether a transfer is within the own node, and its ranges are not looked at: those of debug builds are.
fn is_own(node: u32, dest: *const c_void, src: *const c_void) -> bool {
    let own = node == state::me() && state::phase() == Phase::Attached;
    own && !state::checked() && !dest.is_null() && !src.is_null()
}

/// A put or get of the own node's memory outside of its segment, which GASNet makes by a copy unless it is a debug build.
macro_rules! own {
    ($node:ident, $dest:ident, $src:ident, $n:ident, $done:expr) => {
        if is_own($node, $dest, $src) {
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

fn memset(
    (call, name): (&str, &'static str),
    counted: Counted,
    (node, dest, value, n): (u32, *mut c_void, c_int, usize),
) -> Handle {
    // SAFETY: no memory is named.
    unsafe { trace::put(name, node, ptr::address(dest), std::ptr::null(), n) };
    let set = |c: &Conduit| c.memset_quietly(node, ptr::address(dest), value as u8, n, counted);
    started(call, state::attached_own(call, set))
}

/// `gasnet_memset`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_memset(node: u32, dest: *mut c_void, value: c_int, n: usize) {
    let call = "gasnet_memset";
    let handle = memset((call, "MEMSET"), Counted::Explicit, (node, dest, value, n));
    sync::wait_handle(call, handle);
}

/// `gasnet_memset_nb`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_memset_nb(
    node: u32,
    dest: *mut c_void,
    value: c_int,
    n: usize,
) -> *mut c_void {
    raw(memset(
        ("gasnet_memset_nb", "MEMSET_NB"),
        Counted::Explicit,
        (node, dest, value, n),
    ))
}

/// `gasnet_memset_nbi`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_memset_nbi(node: u32, dest: *mut c_void, value: c_int, n: usize) {
    let handle = memset(
        ("gasnet_memset_nbi", "MEMSET_NBI"),
        Counted::Implicit,
        (node, dest, value, n),
    );
    debug_assert_eq!(handle, Handle::DONE);
}

/// Bytes of a register.
const REGISTER: usize = size_of::<usize>();

/// Where the low `n` bytes of a register are.
fn low(call: &str, n: usize) -> std::ops::Range<usize> {
    if n == 0 || n > REGISTER {
        state::fatal(&format!("{call}: {n} bytes are not 1 to {REGISTER}"));
    }
    if cfg!(target_endian = "little") {
        0..n
    } else {
        REGISTER - n..REGISTER
    }
}

/// `gasnet_put_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_put_val(node: u32, dest: *mut c_void, value: usize, n: usize) {
    let call = "gasnet_put_val";
    let bytes = value.to_ne_bytes();
    let Some(data) = value_elsewhere((call, "PUT_VAL"), node, dest, &bytes, n) else {
        return;
    };
    let handle = state::attached(call, |c| {
        // SAFETY: the bytes of the value, which stay until the wait below has ended.
        unsafe { c.put_awaited_raw(node, ptr::address(dest), data.as_ptr(), n) }
    });
    sync::wait_handle(call, started(call, handle));
}

/// The bytes of a value that a copy does not put; its lines.
fn value_elsewhere<'b>(
    (call, name): (&str, &'static str),
    node: u32,
    dest: *mut c_void,
    bytes: &'b [u8; REGISTER],
    n: usize,
) -> Option<&'b [u8]> {
    let data = &bytes[low(call, n)];
    let to = ptr::address(dest);
    if state::near().is_some_and(|near| near.put(node, to, data)) {
        return None;
    }
    // SAFETY: the bytes of the value.
    unsafe { trace::put(name, node, to, data.as_ptr().cast(), n) };
    Some(data)
}

fn put_value(
    (call, name): (&str, &'static str),
    node: u32,
    dest: *mut c_void,
    value: usize,
    n: usize,
) -> Handle {
    let bytes = value.to_ne_bytes();
    let Some(data) = value_elsewhere((call, name), node, dest, &bytes, n) else {
        return Handle::DONE;
    };
    let handle = state::attached(call, |c| {
        // SAFETY: the bytes of the value, which are free on return.
        unsafe { c.put_nb_raw(node, ptr::address(dest), data.as_ptr(), n, false) }
    });
    started(call, handle)
}

/// `gasnet_put_nb_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_put_nb_val(
    node: u32,
    dest: *mut c_void,
    value: usize,
    n: usize,
) -> *mut c_void {
    raw(put_value(
        ("gasnet_put_nb_val", "PUT_NB_VAL"),
        node,
        dest,
        value,
        n,
    ))
}

/// `gasnet_put_nbi_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_put_nbi_val(node: u32, dest: *mut c_void, value: usize, n: usize) {
    let call = "gasnet_put_nbi_val";
    let bytes = value.to_ne_bytes();
    let Some(data) = value_elsewhere((call, "PUT_NBI_VAL"), node, dest, &bytes, n) else {
        return;
    };
    let result = state::attached_own(call, |c| {
        // SAFETY: the bytes of the value, which are free on return.
        unsafe { c.put_nbi_raw(node, ptr::address(dest), data.as_ptr(), n, false) }
    });
    started(call, result);
}

/// `gasnet_get_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_get_val(node: u32, src: *mut c_void, n: usize) -> usize {
    let call = "gasnet_get_val";
    let from = ptr::address(src);
    let mut bytes = [0; REGISTER];
    let out = &mut bytes[low(call, n)];
    if state::near().is_some_and(|near| near.get(out, node, from)) {
        return usize::from_ne_bytes(bytes);
    }
    let to = out.as_mut_ptr();
    trace::get("GET_VAL", to.cast(), node, src, n);
    let handle = state::attached(call, |c| {
        // SAFETY: `bytes` is this function's and is not looked at before the wait.
        unsafe { c.get_awaited_raw(to, node, from, n) }
    });
    sync::wait_handle(call, started(call, handle));
    usize::from_ne_bytes(bytes)
}

/// A value on its way: where it arrives stays where it is.
#[derive(Debug, Default)]
struct Value {
    bytes: Box<[u8; REGISTER]>,
    handle: u64,
    used: bool,
}

/// Values on their way, and free places. A handle of a program is an index, counted from 1.
#[derive(Debug)]
struct Values {
    all: Vec<Value>,
    free: Vec<usize>,
}

static VALUES: Mutex<Values> = Mutex::new(Values {
    all: Vec::new(),
    free: Vec::new(),
});

/// `gasnet_get_nb_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_get_nb_val(node: u32, src: *mut c_void, n: usize) -> *mut c_void {
    let call = "gasnet_get_nb_val";
    let range = low(call, n);
    let index = {
        let mut values = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
        let index = values.free.pop().unwrap_or(values.all.len());
        if index == values.all.len() {
            values.all.push(Value::default());
        }
        let value = &mut values.all[index];
        value.used = true;
        *value.bytes = [0; REGISTER];
        (index, value.bytes[range].as_mut_ptr())
    };
    let (index, to) = index;
    trace::get("GET_NB_VAL", to.cast(), node, src, n);
    let handle = state::attached(call, |c| {
        // SAFETY: the box of a value is not moved, and not looked at before the handle is synchronised.
        unsafe { c.get_nb_raw(to, node, ptr::address(src), n) }
    });
    let handle = started(call, handle).into_raw();
    let mut values = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    values.all[index].handle = handle;
    std::ptr::without_provenance_mut(index + 1)
}

/// `gasnet_wait_syncnb_valget`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_wait_syncnb_valget(handle: *mut c_void) -> usize {
    let call = "gasnet_wait_syncnb_valget";
    let bad = "gasnet_wait_syncnb_valget: not a handle of a value";
    let index = handle.addr().wrapping_sub(1);
    let operation = {
        let values = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
        match values.all.get(index) {
            Some(value) if value.used => value.handle,
            _ => state::fatal(bad),
        }
    };
    let since = trace::start();
    sync::wait_handle(call, Handle::from_raw(operation));
    trace::waited("WAIT_SYNCNB_VALGET", since);
    let mut values = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
    values.free.push(index);
    let Some(value) = values.all.get_mut(index) else {
        state::fatal(bad)
    };
    value.used = false;
    usize::from_ne_bytes(*value.bytes)
}
