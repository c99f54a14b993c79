// UNSAFETY: what happens at exit and at fork is arranged with the C library, which takes bare
// functions.
#![expect(unsafe_code, reason = "on_exit and pthread_atfork take bare functions")]
//! The job of this process: joined when something first needs it, left when the process exits.
//!
//! ```text
//!  PtlNIInit, PtlSetRank(-1, -1), cnos_* ──► join ──► exit handler registered
//!  exit(0), _exit(0), return from main ──► interfaces closed, job finalized
//!  exit(≠ 0), _exit(≠ 0), a signal, abort ──► nothing: the launcher sees a failed rank
//! ```
//!
//! A program that never joins leaves nothing behind.

use portals_shim::job::{Job, JobError};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cancel::Whole;
use crate::{ending, state};

static JOB: Mutex<Option<Arc<Job>>> = Mutex::new(None);
/// `cnos_pm_barrier` has already left the job in good order.
static LEFT: AtomicBool = AtomicBool::new(false);
/// The process that has joined; 0: none. A child by `vfork` shares this memory and is another process.
static PROCESS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn on_exit(
        function: extern "C" fn(status: c_int, argument: *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
}

/// The job; joins it the first time.
pub(crate) fn join() -> Result<Arc<Job>, JobError> {
    let mut slot = JOB.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(job) = &*slot {
        return Ok(Arc::clone(job));
    }
    report_errors();
    watch_forks();
    let job = Arc::new(Job::from_env()?);
    *slot = Some(Arc::clone(&job));
    PROCESS.store(std::process::id(), Ordering::Release);
    // SAFETY: `at_exit` is a function of the program's life and takes a null argument; the library
    // is never unloaded (linked with nodelete). Without memory for the registration the process
    // ends as a failed rank, which is reported.
    let _ = unsafe { on_exit(at_exit, std::ptr::null_mut()) };
    Ok(job)
}

/// The job if this process has joined it.
pub(crate) fn joined() -> Option<Arc<Job>> {
    JOB.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Has what the library reports as an error said on standard error.
fn report_errors() {
    // A Rust program around the C library may have its own way; then that is used.
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::ERROR)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        // Where it cannot be said, on a disk that is full, the word about that would panic.
        .log_internal_errors(false)
        .try_init();
}

/// Says on standard error why something failed, with all causes.
pub(crate) fn complain(doing: &str, error: &dyn std::error::Error) {
    let error = portals_shim::with_causes(error);
    portals_shim::say(format_args!("portals: {doing}: {error}"));
}

/// Leaves the job in good order, once.
pub(crate) fn leave() {
    let Some(job) = joined() else { return };
    if !LEFT.swap(true, Ordering::AcqRel)
        && let Err(error) = job.finalize()
    {
        complain("leaving the job", &error);
    }
}

/// Whether this process has joined the job, and not one that it is a child of.
fn has_joined() -> bool {
    PROCESS.load(Ordering::Acquire) == std::process::id() && !state::is_forked()
}

/// Whether this process has joined the job and not left it.
pub(crate) fn is_mine() -> bool {
    has_joined() && !LEFT.load(Ordering::Acquire)
}

/// Whether a process that this one is a child of has joined the job, or started the library.
pub(crate) fn is_of_another() -> bool {
    state::is_forked() || (PROCESS.load(Ordering::Acquire) != 0 && !has_joined())
}

/// A process that exits with status 0 has done its part, whether it called `PtlFini` or not; any
/// other end is for the launcher to notice.
extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    // Whoever waits for the process is told the low eight bits.
    if status & 0xff == 0 && has_joined() {
        at_end();
    }
}

/// What is owed to others leaves, then the process leaves the job.
pub(crate) fn at_end() {
    let _whole = Whole::begin();
    ending::begin();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        state::drain();
        leave();
    }));
    if ended.is_err() {
        portals_shim::say(format_args!("portals: a panic while leaving the job"));
    }
}

/// Arranges that a forked child knows it is one.
pub(crate) fn watch_forks() {
    extern "C" fn in_child() {
        state::set_forked();
    }
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler only stores to an atomic, which a forked child of a threaded process
        // may do; it lives as long as the program.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}
