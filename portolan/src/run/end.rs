//! Ending the processes of a job.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use portals_shim::job::wire::Line;

use super::pmi_server::PmiServer;
use super::reap;
use super::socket::LineSocket;
use super::spawn::Process;
use super::supervise::Interrupts;
use super::wait;

/// How long processes have between `SIGTERM` and `SIGKILL`.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The lines of ranks that are being ended, by rank. One that leaves in good order is told that it may; nothing else is
/// answered, so that no rank goes on.
#[derive(Debug)]
pub(super) struct Leaving<'a> {
    pub(super) lines: Vec<Option<LineSocket>>,
    pub(super) server: &'a mut PmiServer,
}

impl Leaving<'_> {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lines.iter().flatten().map(|line| line.as_fd())
    }

    fn serve(&mut self) {
        for (rank, place) in (0..).zip(&mut self.lines) {
            let Some(line) = place else { continue };
            let received = line.receive();
            for text in &received.lines {
                if !Line::parse(text).is_ok_and(|l| l.command() == Some("finalize")) {
                    continue;
                }
                for (_, answer) in self.server.handle_line(rank, text) {
                    if let Err(error) = line.send(&answer) {
                        tracing::debug!(rank, %error, "cannot answer");
                    }
                }
            }
            if received.closed || received.endless {
                *place = None;
            }
        }
    }
}

/// Ends what still runs: `SIGTERM` to the group of each leader, `SIGKILL` after the grace time or on a
/// second interrupt, then collects every process.
pub(super) fn end_all(
    leaders: &[&Process],
    interrupts: &mut Interrupts,
    mut leaving: Option<Leaving<'_>>,
) {
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
        fds.extend(leaving.iter().flat_map(Leaving::fds));
        if wait::readable(&fds, Some(deadline)).is_err() || interrupts.take().is_some() {
            break;
        }
        if let Some(leaving) = &mut leaving {
            leaving.serve();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    /// What a rank that has joined is answered when it says `said` while the job is being ended.
    fn answered(said: &str) -> String {
        let mut server = PmiServer::new(1, "job");
        server.handle_line(0, "cmd=init pmi_version=1 pmi_subversion=1");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(said.as_bytes()).unwrap();
        let mut leaving = Leaving {
            lines: vec![Some(LineSocket::new(ours).unwrap())],
            server: &mut server,
        };
        leaving.serve();
        drop(leaving);
        let mut answer = String::new();
        theirs.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_rank_that_is_ended_may_leave_and_may_not_go_on() {
        assert_eq!(answered("cmd=finalize\n"), "cmd=finalize_ack rc=0\n");
        assert_eq!(answered("cmd=barrier_in\n"), "");
        assert_eq!(
            answered("cmd=get kvsname=job key=PMI_process_mapping\n"),
            ""
        );
        assert_eq!(answered("no line at all"), "");
    }
}
