// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "C calls these entries")]
//! Handler-safe locks and no-interrupt sections: those of the conduit (`conduit::hsl`), in memory of the caller.
//!
//! Interrupts do not exist here, so a no-interrupt section is a flag of its thread. What a program gets wrong is seen
//! when it happens, always where it would wait for ever, in debug builds everywhere. A `GASNET_SEQ` program that is no
//! debug build does not call these: there the header's locks are nothing.

use conduit::hsl::{Hsl, HslError, held, hold_interrupts, in_section, resume_interrupts};
use std::ffi::c_int;
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::job::{NOT_READY, OK};
use crate::ptr::Lock;
use crate::state::{checked, fatal, thread};
use crate::trace;

/// Longer is against the rules of GASNet.
const LONG: Duration = Duration::from_secs(1);

/// The lock that a call names; null ends the process.
fn named<'a>(call: &str, p: &'a Lock) -> &'a Hsl {
    p.get().unwrap_or_else(|| fatal(&format!("{call}: NULL")))
}

fn usable(call: &str, l: &Hsl) {
    if checked() && !l.is_live() {
        fatal(&format!(
            "{call}: the lock is not initialised, or destroyed"
        ));
    }
}

/// Ends the process where a rule of locks was broken.
fn kept<R>(call: &str, result: Result<R, HslError>) -> R {
    match result {
        Ok(value) => value,
        Err(HslError::Recursive) => fatal(&format!("{call} of a lock that this thread holds")),
        Err(HslError::NotHeld) => {
            fatal(&format!("{call} of a lock that this thread does not hold"))
        }
        Err(HslError::Order) => fatal(&format!("{call} of a lock that is not the last one taken")),
        Err(HslError::InUse) => fatal(&format!("{call} of a lock that is held")),
        Err(HslError::Nested) => fatal("gasnet_hold_interrupts twice"),
        Err(HslError::NotBegun) => fatal("gasnet_resume_interrupts without gasnet_hold_interrupts"),
        Err(other) => fatal(&format!("{call}: {other}")),
    }
}

/// `gasnet_hsl_init`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_hsl_init(p: Lock) {
    let l = named("gasnet_hsl_init", &p);
    if checked() && l.is_live() {
        fatal("gasnet_hsl_init of a lock that is initialised");
    }
    l.reset();
}

/// `gasnet_hsl_destroy`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_hsl_destroy(p: Lock) {
    let call = "gasnet_hsl_destroy";
    let l = named(call, &p);
    usable(call, l);
    kept(call, l.retire());
}

/// The thread holds its first lock.
fn begun() {
    if checked() && held() == 1 {
        thread(|t| t.since.set(Some(Instant::now())));
    }
}

/// `gasnet_hsl_lock`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_hsl_lock(p: Lock) {
    let call = "gasnet_hsl_lock";
    let l = named(call, &p);
    usable(call, l);
    let since = trace::start();
    kept(call, l.lock());
    begun();
    trace::waited("HSL_LOCK", since);
}

/// `gasnet_hsl_trylock`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_hsl_trylock(p: Lock) -> c_int {
    let call = "gasnet_hsl_trylock";
    let l = named(call, &p);
    usable(call, l);
    let taken = kept(call, l.try_lock());
    if taken {
        begun();
    }
    trace::tried("HSL_TRYLOCK", taken);
    if taken { OK } else { NOT_READY }
}

/// `gasnet_hsl_unlock`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_hsl_unlock(p: Lock) {
    let call = "gasnet_hsl_unlock";
    let l = named(call, &p);
    usable(call, l);
    // GASNet has mutexes of the system here, which are given back in any order, and once more without harm, as Omni's
    // XcalableMP does.
    let given = if checked() {
        l.unlock()
    } else {
        l.unlock_in_any_order()
    };
    match given {
        Err(HslError::NotHeld) if !checked() && l.is_free() => complain_of_unlock(),
        result => kept(call, result),
    }
    if checked() && held() == 0 {
        thread(|t| complain_if_long("an HSL", t.since.take()));
    }
}

/// Says once that a lock was given back that nobody held.
#[cold]
fn complain_of_unlock() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        warn(format_args!(
            "gasnet_hsl_unlock of a lock that nobody holds, without effect"
        ));
    });
}

fn warn(what: std::fmt::Arguments<'_>) {
    conduit::say(format_args!(
        "GASNet node {}/{}: WARNING: {what}{}",
        crate::state::me(),
        crate::state::nodes(),
        crate::state::place()
    ));
}

fn complain_if_long(what: &str, since: Option<Instant>) {
    let held = since.map(|s| s.elapsed()).unwrap_or_default();
    if held > LONG {
        warn(format_args!(
            "{what} was held for {:.3} s, which delays every message",
            held.as_secs_f64()
        ));
    }
}

fn in_handler() -> bool {
    thread(|t| t.handlers.get() > 0)
}

/// `gasnet_hold_interrupts`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_hold_interrupts() {
    if !checked() {
        return;
    }
    let was = in_section();
    kept("gasnet_hold_interrupts", hold_interrupts(in_handler()));
    if !was && in_section() {
        thread(|t| t.since.set(Some(Instant::now())));
    }
}

/// `gasnet_resume_interrupts`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_resume_interrupts() {
    if !checked() {
        return;
    }
    let was = in_section();
    kept("gasnet_resume_interrupts", resume_interrupts(in_handler()));
    if was && !in_section() {
        thread(|t| complain_if_long("a no-interrupt section", t.since.take()));
    }
}

/// Ends the process if the thread may not send, poll or wait.
pub(crate) fn may_communicate(call: &str) {
    if held() != 0 {
        fatal(&format!("{call} while an HSL is held"));
    }
    if in_section() {
        fatal(&format!("{call} in a no-interrupt section"));
    }
}

/// Ends the process if the handler may not reply.
pub(crate) fn may_reply(call: &str) {
    if held() != 0 {
        fatal(&format!("{call} while an HSL is held"));
    }
}

/// A handler has given back what it took; `before` were held when it started.
pub(crate) fn handler_returns(before: usize) {
    if held() != before {
        fatal("a handler returned while it held an HSL");
    }
}

const _: () = assert!(size_of::<Hsl>() == 8 + 2 * size_of::<*mut std::ffi::c_void>());

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> Hsl {
        Hsl::new()
    }

    /// The lock that C names.
    fn lock(l: &Hsl) -> Lock {
        // SAFETY: a lock of a test, which outlives its calls.
        unsafe { Lock::new(std::ptr::from_ref(l).cast_mut()) }
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
                    for _ in 0..10_000 {
                        gasnet_hsl_lock(lock(&shared.1));
                        // SAFETY: under the lock.
                        unsafe { *shared.0.get() += 1 };
                        gasnet_hsl_unlock(lock(&shared.1));
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 40_000);
    }

    #[test]
    fn a_taken_lock_is_not_ready() {
        let (a, b) = (new(), new());
        gasnet_hsl_lock(lock(&a));
        gasnet_hsl_lock(lock(&b));
        std::thread::scope(|s| {
            s.spawn(|| assert_eq!(gasnet_hsl_trylock(lock(&a)), NOT_READY));
        });
        gasnet_hsl_unlock(lock(&b));
        gasnet_hsl_unlock(lock(&a));
        assert_eq!(gasnet_hsl_trylock(lock(&a)), OK);
        gasnet_hsl_unlock(lock(&a));
    }
}
