// UNSAFETY: streams of the C library are flushed, and the process is ended past its exit handlers.
#![expect(
    unsafe_code,
    reason = "the C library's exit, _exit and fflush are unsafe calls"
)]
//! How `gasnet_exit` ends the process: at once. Exit handlers of the program and destructors of C++ are not run: they may
//! call GASNet, whose job is over, and another thread may be anywhere. What streams of C hold is written.
//!
//! | the end comes from | exit handlers |
//! |---|---|
//! | `gasnet_exit`, another node's exit, a fatal error | not run |
//! | `exit`, or a return from `main` | run, as the program began them; those registered before `gasnet_init` when the job is over. A call in one of them that ends the process ends it with the status of the job |

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Another thread may hold a stream for ever, such as one that reads from a terminal.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);

/// No end yet.
const NONE: i32 = -1;

/// The status that the process ends with.
static STATUS: AtomicI32 = AtomicI32::new(NONE);

/// The program has called `exit`, or returned from `main`.
static IN_HANDLERS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> libc::c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// The exit handlers are running; what comes after this one is to run too.
pub(crate) fn enter_handlers() {
    IN_HANDLERS.store(true, Ordering::Relaxed);
}

/// Ends the process with the low 8 bits of the first code it is given.
pub(crate) fn end(code: i32) -> ! {
    let code = code & 0xff;
    let first = STATUS.compare_exchange(NONE, code, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() && IN_HANDLERS.load(Ordering::Relaxed) {
        // SAFETY: called by an exit handler, from which glibc goes on with the handlers that are left (exit(3), NOTES of
        // its manual, has other systems do so too).
        unsafe { libc::exit(code) }
    }
    flush();
    // SAFETY: ends the process; nothing of it is used afterwards.
    unsafe { libc::_exit(first.err().unwrap_or(code)) }
}

/// Writes what streams hold, as far as their locks can be had.
fn flush() {
    let (done, wait) = mpsc::channel();
    let write = move || {
        let _ = std::io::stdout().flush();
        // SAFETY: the pointer of the C library, which the program may have set to another stream, or to none: then all are
        // flushed.
        let _ = unsafe { libc::fflush(stdout) };
        // SAFETY: as above.
        let _ = unsafe { libc::fflush(stderr) };
        // SAFETY: null stands for all streams.
        let _ = unsafe { libc::fflush(std::ptr::null_mut()) };
        let _ = done.send(());
    };
    if conduit::spawn_own_thread("flush", write).is_ok() {
        let _ = conduit::recv_within(&wait, LONGEST_FLUSH);
    } else {
        flush_here();
    }
}

/// Writes what the standard streams hold whose locks are free, where the system has no thread left.
fn flush_here() {
    // SAFETY: pointers of the C library, which the program may have set to other streams, or to none.
    for stream in [unsafe { stdout }, unsafe { stderr }] {
        // SAFETY: a stream of the C library, as it is not null.
        if stream.is_null() || unsafe { ftrylockfile(stream) } != 0 {
            continue;
        }
        // SAFETY: the stream is open, and this thread holds its lock.
        let _ = unsafe { libc::fflush(stream) };
        // SAFETY: as above.
        unsafe { funlockfile(stream) };
    }
}
