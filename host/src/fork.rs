// UNSAFETY: the C library takes a bare function that it calls in forked children, and a value of each process is had by a pointer.
#![expect(
    unsafe_code,
    reason = "pthread_atfork takes a bare function; a value of each process is had by a pointer"
)]
//! Forked children.
//!
//! A child has its parent's memory, and none of the threads that used it; another thread may have held any lock at the fork, and then
//! nobody gives it back. What numbers or names a process means another one, too. So a static that has a lock, or says who this process
//! is, is an [`Own`]: the child has a new one. A descriptor that names this process is an [`Unshared`]. A child by `vfork` or a bare system call is not noticed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

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
    let nothing = NOTHING.load(Ordering::Acquire);
    if nothing < 0 {
        return;
    }
    for slot in slots() {
        let fd = slot.fd.load(Ordering::Acquire);
        if fd >= 0 {
            // SAFETY: the call takes numbers; the second is that of an `Unshared`, whose owner is not in this process.
            unsafe { libc::dup3(nothing, fd, libc::O_CLOEXEC) };
        }
    }
}

/// A descriptor that a forked child does not have: by its number the child has a file that is nothing to anybody. So the name that
/// a socket has goes with the process that took it, whatever children it leaves. A child lets it go in `fork`, before that returns
/// there: the parent may have returned earlier.
#[derive(Debug)]
pub struct Unshared {
    slot: &'static Slot,
    // After the slot has been emptied.
    fd: OwnedFd,
}

/// The number of an [`Unshared`], or -1. Slots are used again, and stay: a child may be forked at any time.
#[derive(Debug)]
struct Slot {
    fd: AtomicI32,
    next: *const Slot,
}

// SAFETY: the pointer is null or to a slot that stays, and is never changed.
unsafe impl Sync for Slot {}

static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(null_mut());
/// What a child has instead, or -1.
static NOTHING: AtomicI32 = AtomicI32::new(-1);

fn slots() -> impl Iterator<Item = &'static Slot> {
    let at = |slot: *const Slot| {
        // SAFETY: null, or made of a box below that nobody frees.
        unsafe { slot.as_ref() }
    };
    std::iter::successors(at(SLOTS.load(Ordering::Acquire)), move |slot| at(slot.next))
}

impl Unshared {
    /// Takes a descriptor; where the system has none left for what a child has instead, a child has this one.
    pub fn new(fd: OwnedFd) -> Self {
        generation();
        if NOTHING.load(Ordering::Acquire) < 0
            && let Ok((nothing, _)) = pipe_with(PipeFlags::CLOEXEC)
        {
            let number = nothing.as_raw_fd();
            let placed = NOTHING.compare_exchange(-1, number, Ordering::AcqRel, Ordering::Acquire);
            if placed.is_ok() {
                std::mem::forget(nothing);
            }
        }
        let raw = fd.as_raw_fd();
        let taken = |slot: &&Slot| {
            let free = (slot.fd).compare_exchange(-1, raw, Ordering::AcqRel, Ordering::Relaxed);
            free.is_ok()
        };
        let slot = slots().find(taken).unwrap_or_else(|| {
            let mut made = Box::new(Slot {
                fd: AtomicI32::new(raw),
                next: SLOTS.load(Ordering::Acquire),
            });
            loop {
                let next = made.next.cast_mut();
                let placed = Box::into_raw(made);
                match SLOTS.compare_exchange(next, placed, Ordering::AcqRel, Ordering::Acquire) {
                    // SAFETY: it was just made of a box, which nobody frees any more.
                    Ok(_) => break unsafe { &*placed },
                    Err(first) => {
                        // SAFETY: it was just made of a box, and nobody else has seen it.
                        made = unsafe { Box::from_raw(placed) };
                        made.next = first;
                    }
                }
            }
        });
        Self { slot, fd }
    }
}

impl Drop for Unshared {
    fn drop(&mut self) {
        self.slot.fd.store(-1, Ordering::Release);
    }
}

impl AsFd for Unshared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
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

    /// The name of a socket is free once its process has closed it, also while a forked child lives.
    #[test]
    fn a_name_goes_with_its_process_and_not_with_a_child() {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = |n: u32| {
            let name = format!("portolan-test-fork-{}-{n}", std::process::id());
            SocketAddr::from_abstract_name(name).unwrap()
        };
        let take = |n| UnixListener::bind_addr(&name(n));
        let gone = Unshared::new(take(0).unwrap().into());
        let gone_slot: *const Slot = gone.slot;
        drop(gone);
        let unshared = Unshared::new(take(1).unwrap().into());
        assert!(
            std::ptr::eq(gone_slot, unshared.slot),
            "a slot is used again"
        );
        let more = [2, 3].map(|n| Unshared::new(take(n).unwrap().into()));
        let shared = take(4).unwrap();
        let (ends, waits) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (runs, says) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        // SAFETY: the child makes system calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(waits);
            let _ = rustix::io::write(&says, b"!");
            let _ = rustix::io::read(&ends, &mut [0; 1]);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        assert_eq!(rustix::io::read(&runs, &mut [0; 1]), Ok(1));
        drop((unshared, more, shared));
        // What other tests start has everything until its program begins.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        for n in 1..4 {
            while take(n).is_err() {
                assert!(std::time::Instant::now() < until, "the child has it");
                std::thread::yield_now();
            }
        }
        assert!(take(4).is_err(), "the child lives");
        drop(waits);
        let mut status = -1;
        // SAFETY: the child is this process's, and the status is wanted there.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
