//! `portolan agent`: starts the ranks of one host, and stands between them and the launcher.
//!
//! It ends its ranks when the launcher says so, when the connection to the launcher is lost, or on a
//! signal. Its own end, by whatever signal, is theirs: the kernel kills them.

use std::ffi::OsString;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::link::{Down, Link, Order, Up, VERSION, read};
use crate::error::CmdError;
use crate::run::end::end_all;
use crate::run::reap::{self, Exit};
use crate::run::socket::LineSocket;
use crate::run::spawn::{self, Process};
use crate::run::supervise::Interrupts;
use crate::run::{JobSpec, find_program};

/// The longest order: an environment may be large.
const ORDER_MAX: usize = 8 << 20;
/// How long each address of the launcher is tried.
const CONNECT: Duration = Duration::from_secs(5);

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> CmdError {
    let what = what.into();
    move |source| CmdError::System { what, source }
}

/// Reads the order, which is the first line of standard input; what follows is rank 0's.
fn order() -> Result<Order, CmdError> {
    let mut line = Vec::new();
    let mut byte = [0];
    // One byte at a time from the descriptor itself: a buffer would hold what is for the rank.
    loop {
        match rustix::io::read(io::stdin(), &mut byte) {
            Ok(0) | Ok(_) if line.len() >= ORDER_MAX => break,
            Ok(0) => break,
            Ok(_) if byte == *b"\n" => break,
            Ok(_) => line.extend_from_slice(&byte),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("cannot read what to do")(errno.into())),
        }
    }
    let order: Order = read(&String::from_utf8_lossy(&line)).map_err(|reason| {
        CmdError::Failed(format!("agent: this is started by portolan run: {reason}"))
    })?;
    if order.version != VERSION {
        return Err(CmdError::Failed(format!(
            "agent: this portolan speaks form {VERSION}, that of the launcher {}",
            order.version
        )));
    }
    Ok(order)
}

/// Connects to the launcher, where ssh comes from or at one of its addresses.
fn connect(order: &Order) -> Result<TcpStream, CmdError> {
    let ssh = std::env::var("SSH_CONNECTION").ok();
    let from = ssh.as_deref().and_then(|s| s.split_whitespace().next());
    let names = order.addresses.iter().map(String::as_str).chain(from);
    let mut reasons = Vec::new();
    for name in names {
        let found = match (name, order.port).to_socket_addrs() {
            Ok(found) => found,
            Err(error) => {
                reasons.push(format!("{name}: {error}"));
                continue;
            }
        };
        for address in found {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Ok(stream),
                Err(error) => reasons.push(format!("{address}: {error}")),
            }
        }
    }
    let reasons = reasons.join("; ");
    Err(CmdError::Failed(format!(
        "cannot reach the launcher ({reasons}); portolan run --address names where it can be reached"
    )))
}

struct Rank {
    number: u32,
    process: Process,
    socket: Option<LineSocket>,
    exit: Option<Exit>,
}

struct Agent {
    link: Link,
    ranks: Vec<Rank>,
    interrupts: Interrupts,
}

/// What became ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Interrupt,
    Link,
    Line(usize),
    RankEnd(usize),
}

/// Runs the agent; must be called from the main thread, as ranks die with the thread that starts them.
pub(crate) fn run() -> Result<u8, CmdError> {
    let order = order()?;
    let me = rustix::process::getpid();
    if let Err(errno) = rustix::process::set_child_subreaper(Some(me)) {
        tracing::warn!(%errno, "processes that detach from their rank may outlive the job");
    }
    let interrupts = Interrupts::catch().map_err(failed("cannot catch signals"))?;
    let mut link = Link::new(connect(&order)?).map_err(failed("cannot use the connection"))?;
    let hello = Up::Hello {
        version: VERSION,
        token: order.token.clone(),
        host: order.host,
    };
    link.send(&hello)
        .map_err(failed("cannot speak to the launcher"))?;
    let mut agent = Agent {
        link,
        ranks: Vec::new(),
        interrupts,
    };
    if let Err(reason) = agent.start(&order) {
        let _ = agent.link.send(&Up::Failed { reason });
        // The launcher has the reason and says it.
        return Ok(1);
    }
    agent.serve().map_err(failed("cannot watch the ranks"))?;
    Ok(0)
}

impl Agent {
    fn start(&mut self, order: &Order) -> Result<(), String> {
        std::env::set_current_dir(&order.folder).map_err(|e| format!("{}: {e}", order.folder))?;
        let program = find_program(order.program.as_ref()).ok_or_else(|| {
            format!(
                "no program {:?} here, in PATH or beside portolan",
                order.program
            )
        })?;
        let spec = JobSpec {
            title: "portolan agent",
            ranks: order.size,
            program: program.clone().into_os_string(),
            args: order.args.iter().map(OsString::from).collect(),
            env: order
                .env
                .iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
            timeout: None,
        };
        for &number in &order.ranks {
            let started = spawn::rank(&spec, &program, number);
            let (process, socket) = started.map_err(|error| format!("rank {number}: {error}"))?;
            self.ranks.push(Rank {
                number,
                process,
                socket: Some(socket),
                exit: None,
            });
        }
        Ok(())
    }

    /// Carries lines until the launcher has had enough.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            for what in self.wait()? {
                match what {
                    Ready::Interrupt => return Ok(()),
                    Ready::Link => {
                        if !self.hear_launcher() {
                            return Ok(());
                        }
                    }
                    Ready::Line(at) => self.hear_rank(at)?,
                    Ready::RankEnd(at) => {
                        if let Some(exit) = reap::peek(self.ranks[at].process.pid)? {
                            // What it said last explains how it ended.
                            self.hear_rank(at)?;
                            self.ranks[at].exit = Some(exit);
                            self.link.send(&Up::exit(self.ranks[at].number, exit))?;
                        }
                    }
                }
            }
        }
    }

    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut watched: Vec<(Ready, BorrowedFd<'_>)> = vec![(Ready::Link, self.link.as_fd())];
        watched.extend(self.interrupts.fds().map(|fd| (Ready::Interrupt, fd)));
        for (at, rank) in self.ranks.iter().enumerate() {
            if rank.exit.is_some() {
                continue;
            }
            if let Some(socket) = &rank.socket {
                watched.push((Ready::Line(at), socket.as_fd()));
            }
            watched.push((Ready::RankEnd(at), rank.process.pidfd.as_fd()));
        }
        let mut fds: Vec<PollFd<'_>> = watched
            .iter()
            .map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready = watched.iter().zip(&fds);
        let ready = ready.filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|((what, _), _)| *what).collect())
    }

    /// Whether the job goes on.
    fn hear_launcher(&mut self) -> bool {
        let received = self.link.receive();
        for line in &received.lines {
            match read::<Down>(line) {
                Ok(Down::Line { rank, line }) => {
                    let Some(rank) = self.ranks.iter_mut().find(|r| r.number == rank) else {
                        continue;
                    };
                    // The rank's end, or its silence, is noticed elsewhere.
                    if rank.socket.as_mut().is_some_and(|s| s.send(&line).is_err()) {
                        rank.socket = None;
                    }
                }
                Ok(Down::End) => return false,
                Err(reason) => {
                    tracing::error!(reason, "the launcher said something strange");
                    return false;
                }
            }
        }
        !received.closed && !received.endless
    }

    fn hear_rank(&mut self, at: usize) -> io::Result<()> {
        let number = self.ranks[at].number;
        let Some(mut socket) = self.ranks[at].socket.take() else {
            return Ok(());
        };
        let received = socket.receive();
        self.ranks[at].socket = (!received.closed).then_some(socket);
        for line in received.lines {
            self.link.send(&Up::Line { rank: number, line })?;
        }
        if received.endless {
            self.link.send(&Up::Endless { rank: number })?;
        }
        if received.closed {
            self.link.send(&Up::Closed { rank: number })?;
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let processes: Vec<&Process> = self.ranks.iter().map(|r| &r.process).collect();
        end_all(&processes, &mut self.interrupts, None);
    }
}
