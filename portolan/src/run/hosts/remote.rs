//! The launcher's loop for several hosts: links, ends of ssh, signals and times, in one thread.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::door::{Address, Doors};
use super::job::Job;
use super::link::{Down, Link, Order, VERSION};
use super::{Hosts, environment, token};
use crate::error::CmdError;
use crate::run::end::{GRACE, end_all};
use crate::run::interrupts::{Interrupts, Told};
use crate::run::pmi_server::PmiServer;
use crate::run::policy::{Policy, Verdict};
use crate::run::reap;
use crate::run::spawn::{self, LOOK, Process};
use crate::run::standstill::Standstill;
use crate::run::{JobSpec, end_with, job_id, wait, with_front};
use crate::words::for_shell;
use signal_hook::consts::{SIGCONT, SIGTSTP};

/// The connections of a host.
struct Host {
    ssh: Process,
    /// Whether its end was handed in.
    ended: bool,
    link: Option<Link>,
}

impl Host {
    /// The connection, if something waits for room in it.
    fn unsent(&self) -> Option<BorrowedFd<'_>> {
        let link = self.link.as_ref().filter(|link| link.has_unsent());
        link.map(Link::as_fd)
    }
}

struct Remote {
    job: Job,
    begun: Instant,
    standstill: Standstill,
    doors: Doors,
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
    with_front(spec.title, |line| supervise(spec, hosts, line))
}

fn supervise(spec: &JobSpec, hosts: &Hosts, line: Option<UnixStream>) -> Result<u8, CmdError> {
    spawn::raise_descriptors();
    let interrupts = Interrupts::catch(line).map_err(failed("catch signals"))?;
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
        standstill: Standstill::default(),
        doors: Doors::default(),
        hosts: Vec::new(),
        interrupts,
    };
    let folder = env::current_dir().map_err(failed("name this folder"))?;
    let args = spec
        .args
        .iter()
        .map(|a| text(a))
        .collect::<Result<Vec<_>, _>>()?;
    for (at, place) in hosts.places.iter().enumerate() {
        let door = remote.doors.open(&place.host, hosts.address.as_deref());
        let Address { names, port } = door.map_err(failed("listen for hosts"))?;
        let order = Order {
            version: VERSION,
            token: remote.job.token().to_owned(),
            addresses: names,
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
    Ok(end_with(remote, spec.title, verdict, Remote::end))
}

/// Starts the agent of a host. Its input is the order and, where rank 0 is there, this process's own.
fn start(hosts: &Hosts, host: &str, order: &Order) -> io::Result<Process> {
    let (first, words) = hosts.ssh.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(first);
    command
        .args(words)
        .arg(host)
        .arg(format!("exec {} agent", for_shell(&hosts.remote)))
        .stdin(Stdio::piped());
    let (process, input) = spawn::start(&mut command, None)?;
    let mut line = serde_json::to_vec(order).map_err(io::Error::other)?;
    line.push(b'\n');
    if let Some(mut input) = input {
        let own = order.ranks.contains(&0) && !io::stdin().is_terminal();
        // In a thread, as ssh takes it when it is through. The thread ends with ssh.
        thread::Builder::new().spawn(move || feed(&mut input, &line, own))?;
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
            if let Some(verdict) = self.interrupted() {
                return Ok(verdict);
            }
            // An agent has said all before its ssh ends, so ends are looked for before words are read, and handed
            // in after them.
            let ended = self.ended()?;
            self.meet();
            for host in 0..self.hosts.len() {
                self.listen_to(host);
            }
            for (host, exit) in ended {
                self.hosts[host].ended = true;
                self.job.handle_ssh_end(host, exit);
            }
            if !self.standstill.lasts() {
                self.job.handle_time(self.now());
            }
            if let Some(verdict) = self.job.poll_verdict() {
                return Ok(verdict);
            }
        }
    }

    /// Since the job began, without the time in which its ranks were stopped.
    fn now(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.standstill.total())
    }

    /// Does what was asked for from outside; the verdict where nobody is left to wait for one.
    fn interrupted(&mut self) -> Option<Verdict> {
        while let Some(told) = self.interrupts.take() {
            match told {
                Told::End(signal) => self.job.handle_interrupt(signal),
                Told::Lost => {
                    return Some(Verdict {
                        status: reap::Exit::Signal(libc::SIGKILL).code(),
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
                    self.standstill.end(Instant::now());
                }
                Told::Pass(signal) => self.signal(signal),
            }
        }
        None
    }

    /// Has all agents send a signal to their ranks.
    fn signal(&mut self, signal: i32) {
        for link in self.hosts.iter_mut().filter_map(|h| h.link.as_mut()) {
            if let Err(error) = link.send(&Down::Signal { signal }) {
                tracing::debug!(signal, %error, "cannot pass a signal on");
            }
        }
    }

    /// Sleeps until something has come, or a time that means something.
    fn wait(&self) -> io::Result<()> {
        let mut fds: Vec<BorrowedFd<'_>> = self.interrupts.fds().collect();
        fds.extend(self.doors.fds());
        let mut look = false;
        let mut full = Vec::new();
        for host in &self.hosts {
            fds.extend(host.link.as_ref().map(Link::as_fd));
            full.extend(host.unsent());
            let ssh = host.ssh.pidfd.as_ref().filter(|_| !host.ended);
            fds.extend(ssh.map(|fd| fd.as_fd()));
            look |= host.ssh.pidfd.is_none();
        }
        let due = self.job.wake().map(|at| at + self.standstill.total());
        let due = due.and_then(|at| self.begun.checked_add(at));
        let due = due.filter(|_| !self.standstill.lasts());
        let look = look.then(|| Instant::now() + LOOK);
        let wake = self.doors.wake().into_iter().chain(due).chain(look).min();
        wait::ready(&fds, &full, wake).map(|_| ())
    }

    /// Hosts whose ssh has ended since the last look.
    fn ended(&self) -> io::Result<Vec<(usize, reap::Exit)>> {
        let mut ended = Vec::new();
        for (at, host) in self.hosts.iter().enumerate().filter(|(_, h)| !h.ended) {
            ended.extend(reap::peek(host.ssh.pid)?.map(|exit| (at, exit)));
        }
        Ok(ended)
    }

    /// Looks which connections are those of agents; one that says anything else is dropped.
    fn meet(&mut self) {
        let mut met = Vec::new();
        let job = &mut self.job;
        self.doors.meet(|mut link, mut received| {
            let first = received.lines.remove(0);
            match job.handle_hello(&first) {
                Ok(host) => met.push((host, link, received)),
                Err(reason) => {
                    tracing::warn!(%reason, "a connection that is not an agent's");
                    // Without waiting: the buffer of a connection that was never written to has room.
                    let _ = link.send(&Down::Refused);
                }
            }
        });
        for (host, mut link, received) in met {
            let welcome = link.send(&Down::Welcome);
            self.hosts[host].link = Some(link);
            let over = received.closed || received.endless || welcome.is_err();
            self.heard(host, &received.lines, over);
        }
        if !self.job.awaits_hosts() {
            self.doors.shut();
        }
    }

    fn listen_to(&mut self, host: usize) {
        if let Some(link) = &mut self.hosts[host].link {
            // The end of the connection is found by reading.
            let _ = link.flush();
            let received = link.receive();
            let over = received.closed || received.endless;
            self.heard(host, &received.lines, over);
        }
    }

    /// Hands in what an agent has said, and sends the answers.
    fn heard(&mut self, host: usize, lines: &[String], over: bool) {
        for line in lines {
            self.job.handle_line(host, line, self.now());
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

    /// Ends the job; whether the front was gone by then.
    fn end(mut self) -> bool {
        self.end_all();
        self.interrupts.is_lost()
    }

    /// Has the agents end their ranks, lets what ranks have written come through ssh, and ends ssh.
    fn end_all(&mut self) {
        for host in &mut self.hosts {
            if let Some(link) = &mut host.link
                && !self.interrupts.is_lost()
            {
                let _ = link.send(&Down::End);
            }
        }
        // An agent has its own grace time.
        let deadline = Instant::now() + GRACE + GRACE;
        let mut hasty = self.interrupts.is_lost();
        while !hasty && Instant::now() < deadline {
            let running = self.hosts.iter().filter(|h| h.link.is_some());
            let running = running.filter(|h| matches!(reap::peek(h.ssh.pid), Ok(None)));
            let running: Vec<&Host> = running.collect();
            if running.is_empty() {
                break;
            }
            let look = running.iter().any(|h| h.ssh.pidfd.is_none());
            let wake = deadline.min(Instant::now() + if look { LOOK } else { GRACE });
            let pidfds = running.iter().filter_map(|h| h.ssh.pidfd.as_ref());
            let mut fds: Vec<BorrowedFd<'_>> = pidfds.map(|fd| fd.as_fd()).collect();
            fds.extend(self.interrupts.fds());
            let full: Vec<_> = running.iter().filter_map(|h| h.unsent()).collect();
            if wait::ready(&fds, &full, Some(wake)).is_err() {
                break;
            }
            for link in self.hosts.iter_mut().filter_map(|h| h.link.as_mut()) {
                let _ = link.flush();
            }
            while let Some(told) = self.interrupts.take() {
                hasty |= matches!(told, Told::End(_) | Told::Lost);
                if told == Told::Stop {
                    self.interrupts.answer();
                }
            }
        }
        // An agent whose connection ends before it was told to end kills its ranks.
        for host in &mut self.hosts {
            host.link = None;
        }
        let ssh: Vec<&Process> = self.hosts.iter().map(|h| &h.ssh).collect();
        // Nothing was below this process before the job.
        let others = reap::Others::default();
        end_all(&ssh, &mut self.interrupts, false, None, &others);
        self.hosts.clear();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end_all();
    }
}
