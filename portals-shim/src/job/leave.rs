// UNSAFETY: what must happen when the process exits is registered with the C library.
#![expect(
    unsafe_code,
    reason = "registers what happens at exit with the C library, whose atexit is an unsafe call"
)]
//! A rank that exits without leaving its job.
//!
//! `portolan run`, Hydra and launchers of PMIx notice it. Slurm's PMI-2 does not: the other ranks would
//! wait for ever. So a rank of such a launcher aborts the job itself when it exits with whatever status
//! and has not finalized.

use std::sync::{Mutex, OnceLock, PoisonError, Weak};

use super::space::Space;

/// The key space of the job that this process has joined and not left.
static JOINED: Mutex<Weak<Space>> = Mutex::new(Weak::new());

/// Registers the end of this process, once.
static REGISTERED: OnceLock<bool> = OnceLock::new();

/// From now on an exit of this process aborts the job of `space`.
pub(super) fn watch(space: Weak<Space>) {
    *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = space;
    let registered = REGISTERED.get_or_init(|| {
        // SAFETY: the function has C's calling convention, takes nothing, and lives as long as the process.
        unsafe { libc::atexit(at_exit) == 0 }
    });
    if !registered {
        tracing::warn!("an exit of this rank that is not in good order may go unnoticed");
    }
}

/// From now on this process may exit.
pub(super) fn forget() {
    *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
}

extern "C" fn at_exit() {
    // A thread that holds the lock at this moment is joining or leaving.
    let Ok(joined) = JOINED.try_lock() else {
        return;
    };
    if let Some(space) = joined.upgrade() {
        space.abort(1, "exited without leaving the job");
    }
}
