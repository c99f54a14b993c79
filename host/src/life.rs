//! Whether a process lives.

use crate::{ids, procfs};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::stat;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has not ended.
    Alive,
    /// It has ended, which is proven.
    Dead,
    /// The kernel does not say. Whoever waits for it goes on waiting: who started it notices its end.
    Unknown,
}

/// A process by its number and the PID namespace in which it has that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number; 0 where that is not known.
    pub pid: u32,
    /// Inode of its PID namespace; 0 where that is not known.
    pub namespace: u64,
    /// A [random](crate::secret::random) word that it has made.
    pub word: u64,
}

impl Process {
    /// This process, which has made that word.
    pub fn own(word: u64) -> Self {
        Self {
            word,
            pid: ids::process().map_or(0, |p| p.as_raw_nonzero().get().cast_unsigned()),
            namespace: stat("/proc/self/ns/pid").map_or(0, |s| s.st_ino),
        }
    }

    /// Its number as the process `seen_by` may use it; `None` where that names another process, or nobody.
    pub fn number(self, seen_by: Self) -> Option<i32> {
        let itself = self == seen_by;
        let together = self.namespace != 0 && self.namespace == seen_by.namespace;
        let pid = i32::try_from(self.pid).ok().filter(|pid| *pid > 0);
        pid.filter(|_| itself || together)
    }
}

/// Whether the process of this number in the own PID namespace lives.
pub fn life(pid: i32) -> Life {
    let Some(pid) = Pid::from_raw(pid) else {
        return Life::Unknown;
    };
    let ended = pidfd_open(pid, PidfdFlags::empty()).and_then(|fd| {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        // Readable once it has ended, although nobody has waited for it.
        Ok(poll(&mut fds, Some(&Timespec::default()))? > 0)
    });
    judge(ended, || test_kill_process(pid))
}

/// Whether the number is that of a process, and not of another of its threads, which names the same memory. Where the
/// system does not say it is taken for one.
pub fn is_process(pid: i32) -> bool {
    let Some(number) = Pid::from_raw(pid) else {
        return false;
    };
    match pidfd_open(number, PidfdFlags::empty()) {
        Ok(_) => true,
        // Older kernels say the first of a thread, newer ones the second.
        Err(Errno::INVAL | Errno::NOENT) => false,
        Err(_) => {
            let status = procfs::folder(pid).map(|p| std::fs::read_to_string(p.join("status")));
            let status = status.and_then(Result::ok).unwrap_or_default();
            let group = status.lines().find_map(|l| l.strip_prefix("Tgid:"));
            group.is_none_or(|group| group.trim().parse() == Ok(pid))
        }
    }
}

/// `ended`: what its pidfd has said; `exists`: what a signal that is not sent says, which takes no descriptor and no
/// kernel that has pidfds.
fn judge(ended: rustix::io::Result<bool>, exists: impl FnOnce() -> rustix::io::Result<()>) -> Life {
    match ended {
        Ok(true) => Life::Dead,
        Ok(false) => Life::Alive,
        // A filter of system calls answers what it likes, ESRCH included: only both are a proof.
        Err(_) if exists() == Err(Errno::SRCH) => Life::Dead,
        // It may be there, or have ended without anybody having waited for it.
        Err(_) => Life::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_lives_until_it_ends_and_not_until_somebody_waits_for_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        assert_eq!(life(pid), Life::Alive);
        // Its end of input ends it; until it is waited for it is a zombie.
        drop(child.stdin.take());
        let fd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        assert_eq!(life(pid), Life::Dead);
        child.wait().unwrap();
        assert_eq!(life(pid), Life::Dead);
        assert_eq!(life(0), Life::Unknown);
    }

    #[test]
    fn what_is_refused_is_no_death() {
        for errno in [
            Errno::NOSYS,
            Errno::PERM,
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::INVAL,
            Errno::SRCH,
        ] {
            assert_eq!(judge(Err(errno), || Ok(())), Life::Unknown, "{errno}");
            let forbidden = || Err(Errno::PERM);
            assert_eq!(judge(Err(errno), forbidden), Life::Unknown, "{errno}");
            let nobody = || Err(Errno::SRCH);
            assert_eq!(judge(Err(errno), nobody), Life::Dead, "{errno}");
        }
        assert_eq!(judge(Ok(false), || Err(Errno::SRCH)), Life::Alive);
    }

    #[test]
    fn a_number_means_something_in_its_namespace_only() {
        let as_word = |pid, namespace, word| Process {
            pid,
            namespace,
            word,
        };
        let at = |pid, namespace| as_word(pid, namespace, u64::from(pid));
        assert_eq!(at(7, 1).number(at(9, 1)), Some(7));
        assert_eq!(at(7, 1).number(at(7, 2)), None);
        assert_eq!(at(7, 0).number(at(9, 0)), None, "nobody knows");
        assert_eq!(at(9, 0).number(at(9, 0)), Some(9), "itself");
        assert_eq!(
            as_word(1, 0, 5).number(at(1, 0)),
            None,
            "first of another namespace"
        );
        assert_eq!(at(0, 1).number(at(9, 1)), None);
        assert_eq!(at(u32::MAX, 1).number(at(9, 1)), None);
        let own = Process::own(1);
        assert_eq!(own.number(own), Some(std::process::id().cast_signed()));
    }
}
