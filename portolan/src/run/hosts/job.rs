//! A job of several hosts as its launcher sees it: who has connected, which ranks have ended, and what that means.
//! No connections, no processes and no clock: times are since the job began.
//!
//! ```text
//!             hello                       link ends
//!   Awaited ─────────▶ Connected ────────────────────────▶ Gone
//!      │                  │ lines: PMI of ranks, ends of ranks
//!      └── ssh ends ──────┴── ssh ends ──▶ the job is over, unless all ranks of the host have ended
//! ```
//!
//! News of several hosts come in no certain order. So a failure that may follow from another is not taken for the cause
//! at once; after a verdict nothing changes it.

use std::collections::VecDeque;
use std::time::Duration;

use super::is_token;
use super::link::{Down, Up, VERSION, read};
use crate::run::pmi_server::{PmiServer, Stage};
use crate::run::policy::{Policy, Verdict};
use crate::run::reap::{self, Exit};
use crate::run::supervise::{CLOSED_LINE, TIMED_OUT};

/// How long hosts have to start their agents.
const START: Duration = Duration::from_secs(60);

/// How long news of other hosts may be under way when a failure is told.
const SETTLE: Duration = Duration::from_millis(300);

/// How a host is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contact {
    Awaited,
    Connected,
    Gone,
}

#[derive(Debug)]
struct Host {
    name: String,
    contact: Contact,
    /// Ranks that have not ended.
    left: usize,
}

#[derive(Debug)]
struct Rank {
    host: usize,
    ended: bool,
    /// When the line closed before the rank finalized.
    closed: Option<Duration>,
}

/// The job.
#[derive(Debug)]
pub(super) struct Job {
    token: String,
    hosts: Vec<Host>,
    ranks: Vec<Rank>,
    server: PmiServer,
    policy: Policy,
    limit: Option<Duration>,
    /// When the failures that were told decide.
    settled: Option<Duration>,
    due: bool,
    answers: VecDeque<(usize, Down)>,
    verdict: Option<Verdict>,
}

/// Why a connection is none of an agent of this job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stranger {
    #[error("it does not say hello in form {VERSION}")]
    NoHello,
    #[error("its token is wrong")]
    Token,
    #[error("it speaks for host {0}, which is not in the job or has spoken already")]
    Host(usize),
}

impl Job {
    /// A job of `size` ranks on hosts, each with its name and its ranks, that may last as long as `limit`.
    pub(super) fn new(
        token: String,
        (hosts, size): (&[(&str, &[u32])], u32),
        (server, policy): (PmiServer, Policy),
        limit: Option<Duration>,
    ) -> Self {
        let host_of = |rank| hosts.iter().position(|(_, ranks)| ranks.contains(&rank));
        Self {
            token,
            ranks: (0..size)
                .map(|rank| Rank {
                    host: host_of(rank).unwrap_or(0),
                    ended: false,
                    closed: None,
                })
                .collect(),
            hosts: hosts
                .iter()
                .map(|(name, ranks)| Host {
                    name: (*name).to_owned(),
                    contact: Contact::Awaited,
                    left: ranks.len(),
                })
                .collect(),
            server,
            policy,
            limit,
            settled: None,
            due: false,
            answers: VecDeque::new(),
            verdict: None,
        }
    }

    /// The secret of the job.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The first line of a connection; the host whose agent it is.
    ///
    /// # Errors
    /// It is not the agent of a host that is still awaited.
    pub(super) fn handle_hello(&mut self, line: &str) -> Result<usize, Stranger> {
        let Ok(Up::Hello {
            version: VERSION,
            token,
            host,
        }) = read(line)
        else {
            return Err(Stranger::NoHello);
        };
        if !is_token(&token, &self.token) {
            return Err(Stranger::Token);
        }
        match self.hosts.get_mut(host) {
            Some(known) if known.contact == Contact::Awaited => {
                known.contact = Contact::Connected;
                Ok(host)
            }
            _ => Err(Stranger::Host(host)),
        }
    }

    /// Whether the agent of some host has not come yet.
    pub(super) fn awaits_hosts(&self) -> bool {
        self.hosts.iter().any(|h| h.contact == Contact::Awaited)
    }

    /// A later line of the agent of `host`.
    pub(super) fn handle_line(&mut self, host: usize, line: &str, now: Duration) {
        if self.verdict.is_some() {
            return;
        }
        if let Err(reason) = self.message(host, line, now) {
            let name = self.name(host);
            self.end(1, format!("host {name} {reason}; ending the job"));
        }
        if self.policy.suspects() && !self.due {
            self.settled.get_or_insert(now + SETTLE);
        }
        if self.policy.is_sure() || self.ranks.iter().all(|r| r.ended) {
            self.decide();
        }
    }

    /// The failures told so far decide, if they can.
    fn decide(&mut self) {
        if self.verdict.is_none() {
            self.verdict = self.policy.poll_cause();
        }
    }

    /// The connection to the agent of `host` has ended.
    pub(super) fn handle_closed(&mut self, host: usize) {
        let Some(state) = self.hosts.get_mut(host) else {
            return;
        };
        state.contact = Contact::Gone;
        if state.left > 0 {
            let words = format!(
                "lost host {} with {} ranks; ending the job",
                state.name, state.left
            );
            self.end(1, words);
        }
    }

    /// The ssh of `host` has ended, after which its agent can say nothing: all that it has said must have been
    /// handed in before.
    pub(super) fn handle_ssh_end(&mut self, host: usize, exit: Exit) {
        let Some(state) = self.hosts.get(host).filter(|h| h.left > 0) else {
            return;
        };
        let name = &state.name;
        let when = match state.contact {
            Contact::Awaited => format!(
                " before its ranks started: `ssh {name} true` must work without a password, and portolan be there \
                 (--remote)"
            ),
            Contact::Connected | Contact::Gone => String::new(),
        };
        let words = format!("the connection to host {name} {exit}{when}; ending the job");
        self.end(1, words);
    }

    /// The user or a batch system ends the job.
    pub(super) fn handle_interrupt(&mut self, signal: i32) {
        self.decide();
        let words = reap::signal_words(signal);
        let status = Exit::Signal(signal).code();
        self.end(status, format!("stopped by {words}; ending the job"));
    }

    /// It is `now`, and all that has come until now was handed in.
    pub(super) fn handle_time(&mut self, now: Duration) {
        if self.verdict.is_some() {
            return;
        }
        if self.settled.is_some_and(|at| now >= at) {
            // A rank that is ending may still have to end.
            self.settled = None;
            self.due = true;
        }
        if self.due {
            self.decide();
        }
        if self.verdict.is_some() {
            return;
        }
        if let Some(verdict) = self.policy.poll(self.server.stages()) {
            self.verdict = Some(verdict);
        } else if let Some(limit) = self.limit.filter(|limit| now >= *limit) {
            let seconds = limit.as_secs_f64();
            let words = format!("the job ran longer than {seconds} s; ending it");
            self.end(TIMED_OUT, words);
        } else if let (Some(late), true) = (self.awaited(), now >= START) {
            let (name, seconds) = (&late.name, START.as_secs());
            let words = format!("host {name} has not connected within {seconds} s; ending the job");
            self.end(1, words);
        } else {
            let late = |r: &Rank| r.closed.is_some_and(|at| now >= at + CLOSED_LINE);
            if let Some(rank) = self.ranks.iter().position(late) {
                let rank = u32::try_from(rank).unwrap_or(u32::MAX);
                self.verdict = Some(self.policy.handle_overdue(rank));
            }
        }
    }

    /// When [`Self::handle_time`] may find something though nothing comes.
    pub(super) fn wake(&self) -> Option<Duration> {
        let closed = self.ranks.iter().filter_map(|r| r.closed);
        let start = self.awaited().map(|_| START);
        closed
            .map(|at| at + CLOSED_LINE)
            .chain(self.limit)
            .chain(self.settled)
            .chain(start)
            .min()
    }

    /// The next message for a host.
    pub(super) fn poll_answer(&mut self) -> Option<(usize, Down)> {
        self.answers.pop_front()
    }

    /// How the job is over, once.
    pub(super) fn poll_verdict(&mut self) -> Option<Verdict> {
        self.verdict.take()
    }

    fn awaited(&self) -> Option<&Host> {
        let mut hosts = self.hosts.iter();
        hosts.find(|h| h.contact == Contact::Awaited && h.left > 0)
    }

    fn name(&self, host: usize) -> &str {
        self.hosts.get(host).map_or("?", |h| h.name.as_str())
    }

    fn end(&mut self, status: u8, words: String) {
        self.verdict
            .get_or_insert_with(|| Verdict::new(status, words));
    }

    /// Does what a line says; an error says what the host does that cannot be.
    fn message(&mut self, host: usize, line: &str, now: Duration) -> Result<(), String> {
        let message: Up =
            read(line).map_err(|reason| format!("said something strange: {reason}"))?;
        let rank = match &message {
            Up::Failed { reason } => return Err(format!("cannot start its ranks: {reason}")),
            Up::Hello { .. } => return Err("said hello twice".to_owned()),
            Up::Line { rank, .. }
            | Up::Endless { rank }
            | Up::Closed { rank }
            | Up::Exit { rank, .. } => *rank,
        };
        let position = usize::try_from(rank).unwrap_or(usize::MAX);
        let here = |r: &&mut Rank| r.host == host && !r.ended;
        let Some(state) = self.ranks.get_mut(position).filter(here) else {
            return Err(format!("spoke of rank {rank}, which is not there"));
        };
        match message {
            Up::Line { line, .. } => {
                for (to, line) in self.server.handle_line(rank, &line) {
                    let at = usize::try_from(to).unwrap_or(usize::MAX);
                    if let Some(rank) = self.ranks.get(at) {
                        let answer = Down::Line { rank: to, line };
                        self.answers.push_back((rank.host, answer));
                    }
                }
            }
            Up::Endless { .. } => self.server.handle_endless(rank),
            Up::Closed { .. } => {
                let joined = self.server.handle_closed(rank) == Stage::Joined;
                if joined {
                    state.closed = Some(now);
                    self.policy.handle_ending(rank);
                }
            }
            Up::Exit { status, signal, .. } => {
                let exit = match (status, signal) {
                    (_, Some(signal)) => Exit::Signal(signal),
                    (Some(status), None) => Exit::Status(status),
                    (None, None) => Exit::Unknown,
                };
                state.ended = true;
                state.closed = None;
                if let Some(host) = self.hosts.get_mut(host) {
                    host.left = host.left.saturating_sub(1);
                }
                self.policy.handle_exit(rank, exit, self.server.stage(rank));
            }
            Up::Failed { .. } | Up::Hello { .. } => {}
        }
        // What ranks say explains how they end.
        if let Some(end) = self.server.poll_end() {
            self.policy.handle_said(end);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
