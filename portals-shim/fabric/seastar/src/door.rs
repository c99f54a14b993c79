//! Who may join a simulation, and how long that may take.
//!
//! Anybody of the machine can connect. Who is a rank is proven by two things: the kernel says that the peer runs as the
//! simulation's own user, and its hello has the secret of the job. Whoever proves neither is told why and dropped, and
//! delays nobody:
//!
//! | a peer that | is |
//! |---|---|
//! | runs as another user | dropped when it connects |
//! | is silent | dropped after [`HELLO_WITHIN`], or for a newer one when [`MOST_PENDING`], and twice as many as the job has ranks, are |
//! | hangs up | forgotten |
//! | says anything but a hello with the secret | dropped |
//!
//! A rank that has proven itself ends the job when it cannot take part: every other that has come, or comes within
//! [`LINGER`], is told why.

mod open;

use super::line::{Line, Received};
use super::proto::{
    ARRIVAL, Arrival, HELLO, Handed, Hello, MAX_DATAGRAM, Opened, VERSION, read_opening,
};
use super::server::{GATHER, ServeError, system};
use super::usermem::{Files, ProcessMemory};
use host::accept::{NotAccepted, Refused};
use host::awake::Awake;
use host::peer::{Credentials, has_exited, is_own_user, pidfd};
use host::secret::Secret;
use open::Arrivals;
pub(super) use open::{Newcomer, attend};
use portals_core::NiConfig;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long whoever connects may take for its hello, which a rank says at once.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Connections without a hello at one time, of a job with fewer than half as many ranks: those of larger jobs leave the
/// launcher's fence together, and all may connect before one is heard.
const MOST_PENDING: usize = 256;
/// How long ranks that come late are told why there is no job.
const LINGER: Duration = Duration::from_millis(500);
/// Connections that are taken at once, before anybody else is heard.
const AT_ONCE: usize = 64;
/// How long nobody is let in after the system has refused a connection.
const BREATH: Duration = Duration::from_millis(100);

/// A rank that has said hello.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) line: Line,
    pub(super) config: NiConfig,
    pub(super) memory: ProcessMemory,
    /// Tells of the end of its process, also while others have its socket.
    pub(super) process: Option<OwnedFd>,
}

/// Somebody who has connected and said nothing yet.
#[derive(Debug)]
struct Pending {
    line: Line,
    /// What it has left for its hello; none for rank 0, which has started the simulation.
    left: Option<Awake>,
    process: Option<OwnedFd>,
}

/// The ranks that have come, and those who want to.
#[derive(Debug)]
pub(super) struct Door {
    secret: Secret,
    listener: OwnedFd,
    pending: Vec<Pending>,
    joined: Vec<Option<Joined>>,
    /// What ranks have left to come until something is said of it, once the first has.
    left: Option<Awake>,
    /// The system refused a connection; the next try is then.
    breath: Option<(Instant, Refused)>,
    /// How long whoever connects may take for its hello.
    hello_within: Duration,
    turned_away: u64,
    /// Where endpoints go, of an open simulation.
    arrivals: Option<Arrivals>,
}

/// What a first datagram came to.
enum Verdict {
    Rank(usize, NiConfig, ProcessMemory),
    Endpoint(Arrival, ProcessMemory),
    /// No rank of this job.
    Stranger(String),
    /// A rank of this job that cannot take part.
    Unfit(ServeError),
}

impl Door {
    /// For `want` ranks, of which `founder` is connected already.
    pub(super) fn new(
        secret: Secret,
        listener: OwnedFd,
        want: usize,
        founder: Option<OwnedFd>,
    ) -> Self {
        let pending = |socket: OwnedFd| Pending {
            process: pidfd(&socket).ok(),
            line: Line::new(socket),
            left: None,
        };
        Self {
            secret,
            listener,
            pending: founder.map(pending).into_iter().collect(),
            joined: (0..want).map(|_| None).collect(),
            left: None,
            breath: None,
            hello_within: HELLO_WITHIN,
            turned_away: 0,
            arrivals: None,
        }
    }

    fn came(&self) -> usize {
        self.joined.iter().flatten().count()
    }

    /// Waits for all ranks. When they cannot come together every one that has come is told why, and so is who comes soon.
    pub(super) fn gather(mut self) -> Result<Vec<Joined>, ServeError> {
        while self.came() < self.joined.len() {
            if let Err(error) = self.step() {
                self.close(&error);
                return Err(error);
            }
        }
        if self.turned_away > 0 {
            tracing::warn!(
                "{} connections to the simulation were not of this job and were turned away",
                self.turned_away
            );
        }
        Ok(self.joined.into_iter().flatten().collect())
    }

    /// Waits until something happens, and deals with it.
    fn step(&mut self) -> Result<(), ServeError> {
        if self.left.as_mut().is_some_and(Awake::is_over) {
            self.lack_ranks()?;
        }
        let ready = self.wait(Instant::now())?;
        if ready.ends {
            return Err(ServeError::Left { rank: 0 });
        }
        if let Some(&rank) = ready.joined.first() {
            return Err(self.broken_off(rank));
        }
        // From the last to the first, as they are taken out.
        for &at in ready.pending.iter().rev() {
            self.hear(at)?;
        }
        self.lose_patience();
        if ready.calls {
            self.accept();
        }
        Ok(())
    }

    /// Ranks that have not come in time may be stopped: their launcher knows whether they live, and ends the job if they do not.
    fn lack_ranks(&mut self) -> Result<(), ServeError> {
        let missing = self.missing();
        if self.breath.is_some() {
            return Err(missing);
        }
        self.left = None;
        let _ = writeln!(std::io::stderr(), "portolan: {missing}; it is waited for");
        Ok(())
    }

    fn missing(&self) -> ServeError {
        let missing = (0..).zip(&self.joined).filter(|(_, j)| j.is_none());
        ServeError::Missing {
            came: self.came(),
            want: self.joined.len(),
            first: missing.map(|(rank, _)| rank).next().unwrap_or_default(),
            because: match self.breath {
                Some((_, refused)) => format!("; a connection is not accepted: {refused}"),
                None => String::new(),
            },
        }
    }

    /// A rank that had said hello has done something before the simulation began.
    fn broken_off(&self, rank: usize) -> ServeError {
        let spoke = self.joined[rank].as_ref().is_some_and(|j| {
            matches!(
                j.line.hear(&mut [0; 1]),
                Received::Datagram(_) | Received::TooLong
            )
        });
        match spoke {
            true => ServeError::Hello(format!("rank {rank} says more than that")),
            false => ServeError::Left { rank },
        }
    }

    /// Waits for the next thing to do, from `now` on.
    fn wait(&self, now: Instant) -> Result<Ready, ServeError> {
        let mut fds = Vec::new();
        let mut who = Vec::new();
        let mut add = |fd, is| {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            who.push(is);
        };
        if let Some(arrivals) = &self.arrivals {
            add(arrivals.end.as_fd(), Who::End);
        }
        let breath = self.breath.map(|b| b.0).filter(|until| *until > now);
        if breath.is_none() {
            add(self.listener.as_fd(), Who::Caller);
        }
        for (at, pending) in self.pending.iter().enumerate() {
            add(pending.line.as_fd(), Who::Pending(at));
            if let Some(process) = &pending.process {
                add(process.as_fd(), Who::Pending(at));
            }
        }
        for (rank, joined) in self.joined.iter().enumerate() {
            let Some(joined) = joined else { continue };
            add(joined.line.as_fd(), Who::Joined(rank));
            if let Some(process) = &joined.process {
                add(process.as_fd(), Who::Joined(rank));
            }
        }
        let limits = self.pending.iter().filter_map(|p| p.left.as_ref());
        let limits = limits.chain(&self.left).map(Awake::slice);
        let breath = breath.map(|until| until.saturating_duration_since(now));
        ready_of(&mut fds, limits.chain(breath).min()).map_err(system("waiting for ranks"))?;
        let mut ready = Ready::default();
        for (fd, is) in fds.iter().zip(who) {
            match is {
                _ if fd.revents().is_empty() => {}
                Who::End => ready.ends = true,
                Who::Caller => ready.calls = true,
                Who::Pending(at) => ready.pending.push(at),
                Who::Joined(rank) => ready.joined.push(rank),
            }
        }
        ready.pending.dedup();
        Ok(ready)
    }

    /// Reads the first datagram of somebody who has connected.
    fn hear(&mut self, at: usize) -> Result<(), ServeError> {
        let mut buffer = [0; MAX_DATAGRAM];
        let mut fds = Vec::new();
        let pending = &self.pending[at];
        let verdict = match pending.line.hear_with(&mut buffer, &mut fds) {
            Received::Nothing if !pending.process.as_ref().is_some_and(has_exited) => return Ok(()),
            Received::Nothing | Received::Closed => {
                return match self.pending.remove(at).left {
                    Some(_) => Ok(()),
                    None => Err(ServeError::Left { rank: 0 }),
                };
            }
            Received::TooLong => Verdict::Stranger(NO_HELLO.to_owned()),
            Received::Datagram(n) => self.judge(&buffer[..n], fds),
        };
        let Pending {
            line,
            left,
            process,
        } = self.pending.remove(at);
        match verdict {
            Verdict::Rank(rank, config, memory) => {
                if self.left.is_none() {
                    self.left = Some(Awake::new(GATHER));
                }
                let process = process.or_else(|| pidfd(&line).ok());
                let joined = Joined {
                    line,
                    config,
                    memory,
                    process,
                };
                if self.joined[rank].is_some() {
                    let error = ServeError::Hello(format!("rank {rank} came twice"));
                    joined.line.refuse(&error.to_string());
                    return Err(error);
                }
                self.joined[rank] = Some(joined);
                Ok(())
            }
            Verdict::Endpoint(arrival, memory) => {
                let process = process.or_else(|| pidfd(&line).ok());
                self.announce(Newcomer {
                    line,
                    config: arrival.config,
                    of: arrival.owner,
                    memory,
                    process,
                });
                Ok(())
            }
            Verdict::Stranger(why) if left.is_some() => {
                self.turn_away(&line, &why);
                Ok(())
            }
            // Nobody else has this end of the line.
            Verdict::Stranger(why) => {
                let error = ServeError::Hello(why);
                line.refuse(&error.to_string());
                Err(error)
            }
            Verdict::Unfit(error) => {
                line.refuse(&error.to_string());
                Err(error)
            }
        }
    }

    fn judge(&self, datagram: &[u8], fds: Vec<OwnedFd>) -> Verdict {
        let hello = |why: String| Verdict::Unfit(ServeError::Hello(why));
        let kind = self.arrivals.as_ref().map_or(HELLO, |_| ARRIVAL);
        let Some(opened) = read_opening(kind, datagram) else {
            return Verdict::Stranger(NO_HELLO.to_owned());
        };
        let Opened {
            version,
            secret,
            rest,
        } = opened;
        if !self.secret.is(secret) {
            let of = self.arrivals.as_ref().map_or("job", |_| "simulation");
            return Verdict::Stranger(format!("the hello does not have this {of}'s secret"));
        }
        if version != VERSION {
            return hello(format!("it is of version {version} and not {VERSION}"));
        }
        if self.arrivals.is_some() {
            return Self::judge_arrival(rest, fds);
        }
        let Hello {
            rank,
            config,
            memory,
        } = match postcard::from_bytes(rest) {
            Ok(hello) => hello,
            Err(error) => return hello(error.to_string()),
        };
        let Some(place) = usize::try_from(rank)
            .ok()
            .filter(|r| *r < self.joined.len())
        else {
            return hello(format!("rank {rank} of {}", self.joined.len()));
        };
        let files = match memory {
            Handed::Files(probe) => Files::received(fds, &probe),
            Handed::Refused(why) => Err(why),
        };
        match files {
            Ok(files) => Verdict::Rank(place, config, ProcessMemory::new(Arc::new(files))),
            Err(why) => Verdict::Unfit(ServeError::Memory { rank, why }),
        }
    }

    fn turn_away(&mut self, line: &Line, why: &str) {
        tracing::debug!("a connection to the simulation was turned away: {why}");
        self.turned_away += 1;
        let of = self.arrivals.as_ref().map_or("job", |_| "simulation");
        line.refuse(&format!("this connection is not of the {of}: {why}"));
    }

    /// Drops those who have said nothing for too long.
    fn lose_patience(&mut self) {
        let late = |p: &mut Pending| p.left.as_mut().is_some_and(Awake::is_over);
        let late: Vec<Pending> = self.pending.extract_if(.., late).collect();
        for pending in late {
            self.turn_away(
                &pending.line,
                &format!("no hello within {:?}", self.hello_within),
            );
        }
    }

    /// Drops the one who has been silent longest; whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some(at) = self.pending.iter().position(|p| p.left.is_some()) else {
            return false;
        };
        let pending = self.pending.remove(at);
        self.turn_away(&pending.line, "others came, and it had said no hello yet");
        true
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            let listener = &self.listener;
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.let_in(socket),
                Err(errno) => match NotAccepted::of(errno, listener) {
                    NotAccepted::Nobody => return,
                    NotAccepted::Next => {}
                    NotAccepted::Later(refused) => {
                        // Room is made by those who have no claim to it. Otherwise somebody else may make some.
                        let room = refused.is_for_want_of_room() && self.drop_oldest();
                        if !room {
                            self.breath = Some((Instant::now() + BREATH, refused));
                            return;
                        }
                    }
                },
            }
        }
    }

    fn let_in(&mut self, socket: OwnedFd) {
        self.breath = None;
        let line = Line::new(socket);
        if let Err(why) = is_rank_user(&line) {
            return self.turn_away(&line, &why);
        }
        if self.pending.len() >= MOST_PENDING.max(2 * self.joined.len()) {
            self.drop_oldest();
        }
        self.pending.push(Pending {
            line,
            left: Some(Awake::new(self.hello_within)),
            process: None,
        });
    }

    /// Tells everybody why there is no job: those who are here, and those who come within [`LINGER`].
    fn close(&self, error: &ServeError) {
        let why = host::with_causes(error);
        let joined = self.joined.iter().flatten().map(|j| &j.line);
        for line in joined.chain(self.pending.iter().map(|p| &p.line)) {
            line.refuse(&why);
        }
        let listener = &self.listener;
        let until = Instant::now() + LINGER;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(listener, PollFlags::IN)];
            // When rank 0 has gone nobody waits for an answer any more: the launcher ends the job.
            let ends = matches!(error, ServeError::Left { rank: 0 }) || left.is_zero();
            if ends || ready_of(&mut fds, Some(left)).is_err() {
                return;
            }
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let line = Line::new(socket);
                    if is_rank_user(&line).is_ok() {
                        line.refuse(&why);
                    }
                }
                Err(errno) => match NotAccepted::of(errno, listener) {
                    NotAccepted::Nobody | NotAccepted::Next => {}
                    NotAccepted::Later(_) => std::thread::sleep(BREATH.min(left)),
                },
            }
        }
    }
}

/// What a first datagram is that begins with nothing known.
const NO_HELLO: &str = "what it says is no hello of this build";

/// Whether the peer runs as this process does; an error says why not.
fn is_rank_user(line: &Line) -> Result<(), String> {
    let peer = Credentials::of(line).map_err(|e| format!("its user is not known: {e}"))?;
    is_own_user(peer.uid).map_err(|other| other.to_string())
}

/// What is ready.
#[derive(Debug, Default)]
struct Ready {
    /// Somebody connects.
    calls: bool,
    /// Nobody is let in any more.
    ends: bool,
    /// Those pending who have said something, in order.
    pending: Vec<usize>,
    /// Ranks that should be silent and are not, or are gone.
    joined: Vec<usize>,
}

/// Whose descriptor it is.
#[derive(Clone, Copy)]
enum Who {
    Caller,
    /// The simulation has ended.
    End,
    Pending(usize),
    Joined(usize),
}

/// Waits until a descriptor is ready or the time is over.
fn ready_of(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<(), Errno> {
    let timeout = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    match poll(fds, timeout.as_ref()) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => {
            fds.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests;
