// UNSAFETY: entries that C calls: exported symbols and pointers of the caller.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes pointers of the caller"
)]
//! `PtlInit`, `PtlFini`.

use portals_shim::Error;
use std::ffi::c_int;

use crate::ptr::Out;
use crate::types::OK;
use crate::{job, state};

/// What `PtlInit` does.
pub(crate) fn initialise() -> Result<(), Error> {
    job::watch_forks();
    state::initialise()
}

/// `PtlInit`. A repeat call may pass NULL.
///
/// # Safety
/// `max_interfaces` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlInit(max_interfaces: *mut c_int) -> c_int {
    state::entry(|| {
        // SAFETY: the condition of this function.
        let out = unsafe { Out::optional(max_interfaces) };
        if out.is_none() && state::initialised().is_err() {
            return Err(Error::Segv);
        }
        initialise()?;
        if let Some(out) = out {
            out.set(state::MAX_INTERFACES);
        }
        Ok(OK)
    })
}

/// `PtlFini`: closes every interface. The job goes on, so that the library can be initialised
/// again; it ends with the process.
#[unsafe(no_mangle)]
pub extern "C" fn PtlFini() {
    state::guarded((), || {
        for open in state::finalise() {
            state::leave(&open.interface);
        }
    });
}
