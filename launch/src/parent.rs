//! No rank outlives its launcher.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open,
    set_parent_process_death_signal,
};

use super::JobError;
use host::bystander::spawn_bystander;

fn failed(errno: Errno) -> JobError {
    JobError::Io {
        doing: "tie its life to its launcher",
        source: errno.into(),
    }
}

/// Asks the kernel to kill this process when the thread that started it ends. For launchers that start
/// ranks from their first thread.
pub(super) fn die_with_it() -> Result<(), JobError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed)
}

/// Kills this process when its parent ends, by a thread that waits for that. For launchers that start
/// ranks from threads which end before the job does, as `mpirun` does on machines with many ranks.
pub(super) fn watch() -> Result<(), JobError> {
    // Where the parent has ended already, or is the first process of all, there is nothing to wait for.
    let Some(parent) = getppid().filter(|p| *p != Pid::INIT) else {
        return Ok(());
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
        while matches!(poll(&mut fds, None), Err(Errno::INTR)) {}
        let _ = kill_process(getpid(), Signal::KILL);
    };
    spawn_bystander("launcher-watch", wait).map_err(|source| JobError::Io {
        doing: "tie its life to its launcher",
        source,
    })?;
    Ok(())
}
