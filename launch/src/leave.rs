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
//!
//! A rank whose [`Job`](super::Job) was dropped leaves at its exit, and not before: only its status says whether it left in
//! good order. A program that returns an error from `main` drops its job first. Until then the line to the launcher stays
//! open, since a rank that closes its line has failed.
//!
//! A forked child has its parent's exit handlers, and is no rank: it has its parent's lines too,
//! and says nothing over them.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::space::Space;

/// The job that this process, or one that it was forked from, has joined and not left.
#[derive(Debug)]
struct Joined {
    process: u32,
    /// To be aborted at an exit without leaving, as nobody else notices that.
    watched: Weak<Space>,
    /// The job was dropped, and whether in good order.
    dropped: Option<(Arc<Space>, bool)>,
}

/// What becomes of a job at the exit of its rank.
#[derive(Debug)]
enum Exit {
    /// The rank leaves in good order.
    Leave(Arc<Space>),
    /// It has failed with this status, and the launcher has to be asked to end the job.
    Abort(Arc<Space>, c_int),
}

impl Joined {
    const NONE: Self = Self {
        process: 0,
        watched: Weak::new(),
        dropped: None,
    };

    /// What is to be done when `process` exits with `status`.
    fn exit(&self, process: u32, status: c_int) -> Option<Exit> {
        if self.process != process {
            return None;
        }
        // Whoever waits for the process is told the low eight bits.
        let code = status & 0xff;
        match &self.dropped {
            Some((space, true)) if code == 0 => Some(Exit::Leave(Arc::clone(space))),
            // A launcher that sees the line close first knows no status: Hydra then gives its own.
            Some((space, _)) => Some(Exit::Abort(Arc::clone(space), code.max(1))),
            None => Some(Exit::Abort(self.watched.upgrade()?, code.max(1))),
        }
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

/// The process that has joined a job; 0: none.
static RANK: AtomicU32 = AtomicU32::new(0);

/// This process was made by `fork` from one that has joined. Numbers of processes do not tell: a child in a name space
/// of its own may have its parent's.
static FORKED: AtomicBool = AtomicBool::new(false);

/// This process, or one that it was forked from, has joined over lines of a launcher: its children have them too, and must
/// not come to use them.
static LINES: AtomicBool = AtomicBool::new(false);

/// What the kernel's copy of this process does first.
pub(super) extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Marks this process as the rank of a job of its own, without a launcher. A child of such a rank may have one too.
pub(super) fn become_single() {
    if !LINES.load(Ordering::Relaxed) {
        FORKED.store(false, Ordering::Relaxed);
        mark();
    }
}

/// Marks this process as a rank, so that its children know that they are none.
pub(super) fn become_rank() {
    LINES.store(true, Ordering::Relaxed);
    FORKED.store(false, Ordering::Relaxed);
    mark();
}

fn mark() {
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

fn joined() -> MutexGuard<'static, Joined> {
    JOINED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register() {
    let registered = REGISTERED.get_or_init(|| {
        // SAFETY: the function is of the type that is asked for, takes a null argument, and lives as long as the process.
        unsafe { on_exit(at_exit, std::ptr::null_mut()) == 0 }
    });
    if !registered {
        tracing::warn!("what this rank's exit means may go unnoticed");
    }
}

/// From now on an exit of this process aborts the job of `space`.
pub(super) fn watch(space: Weak<Space>) {
    *joined() = Joined {
        process: std::process::id(),
        watched: space,
        dropped: None,
    };
    register();
}

/// The job of `space` was dropped without having been left, which is `well` but for a panic: from now on an exit of this process
/// with status 0 leaves it then, and one with another status aborts it.
pub(super) fn at_exit_of(space: Arc<Space>, well: bool) {
    if is_child_of_rank() {
        return;
    }
    let mut joined = joined();
    joined.process = std::process::id();
    joined.dropped = Some((space, well));
    drop(joined);
    register();
}

/// From now on this process may exit.
pub(super) fn forget() {
    *joined() = Joined::NONE;
}

extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    // A thread that holds the lock at this moment is joining or leaving.
    let Ok(joined) = JOINED.try_lock() else {
        return;
    };
    if is_child_of_rank() {
        return;
    }
    match joined.exit(std::process::id(), status) {
        // A launcher that does not take it is gone, or sees a rank that has not left.
        Some(Exit::Leave(space)) => drop(space.finalize("leave the job")),
        Some(Exit::Abort(space, code)) => space.abort(code, "exited without leaving the job"),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Arc<Space> {
        Arc::new(Space::Own(Mutex::default()))
    }

    fn code(joined: &Joined, process: u32, status: c_int) -> Option<c_int> {
        match joined.exit(process, status) {
            Some(Exit::Abort(_, code)) => Some(code),
            Some(Exit::Leave(_)) => Some(0),
            None => None,
        }
    }

    #[test]
    fn the_process_that_has_joined_aborts_and_not_its_child() {
        let space = space();
        let joined = Joined {
            process: 7,
            watched: Arc::downgrade(&space),
            dropped: None,
        };
        assert_eq!((code(&joined, 7, 3), code(&joined, 8, 3)), (Some(3), None));
        // No status says that all is well.
        assert_eq!(
            (code(&joined, 7, 0), code(&joined, 7, 256)),
            (Some(1), Some(1))
        );
        drop(space);
        assert_eq!(code(&joined, 7, 3), None);
    }

    #[test]
    fn a_job_that_was_dropped_is_left_by_an_exit_with_status_0_alone() {
        let space = space();
        // Whether its launcher notices by itself that a rank fails or not: it may notice first that the line is closed.
        let dropped = |watched: Weak<Space>, well| Joined {
            process: 7,
            watched,
            dropped: Some((Arc::clone(&space), well)),
        };
        let ends = |joined: &Joined| [0, 256, 3].map(|status| code(joined, 7, status));
        let watched = Arc::downgrade(&space);
        for watched in [watched.clone(), Weak::new()] {
            assert_eq!(
                ends(&dropped(watched.clone(), true)),
                [Some(0), Some(0), Some(3)]
            );
            assert_eq!(ends(&dropped(watched, false)), [Some(1), Some(1), Some(3)]);
        }
        assert_eq!(code(&dropped(watched, true), 8, 0), None);
    }
}
