// UNSAFETY: functions of the C library are exported under its names, and take pointers of the caller.
#![expect(unsafe_code, reason = "exports functions of the C library")]
//! The functions that sleep. In virtual time no signal ends a sleep early.

use crate::real::{Real, absent};
use crate::sources::{sleep as sleeps, virtual_nanos};
use crate::times;
use libc::{c_int, c_uint, clockid_t, fd_set, nfds_t, pollfd, timespec, timeval, useconds_t};

type Nanosleep = unsafe extern "C-unwind" fn(*const timespec, *mut timespec) -> c_int;
// SAFETY: this is its type.
static NANOSLEEP: Real<Nanosleep> = unsafe { Real::new(c"nanosleep", None) };

/// The nanoseconds at a place of the caller.
///
/// # Safety
/// It is null or readable.
unsafe fn wanted(time: *const timespec) -> Option<u64> {
    // SAFETY: the condition of this function.
    unsafe { time.as_ref() }.and_then(times::nanos)
}

/// `nanosleep`
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn nanosleep(
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the caller's.
    if unsafe { wanted(time) }.is_some_and(sleeps) {
        return 0;
    }
    match NANOSLEEP.get() {
        // SAFETY: the caller's.
        Some(function) => unsafe { function(time, left) },
        None => absent(),
    }
}

type ClockNanosleep =
    unsafe extern "C-unwind" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
// SAFETY: this is its type.
static CLOCK_NANOSLEEP: Real<ClockNanosleep> = unsafe { Real::new(c"clock_nanosleep", None) };

/// `clock_nanosleep`
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the caller's.
    let wanted = unsafe { wanted(time) };
    let now = virtual_nanos(clock);
    let length = wanted.zip(now).map(|(wanted, now)| match flags {
        libc::TIMER_ABSTIME => wanted.saturating_sub(now),
        _ => wanted,
    });
    if length.is_some_and(sleeps) {
        return 0;
    }
    match CLOCK_NANOSLEEP.get() {
        // SAFETY: the caller's.
        Some(function) => unsafe { function(clock, flags, time, left) },
        None => libc::ENOSYS,
    }
}

type Usleep = extern "C-unwind" fn(useconds_t) -> c_int;
// SAFETY: this is its type.
static USLEEP: Real<Usleep> = unsafe { Real::new(c"usleep", None) };

/// `usleep`
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn usleep(micros: useconds_t) -> c_int {
    if sleeps(u64::from(micros) * 1000) {
        return 0;
    }
    match USLEEP.get() {
        Some(function) => function(micros),
        None => absent(),
    }
}

type Sleep = extern "C-unwind" fn(c_uint) -> c_uint;
// SAFETY: this is its type.
static SLEEP: Real<Sleep> = unsafe { Real::new(c"sleep", None) };

/// `sleep`
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    if sleeps(u64::from(seconds) * 1_000_000_000) {
        return 0;
    }
    match SLEEP.get() {
        Some(function) => function(seconds),
        None => seconds,
    }
}

type ThrdSleep = unsafe extern "C-unwind" fn(*const timespec, *mut timespec) -> c_int;
// SAFETY: this is its type.
static THRD_SLEEP: Real<ThrdSleep> = unsafe { Real::new(c"thrd_sleep", None) };

/// `thrd_sleep`
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn thrd_sleep(
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the caller's.
    if unsafe { wanted(time) }.is_some_and(sleeps) {
        return 0;
    }
    match THRD_SLEEP.get() {
        // SAFETY: the caller's.
        Some(function) => unsafe { function(time, left) },
        None => -2,
    }
}

type Poll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
// SAFETY: this is its type.
static POLL: Real<Poll> = unsafe { Real::new(c"poll", None) };

/// `poll`, which sleeps where it looks at nothing
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn poll(
    fds: *mut pollfd,
    count: nfds_t,
    millis: c_int,
) -> c_int {
    let length = u64::try_from(millis).ok().filter(|_| count == 0);
    if length.is_some_and(|millis| sleeps(millis * 1_000_000)) {
        return 0;
    }
    match POLL.get() {
        // SAFETY: the caller's.
        Some(function) => unsafe { function(fds, count, millis) },
        None => absent(),
    }
}

type Select = unsafe extern "C-unwind" fn(
    c_int,
    *mut fd_set,
    *mut fd_set,
    *mut fd_set,
    *mut timeval,
) -> c_int;
// SAFETY: this is its type.
static SELECT: Real<Select> = unsafe { Real::new(c"select", None) };

/// `select`, which sleeps where it looks at nothing
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    time: *mut timeval,
) -> c_int {
    let looks = [read, write, except].iter().any(|set| !set.is_null());
    // SAFETY: it is null or the caller's, which the C library writes to.
    if let (false, Some(left)) = (looks, unsafe { time.as_mut() })
        && times::nanos_of_timeval(left).is_some_and(sleeps)
    {
        // As Linux does, which says what is left.
        *left = times::timeval(0);
        return 0;
    }
    match SELECT.get() {
        // SAFETY: the caller's.
        Some(function) => unsafe { function(count, read, write, except, time) },
        None => absent(),
    }
}
