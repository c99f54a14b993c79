// UNSAFETY: the mask of signals of a thread is read and written through pointers.
#![expect(
    unsafe_code,
    reason = "pthread_sigmask and the calls that make a set take pointers"
)]
//! Threads that the library starts for itself.
//!
//! They take no signals of the program's. The system gives a signal of a process to any thread that does not block it. So a
//! program that blocks a signal, to take it by `sigwait` or `signalfd`, would be ended by it if a thread of the library did not.
//! A handler of the program's would run where the program has no thread.
//!
//! They may hold its locks when a library below it, a verbs driver, gives memory back. Whoever stands in front of `munmap` to
//! wait for others (`conduit/capi`) must not wait on them: those others may be waiting for these locks.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

thread_local! {
    // Without a destructor: a thread may ask until its very end.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// What a thread meets by its own doing, which no other can take.
const OF_ITS_OWN: [libc::c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// The mask of a thread from before it was blocked, put back at the end.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn now() -> Self {
        let mut set = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: room for a set, which the call writes whole.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        for signal in OF_ITS_OWN {
            // SAFETY: the set was made above; a signal that it has.
            unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: the set was made above, and there is room for the one from before.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: the call fails only for a way of changing the mask that there is not, and has written it.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let before: *const libc::sigset_t = &raw const self.0;
        // SAFETY: the mask that this thread had; what was between is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}

/// Does `work` while this thread takes no signal but one that it causes itself: for starting threads, which inherit that for
/// as long as they live. From any thread.
///
/// ```
/// let thread = host::own_thread::with_signals_blocked(|| std::thread::spawn(|| 5));
/// assert_eq!(thread.join().unwrap(), 5);
/// ```
pub fn with_signals_blocked<R>(work: impl FnOnce() -> R) -> R {
    let _blocked = Blocked::now();
    work()
}

/// Starts a thread that is one of the library's own from its first step to its last, and takes no signals of the program's.
///
/// # Errors
/// The system has no thread left.
pub fn spawn_own_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = Builder::new().name(name.to_owned());
    with_signals_blocked(|| {
        thread.spawn(move || {
            OWN.set(true);
            body()
        })
    })
}

/// Whether the calling thread is one of the library's own, and no part of the program makes calls on it. From any thread, at
/// any time.
#[must_use]
pub fn is_own_thread() -> bool {
    OWN.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals that the calling thread blocks, as the system says.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("SigBlk:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }

    fn is_in(set: u64, signal: libc::c_int) -> bool {
        set >> (signal - 1) & 1 == 1
    }

    #[test]
    fn a_thread_of_the_library_takes_no_signals_of_the_programs() {
        let before = blocked();
        let own = spawn_own_thread("one", blocked).unwrap().join().unwrap();
        for signal in [libc::SIGUSR1, libc::SIGALRM, libc::SIGTERM, libc::SIGCHLD] {
            assert!(is_in(own, signal), "{signal}");
        }
        // A fault is told where it happens.
        assert!(OF_ITS_OWN.into_iter().all(|fault| !is_in(own, fault)));
        assert_eq!(blocked(), before);
    }

    #[test]
    fn a_thread_of_the_library_knows_that_it_is_one() {
        let own = spawn_own_thread("one", is_own_thread).map(|t| t.join().ok());
        assert_eq!(own.ok().flatten(), Some(true));
        assert!(!is_own_thread());
    }
}
