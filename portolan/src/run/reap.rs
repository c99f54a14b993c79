//! How processes end and how they are ended.

use std::fmt;
use std::io;

use host::procfs::Stat;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group, waitid,
    waitpid,
};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It exited with this status.
    Status(i32),
    /// This signal killed it.
    Signal(i32),
    /// It is gone, and the system has forgotten how it ended: its number may be another process's.
    Unknown,
}

impl Exit {
    /// The status a shell would give: the process's own, or 128 + the signal.
    pub(crate) fn code(self) -> u8 {
        let code = match self {
            Self::Status(status) => status & 0xff,
            Self::Signal(signal) => 128 + (signal & 0x7f),
            Self::Unknown => 1,
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "exited with status {status}"),
            Self::Signal(signal) => write!(f, "was killed by {}", signal_words(*signal)),
            Self::Unknown => f.write_str("ended, and the system does not tell how"),
        }
    }
}

/// `signal 9 (SIGKILL)`.
pub(crate) fn signal_words(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}

/// How child `pid` ended, where it has; it stays a zombie, so that its number still names it and its group.
pub(super) fn peek(pid: Pid) -> io::Result<Option<Exit>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = match waitid(WaitId::Pid(pid), options) {
        Ok(Some(status)) => status,
        Ok(None) => return Ok(None),
        Err(Errno::CHILD) => return Ok(Some(Exit::Unknown)),
        Err(errno) => return Err(errno.into()),
    };
    Ok(status
        .exit_status()
        .map(Exit::Status)
        .or_else(|| status.terminating_signal().map(Exit::Signal)))
}

/// Whether the number `pid` is still that of this process's child, alive or a zombie.
pub(super) fn is_child(pid: Pid) -> bool {
    matches!(peek(pid), Ok(exit) if exit != Some(Exit::Unknown))
}

/// Sends `signal` to the group that `leader` leads or, as a zombie, has led. A group that is gone is no
/// failure.
pub(super) fn signal_group(leader: Pid, signal: Signal) {
    if let Err(errno) = kill_process_group(leader, signal)
        && errno != Errno::SRCH
    {
        tracing::warn!(pid = leader.as_raw_nonzero().get(), %errno, "cannot signal a process group");
    }
}

/// Collects the zombie `pid`.
pub(super) fn collect(pid: Pid) {
    while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(Errno::INTR)) {}
}

/// Processes that are none of the job's, though below this process: a shell had started them before it became this
/// command by `exec`.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// Each by its number in `/proc`, with the time of its start.
    noted: Vec<(i32, u64)>,
}

impl Others {
    /// Those who are there now, before anything of the job is.
    pub(super) fn note() -> Self {
        let Some(own) = Stat::own() else {
            return Self::default();
        };
        let all = Stat::all();
        let mut below = vec![own.pid];
        let mut at = 0;
        while let Some(parent) = below.get(at).copied() {
            below.extend(all.iter().filter(|p| p.parent == parent).map(|p| p.pid));
            at += 1;
        }
        let noted = all.iter().filter(|p| below[1..].contains(&p.pid));
        Self {
            noted: noted.map(|p| (p.pid, p.start)).collect(),
        }
    }

    /// Whether `process` is of the job. What others have started since, and left behind, is told by its session: this
    /// process's (`own`), which none of a job is in.
    fn are_not(&self, process: &Stat, own: &Stat) -> bool {
        process.session != own.session && !self.noted.contains(&(process.pid, process.start))
    }
}

/// Kills and collects every child this process still has, but not `others`.
///
/// The launcher is a subreaper, so a process that left its rank's group and lost its parent is by now a
/// child here. Its own children become ours when it dies, hence the rounds.
pub(super) fn sweep(others: &Others) {
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        let children = children(others);
        if children.is_empty() {
            return;
        }
        for pid in children {
            // It is this process's child and not yet waited for, so the number is still its own.
            let _ = kill_process(pid, Signal::KILL);
            collect(pid);
        }
    }
}

/// The processes of the job whose parent is this one.
fn children(others: &Others) -> Vec<Pid> {
    let Some(own) = Stat::own() else {
        return Vec::new();
    };
    let mut all = Stat::all();
    all.retain(|p| p.parent == own.pid && others.are_not(p, &own));
    let numbers = all.into_iter().filter_map(Stat::number);
    // A process may have ended since it was looked at, and another have its number.
    numbers.filter(|pid| is_child(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_codes() {
        assert_eq!(
            Exit::Signal(9).to_string(),
            "was killed by signal 9 (SIGKILL)"
        );
        assert_eq!(Exit::Signal(9).code(), 137);
        assert_eq!(Exit::Signal(63).to_string(), "was killed by signal 63");
        assert_eq!(Exit::Status(3).to_string(), "exited with status 3");
        assert_eq!(Exit::Status(3).code(), 3);
    }

    #[test]
    fn the_number_of_a_child_that_the_system_has_forgotten_is_nobodys() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(is_child(pid));
        child.wait().unwrap();
        assert_eq!(peek(pid).unwrap(), Some(Exit::Unknown));
        assert!(!is_child(pid));
        assert_eq!(Exit::Unknown.code(), 1);
        assert_eq!(
            Exit::Unknown.to_string(),
            "ended, and the system does not tell how"
        );
    }
}
