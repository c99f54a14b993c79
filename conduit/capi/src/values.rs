// UNSAFETY: entries that C calls, and values that arrive after a call returned.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and values arrive after they return"
)]
//! Puts and gets of values that fit a register.

use conduit::Handle;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::ptr::{Count, Incoming, Outgoing, Remote};
use crate::rma::{own, raw, started};
use crate::{state, sync, trace};

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

/// Puts a value by a copy, or by `far`, which is given its bytes and returns when they may change.
#[inline]
fn put_value<R>(
    (call, name): (&str, &'static str),
    (node, dest): (u32, Remote),
    (value, n): (usize, Count),
    far: impl FnOnce(Outgoing) -> R,
) -> Option<R> {
    let bytes = value.to_ne_bytes();
    let data = &bytes[low(call, n.get())];
    let to = dest.address();
    if state::near().is_some_and(|near| near.put(node, to, data)) {
        return None;
    }
    // SAFETY: the bytes of this function, which stay until `far` returns.
    let from = unsafe { Outgoing::lent(data) };
    trace::put(name, node, to, from);
    if let Some(own) = own(node, dest, n) {
        own.write(data);
        return None;
    }
    Some(far(from))
}

/// `gasnet_put_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_put_val(node: u32, dest: Remote, value: usize, n: Count) {
    let call = "gasnet_put_val";
    let far = |data: Outgoing| {
        let handle = state::attached(call, |c| data.put_awaited(c, node, dest.address()));
        sync::wait_handle(call, started(call, handle));
    };
    let _ = put_value((call, "PUT_VAL"), (node, dest), (value, n), far);
}

/// `gasnet_put_nb_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_put_nb_val(
    node: u32,
    dest: Remote,
    value: usize,
    n: Count,
) -> *mut c_void {
    let call = "gasnet_put_nb_val";
    // Without `bulk` the bytes are free on return.
    let far = |data: Outgoing| {
        let handle = state::attached(call, |c| data.put_nb(c, node, dest.address(), false));
        started(call, handle)
    };
    let handle = put_value((call, "PUT_NB_VAL"), (node, dest), (value, n), far);
    raw(handle.unwrap_or(Handle::DONE))
}

/// `gasnet_put_nbi_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_put_nbi_val(node: u32, dest: Remote, value: usize, n: Count) {
    let call = "gasnet_put_nbi_val";
    // Without `bulk` the bytes are free on return.
    let far = |data: Outgoing| {
        let result = state::attached_own(call, |c| data.put_nbi(c, node, dest.address(), false));
        started(call, result);
    };
    let _ = put_value((call, "PUT_NBI_VAL"), (node, dest), (value, n), far);
}

/// `gasnet_get_val`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_get_val(node: u32, src: Remote, n: Count) -> usize {
    let call = "gasnet_get_val";
    let from = src.address();
    let mut bytes = [0; REGISTER];
    let out = &mut bytes[low(call, n.get())];
    if state::near().is_some_and(|near| near.get(out, node, from)) {
        return usize::from_ne_bytes(bytes);
    }
    // SAFETY: the bytes are this function's and are not looked at before the wait.
    let into = unsafe { Incoming::lent(out) };
    trace::get("GET_VAL", into, node, from);
    if let Some(own) = own(node, src, n) {
        own.get(into);
        return usize::from_ne_bytes(bytes);
    }
    let handle = state::attached(call, |c| into.get_awaited(c, node, from));
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
pub extern "C" fn gasnet_get_nb_val(node: u32, src: Remote, n: Count) -> *mut c_void {
    let call = "gasnet_get_nb_val";
    let range = low(call, n.get());
    let (index, into) = {
        let mut values = VALUES.lock().unwrap_or_else(PoisonError::into_inner);
        let index = values.free.pop().unwrap_or(values.all.len());
        if index == values.all.len() {
            values.all.push(Value::default());
        }
        let value = &mut values.all[index];
        value.used = true;
        *value.bytes = [0; REGISTER];
        // SAFETY: the box of a value is not moved, and not looked at before the handle is synchronised.
        (index, unsafe { Incoming::lent(&mut value.bytes[range]) })
    };
    trace::get("GET_NB_VAL", into, node, src.address());
    let handle = if let Some(own) = own(node, src, n) {
        own.get(into);
        Handle::DONE
    } else {
        let handle = state::attached(call, |c| into.get_nb(c, node, src.address()));
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
