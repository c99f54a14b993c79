// UNSAFETY: libraries of Portolan hand over pointers to what they have, which is called here.
#![expect(
    unsafe_code,
    reason = "calls functions that another library hands over"
)]
//! The libraries of Portolan in this process, which are asked for the time.

use crate::real::Real;
use crate::source::{Source, VERSION};
use crate::times;
use libc::{c_int, clockid_t, timespec};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// `libportals3`, `libgasnet-portals-*` and the provider may be there at once.
const MOST: usize = 8;
static SOURCES: [AtomicPtr<Source>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];

/// Numbers of clocks below which all have a place here.
const CLOCKS: usize = 12;
/// Clocks of time that passes for all: not of what a process has used.
const KNOWN: [clockid_t; 5] = [
    libc::CLOCK_REALTIME,
    libc::CLOCK_MONOTONIC,
    libc::CLOCK_MONOTONIC_RAW,
    libc::CLOCK_BOOTTIME,
    libc::CLOCK_TAI,
];
const UNSET: u64 = u64::MAX;
/// What each clock shows where virtual time begins.
static BEGAN: [AtomicU64; CLOCKS] = [const { AtomicU64::new(UNSET) }; CLOCKS];
/// The virtual time, in whole seconds, with which that goes, plus one; 0 before there was one.
static BASE: AtomicU64 = AtomicU64::new(0);

type Gettime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;
// SAFETY: this is its type.
static GETTIME: Real<Gettime> = unsafe { Real::new(c"clock_gettime", None) };

/// `clock_gettime` of the C library.
///
/// # Safety
/// That of `clock_gettime`.
pub(crate) unsafe fn host(clock: clockid_t, time: *mut timespec) -> c_int {
    match GETTIME.get() {
        // SAFETY: the caller's.
        Some(function) => unsafe { function(clock, time) },
        None => crate::real::absent(),
    }
}

/// Nanoseconds of a clock of the host.
pub(crate) fn host_nanos(clock: clockid_t) -> Option<u64> {
    let mut time = times::timespec(0);
    // SAFETY: the time is writable.
    let failed = unsafe { host(clock, &raw mut time) } != 0;
    times::nanos(&time).filter(|_| !failed)
}

/// The clock whose time `clock` shows, and its place, if it is one of [`KNOWN`].
fn place(clock: clockid_t) -> Option<(clockid_t, usize)> {
    let finer = match clock {
        libc::CLOCK_REALTIME_COARSE => libc::CLOCK_REALTIME,
        libc::CLOCK_MONOTONIC_COARSE => libc::CLOCK_MONOTONIC,
        libc::CLOCK_REALTIME_ALARM => libc::CLOCK_REALTIME,
        libc::CLOCK_BOOTTIME_ALARM => libc::CLOCK_BOOTTIME,
        other => other,
    };
    let place = usize::try_from(finer).ok().filter(|at| *at < CLOCKS)?;
    KNOWN.contains(&finer).then_some((finer, place))
}

fn sources() -> impl Iterator<Item = &'static Source> {
    let pointers = SOURCES.iter().map(|source| source.load(Ordering::Acquire));
    // SAFETY: whoever offered it promised that it lives as long as the process.
    pointers.map_while(|source| unsafe { source.as_ref() })
}

/// The virtual time of the calling thread, nanoseconds; `None` where its clock is the host's.
fn reading() -> Option<u64> {
    sources().find_map(|source| {
        let mut now = 0;
        // SAFETY: it writes to the place and nowhere else, as the library that offered it promised.
        let is_virtual = unsafe { (source.read)(&raw mut now) } == 1;
        is_virtual.then_some(now)
    })
}

/// What `clock` shows to the calling thread; `None` where that is what the host's shows.
///
/// Each clock goes on from a whole second of the host's, the next one when the first thread reads virtual time. So differences are the
/// same in every run, also for those who round.
pub(crate) fn virtual_nanos(clock: clockid_t) -> Option<u64> {
    if SOURCES[0].load(Ordering::Relaxed).is_null() {
        return None;
    }
    let (clock, place) = place(clock)?;
    let now = reading()?;
    // A whole second too: the fraction of a clock's second is that of the virtual time.
    let first = now - now % times::SECOND;
    let base = match BASE.compare_exchange(0, first + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => first,
        Err(base) => base - 1,
    };
    let began = &BEGAN[place];
    let mut since = began.load(Ordering::Relaxed);
    if since == UNSET {
        let next = times::whole(host_nanos(clock)?);
        since = match began.compare_exchange(UNSET, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => next,
            Err(since) => since,
        };
    }
    Some(since + now.saturating_sub(base))
}

/// The calling thread sleeps in virtual time; `false`: it is to sleep by the host's clock.
pub(crate) fn sleep(nanos: u64) -> bool {
    sources().any(|source| (source.sleep)(nanos) == 1)
}

/// Takes note of a library that is to be asked. Returns 0, or -1 where it is of another version or there are too many.
///
/// # Safety
/// `source` is null or lives as long as the process.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn portolan_clock_offer(source: *const Source) -> c_int {
    // SAFETY: the condition of this function.
    let Some(offered) = (unsafe { source.as_ref() }) else {
        return -1;
    };
    if offered.version != VERSION {
        return -1;
    }
    let place = SOURCES.iter().find(|place| {
        let new = source.cast_mut();
        let set = place.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        set.is_ok() || set == Err(new)
    });
    if place.is_none() {
        return -1;
    }
    // Virtual time begins for all clocks with the first library, and not when a program reads each.
    for clock in KNOWN {
        virtual_nanos(clock);
    }
    0
}
