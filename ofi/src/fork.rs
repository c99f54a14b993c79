// UNSAFETY: the C library takes a bare function that it calls in forked children.
#![expect(unsafe_code, reason = "pthread_atfork takes a bare function")]
//! Forked children.
//!
//! A child has its parent's objects, and none of the threads that make progress with them; another thread may have held any lock at the
//! fork. So nothing is done with an object in a child of the process that opened it. What the child opens itself is its own. A
//! child by `vfork` or a bare system call is not noticed.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Forks between the process that has loaded this library and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The generation of this process: a forked child has a later one.
#[inline]
pub(crate) fn generation() -> usize {
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Arranges that a forked child knows it is one.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only changes an atomic, which a forked child of a process with threads may do.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            tracing::warn!("forked children are not noticed: no memory");
        }
    });
}
