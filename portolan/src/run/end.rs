//! Ending the processes of a job.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::reap;
use super::spawn::Process;
use super::supervise::Interrupts;
use super::wait;

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
    while Instant::now() < deadline {
        let running = leaders.iter().filter(runs);
        let mut fds: Vec<_> = running.map(|p| p.pidfd.as_fd()).collect();
        if fds.is_empty() {
            break;
        }
        fds.extend(interrupts.fds());
        if wait::readable(&fds, Some(deadline)).is_err() || interrupts.take().is_some() {
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
