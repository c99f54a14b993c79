// UNSAFETY: entries that C calls, memory of the own node named by its address, and values that arrive after a call returned.
#![expect(
    unsafe_code,
    reason = "C calls these entries and names memory by its address, and values arrive after they return"
)]
//! Puts and gets of values that fit a register.
//!
//! The condition of each is that memory of the own node which it names may be used as the call says.

use conduit::Handle;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::rma::{is_own_at, raw, started};
use crate::{ptr, state, sync, trace};

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

/// Puts a value by a copy, or by `far`, which is given where its bytes are while it runs.
///
/// # Safety
/// Memory at `dest`, if it is of the own node, may be written.
#[inline]
unsafe fn put_value<R>(
    (call, name): (&str, &'static str),
    (node, dest): (u32, *mut c_void),
    (value, n): (usize, usize),
    far: impl FnOnce(*const u8) -> R,
) -> Option<R> {
    let bytes = value.to_ne_bytes();
    let data = &bytes[low(call, n)];
    let to = ptr::address(dest);
    if state::near().is_some_and(|near| near.put(node, to, data)) {
        return None;
    }
    // SAFETY: the bytes of the value.
    unsafe { trace::put(name, node, to, data.as_ptr().cast(), n) };
    if is_own_at(node, dest) {
        // SAFETY: the condition of this function.
        unsafe { std::ptr::copy(data.as_ptr(), dest.cast(), n) };
        return None;
    }
    Some(far(data.as_ptr()))
}

/// `gasnet_put_val`.
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_put_val(node: u32, dest: *mut c_void, value: usize, n: usize) {
    let call = "gasnet_put_val";
    let far = |data| {
        let handle = state::attached(call, |c| {
            // SAFETY: the bytes of the value, which stay until the wait below has ended.
            unsafe { c.put_awaited_raw(node, ptr::address(dest), data, n) }
        });
        sync::wait_handle(call, started(call, handle));
    };
    // SAFETY: the condition of this function.
    let _ = unsafe { put_value((call, "PUT_VAL"), (node, dest), (value, n), far) };
}

/// `gasnet_put_nb_val`.
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_put_nb_val(
    node: u32,
    dest: *mut c_void,
    value: usize,
    n: usize,
) -> *mut c_void {
    let call = "gasnet_put_nb_val";
    let far = |data| {
        let handle = state::attached(call, |c| {
            // SAFETY: the bytes of the value, which are free on return.
            unsafe { c.put_nb_raw(node, ptr::address(dest), data, n, false) }
        });
        started(call, handle)
    };
    // SAFETY: the condition of this function.
    let handle = unsafe { put_value((call, "PUT_NB_VAL"), (node, dest), (value, n), far) };
    raw(handle.unwrap_or(Handle::DONE))
}

/// `gasnet_put_nbi_val`.
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_put_nbi_val(node: u32, dest: *mut c_void, value: usize, n: usize) {
    let call = "gasnet_put_nbi_val";
    let far = |data| {
        let result = state::attached_own(call, |c| {
            // SAFETY: the bytes of the value, which are free on return.
            unsafe { c.put_nbi_raw(node, ptr::address(dest), data, n, false) }
        });
        started(call, result);
    };
    // SAFETY: the condition of this function.
    let _ = unsafe { put_value((call, "PUT_NBI_VAL"), (node, dest), (value, n), far) };
}

/// `gasnet_get_val`.
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_get_val(node: u32, src: *mut c_void, n: usize) -> usize {
    let call = "gasnet_get_val";
    let from = ptr::address(src);
    let mut bytes = [0; REGISTER];
    let out = &mut bytes[low(call, n)];
    if state::near().is_some_and(|near| near.get(out, node, from)) {
        return usize::from_ne_bytes(bytes);
    }
    let to = out.as_mut_ptr();
    trace::get("GET_VAL", to.cast(), node, src, n);
    if is_own_at(node, src) {
        // SAFETY: the condition of this function; `bytes` is this function's.
        unsafe { std::ptr::copy(src.cast(), to, n) };
        return usize::from_ne_bytes(bytes);
    }
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
///
/// # Safety
/// See the head of this file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_get_nb_val(node: u32, src: *mut c_void, n: usize) -> *mut c_void {
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
    let handle = if is_own_at(node, src) {
        // SAFETY: the condition of this function; the box of a value is not moved, and is this call's so far.
        unsafe { std::ptr::copy(src.cast(), to, n) };
        Handle::DONE
    } else {
        let handle = state::attached(call, |c| {
            // SAFETY: the box of a value is not moved, and not looked at before the handle is synchronised.
            unsafe { c.get_nb_raw(to, node, ptr::address(src), n) }
        });
        started(call, handle)
    };
    let handle = handle.into_raw();
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
