// UNSAFETY: the C library takes a bare function that it calls in forked children, and a value of each process is had by a pointer.
#![expect(
    unsafe_code,
    reason = "pthread_atfork takes a bare function; a value of each process is had by a pointer"
)]
//! Forked children.
//!
//! A child has its parent's objects, and none of the threads that make progress with them; another thread may have held any lock at the
//! fork. So nothing is done with an object in a child of the process that opened it. What the child opens itself is its own. A
//! child by `vfork` or a bare system call is not noticed.

use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

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

/// A static of which each process has its own: a forked child never waits for a lock in that of its parent.
#[derive(Debug)]
pub(crate) struct Own<T>(AtomicPtr<Of<T>>);

#[derive(Debug)]
struct Of<T> {
    generation: usize,
    value: T,
}

impl<T: Default + Send + Sync + 'static> Own<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// That of this process.
    pub(crate) fn get(&'static self) -> &'static T {
        self.of(generation())
    }

    fn of(&'static self, generation: usize) -> &'static T {
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: it is null, or was made of a box below, which nobody frees once it is there.
            match unsafe { current.as_ref() } {
                Some(of) if of.generation == generation => return &of.value,
                _ => {}
            }
            let value = T::default();
            let made = Box::into_raw(Box::new(Of { generation, value }));
            let placed =
                (self.0).compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire);
            current = match placed {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: it was just made of a box, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn no_generation_waits_for_a_lock_of_another() {
        static OWN: Own<Mutex<usize>> = Own::new();
        let mut held = Vec::new();
        for generation in 0..100 {
            let mut value = OWN.of(generation).try_lock().unwrap();
            assert_eq!(*value, 0);
            *value = generation + 1;
            drop(value);
            let value = OWN.of(generation).try_lock().unwrap();
            assert_eq!(*value, generation + 1);
            held.push(value);
        }
    }
}
