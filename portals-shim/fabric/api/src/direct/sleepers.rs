//! Threads that wait asleep, and what wakes them.

use crate::bell::Bell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Sleeps until a descriptor is readable or the time has come.
pub(super) fn sleep<'a>(fds: impl Iterator<Item = &'a OwnedFd>, until: Option<Instant>) {
    let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let left = until.map(|at| at.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    // An interruption is a wake-up like any other.
    let _ = poll(&mut fds, left.as_ref());
}

#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// Threads on the list; read without its lock.
    count: AtomicUsize,
    asleep: Mutex<Vec<Arc<Bell>>>,
    /// Bells that nobody waits for.
    spare: Mutex<Vec<Arc<Bell>>>,
}

#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sleepers {
    /// Whether a thread is on the list.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    pub(super) fn enter(&self) -> Option<Arc<Bell>> {
        let spare = lock(&self.spare).pop();
        let bell = match spare {
            Some(bell) => bell,
            None => Arc::new(Bell::new().ok()?),
        };
        let mut asleep = lock(&self.asleep);
        asleep.push(Arc::clone(&bell));
        self.count.store(asleep.len(), Ordering::SeqCst);
        Some(bell)
    }

    pub(super) fn leave(&self, bell: Arc<Bell>) {
        let mut asleep = lock(&self.asleep);
        asleep.retain(|b| !Arc::ptr_eq(b, &bell));
        self.count.store(asleep.len(), Ordering::SeqCst);
        drop(asleep);
        bell.silence();
        lock(&self.spare).push(bell);
    }

    /// A thread that naps comes (1) or goes (-1).
    pub(super) fn napper(&self, by: isize) {
        self.count.fetch_add(by.cast_unsigned(), Ordering::SeqCst);
    }

    pub(super) fn ring(&self) {
        for bell in lock(&self.asleep).iter() {
            bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(bell: &Bell) -> bool {
        let mut fds = [PollFd::new(bell.descriptor(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    /// Whoever rings does not wait for a sleeper that takes nothing, though the count is at its limit.
    #[test]
    fn a_bell_that_nobody_hears_holds_nobody_up() {
        let bell = Bell::new().unwrap();
        let most = u64::MAX - 1;
        rustix::io::write(bell.descriptor(), &most.to_ne_bytes()).unwrap();
        (0..3).for_each(|_| bell.ring());
        assert!(is_readable(&bell));
        bell.silence();
        assert!(!is_readable(&bell));
        bell.ring();
        assert!(is_readable(&bell));
    }
}
