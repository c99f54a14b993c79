// UNSAFETY: functions of the C library are exported under its names, and take pointers of the caller.
#![expect(unsafe_code, reason = "exports functions of the C library")]
//! The functions that read a clock.

use crate::real::{Real, absent};
use crate::sources::{host, virtual_nanos};
use crate::times;
use libc::{CLOCK_REALTIME, c_int, c_void, clockid_t, time_t, timespec, timeval};

/// `clock_gettime`
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    match virtual_nanos(clock) {
        Some(now) if !time.is_null() => {
            // SAFETY: the caller may be written to there.
            unsafe { time.write(times::timespec(now)) };
            0
        }
        // SAFETY: the caller's.
        _ => unsafe { host(clock, time) },
    }
}

type Gettimeofday = unsafe extern "C" fn(*mut timeval, *mut c_void) -> c_int;
// SAFETY: this is its type.
static GETTIMEOFDAY: Real<Gettimeofday> = unsafe { Real::new(c"gettimeofday", None) };

/// `gettimeofday`
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    match virtual_nanos(CLOCK_REALTIME) {
        Some(now) if !time.is_null() && zone.is_null() => {
            // SAFETY: the caller may be written to there.
            unsafe { time.write(times::timeval(now)) };
            0
        }
        _ => match GETTIMEOFDAY.get() {
            // SAFETY: the caller's.
            Some(function) => unsafe { function(time, zone) },
            None => absent(),
        },
    }
}

type Time = unsafe extern "C" fn(*mut time_t) -> time_t;
// SAFETY: this is its type.
static TIME: Real<Time> = unsafe { Real::new(c"time", None) };

/// `time`
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn time(seconds: *mut time_t) -> time_t {
    let Some(now) = virtual_nanos(CLOCK_REALTIME) else {
        return match TIME.get() {
            // SAFETY: the caller's.
            Some(function) => unsafe { function(seconds) },
            None => absent().into(),
        };
    };
    let now = times::timespec(now).tv_sec;
    if !seconds.is_null() {
        // SAFETY: the caller may be written to there.
        unsafe { seconds.write(now) };
    }
    now
}

type TimespecGet = unsafe extern "C" fn(*mut timespec, c_int) -> c_int;
// SAFETY: this is its type.
static TIMESPEC_GET: Real<TimespecGet> = unsafe { Real::new(c"timespec_get", None) };
/// `TIME_UTC`
const UTC: c_int = 1;

/// `timespec_get`
///
/// # Safety
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn timespec_get(time: *mut timespec, base: c_int) -> c_int {
    match virtual_nanos(CLOCK_REALTIME) {
        Some(now) if base == UTC && !time.is_null() => {
            // SAFETY: the caller may be written to there.
            unsafe { time.write(times::timespec(now)) };
            base
        }
        _ => match TIMESPEC_GET.get() {
            // SAFETY: the caller's.
            Some(function) => unsafe { function(time, base) },
            None => 0,
        },
    }
}
