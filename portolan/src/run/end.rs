//! Ending the processes of a job.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::reap;
use super::spawn::Process;
use super::supervise::Interrupts;

/// How long processes have between `SIGTERM` and `SIGKILL`.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Ends what still runs: `SIGTERM` to the group of each leader, `SIGKILL` after the grace time or on a
/// second interrupt, then collects every process.
pub(super) fn end_all(leaders: &[&Process], interrupts: &mut Interrupts) {
    let runs = |p: &&&Process| !matches!(reap::peek(p.pid), Ok(Some(_)) | Err(_));
    for process in leaders.iter().filter(runs) {
        reap::signal_group(process.pid, Signal::TERM);
        // A stopped process takes its SIGTERM only when it goes on.
        reap::signal_group(process.pid, Signal::CONT);
    }
    let deadline = Instant::now() + GRACE;
    loop {
        let running: Vec<_> = leaders.iter().filter(runs).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        if running.is_empty() || left.is_zero() {
            break;
        }
        let ends = running
            .iter()
            .map(|p| PollFd::from_borrowed_fd(p.pidfd.as_fd(), PollFlags::IN));
        let others = interrupts
            .fds()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut fds: Vec<_> = ends.chain(others).collect();
        let timeout = Timespec {
            // At most the grace time.
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let polled = poll(&mut fds, Some(&timeout));
        drop(fds);
        if interrupts.take().is_some()
            || matches!(polled, Err(errno) if errno != rustix::io::Errno::INTR)
        {
            break;
        }
    }
    // The leaders are zombies or alive, so the numbers still name their groups.
    for process in leaders {
        reap::signal_group(process.pid, Signal::KILL);
    }
    for process in leaders {
        reap::collect(process.pid);
    }
    reap::sweep();
}
