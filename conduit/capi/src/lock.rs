// UNSAFETY: entries that C calls, and locks that live in the memory of the caller.
#![expect(unsafe_code, reason = "entries for C; see the line above")]
//! Handler-safe locks and no-interrupt sections, and the rules that go with them.
//!
//! A lock is a word; whoever finds it taken gives the processor up and looks again. Interrupts do not exist here, so a
//! no-interrupt section is a flag of its thread. Locks of a thread form a list, last taken first: what a program gets
//! wrong is seen when it happens, always where it would wait for ever, in debug builds everywhere.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::job::{NOT_READY, OK};
use crate::state::{checked, fatal, thread, thread_id};

/// `gasnet_hsl_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Hsl {
    /// 0: free, 1: taken.
    word: AtomicU32,
    tag: AtomicU32,
    owner: AtomicUsize,
    /// The one its owner took before, an address.
    below: AtomicUsize,
}

const LIVE: u32 = 0x4853_4c31;
const DEAD: u32 = 0x4853_4c30;

/// Longer is against the rules of GASNet.
const LONG: Duration = Duration::from_secs(1);
/// Looks at a taken lock before the processor is given up.
const SPINS: u32 = 50;

/// The lock of a caller.
///
/// # Safety
/// `p` is null or a lock that lives as long as the result is in use.
unsafe fn lock<'a>(call: &str, p: *mut Hsl) -> &'a Hsl {
    match NonNull::new(p) {
        // SAFETY: the condition of this function.
        Some(p) => unsafe { p.as_ref() },
        None => fatal(&format!("{call}: NULL")),
    }
}

fn address(l: &Hsl) -> usize {
    std::ptr::from_ref(l).expose_provenance()
}

fn usable(call: &str, l: &Hsl) {
    if checked() && l.tag.load(Ordering::Relaxed) != LIVE {
        fatal(&format!(
            "{call}: the lock is not initialised, or destroyed"
        ));
    }
}

/// `gasnet_hsl_init`.
///
/// # Safety
/// `p` is memory of a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_hsl_init(p: *mut Hsl) {
    // SAFETY: the condition of this function.
    let l = unsafe { lock("gasnet_hsl_init", p) };
    if checked() && l.tag.load(Ordering::Relaxed) == LIVE {
        fatal("gasnet_hsl_init of a lock that is initialised");
    }
    l.word.store(0, Ordering::Relaxed);
    l.owner.store(0, Ordering::Relaxed);
    l.below.store(0, Ordering::Relaxed);
    l.tag.store(LIVE, Ordering::Release);
}

/// `gasnet_hsl_destroy`.
///
/// # Safety
/// `p` is a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_hsl_destroy(p: *mut Hsl) {
    let call = "gasnet_hsl_destroy";
    // SAFETY: the condition of this function.
    let l = unsafe { lock(call, p) };
    usable(call, l);
    if l.word.load(Ordering::Acquire) != 0 {
        fatal("gasnet_hsl_destroy of a lock that is held");
    }
    l.tag.store(DEAD, Ordering::Relaxed);
}

fn take(l: &Hsl) -> bool {
    let taken = l
        .word
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_ok();
    if taken {
        l.owner.store(thread_id(), Ordering::Relaxed);
        thread(|t| {
            let below = t.top.replace(address(l));
            l.below.store(below, Ordering::Relaxed);
            if below == 0 && checked() {
                t.since.set(Some(Instant::now()));
            }
        });
    }
    taken
}

fn not_mine(call: &str, l: &Hsl) {
    usable(call, l);
    if l.owner.load(Ordering::Relaxed) == thread_id() {
        fatal(&format!("{call} of a lock that this thread holds"));
    }
}

/// `gasnet_hsl_lock`.
///
/// # Safety
/// `p` is a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_hsl_lock(p: *mut Hsl) {
    let call = "gasnet_hsl_lock";
    // SAFETY: the condition of this function.
    let l = unsafe { lock(call, p) };
    not_mine(call, l);
    let mut looked = 0;
    while !take(l) {
        looked += 1;
        if looked < SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// `gasnet_hsl_trylock`.
///
/// # Safety
/// `p` is a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_hsl_trylock(p: *mut Hsl) -> c_int {
    let call = "gasnet_hsl_trylock";
    // SAFETY: the condition of this function.
    let l = unsafe { lock(call, p) };
    not_mine(call, l);
    if take(l) { OK } else { NOT_READY }
}

/// `gasnet_hsl_unlock`.
///
/// # Safety
/// `p` is a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_hsl_unlock(p: *mut Hsl) {
    let call = "gasnet_hsl_unlock";
    // SAFETY: the condition of this function.
    let l = unsafe { lock(call, p) };
    usable(call, l);
    if l.owner.load(Ordering::Relaxed) != thread_id() {
        fatal("gasnet_hsl_unlock of a lock that this thread does not hold");
    }
    thread(|t| {
        if t.top.get() != address(l) {
            fatal("gasnet_hsl_unlock of a lock that is not the last one taken");
        }
        let below = l.below.load(Ordering::Relaxed);
        t.top.set(below);
        if let (0, Some(since)) = (below, t.since.take()) {
            complain_if_long("an HSL", since);
        }
    });
    l.owner.store(0, Ordering::Relaxed);
    l.word.store(0, Ordering::Release);
}

fn complain_if_long(what: &str, since: Instant) {
    let held = since.elapsed();
    if held > LONG {
        eprintln!(
            "GASNet node {}/{}: WARNING: {what} was held for {:.3} s, which delays every message{}",
            crate::state::me(),
            crate::state::nodes(),
            held.as_secs_f64(),
            crate::state::place()
        );
    }
}

/// A section that is one already: in a handler, or while a lock is held.
fn is_implicit() -> bool {
    thread(|t| t.handlers.get() > 0 || t.top.get() != 0)
}

/// `gasnet_hold_interrupts`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_hold_interrupts() {
    if !checked() || is_implicit() {
        return;
    }
    thread(|t| {
        if t.held.replace(true) {
            fatal("gasnet_hold_interrupts twice");
        }
        t.since.set(Some(Instant::now()));
    });
}

/// `gasnet_resume_interrupts`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_resume_interrupts() {
    if !checked() || is_implicit() {
        return;
    }
    thread(|t| {
        if !t.held.replace(false) {
            fatal("gasnet_resume_interrupts without gasnet_hold_interrupts");
        }
        if let Some(since) = t.since.take() {
            complain_if_long("a no-interrupt section", since);
        }
    });
}

/// Ends the process if the thread may not send, poll or wait.
pub(crate) fn may_communicate(call: &str) {
    thread(|t| {
        if t.top.get() != 0 {
            fatal(&format!("{call} while an HSL is held"));
        }
        if t.held.get() {
            fatal(&format!("{call} in a no-interrupt section"));
        }
    });
}

/// Ends the process if the handler may not reply.
pub(crate) fn may_reply(call: &str) {
    if thread(|t| t.top.get() != 0) {
        fatal(&format!("{call} while an HSL is held"));
    }
}

/// The locks that are held when a handler starts.
pub(crate) fn depth_mark() -> usize {
    thread(|t| t.top.get())
}

/// A handler has given back what it took.
pub(crate) fn handler_returns(mark: usize) {
    if thread(|t| t.top.get()) != mark {
        fatal("a handler returned while it held an HSL");
    }
}

const _: () = assert!(size_of::<Hsl>() == 8 + 2 * size_of::<*mut c_void>());

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Hsl {
        Hsl {
            word: AtomicU32::new(0),
            tag: AtomicU32::new(LIVE),
            owner: AtomicUsize::new(0),
            below: AtomicUsize::new(0),
        }
    }

    #[test]
    fn one_thread_holds_a_lock_at_a_time() {
        let total = std::cell::UnsafeCell::new(0u64);
        struct Shared<'a>(&'a std::cell::UnsafeCell<u64>, Hsl);
        // SAFETY: the cell is touched under the lock only, which is what is tested.
        unsafe impl Sync for Shared<'_> {}
        let shared = Shared(&total, new());
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let shared = &shared;
                    let p = std::ptr::from_ref(&shared.1).cast_mut();
                    for _ in 0..10_000 {
                        // SAFETY: a lock that outlives the threads.
                        unsafe { gasnet_hsl_lock(p) };
                        // SAFETY: under the lock.
                        unsafe { *shared.0.get() += 1 };
                        // SAFETY: as above.
                        unsafe { gasnet_hsl_unlock(p) };
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 40_000);
    }

    #[test]
    fn a_taken_lock_is_not_ready() {
        let (a, b) = (new(), new());
        let p = |l: &Hsl| std::ptr::from_ref(l).cast_mut();
        // SAFETY: locks of this function, in all calls.
        unsafe { gasnet_hsl_lock(p(&a)) };
        // SAFETY: as above.
        unsafe { gasnet_hsl_lock(p(&b)) };
        std::thread::scope(|s| {
            s.spawn(|| {
                // SAFETY: as above.
                assert_eq!(unsafe { gasnet_hsl_trylock(p(&a)) }, NOT_READY);
            });
        });
        // SAFETY: as above.
        unsafe { gasnet_hsl_unlock(p(&b)) };
        // SAFETY: as above.
        unsafe { gasnet_hsl_unlock(p(&a)) };
        // SAFETY: as above.
        assert_eq!(unsafe { gasnet_hsl_trylock(p(&a)) }, OK);
        // SAFETY: as above.
        unsafe { gasnet_hsl_unlock(p(&a)) };
    }
}
