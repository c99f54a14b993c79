// UNSAFETY: the C library takes a bare function that it calls in forked children, and a value of each process is had by a pointer.
#![expect(
    unsafe_code,
    reason = "pthread_atfork takes a bare function; a value of each process is had by a pointer"
)]
//! Forked children.
//!
//! A child has its parent's memory, and none of the threads that used it; another thread may have held any lock at the fork, and then
//! nobody gives it back. What numbers or names a process means another one, too. So a static that has a lock, or says who this process
//! is, is an [`Own`]: the child has a new one. A child by `vfork` or a bare system call is not noticed.

use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// One more than the forks between the process that began to count and this one; 0: nobody counts yet.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The generation of this process: a forked child has a later one.
#[inline]
pub fn generation() -> usize {
    match FORKS.load(Ordering::Relaxed) {
        0 => {
            // Without memory for that a child passes for its parent, as it would if nobody asked.
            let _ = watch();
            FORKS.load(Ordering::Relaxed)
        }
        generation => generation,
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Arranges that a forked child knows it is one; [`generation`] does that too.
///
/// # Errors
/// There is no memory for that.
pub fn watch() -> io::Result<()> {
    if FORKS.load(Ordering::Relaxed) != 0 {
        return Ok(());
    }
    // Miri has no forks. Threads that arrange it at once have it twice, which counts a fork twice; a lock could be held at a fork.
    let failed = if cfg!(miri) {
        0
    } else {
        // SAFETY: the handler only changes an atomic, which a forked child of a process with threads may do.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) }
    };
    let _ = FORKS.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    match failed {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A static of which each process has its own: a forked child never waits for a lock in that of its parent.
#[derive(Debug)]
pub struct Own<T>(AtomicPtr<Of<T>>);

#[derive(Debug)]
struct Of<T> {
    generation: usize,
    value: T,
}

impl<T: Default + Send + Sync + 'static> Own<T> {
    /// One without a value: each process makes its own when it first asks for it.
    pub const fn unset() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// That of this process.
    #[inline]
    pub fn get(&'static self) -> &'static T {
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
        static OWN: Own<Mutex<usize>> = Own::unset();
        let mut held = Vec::new();
        for generation in 1..100 {
            let mut value = OWN.of(generation).try_lock().unwrap();
            assert_eq!(*value, 0);
            *value = generation;
            drop(value);
            let value = OWN.of(generation).try_lock().unwrap();
            assert_eq!(*value, generation);
            held.push(value);
        }
    }

    #[test]
    fn a_forked_child_is_of_another_generation_and_has_a_value_of_its_own() {
        static OWN: Own<Mutex<u32>> = Own::unset();
        let mut held = OWN.get().lock().unwrap();
        *held = 7;
        let before = generation();
        // SAFETY: the child takes a lock that nobody has, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = OWN.get().try_lock().is_ok_and(|own| *own == 0);
            let right = own && generation() != before;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: the child is this process's, and the status is wanted there.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, generation()), (0, before));
        drop(held);
        assert_eq!(*OWN.get().lock().unwrap(), 7);
    }
}
