// UNSAFETY: what must happen when the process exits is registered with the C library.
#![expect(
    unsafe_code,
    reason = "registers what happens at exit with the C library, whose on_exit is an unsafe call"
)]
//! A rank that exits without leaving its job.
//!
//! `portolan run`, Hydra and Open MPI notice it. Slurm, by PMI-2 or PMIx, does not where the status is 0: the other
//! ranks would wait for ever. So a rank of such a launcher aborts the job itself when it exits with whatever status
//! and has not finalized. A forked child has its parent's exit handlers, and is no rank: it has its parent's lines too,
//! and says nothing over them.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::space::Space;

/// The job that this process, or one that it was forked from, has joined and not left.
#[derive(Debug)]
struct Joined {
    process: u32,
    space: Weak<Space>,
}

impl Joined {
    const NONE: Self = Self {
        process: 0,
        space: Weak::new(),
    };

    /// What is to be aborted when `process` exits with `status`, and with which status.
    fn aborted(&self, process: u32, status: c_int) -> Option<(Arc<Space>, c_int)> {
        let space = self.space.upgrade().filter(|_| self.process == process)?;
        // Whoever waits for the process is told the low eight bits.
        let code = match status & 0xff {
            0 => 1,
            code => code,
        };
        Some((space, code))
    }
}

static JOINED: Mutex<Joined> = Mutex::new(Joined::NONE);

/// Registers the end of this process, once.
static REGISTERED: OnceLock<bool> = OnceLock::new();

unsafe extern "C" {
    fn on_exit(
        function: extern "C" fn(status: c_int, argument: *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
}

/// The process that has joined a job over a line of its own; 0: none.
static RANK: AtomicU32 = AtomicU32::new(0);

/// This process was made by `fork` from one that has joined. Numbers of processes do not tell: a child in a name space
/// of its own may have its parent's.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Marks this process as a rank, so that its children know that they are none.
pub(super) fn become_rank() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    if RANK.swap(std::process::id(), Ordering::Relaxed) == 0 {
        // SAFETY: the function stores to an atomic, which the child of a process with threads may do, and lives as long
        // as the program.
        if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
            tracing::debug!("children of this rank are known by their numbers only");
        }
    }
}

/// Whether this process is a child, by `fork` or `vfork`, of one that has joined a job, and not that itself. May be called
/// anywhere, by handlers of signals too.
pub fn is_child_of_rank() -> bool {
    let rank = RANK.load(Ordering::Relaxed);
    FORKED.load(Ordering::Relaxed) || (rank != 0 && rank != std::process::id())
}

/// From now on an exit of this process aborts the job of `space`.
pub(super) fn watch(space: Weak<Space>) {
    *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = Joined {
        process: std::process::id(),
        space,
    };
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
    *JOINED.lock().unwrap_or_else(PoisonError::into_inner) = Joined::NONE;
}

extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    // A thread that holds the lock at this moment is joining or leaving.
    let Ok(joined) = JOINED.try_lock() else {
        return;
    };
    if is_child_of_rank() {
        return;
    }
    if let Some((space, code)) = joined.aborted(std::process::id(), status) {
        space.abort(code, "exited without leaving the job");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_has_joined_aborts_and_not_its_child() {
        let space = Arc::new(Space::Own(Mutex::default()));
        let joined = Joined {
            process: 7,
            space: Arc::downgrade(&space),
        };
        let code = |process, status| joined.aborted(process, status).map(|(_, code)| code);
        assert_eq!((code(7, 3), code(8, 3)), (Some(3), None));
        // No status says that all is well.
        assert_eq!((code(7, 0), code(7, 256)), (Some(1), Some(1)));
        drop(space);
        assert_eq!(code(7, 3), None);
    }
}
