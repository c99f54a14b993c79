// UNSAFETY: functions of the C library, in front of its own of the same names.
#![expect(
    unsafe_code,
    reason = "functions of the C library by their names, and those behind them"
)]
//! The end of the heap, and what the allocator may give back of it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::next::{BRK, OPT, SBRK, TRIM};
use super::{busy, came, fails_with, is_watched, take_away};

/// The allocator was told to give nothing back.
static KEPT: AtomicBool = AtomicBool::new(false);

/// What the allocator of the GNU C library is told: its own calls pass by no name.
#[cfg(target_env = "gnu")]
const KEEP: [(c_int, c_int); 3] = [
    (libc::M_MMAP_MAX, 0),
    (libc::M_TRIM_THRESHOLD, -1),
    (libc::M_ARENA_MAX, 1),
];
#[cfg(not(target_env = "gnu"))]
const KEEP: [(c_int, c_int); 0] = [];

/// Tells the allocator to give nothing back to the system, and keeps the program from telling it otherwise.
pub(super) fn keep() {
    for (what, value) in KEEP {
        set(what, value);
    }
    KEPT.store(true, Ordering::Release);
}

fn is_kept() -> bool {
    KEPT.load(Ordering::Acquire) && is_watched()
}

fn set(what: c_int, value: c_int) -> c_int {
    // SAFETY: sets a number of the allocator.
    OPT.get()
        .map_or(0, |mallopt| unsafe { mallopt(what, value) })
}

/// The C library's `sbrk`.
fn real_sbrk(more: isize) -> *mut c_void {
    match SBRK.get() {
        // SAFETY: the caller's call.
        Some(sbrk) => unsafe { sbrk(more) },
        None => fails_with(libc::ENOMEM, libc::MAP_FAILED),
    }
}

/// `sbrk`: less than before takes the end of the heap away.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(more: isize) -> *mut c_void {
    let less = more.unsigned_abs();
    if more > 0 {
        return came(real_sbrk(more), less);
    }
    if more == 0 || !is_watched() {
        return real_sbrk(more);
    }
    let end = real_sbrk(0);
    let taken = take_end(end, less, || real_sbrk(more));
    taken.unwrap_or_else(|| busy(libc::MAP_FAILED))
}

/// Makes the call that takes the last `less` bytes before `end` off the heap once nothing of them is pinned, if the heap still ends
/// there. A handler that runs meanwhile may have the allocator put memory above them, and the call would take that.
fn take_end<R>(end: *mut c_void, less: usize, call: impl FnOnce() -> R) -> Option<R> {
    let from = end.map_addr(|end| end.saturating_sub(less));
    take_away([(from, less)], || (real_sbrk(0) == end).then(call)).flatten()
}

/// `brk`: lower than before takes the end of the heap away.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    let Some(real) = BRK.get() else {
        return fails_with(libc::ENOMEM, -1);
    };
    // SAFETY: the caller's call.
    let call = || unsafe { real(end) };
    // Null is how programs ask whether there is a heap.
    if end.is_null() || !is_watched() {
        return call();
    }
    let before = real_sbrk(0);
    let (less, more) = (
        before.addr().saturating_sub(end.addr()),
        end.addr().saturating_sub(before.addr()),
    );
    if less > 0 {
        return take_end(before, less, call).unwrap_or_else(|| busy(-1));
    }
    let done = call();
    if done == 0 && more > 0 {
        came(before, more);
    }
    done
}

/// `malloc_trim`: an allocator that keeps all has nothing to give back. With `GASNET_DISABLE_MUNMAP=0` all memory may go.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(keep: usize) -> c_int {
    let Some(real) = TRIM.get().filter(|_| !is_kept()) else {
        return 0;
    };
    // SAFETY: the caller's call.
    let call = || unsafe { real(keep) };
    take_away([(std::ptr::null_mut(), usize::MAX)], call).unwrap_or(0)
}

/// `mallopt`: what keeps the allocator from giving memory back stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(what: c_int, value: c_int) -> c_int {
    if is_kept() && KEEP.iter().any(|(kept, _)| *kept == what) {
        return 1;
    }
    set(what, value)
}
