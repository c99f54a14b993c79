// UNSAFETY: functions of other libraries are found by their names and called by their types, and C calls those here.
#![expect(
    unsafe_code,
    reason = "exports functions that replace the C library's here, and calls those and the preloaded library by their names"
)]
//! The preloaded library that is told of virtual time, and the functions of the C library that bypass it.
//!
//! A shared library of Portolan is linked with `--wrap=clock_gettime` and `--wrap=clock_nanosleep` by its build script, so that its own
//! waits and limits are the host's. A static library is not: its calls of the system's clocks are those of the program that it is part
//! of. So [`offer`] looks whether the linker has done it.

use crate::readings::{self, Reading};
use crate::source::{Source, VERSION};
use libc::{c_int, clockid_t, timespec};
use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

static SOURCE: Source = Source {
    version: VERSION,
    read,
    sleep,
};

unsafe extern "C" fn read(nanos: *mut u64) -> c_int {
    match readings::read() {
        Reading::Host => 0,
        Reading::Virtual(now) => {
            // SAFETY: the preloaded library gives a place of its own.
            unsafe { nanos.write(now) };
            1
        }
    }
}

extern "C" fn sleep(nanos: u64) -> c_int {
    readings::sleep(nanos).into()
}

type Offer = unsafe extern "C" fn(*const Source) -> c_int;

/// Whether calls of the system's clocks from here bypass a preloaded library.
fn bypasses() -> bool {
    let called = black_box(libc::clock_gettime as *const c_void);
    let own = black_box(__wrap_clock_gettime as *const c_void);
    called == own
}

/// Says once why the program does not get what it was started for.
fn stays(why: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        host::say(format_args!(
            "portolan: the system's clocks stay the host's: {why}"
        ))
    });
}

/// Tells the preloaded library, if there is one, whom to ask.
pub(crate) fn offer() {
    // SAFETY: the name is a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"portolan_clock_offer".as_ptr()) };
    if found.is_null() {
        return;
    }
    if !bypasses() {
        return stays("this program has Portolan in its own executable");
    }
    // SAFETY: the preloaded library's function of this name has this type.
    let offer = unsafe { std::mem::transmute::<*mut c_void, Offer>(found) };
    // SAFETY: it may read the structure at any time.
    if unsafe { offer(&raw const SOURCE) } != 0 {
        stays("libportolan-clock is of another version");
    }
}

/// A function of the C library, whoever else has its name.
#[derive(Debug)]
struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            at: AtomicPtr::new(null_mut()),
        }
    }

    /// Null where the C library has another name than that of glibc.
    #[inline]
    fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let how = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: the name is a string; nothing is loaded that is not there already.
        let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), how) };
        if library.is_null() {
            return null_mut();
        }
        // SAFETY: the library is there, and the name a string.
        let at = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        self.at.store(at, Ordering::Relaxed);
        at
    }
}

static GETTIME: Real = Real::new(c"clock_gettime");
static NANOSLEEP: Real = Real::new(c"clock_nanosleep");

/// `clock_gettime` of the C library
///
/// # Safety
/// That of `clock_gettime`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    type Gettime = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;
    let function = GETTIME.get();
    if function.is_null() {
        // SAFETY: the caller's.
        let failed = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return if failed == 0 { 0 } else { -1 };
    }
    // SAFETY: the C library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Gettime>(function) };
    // SAFETY: the caller's.
    unsafe { function(clock, time) }
}

/// `clock_nanosleep` of the C library
///
/// # Safety
/// That of `clock_nanosleep`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __wrap_clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    wanted: *const timespec,
    left: *mut timespec,
) -> c_int {
    type Nanosleep =
        unsafe extern "C-unwind" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
    let function = NANOSLEEP.get();
    if function.is_null() {
        // SAFETY: the caller's.
        let failed =
            unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, wanted, left) };
        return match failed {
            0 => 0,
            _ => std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EINVAL),
        };
    }
    // SAFETY: the C library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Nanosleep>(function) };
    // SAFETY: the caller's.
    unsafe { function(clock, flags, wanted, left) }
}
