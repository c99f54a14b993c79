// UNSAFETY: asks the C library for the numbers of the calling thread and of the process's user.
#![expect(
    unsafe_code,
    reason = "no safe call says that the system refuses these numbers: they are taken to have no failures"
)]
//! Numbers of this process, its thread, its parent and its user, as far as the system says them.
//!
//! A filter of system calls may refuse even those calls that have no errors. The safe calls of rustix panic then, or answer with
//! the error as if it were a number: minus one is EPERM, and `kill` takes it for every process of the user. `/proc` says the same
//! numbers without these calls.

use crate::procfs::Stat;
use rustix::process::{Pid, Signal, kill_process};
use std::io;

/// Who has no number, as the kernel shows users of other namespaces (`/proc/sys/kernel/overflowuid`).
pub const NO_USER: u32 = 65534;

/// The process id of this process in its PID namespace; `None` where the system does not say it.
#[must_use]
pub fn process() -> Option<Pid> {
    let said = number(std::process::id().cast_signed());
    // The process itself is what `/proc/self` is.
    said.or_else(|| Stat::own()?.number())
}

/// What the system says of a process's parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parent {
    /// It is this one.
    Is(Pid),
    /// It is outside of the PID namespace.
    Outside,
    /// The system does not say.
    Unknown,
}

/// The parent of this process. Takes no memory and no lock.
#[must_use]
pub fn parent() -> Parent {
    match std::os::unix::process::parent_id().cast_signed() {
        0 => Parent::Outside,
        said => number(said).map_or(Parent::Unknown, Parent::Is),
    }
}

/// The number of the calling thread in the PID namespace of this process; `None` where the system does not say it.
#[must_use]
pub fn thread() -> Option<Pid> {
    // SAFETY: gettid reads a number of the calling thread, and has no conditions.
    number(unsafe { libc::gettid() })
}

/// Whether the calling thread is the first one of the process; `None` where the system does not say.
#[must_use]
pub fn is_first_thread() -> Option<bool> {
    let process = number(std::process::id().cast_signed());
    if let (Some(thread), Some(process)) = (thread(), process) {
        return Some(thread == process);
    }
    // A folder by the numbers of both.
    let own = std::fs::read_link("/proc/thread-self").ok()?;
    let (process, thread) = own.to_str()?.split_once("/task/")?;
    Some(thread == process)
}

/// The effective user of this process.
///
/// # Errors
/// The system does not say it.
pub fn user() -> io::Result<u32> {
    // SAFETY: geteuid reads a number of the process, and has no conditions.
    let said = unsafe { libc::geteuid() };
    // What the kernel says instead of a number is small and negative, and no user has the greatest numbers.
    let refused = said.cast_signed();
    if !(-MOST_ERRNO..0).contains(&refused) {
        return Ok(said);
    }
    let shown = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        // Real, effective, saved, of files.
        line.split_whitespace().nth(1)?.parse().ok()
    };
    shown().ok_or_else(|| io::Error::from_raw_os_error(-refused))
}

/// The effective user of this process, or [`NO_USER`] where the system does not say it: for a number that proves nothing.
#[must_use]
pub fn user_or_nobody() -> u32 {
    user().unwrap_or(NO_USER)
}

/// Sends a signal to this process; where the system does not say its number, it ends by `SIGABRT` instead.
///
/// # Errors
/// The system refuses it.
pub fn signal_own(signal: Signal) -> io::Result<()> {
    match process() {
        Some(own) => Ok(kill_process(own, signal)?),
        None => std::process::abort(),
    }
}

/// The greatest number that the kernel gives an error.
const MOST_ERRNO: i32 = 4095;

fn number(said: i32) -> Option<Pid> {
    Pid::from_raw(said.max(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::again::{again_denied, role};

    #[test]
    fn an_error_is_no_number() {
        for refused in [-1, -38, -4095, 0] {
            assert_eq!(number(refused), None, "{refused}");
        }
        assert_eq!(number(7), Pid::from_raw(7));
    }

    fn all() -> (Option<i32>, Parent, Option<bool>, Option<u32>) {
        let own = process().map(|p| p.as_raw_nonzero().get());
        (own, parent(), is_first_thread(), user().ok())
    }

    /// The numbers that `/proc` shows, in a process whose `/proc` is of its own namespace.
    #[test]
    fn numbers_that_are_refused_are_those_of_proc() {
        let stat = Stat::own().unwrap();
        let uid = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
            let mut numbers = line.unwrap().split_whitespace().map(|n| n.parse().unwrap());
            numbers.nth(1)
        };
        let parent = match role() {
            Some(_) => Parent::Unknown,
            None => Parent::Is(Stat::of(stat.parent).unwrap().number().unwrap()),
        };
        let own = stat.number().map(|pid| pid.as_raw_nonzero().get());
        // The tests have a thread each.
        assert_eq!(all(), (own, parent, Some(false), uid()));
        if role().is_none() {
            let test = "ids::tests::numbers_that_are_refused_are_those_of_proc";
            for error in ["EPERM", "ENOSYS"] {
                again_denied(error, "getpid,getppid,gettid,geteuid", test);
            }
        }
    }
}
