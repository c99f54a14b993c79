//! The launcher's loop for several hosts: links, ends of ssh, signals and times, in one thread.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::job::Job;
use super::link::{Down, Link, Order, VERSION};
use super::{Hosts, environment, listen, quoted, token};
use crate::error::CmdError;
use crate::run::end::{GRACE, end_all};
use crate::run::pmi_server::PmiServer;
use crate::run::policy::{Policy, Verdict};
use crate::run::reap;
use crate::run::spawn::{self, Process};
use crate::run::supervise::Interrupts;
use crate::run::{JobSpec, job_id, wait};

/// How long a connection has to prove that it is an agent's, and how many may try at a time.
const PROOF: Duration = Duration::from_secs(10);
const STRANGERS: usize = 64;

/// The connections of a host.
struct Host {
    ssh: Process,
    /// Whether its end was handed in.
    ended: bool,
    link: Option<Link>,
}

struct Remote {
    job: Job,
    begun: Instant,
    listener: TcpListener,
    /// Connections that have not said whose they are, and since when.
    strangers: Vec<(Link, Instant)>,
    hosts: Vec<Host>,
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
    let places: Vec<(&str, &[u32])> = hosts
        .places
        .iter()
        .map(|p| (p.host.as_str(), &p.ranks[..]))
        .collect();
    let server = PmiServer::with_mapping(spec.ranks, &job_id(&spec.env), mapping);
    let policy = Policy::new(spec.ranks, program.clone());
    let secret = token().map_err(failed("make a token"))?;
    let mut remote = Remote {
        job: Job::new(
            secret,
            (&places, spec.ranks),
            (server, policy),
            spec.timeout,
        ),
        begun: Instant::now(),
        listener,
        strangers: Vec::new(),
        hosts: Vec::new(),
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
            token: remote.job.token().to_owned(),
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
        remote.hosts.push(Host {
            ssh,
            ended: false,
            link: None,
        });
    }
    let verdict = remote.run().map_err(failed("watch the job"))?;
    if let Some(line) = &verdict.line {
        portals_shim::say(format_args!("{}: {line}", spec.title));
    }
    drop(remote);
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
    fn run(&mut self) -> io::Result<Verdict> {
        loop {
            self.wait()?;
            if let Some(signal) = self.interrupts.take() {
                self.job.handle_interrupt(signal);
            }
            // An agent has said all before its ssh ends, so ends are looked for before words are read, and handed
            // in after them.
            let ended = self.ended()?;
            self.accept();
            self.meet();
            for host in 0..self.hosts.len() {
                self.listen_to(host);
            }
            for (host, exit) in ended {
                self.hosts[host].ended = true;
                self.job.handle_ssh_end(host, exit);
            }
            self.job.handle_time(self.begun.elapsed());
            if let Some(verdict) = self.job.poll_verdict() {
                return Ok(verdict);
            }
        }
    }

    /// Sleeps until something has come, or a time that means something.
    fn wait(&self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd<'_>> = vec![self.listener.as_fd()];
        fds.extend(self.interrupts.fds());
        fds.extend(self.strangers.iter().map(|(link, _)| link.as_fd()));
        for host in &self.hosts {
            fds.extend(host.link.as_ref().map(Link::as_fd));
            fds.extend((!host.ended).then(|| host.ssh.pidfd.as_fd()));
        }
        let proofs = self.strangers.iter().map(|(_, since)| *since + PROOF);
        let wake = self.job.wake().and_then(|at| self.begun.checked_add(at));
        wait::readable(&fds, proofs.chain(wake).min()).map(|_| ())
    }

    /// Hosts whose ssh has ended since the last look.
    fn ended(&self) -> io::Result<Vec<(usize, reap::Exit)>> {
        let mut ended = Vec::new();
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, h)| !h.ended) {
            ended.extend(reap::peek(host.ssh.pid)?.map(|exit| (at, exit)));
        }
        Ok(ended)
    }

    /// Takes the connections that have come.
    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if self.strangers.len() < STRANGERS => match Link::new(stream) {
                    Ok(link) => self.strangers.push((link, Instant::now())),
                    Err(error) => tracing::debug!(%error, "a connection cannot be used"),
                },
                Ok((_, address)) => tracing::warn!(%address, "too many connections at a time"),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!(%error, "no connection");
                    return;
                }
            }
        }
    }

    /// Looks which connections are those of agents; one that says anything else is dropped, and one that says
    /// nothing for too long.
    fn meet(&mut self) {
        for (mut link, since) in std::mem::take(&mut self.strangers) {
            let received = link.receive();
            let Some((first, rest)) = received.lines.split_first() else {
                if !received.closed && !received.endless && since.elapsed() < PROOF {
                    self.strangers.push((link, since));
                }
                continue;
            };
            match self.job.handle_hello(first) {
                Ok(host) => {
                    self.hosts[host].link = Some(link);
                    self.heard(host, rest, received.closed || received.endless);
                }
                Err(reason) => tracing::warn!(%reason, "a connection that is not an agent's"),
            }
        }
    }

    fn listen_to(&mut self, host: usize) {
        if let Some(link) = &mut self.hosts[host].link {
            let received = link.receive();
            let over = received.closed || received.endless;
            self.heard(host, &received.lines, over);
        }
    }

    /// Hands in what an agent has said, and sends the answers.
    fn heard(&mut self, host: usize, lines: &[String], over: bool) {
        for line in lines {
            self.job.handle_line(host, line, self.begun.elapsed());
        }
        if over {
            self.hosts[host].link = None;
            self.job.handle_closed(host);
        }
        while let Some((to, answer)) = self.job.poll_answer() {
            let Some(link) = self.hosts.get_mut(to).and_then(|h| h.link.as_mut()) else {
                continue;
            };
            if let Err(error) = link.send(&answer) {
                // The end of the connection is noticed by the loop.
                tracing::debug!(host = to, %error, "cannot answer");
            }
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
        while Instant::now() < deadline {
            let running = self.hosts.iter().filter(|h| h.link.is_some());
            let running = running.filter(|h| matches!(reap::peek(h.ssh.pid), Ok(None)));
            let mut fds: Vec<_> = running.map(|h| h.ssh.pidfd.as_fd()).collect();
            if fds.is_empty() {
                break;
            }
            fds.extend(self.interrupts.fds());
            if wait::readable(&fds, Some(deadline)).is_err() || self.interrupts.take().is_some() {
                break;
            }
        }
        let ssh: Vec<&Process> = self.hosts.iter().map(|h| &h.ssh).collect();
        end_all(&ssh, &mut self.interrupts, None);
    }
}
