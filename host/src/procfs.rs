//! Processes as `/proc` shows them.
//!
//! `/proc` shows the numbers of the PID namespace that it was mounted in. Inside of a newer namespace, as in a container that has
//! the host's `/proc`, they are not the numbers that system calls take: a process has one number there and another here. So
//! [`Stat`] has numbers of `/proc`, [`Stat::number`] is what system calls take, and [`folder`] goes the other way.

use std::fs;
use std::path::PathBuf;

use crate::ids;
use rustix::process::Pid;

/// What `/proc/PID/stat` says of a process. The numbers are those of `/proc`; 0 is nobody that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The process.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its session.
    pub session: i32,
    /// When it started, in ticks: a number that is used again has another.
    pub start: u64,
}

impl Stat {
    /// Of this process; `None` where `/proc` does not show it.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::read("self")
    }

    /// Of the process that `/proc` shows by this number.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        Self::read(&pid.to_string())
    }

    /// Of all processes that `/proc` shows.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let names = entries.flatten().map(|e| e.file_name());
        let numbers = names.filter_map(|name| name.to_str()?.parse().ok());
        numbers.filter_map(Self::of).collect()
    }

    fn read(name: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{name}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // `pid (name) state ppid pgrp session …`; the name may contain blanks and brackets.
        let (before, after) = text.rsplit_once(')')?;
        let (pid, _) = before.split_once(" (")?;
        let words: Vec<&str> = after.split_whitespace().collect();
        Some(Self {
            pid: pid.parse().ok()?,
            parent: words.get(1)?.parse().ok()?,
            session: words.get(3)?.parse().ok()?,
            start: words.get(19)?.parse().ok()?,
        })
    }

    /// The process's number in the PID namespace of this process; `None` where it has none, or has ended.
    #[must_use]
    pub fn number(self) -> Option<Pid> {
        // From the namespace of `/proc` to the process's own, which may be newer than this one's.
        let numbers = |name: &str| -> Option<Vec<i32>> {
            let status = fs::read_to_string(format!("/proc/{name}/status")).ok()?;
            let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"))?;
            line.split_whitespace().map(|n| n.parse().ok()).collect()
        };
        let depth = numbers("self")?.len().checked_sub(1)?;
        let of = numbers(&self.pid.to_string())?;
        Pid::from_raw(*of.get(depth)?)
    }
}

/// The folder of process `pid` of the PID namespace of this process; `None` where `/proc` is of another namespace, whose process
/// of this number is another one.
#[must_use]
pub fn folder(pid: i32) -> Option<PathBuf> {
    let own = fs::read_link("/proc/self").ok()?;
    let own: i32 = own.to_str()?.parse().ok()?;
    let same = Some(own) == ids::process().map(|own| own.as_raw_nonzero().get());
    same.then(|| PathBuf::from(format!("/proc/{pid}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::again::{again, role};
    use std::process::{Command, Stdio};

    #[test]
    fn the_name_may_have_any_characters() {
        let line = format!("12 (a) T (b)) S 3 4 5{} 77 0", " 0".repeat(15));
        let stat = Stat::parse(&line).expect("a line");
        assert_eq!((stat.pid, stat.parent, stat.session), (12, 3, 5));
        assert_eq!(stat.start, 77);
        assert_eq!(Stat::parse("12 (a) S 3"), None);
        assert_eq!(Stat::of(-1), None);
    }

    /// This process and a child of it, by system calls and by `/proc`.
    fn both_agree() {
        let own = Stat::own().expect("shown");
        assert_eq!(own.number(), ids::process());
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat");
        let pid = Pid::from_child(&child);
        // Other tests of this process have children too.
        let mut all = Stat::all().into_iter();
        let found = all.find(|p| p.parent == own.pid && p.number() == Some(pid));
        let found = found.expect("the child is shown");
        assert_eq!(found.session, own.session);
        let number = pid.as_raw_nonzero().get();
        match folder(number) {
            Some(folder) => assert!(found.pid == number && folder.join("stat").exists()),
            None => assert_ne!(found.pid, number),
        }
        drop(child.stdin.take());
        child.wait().expect("its end");
        assert_eq!(found.number(), None);
    }

    /// In this namespace, and in newer ones with and without a `/proc` of their own.
    #[test]
    fn numbers_of_proc_and_of_system_calls_are_told_apart() {
        both_agree();
        if let Some(role) = role() {
            assert_eq!(folder(1).is_none(), role == "foreign");
            return;
        }
        let test = "procfs::tests::numbers_of_proc_and_of_system_calls_are_told_apart";
        let mut by = vec!["unshare", "--pid", "--fork", "--kill-child"];
        again(&by, test, "foreign");
        by.push("--mount-proc");
        again(&by, test, "own");
    }
}
