//! The process that a user or a batch system has started: it stays in front of the job, and does little.
//!
//! ```text
//!   shell ── front ───────────── supervisor ───── rank 0, rank 1 …
//!            its terminal,       PMI, ends of     a session each
//!            signals             ranks, verdict
//!                 │  signals, one byte each ▶ │
//!                 │ ◀ ranks have stopped      │
//! ```
//!
//! Two processes, so that nothing of a job outlives either. The system gives the orphans of the one to the other: the
//! front is the supervisor's parent, and the supervisor that of the ranks, and both take in what lost its parent below
//! them (`PR_SET_CHILD_SUBREAPER`).
//!
//! | killed | what follows |
//! |---|---|
//! | the front | its end of the line closes; the supervisor kills all that is below it, and ends |
//! | the supervisor | the kernel kills the ranks; the front kills all that is below it, says so, and ends with 128 + the signal |
//!
//! The supervisor has a session of its own, so what a terminal sends to the job in its foreground, or somebody to the
//! process group, comes to the front alone, and once to the supervisor.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, set_child_subreaper, setsid, waitpid};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGTTIN};

use super::interrupts::{Caught, ENDING, PASSED};
use super::reap::{self, Exit, Others};
use super::{edge, wait};

/// How long ranks have to stop before this process does.
const STOP: Duration = Duration::from_secs(1);
/// How often a terminal is looked at of which this job is not in the foreground.
const BACKGROUND: Duration = Duration::from_millis(250);

/// Which of the two processes this is.
pub(super) enum Part {
    Front(Front),
    /// With the line to the front; none where there is no front.
    Supervisor(Option<UnixStream>),
}

/// The front's view of the supervisor.
pub(super) struct Front {
    supervisor: Pid,
    others: Others,
    line: UnixStream,
    /// Where rank 0 reads what is typed at the terminal.
    input: Option<OwnedFd>,
}

/// Parts this process in two; each goes on from here. A process in which several threads work cannot be parted,
/// and is the supervisor alone.
pub(super) fn part() -> io::Result<Part> {
    if threads() != 1 + crate::stack::waiting() {
        return Ok(Part::Supervisor(None));
    }
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let terminal = io::stdin().is_terminal();
    let typed = terminal
        .then(|| pipe_with(PipeFlags::CLOEXEC))
        .transpose()?;
    // What is buffered would be written by both.
    io::stdout().flush()?;
    let others = Others::note();
    match edge::fork()? {
        Some(supervisor) => Ok(Part::Front(Front {
            supervisor,
            others,
            line: ours,
            input: typed.map(|(_, input)| input),
        })),
        None => {
            setsid()?;
            if let Some((output, _)) = &typed {
                edge::take_as_input(output)?;
            }
            Ok(Part::Supervisor(Some(theirs)))
        }
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

impl Front {
    /// Passes signals on until the supervisor has ended; its status.
    pub(super) fn run(mut self, title: &str) -> io::Result<u8> {
        take_in_orphans();
        let ours = ENDING.into_iter().chain(PASSED).chain([SIGTSTP, SIGCONT]);
        let mut caught = Caught::of(ours)?;
        if let Some(input) = self.input.take() {
            // A read in the background is refused, and does not stop this process.
            edge::ignore(SIGTTIN)?;
            // The thread ends with this process, or when rank 0 reads no more.
            if let Err(error) = thread::Builder::new().spawn(move || feed(&input)) {
                portals_shim::say(format_args!(
                    "{title}: nothing that is typed comes to rank 0, as there is no thread for it: {error}"
                ));
            }
        }
        loop {
            let fds: Vec<BorrowedFd<'_>> = caught.fds().chain([self.line.as_fd()]).collect();
            let ready = wait::readable(&fds, None)?;
            for signal in caught.take().collect::<Vec<_>>() {
                match signal {
                    SIGTSTP => self.stop(&mut caught)?,
                    signal => self.pass(signal),
                }
            }
            if ready.last() == Some(&true) && !self.hear() {
                break;
            }
        }
        let exit = collect(self.supervisor)?;
        reap::sweep(&self.others);
        if matches!(exit, Exit::Signal(_) | Exit::Unknown) {
            portals_shim::say(format_args!("{title}: the supervisor of the job {exit}"));
        }
        Ok(exit.code())
    }

    fn pass(&mut self, signal: i32) {
        let word = u8::try_from(signal).unwrap_or_default();
        // The supervisor's end is noticed by the loop. One that reads nothing misses what finds no room.
        let _ = self.line.write(&[word]);
    }

    /// Reads an answer; `false` at the supervisor's end.
    fn hear(&mut self) -> bool {
        match self.line.read(&mut [0; 64]) {
            Ok(count) => count > 0,
            Err(error) => matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock),
        }
    }

    /// Stops the ranks, then this process, then has the ranks go on.
    fn stop(&mut self, caught: &mut Caught) -> io::Result<()> {
        self.pass(SIGTSTP);
        let deadline = Instant::now() + STOP;
        let mut ready = false;
        while !ready && Instant::now() < deadline {
            ready = wait::readable(&[self.line.as_fd()], Some(deadline))? == [true];
        }
        if ready && !self.hear() {
            // The loop sees the end again.
            return Ok(());
        }
        // What has come meanwhile counts: who was told to go on before it stood still does not stop.
        let mut goes_on = false;
        for signal in caught.take().filter(|signal| *signal != SIGTSTP) {
            goes_on |= signal == SIGCONT;
            self.pass(signal);
        }
        if goes_on {
            return Ok(());
        }
        edge::stop_by(SIGTSTP)?;
        // Where the system did not stop this process, as nobody could have it go on, the ranks go on all the same.
        self.pass(SIGCONT);
        Ok(())
    }
}

/// Has processes below this one whose parent ends become this one's children.
pub(super) fn take_in_orphans() {
    // Any number says yes.
    if let Err(errno) = set_child_subreaper(Some(Pid::INIT)) {
        tracing::warn!(%errno, "processes that detach from their rank may outlive the job");
    }
}

/// How `child` ends.
fn collect(child: Pid) -> io::Result<Exit> {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let signal = status.terminating_signal().map(Exit::Signal);
                let status = || Exit::Status(status.exit_status().unwrap_or(1));
                return Ok(signal.unwrap_or_else(status));
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(Exit::Unknown),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Copies what is typed to rank 0 while this job is in the foreground: what is typed otherwise is for others.
fn feed(input: &OwnedFd) {
    let terminal = io::stdin();
    let mut typed = [0; 4096];
    loop {
        if tcgetpgrp(&terminal).is_ok_and(|group| Some(group) != host::group::group()) {
            thread::sleep(BACKGROUND);
            continue;
        }
        let soon = Timespec::try_from(BACKGROUND).ok();
        let mut fds = [PollFd::new(&terminal, PollFlags::IN)];
        match poll(&mut fds, soon.as_ref()) {
            Ok(1..) => {}
            Ok(0) | Err(Errno::INTR) => continue,
            // It refuses that, and a read would not end in the background.
            Err(_) => {
                thread::sleep(BACKGROUND);
                continue;
            }
        }
        match rustix::io::read(&terminal, &mut typed) {
            Ok(0) => return,
            Ok(count) => {
                if write_all(input, typed.get(..count).unwrap_or_default()).is_err() {
                    return;
                }
            }
            Err(Errno::INTR) => {}
            // In the background since the look at it, or gone for good.
            Err(_) => thread::sleep(BACKGROUND),
        }
    }
}

fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
