//! Ending the processes of a job.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use portals_shim::job::wire::Line;

use super::interrupts::{Interrupts, Told};
use super::pmi_server::PmiServer;
use super::reap::{self, Others};
use super::socket::LineSocket;
use super::spawn::{LOOK, Process};
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

/// Ends what still runs: `SIGTERM` to the group of each leader, `SIGKILL` after the grace time, on a
/// second interrupt, or at once where it is `hasty` or the front is gone, then collects every process and all that is left below this one but `others`.
pub(super) fn end_all(
    leaders: &[&Process],
    interrupts: &mut Interrupts,
    mut hasty: bool,
    mut leaving: Option<Leaving<'_>>,
    others: &Others,
) {
    let runs = |p: &&&Process| !matches!(reap::peek(p.pid), Ok(Some(_)) | Err(_));
    hasty |= interrupts.is_lost();
    for process in leaders.iter().filter(runs) {
        reap::signal_group(process.pid, Signal::TERM);
        // A stopped process takes its SIGTERM only when it goes on.
        reap::signal_group(process.pid, Signal::CONT);
    }
    let deadline = Instant::now() + GRACE;
    while !hasty && Instant::now() < deadline {
        let running: Vec<&&Process> = leaders.iter().filter(runs).collect();
        if running.is_empty() {
            break;
        }
        let look = running.iter().any(|p| p.pidfd.is_none());
        let wake = deadline.min(Instant::now() + if look { LOOK } else { GRACE });
        let pidfds = running.iter().filter_map(|p| p.pidfd.as_ref());
        let mut fds: Vec<BorrowedFd<'_>> = pidfds.map(|fd| fd.as_fd()).collect();
        fds.extend(interrupts.fds());
        fds.extend(leaving.iter().flat_map(Leaving::fds));
        if wait::readable(&fds, Some(wake)).is_err() {
            break;
        }
        while let Some(told) = interrupts.take() {
            hasty |= matches!(told, Told::End(_) | Told::Lost);
            if told == Told::Stop {
                // What is being ended is not stopped.
                interrupts.answer();
            }
        }
        if let Some(leaving) = &mut leaving {
            leaving.serve();
        }
    }
    // Those that are zombies or alive: the numbers still name their groups.
    for process in leaders.iter().filter(|p| reap::is_child(p.pid)) {
        reap::signal_group(process.pid, Signal::KILL);
    }
    for process in leaders {
        reap::collect(process.pid);
    }
    reap::sweep(others);
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
