// UNSAFETY: functions of the C library are exported under its names, and take pointers of the caller.
#![expect(unsafe_code, reason = "exports functions of the C library")]
//! The functions that wait until a time of a clock.
//!
//! The kernel knows the host's clocks alone. So a virtual time becomes the host's time that is as far away. Virtual time stands still
//! while such a thread waits, unless another of its rank makes calls. A wait that ends by its time has taken it in virtual time too.

use crate::real::{Real, absent};
use crate::sources::{host_nanos, sleep, virtual_nanos};
use crate::times;
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, c_int, c_void, clockid_t, pthread_cond_t, pthread_mutex_t,
    pthread_rwlock_t, pthread_t, sem_t, timespec,
};

/// The clock that a time is of, where only the C library knows. One shows the time since the machine was started, and the other that since
/// 1970: a time is one of the clock that it is nearer to.
fn clock_of(at: u64) -> clockid_t {
    let far = |clock| host_nanos(clock).map_or(u64::MAX, |now| now.abs_diff(at));
    match far(CLOCK_MONOTONIC) < far(CLOCK_REALTIME) {
        true => CLOCK_MONOTONIC,
        false => CLOCK_REALTIME,
    }
}

/// A time of the host that is as far away as a virtual one.
struct Deadline {
    host: timespec,
    /// How far, nanoseconds.
    left: u64,
    /// The virtual time.
    at: u64,
    clock: clockid_t,
}

impl Deadline {
    /// `None` where the calling thread's clock is the host's, or it is no time.
    ///
    /// # Safety
    /// `time` is null or readable.
    unsafe fn of(clock: Option<clockid_t>, time: *const timespec) -> Option<Self> {
        // SAFETY: the condition of this function.
        let at = unsafe { time.as_ref() }.and_then(times::nanos)?;
        let clock = clock.unwrap_or_else(|| clock_of(at));
        let left = at.saturating_sub(virtual_nanos(clock)?);
        let host = host_nanos(clock)?.saturating_add(left);
        Some(Self {
            host: times::timespec(host),
            left,
            at,
            clock,
        })
    }

    /// The wait has ended by its time.
    fn has_passed(&self) {
        // Calls of other threads may have taken a part of it.
        let now = virtual_nanos(self.clock).unwrap_or(self.at);
        let _ = sleep(self.at.saturating_sub(now).min(self.left));
    }
}

/// Waits by `wait` until `time`; `timed_out` says whether what it returned means that the time came.
///
/// Without a clock the time says which it is of.
///
/// # Safety
/// `time` is null or readable.
unsafe fn until(
    clock: Option<clockid_t>,
    time: *const timespec,
    wait: impl Fn(*const timespec) -> c_int,
    timed_out: impl Fn(c_int) -> bool,
) -> c_int {
    // SAFETY: the condition of this function.
    let Some(deadline) = (unsafe { Deadline::of(clock, time) }) else {
        return wait(time);
    };
    let outcome = wait(&raw const deadline.host);
    if timed_out(outcome) {
        deadline.has_passed();
    }
    outcome
}

fn is_timeout(outcome: c_int) -> bool {
    outcome == libc::ETIMEDOUT
}

/// Functions that return an error: what they wait for and what is given to them stays the caller's.
macro_rules! waits {
    ($($(#[$doc:meta])* $static:ident = $name:ident($($arg:ident: $type:ty),*; $clock:expr $(, $given:ident)?) at $text:literal, $version:expr, $timed_out:expr;)*) => {$(
        static $static: Real<unsafe extern "C-unwind" fn($($type,)* $(waits!(@clock $given),)? *const timespec) -> c_int> =
            // SAFETY: this is its type.
            unsafe { Real::new($text, $version) };

        $(#[$doc])*
        ///
        /// # Safety
        /// That of the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type,)* $($given: clockid_t,)? time: *const timespec) -> c_int {
            let Some(function) = $static.get() else {
                return absent();
            };
            // SAFETY: the caller's.
            let wait = |time| unsafe { function($($arg,)* $($given,)? time) };
            // SAFETY: the caller's.
            unsafe { until($clock, time, wait, $timed_out) }
        }
    )*};
    (@clock $given:ident) => { clockid_t };
}

/// The version that programs of today are linked with, where an older type of condition variables has one.
#[cfg(target_arch = "x86_64")]
const CONDITION: Option<&std::ffi::CStr> = Some(c"GLIBC_2.3.2");
#[cfg(not(target_arch = "x86_64"))]
const CONDITION: Option<&std::ffi::CStr> = None;

waits! {
    /// `pthread_cond_timedwait`
    TIMEDWAIT = pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t; None) at c"pthread_cond_timedwait", CONDITION, is_timeout;
    /// `pthread_cond_clockwait`
    CLOCKWAIT = pthread_cond_clockwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t; Some(clock), clock) at c"pthread_cond_clockwait", None, is_timeout;
    /// `pthread_mutex_timedlock`
    TIMEDLOCK = pthread_mutex_timedlock(mutex: *mut pthread_mutex_t; Some(CLOCK_REALTIME)) at c"pthread_mutex_timedlock", None, is_timeout;
    /// `pthread_mutex_clocklock`
    CLOCKLOCK = pthread_mutex_clocklock(mutex: *mut pthread_mutex_t; Some(clock), clock) at c"pthread_mutex_clocklock", None, is_timeout;
    /// `pthread_rwlock_timedrdlock`
    TIMEDRDLOCK = pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t; Some(CLOCK_REALTIME)) at c"pthread_rwlock_timedrdlock", None, is_timeout;
    /// `pthread_rwlock_timedwrlock`
    TIMEDWRLOCK = pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t; Some(CLOCK_REALTIME)) at c"pthread_rwlock_timedwrlock", None, is_timeout;
    /// `pthread_rwlock_clockrdlock`
    CLOCKRDLOCK = pthread_rwlock_clockrdlock(lock: *mut pthread_rwlock_t; Some(clock), clock) at c"pthread_rwlock_clockrdlock", None, is_timeout;
    /// `pthread_rwlock_clockwrlock`
    CLOCKWRLOCK = pthread_rwlock_clockwrlock(lock: *mut pthread_rwlock_t; Some(clock), clock) at c"pthread_rwlock_clockwrlock", None, is_timeout;
    /// `cnd_timedwait`
    CND_TIMEDWAIT = cnd_timedwait(cond: *mut c_void, mutex: *mut c_void; Some(CLOCK_REALTIME)) at c"cnd_timedwait", None, is_thrd_timeout;
    /// `mtx_timedlock`
    MTX_TIMEDLOCK = mtx_timedlock(mutex: *mut c_void; Some(CLOCK_REALTIME)) at c"mtx_timedlock", None, is_thrd_timeout;
    /// `pthread_timedjoin_np`
    TIMEDJOIN = pthread_timedjoin_np(thread: pthread_t, value: *mut *mut c_void; Some(CLOCK_REALTIME)) at c"pthread_timedjoin_np", None, is_timeout;
    /// `pthread_clockjoin_np`
    CLOCKJOIN = pthread_clockjoin_np(thread: pthread_t, value: *mut *mut c_void; Some(clock), clock) at c"pthread_clockjoin_np", None, is_timeout;
    /// `sem_timedwait`
    SEM_TIMEDWAIT = sem_timedwait(semaphore: *mut sem_t; Some(CLOCK_REALTIME)) at c"sem_timedwait", None, is_errno_timeout;
    /// `sem_clockwait`
    SEM_CLOCKWAIT = sem_clockwait(semaphore: *mut sem_t; Some(clock), clock) at c"sem_clockwait", None, is_errno_timeout;
}

/// Of the functions of `<threads.h>`: `thrd_timedout`.
fn is_thrd_timeout(outcome: c_int) -> bool {
    outcome == 4
}

/// Of functions that say by `errno` what was wrong. It is as they left it when this returns.
fn is_errno_timeout(outcome: c_int) -> bool {
    outcome != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}
