// UNSAFETY: `_exit` and `_Exit` are defined for the whole program, by names that the C library has too, and end the
// process by the system call.
#![expect(
    unsafe_code,
    reason = "symbols of the C library are defined, and system calls made"
)]
//! `_exit(0)` is a good end, as `exit(0)` is.
//!
//! Programs for machines whose launcher looks at the status alone end by `_exit` once they have agreed among themselves
//! that all is over: GASNet's portals-conduit does, out of its own exit handler, behind which no other handler runs.
//! Therefore the library stands in front of the call. Any other status is left alone: the launcher sees a failed rank.
//!
//! Nothing is done in a child that shares the parent's memory or has a copy of it. What is done takes 15 s at
//! most: a program may call `_exit` where a lock of its own or the allocator's is held, out of a signal handler say, and
//! is then ended by SIGKILL. A program cannot use that signal for itself: of any other one may be pending, or come from a
//! timer of the program's own while the process leaves.

use std::ffi::c_int;

use crate::job;

/// Seconds that leaving may take; an interface that cannot be closed is given up after 10.
const LONGEST: libc::time_t = 15;

/// Ends the process if it is still there after [`LONGEST`]: by a timer of the system, made by the bare system calls, which may
/// be made anywhere. Without a timer left for this user the end is not bounded.
fn bound() {
    // SAFETY: a structure of integers and pointers, for which zeros are values.
    let mut what: libc::sigevent = unsafe { std::mem::zeroed() };
    what.sigev_notify = libc::SIGEV_SIGNAL;
    what.sigev_signo = libc::SIGKILL;
    let mut timer: c_int = 0;
    // SAFETY: both pointers are to values that live until the call returns; the second is where the number goes.
    let made = unsafe {
        libc::syscall(
            libc::SYS_timer_create,
            libc::CLOCK_MONOTONIC,
            &raw mut what,
            &raw mut timer,
        )
    };
    if made != 0 {
        return;
    }
    let never = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = libc::itimerspec {
        it_interval: never,
        it_value: libc::timespec {
            tv_sec: LONGEST,
            ..never
        },
    };
    let before: *mut libc::itimerspec = std::ptr::null_mut();
    // SAFETY: the timer is the one made above, `once` lives until the call returns, and what was before is not asked for.
    unsafe { libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const once, before) };
}

fn end(status: c_int) -> ! {
    // The launcher is told the low eight bits.
    if status & 0xff == 0 && job::is_mine() {
        bound();
        job::at_end();
    }
    loop {
        // SAFETY: ends the process; it takes a status and no pointer, and does not come back.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// `_exit`: leaves the job if the status is 0, then ends the process without running exit handlers.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

/// Ends the process without its exit handlers; see [`_exit`].
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}
