//! The launcher's loop for several hosts: links, ends of ssh, signals and times, in one thread.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::link::{Down, Link, Order, Up, VERSION, read};
use super::{Hosts, environment, is_token, listen, quoted, token};
use crate::error::CmdError;
use crate::run::end::{GRACE, end_all};
use crate::run::pmi_server::{PmiServer, Stage};
use crate::run::policy::{Policy, Verdict};
use crate::run::reap::{self, Exit};
use crate::run::spawn::{self, Process};
use crate::run::supervise::{CLOSED_LINE, Interrupts, TIMED_OUT};
use crate::run::{JobSpec, job_id};

/// How long hosts have to start their agents.
const START: Duration = Duration::from_secs(60);
/// How long a connection has to prove that it is an agent's, and how many may try at a time.
const PROOF: Duration = Duration::from_secs(10);
const STRANGERS: usize = 64;

struct Host {
    name: String,
    ssh: Process,
    ssh_exit: Option<Exit>,
    link: Option<Link>,
    /// Ranks that have not ended.
    left: usize,
}

struct Rank {
    host: usize,
    ended: bool,
    /// When the line closed before the rank finalized.
    closed: Option<Instant>,
}

/// What became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Interrupt,
    Listener,
    Stranger(usize),
    Link(usize),
    Ssh(usize),
}

struct Remote {
    listener: TcpListener,
    token: String,
    strangers: Vec<(Link, Instant)>,
    hosts: Vec<Host>,
    ranks: Vec<Rank>,
    server: PmiServer,
    policy: Policy,
    interrupts: Interrupts,
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> CmdError {
    let what = format!("cannot {}", what.into());
    move |source| CmdError::System { what, source }
}

fn text(word: &std::ffi::OsStr) -> Result<String, CmdError> {
    let text = word.to_str().map(str::to_owned);
    text.ok_or_else(|| CmdError::Usage(format!("{word:?} is not UTF-8, as hosts want it")))
}

/// Runs a job on `hosts` to its end and returns the exit status for it.
///
/// Must be called from the main thread: ssh dies with the thread that starts it.
///
/// # Errors
/// ssh cannot be started, or something is not UTF-8.
pub(crate) fn launch(spec: &JobSpec, hosts: &Hosts) -> Result<u8, CmdError> {
    let interrupts = Interrupts::catch().map_err(failed("catch signals"))?;
    let listener = listen().map_err(failed("listen for hosts"))?;
    let port = listener
        .local_addr()
        .map_err(failed("listen for hosts"))?
        .port();
    let mapping = super::list::mapping(&hosts.places, spec.ranks);
    let program = text(&spec.program)?;
    let mut job = Remote {
        listener,
        token: token().map_err(failed("make a token"))?,
        strangers: Vec::new(),
        hosts: Vec::new(),
        ranks: (0..spec.ranks)
            .map(|rank| Rank {
                host: hosts
                    .places
                    .iter()
                    .position(|p| p.ranks.contains(&rank))
                    .unwrap_or(0),
                ended: false,
                closed: None,
            })
            .collect(),
        server: PmiServer::with_mapping(spec.ranks, &job_id(&spec.env), mapping),
        policy: Policy::new(spec.ranks, program.clone()),
        interrupts,
    };
    let folder = env::current_dir().map_err(failed("name this folder"))?;
    let args = spec
        .args
        .iter()
        .map(|a| text(a))
        .collect::<Result<Vec<_>, _>>()?;
    let mut addresses: Vec<String> = hosts.address.iter().cloned().collect();
    if addresses.is_empty() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        addresses.push("127.0.0.1".to_owned());
        addresses.push(name.trim().to_owned());
    }
    for (at, place) in hosts.places.iter().enumerate() {
        let order = Order {
            version: VERSION,
            token: job.token.clone(),
            addresses: addresses.clone(),
            port,
            host: at,
            ranks: place.ranks.clone(),
            size: spec.ranks,
            folder: text(folder.as_os_str())?,
            program: program.clone(),
            args: args.clone(),
            env: environment::forwarded(env::vars_os(), &spec.env),
        };
        let started = start(hosts, &place.host, &order);
        let ssh = started.map_err(failed(format!("start {}", hosts.ssh.join(" "))))?;
        job.hosts.push(Host {
            name: place.host.clone(),
            ssh,
            ssh_exit: None,
            link: None,
            left: place.ranks.len(),
        });
    }
    let verdict = job.run(spec.timeout).map_err(failed("watch the job"))?;
    if let Some(line) = &verdict.line {
        let _ = writeln!(io::stderr(), "{}: {line}", spec.title);
    }
    drop(job);
    Ok(verdict.status)
}

/// Starts the agent of a host. Its input is the order and, where rank 0 is there, this process's own.
fn start(hosts: &Hosts, host: &str, order: &Order) -> io::Result<Process> {
    let (first, words) = hosts.ssh.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(first);
    command
        .args(words)
        .arg(host)
        .arg(format!("exec {} agent", quoted(&hosts.remote)))
        .stdin(Stdio::piped());
    let (process, input) = spawn::start(&mut command)?;
    let mut line = serde_json::to_vec(order).map_err(io::Error::other)?;
    line.push(b'\n');
    if let Some(mut input) = input {
        let own = order.ranks.contains(&0) && !io::stdin().is_terminal();
        // In a thread, as ssh takes it when it is through. The thread ends with ssh.
        thread::spawn(move || feed(&mut input, &line, own));
    }
    Ok(process)
}

fn feed(input: &mut ChildStdin, line: &[u8], own: bool) {
    if input.write_all(line).is_ok() && own {
        let _ = io::copy(&mut io::stdin().lock(), input);
    }
}

impl Remote {
    fn run(&mut self, limit: Option<Duration>) -> io::Result<Verdict> {
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        loop {
            let waiting = self.hosts.iter().any(|h| h.link.is_none() && h.left > 0);
            let start = waiting.then_some(begun + START);
            let closed = self
                .ranks
                .iter()
                .filter_map(|r| r.closed.map(|at| at + CLOSED_LINE));
            let proofs = self.strangers.iter().map(|(_, since)| *since + PROOF);
            let wake = closed.chain(proofs).chain(deadline).chain(start).min();
            for what in self.wait(wake)? {
                if let Some(verdict) = self.handle(what)? {
                    return Ok(verdict);
                }
            }
            if let Some(verdict) = self.policy.poll(self.server.stages()) {
                return Ok(verdict);
            }
            let now = Instant::now();
            self.strangers.retain(|(_, since)| now < *since + PROOF);
            if let (Some(limit), true) = (limit, deadline.is_some_and(|at| now >= at)) {
                let words = format!(
                    "the job ran longer than {} s; ending it",
                    limit.as_secs_f64()
                );
                return Ok(Verdict::new(TIMED_OUT, words));
            }
            if start.is_some_and(|at| now >= at) {
                let late = self.hosts.iter().find(|h| h.link.is_none());
                let name = late.map_or("?", |h| h.name.as_str());
                let words = format!(
                    "host {name} has not connected within {} s; ending the job",
                    START.as_secs()
                );
                return Ok(Verdict::new(1, words));
            }
            let late = |r: &Rank| r.closed.is_some_and(|at| now >= at + CLOSED_LINE);
            if let Some(rank) = self.ranks.iter().position(late) {
                let words =
                    format!("rank {rank} closed its line without finalizing; ending the job");
                return Ok(Verdict::new(1, words));
            }
        }
    }

    fn wait(&self, wake: Option<Instant>) -> io::Result<Vec<Ready>> {
        let mut watched: Vec<(Ready, BorrowedFd<'_>)> =
            vec![(Ready::Listener, self.listener.as_fd())];
        watched.extend(self.interrupts.fds().map(|fd| (Ready::Interrupt, fd)));
        for (at, (link, _)) in self.strangers.iter().enumerate() {
            watched.push((Ready::Stranger(at), link.as_fd()));
        }
        for (at, host) in self.hosts.iter().enumerate() {
            // What the agent said comes before the end of its ssh.
            if let Some(link) = &host.link {
                watched.push((Ready::Link(at), link.as_fd()));
            }
            if host.ssh_exit.is_none() {
                watched.push((Ready::Ssh(at), host.ssh.pidfd.as_fd()));
            }
        }
        let mut fds: Vec<PollFd<'_>> = watched
            .iter()
            .map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let timeout = wake.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = watched.iter().zip(&fds);
        let ready = ready.filter(|(_, fd)| !fd.revents().is_empty());
        let mut ready: Vec<Ready> = ready.map(|((what, _), _)| *what).collect();
        // Places in the list of strangers stay right while the last ones are taken out first.
        ready.sort_by_key(|what| match what {
            Ready::Stranger(at) => (0, usize::MAX - at),
            Ready::Ssh(_) => (2, 0),
            _ => (1, 0),
        });
        Ok(ready)
    }

    fn handle(&mut self, what: Ready) -> io::Result<Option<Verdict>> {
        Ok(match what {
            Ready::Interrupt => self.interrupts.take().map(|signal| {
                let words = reap::signal_words(signal);
                let status = Exit::Signal(signal).code();
                Verdict::new(status, format!("stopped by {words}; ending the job"))
            }),
            Ready::Listener => {
                self.accept();
                None
            }
            Ready::Stranger(at) => self.meet(at),
            Ready::Link(at) => self.listen_to(at),
            Ready::Ssh(at) => self.ssh_ended(at)?,
        })
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) if self.strangers.len() < STRANGERS => match Link::new(stream) {
                Ok(link) => self.strangers.push((link, Instant::now())),
                Err(error) => tracing::debug!(%error, "a connection cannot be used"),
            },
            Ok((_, address)) => tracing::warn!(%address, "too many connections at a time"),
            Err(error) => tracing::debug!(%error, "no connection"),
        }
    }

    /// Looks whether a connection is that of an agent; it is dropped if it says anything else.
    fn meet(&mut self, at: usize) -> Option<Verdict> {
        let (mut link, since) = self.strangers.swap_remove(at);
        let received = link.receive();
        let Some(first) = received.lines.first() else {
            if !received.closed && !received.endless {
                self.strangers.push((link, since));
            }
            return None;
        };
        let hello = read::<Up>(first);
        let Ok(Up::Hello {
            version: VERSION,
            token,
            host,
        }) = hello
        else {
            tracing::warn!("a connection that is not an agent's");
            return None;
        };
        if !is_token(&token, &self.token) {
            tracing::warn!("a connection with a wrong token");
            return None;
        }
        let Some(known) = self.hosts.get_mut(host).filter(|h| h.link.is_none()) else {
            tracing::warn!(
                host,
                "an agent of a host that has one, or that is not in the job"
            );
            return None;
        };
        known.link = Some(link);
        // An agent that is quick says with its hello why it cannot go on.
        let mut lines = received.lines.iter().skip(1);
        lines.find_map(|line| self.message(host, line))
    }

    fn listen_to(&mut self, at: usize) -> Option<Verdict> {
        let link = self.hosts[at].link.as_mut()?;
        let received = link.receive();
        for line in &received.lines {
            if let Some(verdict) = self.message(at, line) {
                return Some(verdict);
            }
        }
        if received.closed || received.endless {
            self.hosts[at].link = None;
            return self.lost(at);
        }
        None
    }

    /// The host is gone; a verdict if ranks of it are.
    fn lost(&self, at: usize) -> Option<Verdict> {
        let host = &self.hosts[at];
        (host.left > 0).then(|| {
            let words = format!(
                "lost host {} with {} ranks; ending the job",
                host.name, host.left
            );
            Verdict::new(1, words)
        })
    }

    fn ssh_ended(&mut self, at: usize) -> io::Result<Option<Verdict>> {
        let Some(exit) = reap::peek(self.hosts[at].ssh.pid)? else {
            return Ok(None);
        };
        // What the agent said last may explain it, and nobody may have looked at its connection yet.
        if self.hosts[at].link.is_none() {
            for _ in 0..self.hosts.len() {
                self.accept();
            }
            for stranger in (0..self.strangers.len()).rev() {
                if let Some(verdict) = self.meet(stranger) {
                    return Ok(Some(verdict));
                }
            }
        }
        if let Some(verdict) = self.listen_to(at) {
            return Ok(Some(verdict));
        }
        let host = &mut self.hosts[at];
        host.ssh_exit = Some(exit);
        if host.left == 0 {
            return Ok(None);
        }
        let words = format!(
            "the connection to host {} {exit}{}; ending the job",
            host.name,
            if host.link.is_some() {
                ""
            } else {
                " before its ranks started"
            }
        );
        Ok(Some(Verdict::new(1, words)))
    }

    fn message(&mut self, at: usize, line: &str) -> Option<Verdict> {
        let name = self.hosts[at].name.clone();
        let strange = |reason: &str| {
            Some(Verdict::new(
                1,
                format!("host {name} {reason}; ending the job"),
            ))
        };
        let message = match read::<Up>(line) {
            Ok(message) => message,
            Err(reason) => return strange(&format!("said something strange: {reason}")),
        };
        let rank = match &message {
            Up::Failed { reason } => {
                return strange(&format!("cannot start its ranks: {reason}"));
            }
            Up::Hello { .. } => return strange("said hello twice"),
            Up::Line { rank, .. }
            | Up::Endless { rank }
            | Up::Closed { rank }
            | Up::Exit { rank, .. } => *rank,
        };
        let here = |r: &&mut Rank| r.host == at && !r.ended;
        let position = usize::try_from(rank).unwrap_or(usize::MAX);
        let Some(state) = self.ranks.get_mut(position).filter(here) else {
            return strange(&format!("spoke of rank {rank}, which is not there"));
        };
        match message {
            Up::Line { line, .. } => {
                for (to, answer) in self.server.handle_line(rank, &line) {
                    self.send(to, answer);
                }
            }
            Up::Endless { .. } => self.server.handle_endless(rank),
            Up::Closed { .. } => {
                let joined = self.server.stage(rank) == Stage::Joined;
                state.closed = joined.then(Instant::now);
            }
            Up::Exit { status, signal, .. } => {
                let exit = match (status, signal) {
                    (_, Some(signal)) => Exit::Signal(signal),
                    (status, None) => Exit::Status(status.unwrap_or(1)),
                };
                state.ended = true;
                state.closed = None;
                self.hosts[at].left -= 1;
                if let Some(end) = self.server.poll_end() {
                    return Some(Policy::protocol_end(end));
                }
                return self.policy.handle_exit(rank, exit, self.server.stage(rank));
            }
            Up::Failed { .. } | Up::Hello { .. } => {}
        }
        self.server.poll_end().map(Policy::protocol_end)
    }

    fn send(&mut self, rank: u32, line: String) {
        let at = usize::try_from(rank).unwrap_or(usize::MAX);
        let Some(host) = self.ranks.get(at).and_then(|r| self.hosts.get_mut(r.host)) else {
            return;
        };
        let Some(link) = &mut host.link else { return };
        if let Err(error) = link.send(&Down::Line { rank, line }) {
            // The end of the connection is noticed by the loop.
            tracing::debug!(rank, %error, "cannot answer");
        }
    }
}

impl Drop for Remote {
    /// Has the agents end their ranks, lets what ranks have written come through ssh, and ends ssh.
    fn drop(&mut self) {
        for host in &mut self.hosts {
            if let Some(link) = &mut host.link {
                let _ = link.send(&Down::End);
            }
        }
        // An agent has its own grace time.
        let deadline = Instant::now() + GRACE + GRACE;
        loop {
            let running = self.hosts.iter().filter(|h| h.link.is_some());
            let running = running.filter(|h| matches!(reap::peek(h.ssh.pid), Ok(None)));
            let ends =
                running.map(|h| PollFd::from_borrowed_fd(h.ssh.pidfd.as_fd(), PollFlags::IN));
            let mut fds: Vec<_> = ends.collect();
            let left = deadline.saturating_duration_since(Instant::now());
            if fds.is_empty() || left.is_zero() {
                break;
            }
            let others = self.interrupts.fds();
            fds.extend(others.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let polled = poll(&mut fds, Some(&timeout));
            drop(fds);
            if self.interrupts.take().is_some()
                || matches!(polled, Err(errno) if errno != Errno::INTR)
            {
                break;
            }
        }
        let ssh: Vec<&Process> = self.hosts.iter().map(|h| &h.ssh).collect();
        end_all(&ssh, &mut self.interrupts);
    }
}
