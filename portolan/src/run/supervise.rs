//! The launcher's loop: sockets, ends of processes, signals and the time limit, in one thread.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::end::{Leaving, end_all};
use super::pmi_server::{PmiServer, Stage};
use super::policy::{Policy, Verdict};
use super::reap::{self, Exit};
use super::socket::LineSocket;
use super::spawn::Process;

/// How long a rank may live on after it closed its line without finalizing.
pub(super) const CLOSED_LINE: Duration = Duration::from_secs(5);

/// The exit status of a job that ran out of time, as of timeout(1).
pub(super) const TIMED_OUT: u8 = 124;

/// A rank's process, its line, and how it ended.
#[derive(Debug)]
struct Rank {
    process: Process,
    socket: Option<LineSocket>,
    exit: Option<Exit>,
    /// When the line closed before the rank finalized.
    closed: Option<Instant>,
}

/// Signals that end the job, each as a socket that becomes readable.
#[derive(Debug)]
pub(super) struct Interrupts(Vec<(i32, UnixStream)>);

impl Interrupts {
    /// Takes over the signals a user or a batch system ends a job with.
    pub(super) fn catch() -> io::Result<Self> {
        let mut caught = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, writer)?;
            caught.push((signal, reader));
        }
        Ok(Self(caught))
    }

    /// What becomes readable when a signal has arrived.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(_, reader)| reader.as_fd())
    }

    /// The first signal that has arrived since the last call.
    pub(super) fn take(&mut self) -> Option<i32> {
        let arrived = |(signal, reader): &mut (i32, UnixStream)| {
            matches!(reader.read(&mut [0; 64]), Ok(1..)).then_some(*signal)
        };
        self.0
            .iter_mut()
            .filter_map(arrived)
            .reduce(|first, _| first)
    }
}

/// The processes of a job. Dropping it ends and collects all of them.
#[derive(Debug)]
pub(super) struct Supervisor {
    ranks: Vec<Rank>,
    server: PmiServer,
    policy: Policy,
    interrupts: Interrupts,
}

/// What became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Interrupt,
    Line(usize),
    RankEnd(usize),
}

impl Supervisor {
    pub(super) fn new(server: PmiServer, policy: Policy, interrupts: Interrupts) -> Self {
        Self {
            ranks: Vec::new(),
            server,
            policy,
            interrupts,
        }
    }

    pub(super) fn add_rank(&mut self, process: Process, socket: LineSocket) {
        self.ranks.push(Rank {
            process,
            socket: Some(socket),
            exit: None,
            closed: None,
        });
    }

    /// Runs until the job is over or must be ended.
    pub(super) fn run(
        &mut self,
        deadline: Option<Instant>,
        limit: Duration,
    ) -> io::Result<Verdict> {
        loop {
            let lines = self
                .ranks
                .iter()
                .filter_map(|r| r.closed.map(|at| at + CLOSED_LINE));
            let wake = lines.chain(deadline).min();
            let ready = self.wait(wake)?;
            if let Some(signal) = ready
                .contains(&Ready::Interrupt)
                .then(|| self.interrupts.take())
                .flatten()
            {
                let words = reap::signal_words(signal);
                let status = Exit::Signal(signal).code();
                return Ok(Verdict::new(
                    status,
                    format!("stopped by {words}; ending the job"),
                ));
            }
            if let Some(verdict) = self.handle(&ready)? {
                return Ok(verdict);
            }
            let now = Instant::now();
            if deadline.is_some_and(|at| now >= at) {
                let words = format!(
                    "the job ran longer than {} s; ending it",
                    limit.as_secs_f64()
                );
                return Ok(Verdict::new(TIMED_OUT, words));
            }
            let late = |r: &Rank| r.closed.is_some_and(|at| now >= at + CLOSED_LINE);
            if let Some(rank) = self.ranks.iter().position(late) {
                return Ok(self.policy.handle_overdue(number(rank)));
            }
        }
    }

    /// Sleeps until something is ready or `wake` has come.
    fn wait(&self, wake: Option<Instant>) -> io::Result<Vec<Ready>> {
        let mut watched: Vec<(Ready, BorrowedFd<'_>)> = Vec::new();
        watched.extend(self.interrupts.fds().map(|fd| (Ready::Interrupt, fd)));
        for (at, rank) in self
            .ranks
            .iter()
            .enumerate()
            .filter(|(_, r)| r.exit.is_none())
        {
            if let Some(socket) = &rank.socket {
                watched.push((Ready::Line(at), socket.as_fd()));
            }
            watched.push((Ready::RankEnd(at), rank.process.pidfd.as_fd()));
        }
        let fds: Vec<BorrowedFd<'_>> = watched.iter().map(|(_, fd)| *fd).collect();
        let readable = super::wait::readable(&fds, wake)?;
        let ready = watched.iter().zip(readable).filter(|(_, ready)| *ready);
        Ok(ready.map(|((what, _), _)| *what).collect())
    }

    fn handle(&mut self, ready: &[Ready]) -> io::Result<Option<Verdict>> {
        let mut ended = Vec::new();
        for what in ready {
            match *what {
                Ready::Interrupt => {}
                Ready::Line(at) => self.serve(at),
                Ready::RankEnd(at) => {
                    if let Some(exit) = reap::peek(self.ranks[at].process.pid)? {
                        // What it said last (abort, finalize) explains how it ended.
                        self.serve(at);
                        self.ranks[at].exit = Some(exit);
                        self.ranks[at].closed = None;
                        ended.push((at, exit));
                    }
                }
            }
            if let Some(end) = self.server.poll_end() {
                return Ok(Some(Policy::protocol_end(end)));
            }
        }
        // Who closed its line before these failed must be known before they are judged.
        if ended.iter().any(|(_, exit)| *exit != Exit::Status(0)) {
            for at in 0..self.ranks.len() {
                if self.ranks[at].exit.is_none() {
                    self.serve(at);
                }
            }
            if let Some(end) = self.server.poll_end() {
                return Ok(Some(Policy::protocol_end(end)));
            }
        }
        for (at, _) in &ended {
            self.policy.handle_ending(number(*at));
        }
        for (at, exit) in ended {
            let rank = number(at);
            if let Some(verdict) = self.policy.handle_exit(rank, exit, self.server.stage(rank)) {
                return Ok(Some(verdict));
            }
        }
        Ok(self.policy.poll(self.server.stages()))
    }

    /// Answers what rank `at` has asked.
    fn serve(&mut self, at: usize) {
        let Some(mut socket) = self.ranks[at].socket.take() else {
            return;
        };
        let received = socket.receive();
        self.ranks[at].socket = (!received.closed).then_some(socket);
        for line in &received.lines {
            tracing::trace!(rank = at, line, "from rank");
            for (to, answer) in self.server.handle_line(number(at), line) {
                tracing::trace!(rank = to, answer = answer.trim_end(), "to rank");
                self.send(to, &answer);
            }
        }
        if received.endless {
            self.server.handle_endless(number(at));
        }
        if received.closed {
            self.note_closed(at);
        }
    }

    /// Starts the clock for a rank that can no longer be talked to and has not left the job.
    fn note_closed(&mut self, at: usize) {
        let joined = self.server.handle_closed(number(at)) == Stage::Joined;
        let rank = &mut self.ranks[at];
        rank.socket = None;
        rank.closed = (joined && rank.exit.is_none()).then(Instant::now);
        if rank.closed.is_some() {
            self.policy.handle_ending(number(at));
        }
    }

    fn send(&mut self, to: u32, answer: &str) {
        let at = usize::try_from(to).unwrap_or(usize::MAX);
        let Some(socket) = self.ranks.get_mut(at).and_then(|r| r.socket.as_mut()) else {
            return;
        };
        if let Err(error) = socket.send(answer) {
            // The rank's end, or its silence, is noticed by the loop.
            tracing::debug!(rank = to, %error, "cannot answer");
            self.note_closed(at);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let lines = self.ranks.iter_mut().map(|r| r.socket.take()).collect();
        let processes: Vec<&Process> = self.ranks.iter().map(|r| &r.process).collect();
        let server = &mut self.server;
        end_all(
            &processes,
            &mut self.interrupts,
            Some(Leaving { lines, server }),
        );
    }
}

/// The rank at position `at`.
fn number(at: usize) -> u32 {
    // Ranks are counted by a u32 when they are started.
    u32::try_from(at).unwrap_or(u32::MAX)
}
