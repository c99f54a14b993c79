// UNSAFETY: what must happen when the process exits is registered with the C library.
#![expect(
    unsafe_code,
    reason = "registers what happens at exit with the C library, whose on_exit is an unsafe call"
)]
//! A rank that exits without leaving its job.
//!
//! `portolan run`, Hydra and Open MPI notice it. Slurm, by PMI-2 or PMIx, does not where the status is 0: the other
//! ranks would wait for ever. So a rank of such a launcher aborts the job itself when it exits with whatever status
//! and has not finalized.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};

use super::space::Space;

/// The key space of the job that this process has joined and not left.
static JOINED: Mutex<Weak<Space>> = Mutex::new(Weak::new());

/// Registers the end of this process, once.
static REGISTERED: OnceLock<bool> = OnceLock::new();

unsafe extern "C" {
    fn on_exit(
        function: extern "C" fn(status: c_int, argument: *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
}

/// From now on an exit of this process aborts the job of `space`.
pub(super) fn watch(space: Weak<Space>) {
    *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = space;
    let registered = REGISTERED.get_or_init(|| {
        // SAFETY: the function is of the type that is asked for, takes a null argument, and lives as long as the process.
        unsafe { on_exit(at_exit, std::ptr::null_mut()) == 0 }
    });
    if !registered {
        tracing::warn!("an exit of this rank that is not in good order may go unnoticed");
    }
}

/// From now on this process may exit.
pub(super) fn forget() {
    *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
}

extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    // A thread that holds the lock at this moment is joining or leaving.
    let Ok(joined) = JOINED.try_lock() else {
        return;
    };
    if let Some(space) = joined.upgrade() {
        let code = if status == 0 { 1 } else { status };
        space.abort(code, "exited without leaving the job");
    }
}
