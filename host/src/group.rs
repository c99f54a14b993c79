// UNSAFETY: asks the C library for the numbers of the process's group and session.
#![expect(
    unsafe_code,
    reason = "the safe calls of rustix take it that these numbers are never 0, which they are in a PID namespace"
)]
//! The process group and the session of this process.
//!
//! A process that entered a PID namespace kept its group and its session. Their leaders may be outside of it, as in a container
//! that was started without `setsid`. There is no number for them then: the kernel says 0 (pid_namespaces(7), getpgrp(2)).

use rustix::process::Pid;

/// The group of this process; `None`: its leader is outside of this PID namespace.
#[must_use]
pub fn group() -> Option<Pid> {
    // SAFETY: getpgrp reads a number of the calling process, and has no conditions.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

/// The session of this process; `None`: its leader is outside of this PID namespace.
#[must_use]
pub fn session() -> Option<Pid> {
    // SAFETY: getsid of 0 reads a number of the calling process, and has no conditions.
    Pid::from_raw(unsafe { libc::getsid(0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// `ps` counts from the same kernel, and shows 0 for a leader outside.
    #[test]
    fn both_are_what_the_system_shows() {
        let own = std::process::id().to_string();
        let mut ps = Command::new("ps");
        let Ok(shown) = ps.args(["-o", "pgid=,sid=", "-p", &own]).output() else {
            println!("skipped: no ps here");
            return;
        };
        let text = String::from_utf8(shown.stdout).expect("numbers");
        let mut numbers = text
            .split_whitespace()
            .map(|n| n.parse().expect("a number"));
        assert_eq!(group(), numbers.next().and_then(Pid::from_raw));
        assert_eq!(session(), numbers.next().and_then(Pid::from_raw));
    }
}
