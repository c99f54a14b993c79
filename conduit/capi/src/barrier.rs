// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "entries for C; see the line above")]
//! The barrier.

use conduit::{BarrierError, BarrierName, Conduit};
use std::ffi::c_int;

use crate::job::{BARRIER_MISMATCH, NOT_READY, OK};
use crate::{coll, ptr, state};

/// `GASNET_BARRIERFLAG_ANONYMOUS`.
const ANONYMOUS: c_int = 1;
/// `GASNET_BARRIERFLAG_MISMATCH`.
const MISMATCH: c_int = 2;

pub(crate) fn name(id: c_int, flags: c_int) -> BarrierName {
    if flags & MISMATCH != 0 {
        BarrierName::Mismatch
    } else if flags & ANONYMOUS != 0 {
        BarrierName::Anonymous
    } else {
        BarrierName::Named(id)
    }
}

fn ended(call: &str, result: Result<(), BarrierError>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(BarrierError::Mismatch) => BARRIER_MISMATCH,
        Err(error) => state::fatal(&format!("{call}: {error}")),
    }
}

/// `gasnet_barrier_notify`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_notify(id: c_int, flags: c_int) {
    let call = "gasnet_barrier_notify";
    let result = state::attached(call, |c| c.barrier_notify(name(id, flags)));
    ended(call, result);
}

fn try_once(call: &str, conduit: &Conduit, id: c_int, flags: c_int) -> Option<c_int> {
    coll::progress(conduit);
    match conduit.barrier_try(name(id, flags)) {
        Ok(false) => None,
        Ok(true) => Some(OK),
        Err(error) => Some(ended(call, Err(error))),
    }
}

/// `gasnet_barrier_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_wait(id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_barrier_wait";
    if !state::is_par() && !coll::active() {
        return ended(
            call,
            state::attached(call, |c| c.barrier_wait(name(id, flags))),
        );
    }
    loop {
        if let Some(code) = state::attached(call, |c| try_once(call, c, id, flags)) {
            return code;
        }
        std::thread::yield_now();
    }
}

/// `gasnet_barrier_try`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_try(id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_barrier_try";
    state::attached(call, |c| try_once(call, c, id, flags)).unwrap_or(NOT_READY)
}

/// `gasnet_barrier`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier(id: c_int, flags: c_int) -> c_int {
    gasnet_barrier_notify(id, flags);
    gasnet_barrier_wait(id, flags)
}

/// `gasnet_barrier_result`: whether the last barrier was anonymous; if not, its name.
///
/// # Safety
/// `id` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_barrier_result(id: *mut c_int) -> c_int {
    let last = state::attached("gasnet_barrier_result", Conduit::barrier_result);
    match last {
        Some(BarrierName::Named(name)) => {
            if !id.is_null() {
                // SAFETY: not null, so it may be written by the condition of this function.
                unsafe { ptr::set(id, 0, name) };
            }
            0
        }
        _ => 1,
    }
}
