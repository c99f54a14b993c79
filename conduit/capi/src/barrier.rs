// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "C calls these entries")]
//! The barrier.

use conduit::{BarrierError, BarrierName, Conduit};
use std::ffi::c_int;

use crate::job::{BARRIER_MISMATCH, NOT_READY, OK};
use crate::ptr::Out;
use crate::{coll, state, trace};

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

/// The result, if the barrier is over.
fn look(call: &str, conduit: &Conduit, id: c_int, flags: c_int) -> Option<c_int> {
    match conduit.barrier_look(name(id, flags)) {
        Ok(false) => None,
        Ok(true) => Some(OK),
        Err(error) => Some(ended(call, Err(error))),
    }
}

/// `gasnet_barrier_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_wait(id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_barrier_wait";
    let since = trace::tracer().map(|t| t.barrier_awaited());
    let mut result = None;
    state::wait(call, |c| {
        result = look(call, c, id, flags);
        result.is_some()
    });
    trace::waited("BARRIER_WAIT", since);
    result.unwrap_or(OK)
}

/// `gasnet_barrier_try`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_try(id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_barrier_try";
    let result = state::attached(call, |c| {
        c.poll();
        coll::progress(c);
        look(call, c, id, flags)
    });
    trace::tried("BARRIER_TRY", result.is_some());
    result.unwrap_or(NOT_READY)
}

/// `gasnet_barrier`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier(id: c_int, flags: c_int) -> c_int {
    gasnet_barrier_notify(id, flags);
    gasnet_barrier_wait(id, flags)
}

/// `gasnet_barrier_result`: whether the last barrier was anonymous; if not, its name.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_result(id: Out<c_int>) -> c_int {
    let last = state::attached("gasnet_barrier_result", Conduit::barrier_result);
    match last {
        Some(BarrierName::Named(name)) => {
            id.set(name);
            0
        }
        _ => 1,
    }
}
