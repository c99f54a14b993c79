//! The launcher's loop: sockets, ends of processes, signals and the time limit, in one thread.

use std::io;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCONT, SIGTSTP};

use super::end::{Leaving, end_all};
use super::interrupts::{Interrupts, Told};
use super::pmi_server::{End, PmiServer, Stage};
use super::policy::{Policy, Verdict};
use super::reap::{self, Exit};
use super::signals;
use super::socket::LineSocket;
use super::spawn::{LOOK, Process};
use super::standstill::Standstill;
use super::tags::Forwarding;
use super::watch::{Ready, Watch};

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

/// The processes of a job. Dropping it ends and collects all of them.
#[derive(Debug)]
pub(super) struct Supervisor {
    ranks: Vec<Rank>,
    server: PmiServer,
    policy: Policy,
    interrupts: Interrupts,
    watch: Watch,
    /// Some rank's end has to be looked for.
    look: bool,
    standstill: Standstill,
    /// The output of ranks, where it goes through this process.
    output: Option<Forwarding>,
}

impl Supervisor {
    pub(super) fn new(
        server: PmiServer,
        policy: Policy,
        interrupts: Interrupts,
    ) -> io::Result<Self> {
        let watch = Watch::new()?;
        for fd in interrupts.fds() {
            watch.add(fd, Ready::Interrupt)?;
        }
        Ok(Self {
            ranks: Vec::new(),
            server,
            policy,
            interrupts,
            watch,
            look: false,
            standstill: Standstill::default(),
            output: None,
        })
    }

    /// From now on what ranks write is written by `output`.
    pub(super) fn forward(&mut self, output: Forwarding) {
        self.output = Some(output);
    }

    pub(super) fn add_rank(&mut self, process: Process, socket: LineSocket) -> io::Result<()> {
        let at = self.ranks.len();
        let line = self.watch.add(&socket, Ready::Line(at));
        let end = process.pidfd.as_ref();
        let end = end.map_or(Ok(()), |fd| self.watch.add(fd, Ready::RankEnd(at)));
        self.look |= process.pidfd.is_none();
        // Whatever failed, the process is there and must be ended.
        self.ranks.push(Rank {
            process,
            socket: Some(socket),
            exit: None,
            closed: None,
        });
        line.and(end)
    }

    /// Ends the job; whether the front was gone by then.
    pub(super) fn end(mut self) -> bool {
        self.end_all();
        if let Some(output) = self.output.take() {
            output.finish(&mut self.interrupts);
        }
        self.interrupts.is_lost()
    }

    /// Does what was asked for from outside; the verdict if that is the job's end.
    pub(super) fn interrupted(&mut self) -> Option<Verdict> {
        while let Some(told) = self.interrupts.take() {
            match told {
                Told::End(signal) => {
                    let words = reap::signal_words(signal);
                    let status = Exit::Signal(signal).code();
                    let words = format!("stopped by {words}; ending the job");
                    return Some(Verdict::new(status, words));
                }
                Told::Lost => {
                    return Some(Verdict {
                        status: Exit::Signal(libc::SIGKILL).code(),
                        line: None,
                    });
                }
                Told::Stop => {
                    self.signal(SIGTSTP);
                    self.standstill.begin(Instant::now());
                    self.interrupts.answer();
                }
                Told::Continue => {
                    self.signal(SIGCONT);
                    let lasted = self.standstill.end(Instant::now());
                    for closed in self.ranks.iter_mut().filter_map(|r| r.closed.as_mut()) {
                        *closed += lasted;
                    }
                }
                Told::Pass(signal) => self.signal(signal),
            }
        }
        None
    }

    fn signal(&self, signal: i32) {
        let running = self.ranks.iter().filter(|r| r.exit.is_none());
        signals::send(running.map(|r| r.process.pid), signal);
    }

    /// Runs until the job is over or must be ended.
    pub(super) fn run(
        &mut self,
        deadline: Option<Instant>,
        limit: Duration,
    ) -> io::Result<Verdict> {
        loop {
            let lines = self.ranks.iter().filter_map(|r| r.closed);
            let lines = lines.map(|at| at + CLOSED_LINE);
            let wake = lines.chain(self.due(deadline)).min();
            let wake = wake.filter(|_| !self.standstill.lasts());
            let look = self.look.then(|| Instant::now() + LOOK);
            let ready = self.wait(wake.into_iter().chain(look).min())?;
            if ready.contains(&Ready::Interrupt)
                && let Some(verdict) = self.interrupted()
            {
                return Ok(verdict);
            }
            if let Some(verdict) = self.handle(&ready)? {
                return Ok(verdict);
            }
            if self.standstill.lasts() {
                continue;
            }
            let now = Instant::now();
            // Asked for again: a standstill may have ended since.
            if self.due(deadline).is_some_and(|at| now >= at) {
                let seconds = limit.as_secs_f64();
                let words = format!("the job ran longer than {seconds} s; ending it");
                return Ok(Verdict::new(TIMED_OUT, words));
            }
            let late = |r: &Rank| r.closed.is_some_and(|at| now >= at + CLOSED_LINE);
            if let Some(rank) = self.ranks.iter().position(late) {
                return Ok(self.policy.handle_overdue(number(rank)));
            }
        }
    }

    /// When the job's time is over, which is later by the time in which its ranks were stopped.
    fn due(&self, deadline: Option<Instant>) -> Option<Instant> {
        deadline.and_then(|at| at.checked_add(self.standstill.total()))
    }

    /// Sleeps until something is ready or `wake` has come.
    fn wait(&self, wake: Option<Instant>) -> io::Result<Vec<Ready>> {
        let mut ready = self.watch.ready(wake)?;
        if self.look {
            let unseen = |r: &Rank| r.process.pidfd.is_none() && r.exit.is_none();
            let unseen = self.ranks.iter().enumerate().filter(|(_, r)| unseen(r));
            ready.extend(unseen.map(|(at, _)| Ready::RankEnd(at)));
        }
        Ok(ready)
    }

    /// Hands in what has come, in its order; the verdict if that is the job's end.
    fn handle(&mut self, ready: &[Ready]) -> io::Result<Option<Verdict>> {
        let mut said = self.hear(ready)?;
        if said.is_some() || self.policy.suspects() {
            // What was read may have been said after something that had not been told before it.
            let more = self.wait(Some(Instant::now()))?;
            let later = self.hear(&more)?;
            said = said.or(later);
        }
        if let Some(end) = said {
            self.policy.handle_said(end);
        }
        if let Some(cause) = self.policy.poll_cause() {
            return Ok(Some(cause));
        }
        Ok(self.policy.poll(self.server.stages()))
    }

    /// Reads lines and ends, in their order; what was said first of the job's end.
    fn hear(&mut self, ready: &[Ready]) -> io::Result<Option<End>> {
        let mut said = None;
        for what in ready {
            match *what {
                Ready::Interrupt | Ready::Link => {}
                Ready::Line(at) => self.serve(at),
                Ready::RankEnd(at) => {
                    if let Some(exit) = self.end_of(at)? {
                        self.serve(at);
                        said = said.or_else(|| self.server.poll_end());
                        // What it said last (abort, finalize) explains how it ended.
                        if let Some(end) = said.take_if(|end| end.rank() == number(at)) {
                            self.policy.handle_said(end);
                        }
                        self.note_end(at, exit);
                    }
                }
            }
            said = said.or_else(|| self.server.poll_end());
        }
        Ok(said)
    }

    /// How rank `at` ended, if that is news.
    fn end_of(&self, at: usize) -> io::Result<Option<Exit>> {
        match self.ranks[at].exit {
            Some(_) => Ok(None),
            None => reap::peek(self.ranks[at].process.pid),
        }
    }

    fn note_end(&mut self, at: usize, exit: Exit) {
        let rank = &mut self.ranks[at];
        rank.exit = Some(exit);
        rank.closed = None;
        if let Some(pidfd) = &rank.process.pidfd {
            self.watch.remove(pidfd);
        }
        if let Some(socket) = rank.socket.take() {
            self.watch.remove(&socket);
        }
        let rank = number(at);
        self.policy.handle_exit(rank, exit, self.server.stage(rank));
    }

    /// Answers what rank `at` has asked.
    fn serve(&mut self, at: usize) {
        let Some(mut socket) = self.ranks[at].socket.take() else {
            return;
        };
        let received = socket.receive();
        if received.closed {
            self.watch.remove(&socket);
        } else {
            self.ranks[at].socket = Some(socket);
        }
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
        if let Some(socket) = rank.socket.take() {
            self.watch.remove(&socket);
        }
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

    fn end_all(&mut self) {
        let lines = self.ranks.iter_mut().map(|r| r.socket.take()).collect();
        let processes: Vec<&Process> = self.ranks.iter().map(|r| &r.process).collect();
        let server = &mut self.server;
        end_all(
            &processes,
            &mut self.interrupts,
            false,
            Some(Leaving { lines, server }),
            // Nothing was below this process before the job.
            &reap::Others::default(),
        );
        self.ranks.clear();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// The rank at position `at`.
fn number(at: usize) -> u32 {
    // Ranks are counted by a u32 when they are started.
    u32::try_from(at).unwrap_or(u32::MAX)
}
