// UNSAFETY: entries that C calls: exported symbols and pointers of the caller.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes pointers of the caller"
)]
//! The clock of an interface, and computing that takes a stated time: extensions of the API.

use portals_shim::ClockKind;
use std::ffi::c_int;

use crate::ptr::Out;
use crate::state;
use crate::types::OK;

/// `PTL_CLOCK_HOST`, `PTL_CLOCK_VIRTUAL`
fn code(kind: ClockKind) -> c_int {
    match kind {
        ClockKind::Wall => 0,
        ClockKind::Virtual => 1,
    }
}

/// `PtlNIClock`
///
/// # Safety
/// `nanoseconds` and `kind` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlNIClock(
    ni_handle: u32,
    nanoseconds: *mut u64,
    kind: *mut c_int,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let nanoseconds = unsafe { Out::new(nanoseconds) }?;
        // SAFETY: the same.
        let kind = unsafe { Out::optional(kind) };
        let open = state::ni(ni_handle)?;
        nanoseconds.set(open.interface.reading()?);
        if let Some(kind) = kind {
            kind.set(code(open.interface.clock()));
        }
        Ok(OK)
    })
}

/// `PtlNICompute`
#[unsafe(no_mangle)]
pub extern "C" fn PtlNICompute(ni_handle: u32, nanoseconds: u64) -> c_int {
    state::entry(|| {
        state::ni(ni_handle)?.interface.compute(nanoseconds)?;
        Ok(OK)
    })
}
