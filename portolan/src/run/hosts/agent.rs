//! `portolan agent`: starts the ranks of one host, and stands between them and the launcher.
//!
//! It ends its ranks when the launcher says so, when the connection to the launcher is lost, or on a
//! signal. Its own end, by whatever signal, is theirs: the kernel kills them.

use std::ffi::OsString;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::link::{Down, Link, Order, Up, VERSION, read};
use crate::error::CmdError;
use crate::run::end::end_all;
use crate::run::front::take_in_orphans;
use crate::run::interrupts::Interrupts;
use crate::run::reap::{self, Exit, Others};
use crate::run::signals;
use crate::run::socket::{LineSocket, Received};
use crate::run::spawn::{self, Own, Process};
use crate::run::watch::{Ready, Watch};
use crate::run::{JobSpec, find_program, no_program, wait};

/// The longest order: an environment may be large.
const ORDER_MAX: usize = 8 << 20;
/// How long each address of the launcher is tried, and how long it has to answer.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the launcher is tried though it answers nothing, or shuts the connection: somebody may keep it busy.
const PATIENCE: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(50);

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

/// Connects to the launcher, at one of its addresses or where ssh comes from, and says hello.
fn connect(order: &Order) -> Result<(Link, Received), CmdError> {
    let begun = Instant::now();
    loop {
        let mut link = Link::new(reach(order)?).map_err(failed("cannot use the connection"))?;
        match greet(&mut link, order) {
            Some((Down::Welcome, received)) => return Ok((link, received)),
            Some((Down::Refused, _)) => {
                return Err(CmdError::Failed(
                    "the launcher refuses this agent".to_owned(),
                ));
            }
            _ => {}
        }
        thread::sleep(PAUSE);
        if begun.elapsed() >= PATIENCE {
            return Err(CmdError::Failed(
                "the launcher does not answer, or is not there".to_owned(),
            ));
        }
    }
}

/// Says hello; the launcher's answer, and what it says after that.
fn greet(link: &mut Link, order: &Order) -> Option<(Down, Received)> {
    let hello = Up::Hello {
        version: VERSION,
        token: order.token.clone(),
        host: order.host,
    };
    link.send(&hello).ok()?;
    let deadline = Instant::now() + CONNECT;
    let mut all = Received::default();
    while all.lines.is_empty() && !all.closed && Instant::now() < deadline {
        wait::readable(&[link.as_fd()], Some(deadline)).ok()?;
        let received = link.receive();
        all.closed = received.closed || received.endless;
        all.lines.extend(received.lines);
    }
    let first = (!all.lines.is_empty()).then(|| all.lines.remove(0))?;
    Some((read(&first).ok()?, all))
}

fn reach(order: &Order) -> Result<TcpStream, CmdError> {
    let ssh = std::env::var("SSH_CONNECTION").ok();
    let from = ssh.as_deref().and_then(|s| s.split_whitespace().next());
    // Where no ssh came from elsewhere, the launcher is on this machine.
    let from = from.unwrap_or("127.0.0.1");
    let names = order.addresses.iter().map(String::as_str).chain([from]);
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
    /// The watch is for room at the launcher too.
    writing: bool,
    ranks: Vec<Rank>,
    interrupts: Interrupts,
    watch: Watch,
    /// Some rank's end has to be looked for.
    look: bool,
    /// The launcher is gone, and has not said that the job is to be ended: nobody waits for its ranks.
    lost: bool,
    others: Others,
}

/// Runs the agent; must be called from the main thread, as ranks die with the thread that starts them.
pub(crate) fn run() -> Result<u8, CmdError> {
    let order = order()?;
    let others = Others::note();
    take_in_orphans();
    spawn::raise_descriptors();
    let interrupts = Interrupts::catch(None).map_err(failed("cannot catch signals"))?;
    let (link, early) = connect(&order)?;
    let watch = Watch::new().map_err(failed("cannot watch the ranks"))?;
    watch
        .add(&link, Ready::Link)
        .map_err(failed("cannot watch the launcher"))?;
    for fd in interrupts.fds() {
        watch
            .add(fd, Ready::Interrupt)
            .map_err(failed("cannot watch signals"))?;
    }
    let mut agent = Agent {
        link,
        writing: false,
        ranks: Vec::new(),
        interrupts,
        watch,
        look: false,
        lost: false,
        others,
    };
    if let Err(reason) = agent.start(&order) {
        let _ = agent.link.send(&Up::Failed { reason });
        // The launcher has the reason and says it.
        return Ok(1);
    }
    agent.lost = early.closed;
    if agent.obey(&early) && !early.closed {
        agent.serve().map_err(failed("cannot watch the ranks"))?;
    }
    Ok(0)
}

impl Agent {
    fn start(&mut self, order: &Order) -> Result<(), String> {
        std::env::set_current_dir(&order.folder).map_err(|e| format!("{}: {e}", order.folder))?;
        let program = find_program(order.program.as_ref())
            .ok_or_else(|| no_program(order.program.as_ref()))?;
        let spec = JobSpec {
            title: "portolan agent",
            ranks: order.size,
            pmi: true,
            program: program.clone().into_os_string(),
            args: order.args.iter().map(OsString::from).collect(),
            env: order
                .env
                .iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
            timeout: None,
            bind: false,
            tag_output: false,
        };
        for &number in &order.ranks {
            let started = spawn::rank(&spec, &program, number, Own::default());
            let wrong = |error| format!("rank {number}: {error}");
            let (process, socket) = started.map_err(wrong)?;
            let at = self.ranks.len();
            let line = self.watch.add(&socket, Ready::Line(at));
            let end = process.pidfd.as_ref();
            let end = end.map_or(Ok(()), |fd| self.watch.add(fd, Ready::RankEnd(at)));
            self.look |= process.pidfd.is_none();
            self.ranks.push(Rank {
                number,
                process,
                socket: Some(socket),
                exit: None,
            });
            line.and(end).map_err(wrong)?;
        }
        Ok(())
    }

    /// Carries lines until the launcher has had enough.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            for what in self.wait()? {
                match what {
                    Ready::Interrupt => {
                        if self.interrupts.take().is_some() {
                            return Ok(());
                        }
                    }
                    Ready::Link => {
                        // The end of the connection is found by reading.
                        let _ = self.link.flush();
                        if !self.hear_launcher() {
                            return Ok(());
                        }
                    }
                    Ready::Line(at) => self.hear_rank(at)?,
                    Ready::RankEnd(at) => self.see_end(at)?,
                }
            }
        }
    }

    fn wait(&mut self) -> io::Result<Vec<Ready>> {
        let unsent = self.link.has_unsent();
        if unsent != self.writing {
            self.watch.also_writable(&self.link, Ready::Link, unsent)?;
            self.writing = unsent;
        }
        let look = self.look.then(|| Instant::now() + spawn::LOOK);
        let mut ready = self.watch.ready(look)?;
        let unseen = |r: &Rank| r.process.pidfd.is_none() && r.exit.is_none();
        let unseen = self.ranks.iter().enumerate().filter(|(_, r)| unseen(r));
        ready.extend(unseen.map(|(at, _)| Ready::RankEnd(at)));
        Ok(ready)
    }

    /// Tells how a rank ended, if it did.
    fn see_end(&mut self, at: usize) -> io::Result<()> {
        if self.ranks[at].exit.is_some() {
            return Ok(());
        }
        let Some(exit) = reap::peek(self.ranks[at].process.pid)? else {
            return Ok(());
        };
        // What it said last explains how it ended.
        self.hear_rank(at)?;
        let rank = &mut self.ranks[at];
        rank.exit = Some(exit);
        if let Some(pidfd) = &rank.process.pidfd {
            self.watch.remove(pidfd);
        }
        if let Some(socket) = rank.socket.take() {
            self.watch.remove(&socket);
        }
        self.link.send(&Up::exit(rank.number, exit))
    }

    /// Whether the job goes on.
    fn hear_launcher(&mut self) -> bool {
        let received = self.link.receive();
        let goes_on = self.obey(&received);
        self.lost |= goes_on && (received.closed || received.endless);
        goes_on && !self.lost
    }

    /// Does what the launcher has said; whether the job goes on.
    fn obey(&mut self, received: &Received) -> bool {
        for line in &received.lines {
            match read::<Down>(line) {
                Ok(Down::Line { rank, line }) => {
                    let Some(rank) = self.ranks.iter_mut().find(|r| r.number == rank) else {
                        continue;
                    };
                    // The rank's end, or its silence, is noticed elsewhere.
                    if rank.socket.as_mut().is_some_and(|s| s.send(&line).is_err())
                        && let Some(socket) = rank.socket.take()
                    {
                        self.watch.remove(&socket);
                    }
                }
                Ok(Down::Signal { signal }) => {
                    let running = self.ranks.iter().filter(|r| r.exit.is_none());
                    signals::send(running.map(|r| r.process.pid), signal);
                }
                Ok(Down::Welcome | Down::Refused) => {}
                Ok(Down::End) => return false,
                Err(reason) => {
                    tracing::error!(reason, "the launcher said something strange");
                    return false;
                }
            }
        }
        true
    }

    fn hear_rank(&mut self, at: usize) -> io::Result<()> {
        let number = self.ranks[at].number;
        let Some(mut socket) = self.ranks[at].socket.take() else {
            return Ok(());
        };
        let received = socket.receive();
        if received.closed {
            self.watch.remove(&socket);
        } else {
            self.ranks[at].socket = Some(socket);
        }
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
        end_all(
            &processes,
            &mut self.interrupts,
            self.lost,
            None,
            &self.others,
        );
    }
}
