//! No rank outlives its launcher.
//!
//! A rank's parent is the launcher, or a program between both that a user has written: a shell, an interpreter. The kernel's
//! signal at the death of the parent is one at the death of the thread that started the process. A pool of threads ends some
//! while its process goes on. So that signal is asked for only where the first thread of the parent has started this process.

use std::fs;

use host::ids::{self, Parent};
use host::procfs::Stat;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};

use super::JobError;
use host::bystander::spawn_bystander;

fn failed(errno: Errno) -> JobError {
    JobError::Tie {
        source: errno.into(),
    }
}

/// Has this process killed when its parent ends: by the kernel, or by a thread of this process where another thread than the
/// parent's first one has started it.
pub(super) fn die_with_it() -> Result<(), JobError> {
    if is_started_by_another_thread() {
        return watch();
    }
    die_by_signal()
}

/// By the kernel, where it does that; else by a thread.
fn die_by_signal() -> Result<(), JobError> {
    // A filter of system calls may refuse that signal.
    set_parent_process_death_signal(Some(Signal::KILL)).or_else(|errno| {
        tracing::debug!(%errno, "no signal at the end of the launcher");
        watch()
    })
}

/// Whether another thread of the parent than its first one has started this process; no where `/proc` does not show the parent.
fn is_started_by_another_thread() -> bool {
    let Some(own) = Stat::own() else {
        return false;
    };
    let threads = format!("/proc/{}/task", own.parent);
    match fs::read_to_string(format!("{threads}/{}/children", own.parent)) {
        Ok(children) => !children
            .split_whitespace()
            .any(|child| child.parse() == Ok(own.pid)),
        // A kernel without these lists.
        Err(_) => fs::read_dir(threads).is_ok_and(|all| all.count() > 1),
    }
}

/// Kills this process when its parent ends, by a thread that waits for that. For launchers that start ranks from threads
/// which end before the job does, as `mpirun` does on machines with many ranks.
pub(super) fn watch() -> Result<(), JobError> {
    // Where the parent has ended already, or is the first process of all, there is nothing to wait for.
    let parent = match ids::parent() {
        Parent::Is(parent) if parent != Pid::INIT => parent,
        Parent::Is(_) | Parent::Outside => return Ok(()),
        Parent::Unknown => {
            tracing::warn!(
                "this rank may outlive its launcher, whose number the system does not say"
            );
            return Ok(());
        }
    };
    let pidfd = match pidfd_open(parent, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        // It ended just now.
        Err(Errno::SRCH) => return Err(failed(Errno::SRCH)),
        Err(errno) => {
            tracing::warn!(%errno, "this rank may outlive its launcher");
            return Ok(());
        }
    };
    let wait = move || {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        loop {
            match poll(&mut fds, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                // The parent has not ended by that.
                Err(errno) => return tracing::warn!(%errno, "this rank may outlive its launcher"),
            }
        }
        let _ = ids::signal_own(Signal::KILL);
    };
    spawn_bystander("launcher-watch", wait).map_err(|source| JobError::Tie { source })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::Timespec;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::thread;

    /// What a process of the tests is: a rank, or what starts one.
    const PART: &str = "PORTOLAN_TEST_PART";

    fn process(part: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "parent::tests::part"]);
        command.env(PART, part).stdin(Stdio::piped());
        command
    }

    /// The program that refuses system calls, for the process that is to start a rank by it.
    const DENY: &str = "PORTOLAN_TEST_DENY";

    /// A rank that the kernel promises nothing, and what it says.
    fn rank_without_signals(deny: std::ffi::OsString) -> (Child, ChildStdout) {
        let plain = process("by signal");
        let mut command = Command::new(deny);
        command.args(["EPERM", "prctl"]).arg(plain.get_program());
        command.args(plain.get_args());
        command.env(PART, "by signal").stdin(Stdio::piped());
        let mut rank = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = rank.stdout.take().unwrap();
        said(&mut out, "tied");
        (rank, out)
    }

    /// Reads until the process has said this line.
    fn said(from: impl std::io::Read, line: &str) {
        let mut lines = BufReader::new(from).lines();
        assert!(lines.any(|said| said.unwrap().ends_with(line)), "{line}");
    }

    /// A rank that a thread has started which has ended, and what it says.
    fn rank_of_a_thread() -> (Child, ChildStdout) {
        let (rank, thread) = thread::spawn(|| {
            let mut rank = process("rank").stdout(Stdio::piped()).spawn().unwrap();
            let mut out = rank.stdout.take().unwrap();
            said(&mut out, "tied");
            ((rank, out), ids::thread().unwrap())
        })
        .join()
        .unwrap();
        // The system tells the children of a thread before it forgets it.
        let name = format!("/proc/self/task/{}", thread.as_raw_nonzero());
        while fs::exists(&name).unwrap() {
            thread::yield_now();
        }
        rank
    }

    /// The processes of the tests below.
    #[test]
    fn part() {
        let Some(part) = std::env::var_os(PART) else {
            return;
        };
        if part == "rank" || part == "by signal" {
            match part == "rank" {
                true => die_with_it().unwrap(),
                false => die_by_signal().unwrap(),
            }
            println!("tied");
            let mut word = [0];
            // The end of input is the end of who has started this.
            if std::io::stdin().read_exact(&mut word).is_ok() {
                println!("lives");
            } else {
                thread::park();
            }
        } else {
            let (rank, _) = match std::env::var_os(DENY) {
                None => rank_of_a_thread(),
                Some(deny) => rank_without_signals(deny),
            };
            println!("rank {}.", rank.id());
            let _ = std::io::stdin().read(&mut [0]);
        }
    }

    #[test]
    fn a_rank_lives_when_the_thread_ends_that_started_it() {
        let (mut rank, mut out) = rank_of_a_thread();
        rank.stdin.take().unwrap().write_all(b"!").unwrap();
        said(&mut out, "lives");
        assert!(rank.wait().unwrap().success());
    }

    #[test]
    fn a_rank_of_such_a_thread_ends_with_its_parent() {
        ends_with_its_parent(&mut process("parent"));
    }

    /// A filter of system calls refuses the kernel's signal at the death of the parent.
    #[test]
    fn a_rank_ends_with_its_parent_where_the_kernel_sends_no_signal() {
        if let Some(deny) = deny::Deny::compile() {
            ends_with_its_parent(process("parent").env(DENY, deny.program()));
        }
    }

    fn ends_with_its_parent(parent: &mut Command) {
        let mut parent = parent.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        let number = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, number) = line.strip_suffix('.')?.rsplit_once("rank ")?;
            Pid::from_raw(number.parse().unwrap())
        });
        let rank = pidfd_open(number.unwrap(), PidfdFlags::empty()).unwrap();
        parent.kill().unwrap();
        parent.wait().unwrap();
        let mut fds = [PollFd::new(&rank, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 30,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&patience)), Ok(1));
    }
}
