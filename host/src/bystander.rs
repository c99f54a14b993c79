//! Threads that a process has and that make no calls.

use crate::own_thread::spawn_own_thread;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

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

/// Starts a thread of the library itself ([`spawn_own_thread`]) that makes no calls. It is counted before this returns: what the
/// caller waits for next may depend on how many threads count.
///
/// # Errors
/// The system has no thread left.
pub fn spawn_bystander<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (begin, begun) = channel::<()>();
    let thread = spawn_own_thread(name, move || {
        let _bystander = Bystander::new();
        drop(begin);
        body()
    })?;
    // The other end is dropped once the thread is counted; nothing is ever sent.
    let _ = begun.recv();
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bystander_is_counted_when_it_has_been_started() {
        let before = bystanders();
        let (end, ended) = channel::<()>();
        let thread = spawn_bystander("one", move || ended.recv()).expect("a thread");
        assert_eq!(bystanders(), before + 1);
        drop(end);
        assert!(thread.join().expect("no panic").is_err());
        assert_eq!(bystanders(), before);
    }
}
