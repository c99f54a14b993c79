// UNSAFETY: asks the C library for the number of the process's group.
#![expect(
    unsafe_code,
    reason = "the safe call of rustix takes it that this number is never 0, which it is in a PID namespace"
)]
//! The process group of this process.
//!
//! A process that entered a PID namespace kept its group. The group's leader may be outside of it, as in a container that was
//! started without `setsid`. There is no number for it then: the kernel says 0 (pid_namespaces(7)).

use rustix::process::Pid;

/// The group of this process; `None`: its leader is outside of this PID namespace.
#[must_use]
pub fn group() -> Option<Pid> {
    // SAFETY: getpgrp reads a number of the calling process, and has no conditions.
    Pid::from_raw(unsafe { libc::getpgrp() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::again::{again, role};

    #[test]
    fn a_leader_has_its_own_number_and_one_outside_has_none() {
        match role().as_deref() {
            Some("leader") => assert_eq!(group(), crate::ids::process()),
            Some(_) => assert_eq!(group(), None),
            None => {
                let test = "group::tests::a_leader_has_its_own_number_and_one_outside_has_none";
                again(&["setsid", "--wait"], test, "leader");
                again(
                    &["unshare", "--pid", "--fork", "--kill-child"],
                    test,
                    "outside",
                );
            }
        }
    }
}
