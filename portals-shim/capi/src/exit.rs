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
//! is then ended by SIGALRM.

use std::ffi::c_int;

use crate::job;

/// Seconds that leaving may take; an interface that cannot be closed is given up after 10.
const LONGEST: u32 = 15;

/// Ends the process if it is still there after [`LONGEST`]. All calls may be made anywhere (signal-safety(7)).
fn bound() {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: puts back the default of a signal, in a process that is about to end.
    unsafe { libc::signal(libc::SIGALRM, libc::SIG_DFL) };
    // SAFETY: the set is room for one, which the call writes whole.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call before has made the set.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGALRM) };
    // SAFETY: the set is made; the mask before is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: takes a number; the signal ends the process, as the first call has arranged.
    unsafe { libc::alarm(LONGEST) };
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
