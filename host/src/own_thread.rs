//! Threads that the library starts for itself.
//!
//! They may hold its locks when a library below it, a verbs driver, gives memory back. Whoever stands in front of `munmap` to
//! wait for others (`conduit/capi`) must not wait on them: those others may be waiting for these locks.

use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle};

thread_local! {
    // Without a destructor: a thread may ask until its very end.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread that is one of the library's own from its first step to its last.
///
/// # Errors
/// The system has no thread left.
pub fn spawn_own_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        OWN.set(true);
        body()
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

    #[test]
    fn a_thread_of_the_library_knows_that_it_is_one() {
        let own = spawn_own_thread("one", is_own_thread).map(|t| t.join().ok());
        assert_eq!(own.ok().flatten(), Some(true));
        assert!(!is_own_thread());
    }
}
