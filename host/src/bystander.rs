//! Threads that a process has and that make no calls.

use std::sync::atomic::{AtomicUsize, Ordering};

static BYSTANDERS: AtomicUsize = AtomicUsize::new(0);

/// A thread that makes no call of any interface while this lives; made and dropped on that thread, made before
/// any other thread waits in a call.
///
/// On the SeaStar model a wait of one thread lets the others of its process in, now and then, which depends on how they
/// run. It need not for these.
#[derive(Debug)]
pub struct Bystander(());

impl Bystander {
    /// Of the calling thread.
    #[must_use]
    pub fn new() -> Self {
        BYSTANDERS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Default for Bystander {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        BYSTANDERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many there are.
pub fn bystanders() -> usize {
    BYSTANDERS.load(Ordering::Relaxed)
}
