//! The simulation's side: sockets in, sockets out, and [`Sim`] between them.

use super::SILENT_RANK;
use super::proto::{MAX_DATAGRAM, Question, Reply, VERSION};
use super::sim::{Request, Return, Setting, Sim, SimError};
use super::trace;
use super::usermem::{ProcessMemory, UserMemory};
use crate::call::Answer;
use portals_core::{Error, NiConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long all ranks have to connect.
const GATHER: Duration = Duration::from_secs(30);

/// Why a simulation ended before its ranks did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The model could not be built.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A system call failed.
    #[error("{what} failed")]
    System {
        /// Which.
        what: &'static str,
        /// Cause.
        #[source]
        source: Errno,
    },
    /// Not all ranks came.
    #[error("only {came} of {want} ranks joined the simulation within {GATHER:?}")]
    Missing {
        /// Ranks that joined.
        came: usize,
        /// Ranks of the job.
        want: usize,
    },
    /// Somebody else connected, or with another build.
    #[error("a connection did not say hello as a rank of this job: {0}")]
    Hello(String),
}

fn system(what: &'static str) -> impl FnOnce(Errno) -> ServeError {
    move |source| ServeError::System { what, source }
}

/// A rank that has said hello.
struct Joined {
    socket: OwnedFd,
    config: NiConfig,
    pid: i32,
}

/// Reads a hello; `Ok(None)` when the connection closed without one.
fn hello(socket: OwnedFd, want: usize) -> Result<Option<(usize, Joined)>, ServeError> {
    let mut buffer = [0; MAX_DATAGRAM];
    let n = match recv(&socket, &mut buffer, RecvFlags::empty()) {
        Ok((n, _)) => n,
        Err(Errno::CONNRESET) => 0,
        Err(e) => return Err(system("receiving a hello")(e)),
    };
    if n == 0 {
        return Ok(None);
    }
    match postcard::from_bytes(&buffer[..n]) {
        Ok(Question::Hello {
            version: VERSION,
            rank,
            config,
        }) if (rank as usize) < want => {
            let credentials = rustix::net::sockopt::socket_peercred(&socket)
                .map_err(system("asking for a rank's process id"))?;
            let pid = credentials.pid.as_raw_nonzero().get();
            Ok(Some((
                rank as usize,
                Joined {
                    socket,
                    config,
                    pid,
                },
            )))
        }
        Ok(other) => Err(ServeError::Hello(format!("{other:?}"))),
        Err(e) => Err(ServeError::Hello(e.to_string())),
    }
}

/// The ranks that have come so far, by rank.
type Gathered = Vec<Option<Joined>>;

/// Waits for all ranks on a listening socket.
fn gather(listener: &OwnedFd, joined: &mut Gathered) -> Result<(), ServeError> {
    let deadline = Instant::now() + GATHER;
    let want = joined.len();
    let mut came = 0;
    while came < want {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout));
        match ready {
            Ok(0) => return Err(ServeError::Missing { came, want }),
            Err(Errno::INTR) => continue,
            Err(e) => return Err(system("waiting for ranks")(e)),
            Ok(_) => {}
        }
        let socket = rustix::net::accept_with(listener, rustix::net::SocketFlags::CLOEXEC)
            .map_err(system("accepting a rank"))?;
        take_in(socket, joined)?;
        came = joined.iter().flatten().count();
    }
    Ok(())
}

/// Reads a rank's hello. On an error the rank is told.
fn take_in(socket: OwnedFd, joined: &mut Gathered) -> Result<(), ServeError> {
    let spare = socket.try_clone();
    let taken = hello(socket, joined.len()).and_then(|came| match came {
        Some((rank, j)) => match joined[rank].replace(j) {
            Some(_) => Err(ServeError::Hello(format!("rank {rank} twice"))),
            None => Ok(()),
        },
        None => Ok(()),
    });
    if let (Err(error), Ok(socket)) = (&taken, spare) {
        refuse(&socket, error);
    }
    taken
}

/// Waits for `want` ranks on a listening socket, then simulates until all have left. When that
/// cannot be, every rank that came is told why.
pub(super) fn serve(listener: &OwnedFd, want: usize, setting: Setting) -> Result<(), ServeError> {
    let mut joined: Gathered = (0..want).map(|_| None).collect();
    let gathered = gather(listener, &mut joined);
    begin(gathered, joined, setting)
}

/// Simulates for connected sockets that each begin with a hello, in any order.
pub(super) fn serve_connected(sockets: Vec<OwnedFd>, setting: Setting) -> Result<(), ServeError> {
    let mut joined: Gathered = sockets.iter().map(|_| None).collect();
    let want = sockets.len();
    let gathered = sockets
        .into_iter()
        .try_for_each(|socket| take_in(socket, &mut joined))
        .and_then(|()| match joined.iter().flatten().count() {
            came if came == want => Ok(()),
            came => Err(ServeError::Missing { came, want }),
        });
    begin(gathered, joined, setting)
}

fn begin(
    gathered: Result<(), ServeError>,
    joined: Gathered,
    setting: Setting,
) -> Result<(), ServeError> {
    let joined: Vec<Joined> = joined.into_iter().flatten().collect();
    let configs: Vec<NiConfig> = joined.iter().map(|j| j.config).collect();
    let memories = joined
        .iter()
        .map(|j| Box::new(ProcessMemory { pid: j.pid }) as Box<dyn UserMemory>)
        .collect();
    let built = gathered.and_then(|()| Ok(Sim::new(setting, &configs, memories)?));
    match built {
        Ok(mut sim) => {
            trace::begin(&mut sim);
            simulate(sim, joined.into_iter().map(|j| Some(j.socket)).collect())
        }
        Err(error) => {
            for j in &joined {
                refuse(&j.socket, &error);
            }
            Err(error)
        }
    }
}

/// Tells a rank why it cannot be simulated.
fn refuse(socket: &OwnedFd, error: &ServeError) {
    reply(
        socket,
        &Reply {
            clock: 0,
            result: Err(Error::Fail),
            note: error.to_string(),
        },
    );
}

fn reply(socket: &OwnedFd, reply: &Reply) -> bool {
    let mut buffer = [0; MAX_DATAGRAM];
    let Ok(bytes) = postcard::to_slice(reply, &mut buffer) else {
        return false;
    };
    loop {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// What the ranks of a deadlocked program are told with the failure of their waits.
fn deadlock_note(sim: &Sim) -> String {
    format!(
        "deadlock at {} ns: every rank waits for an event and nothing is on its way",
        sim.now().as_ns()
    )
}

fn simulate(mut sim: Sim, mut sockets: Vec<Option<OwnedFd>>) -> Result<(), ServeError> {
    for socket in sockets.iter().flatten() {
        let started = Reply {
            clock: sim.start().as_ps(),
            result: Ok(Answer::Done),
            note: String::new(),
        };
        reply(socket, &started);
    }
    let mut told_of_all = false;
    while sim.live() > 0 {
        let before = sim.deadlocks();
        while let Some(Return {
            rank,
            clock,
            result,
        }) = sim.poll_return()
        {
            let deadlocked = sim.deadlocks() > before && result.is_err();
            let answer = Reply {
                clock: clock.as_ps(),
                result,
                note: if deadlocked {
                    deadlock_note(&sim)
                } else {
                    String::new()
                },
            };
            if sim.live() == 0 || deadlocked {
                trace::end(&mut sim, &mut told_of_all);
            }
            let told = sockets[rank]
                .as_ref()
                .is_some_and(|socket| reply(socket, &answer));
            if !told {
                sim.handle_exit(rank);
            }
        }
        if sim.live() == 0 {
            break;
        }
        let live = sim.live();
        hear(&mut sockets, &mut sim)?;
        if sim.live() < live {
            // A rank has vanished; its launcher will end this process too.
            trace::end(&mut sim, &mut told_of_all);
        }
    }
    trace::end(&mut sim, &mut told_of_all);
    Ok(())
}

/// No rank has said anything for as long as one may run without a call.
fn silence(sim: &mut Sim) {
    let seconds = sim.patience.map_or(0.0, |p| p.as_secs_f64());
    for rank in sim.go_on_without_silent() {
        let _ = writeln!(
            std::io::stderr(),
            "portolan: rank {rank} has made no call for {seconds} s and held virtual time; the others go on without it, and what \
             they see is not the same in every run ({SILENT_RANK} is how long they wait, 0 for ever)"
        );
    }
}

/// Waits for at least one question and hands all that have come to the simulation.
fn hear(sockets: &mut [Option<OwnedFd>], sim: &mut Sim) -> Result<(), ServeError> {
    let patience = sim.patience.and_then(|p| Timespec::try_from(p).ok());
    let ready: Vec<usize> = {
        let open: Vec<(usize, &OwnedFd)> = sockets
            .iter()
            .enumerate()
            .filter_map(|(r, s)| Some((r, s.as_ref()?)))
            .collect();
        let mut fds: Vec<PollFd<'_>> = open
            .iter()
            .map(|(_, s)| PollFd::new(*s, PollFlags::IN))
            .collect();
        loop {
            match poll(&mut fds, patience.as_ref()) {
                Ok(0) => return Ok(silence(sim)),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(e) => return Err(system("waiting for a call")(e)),
            }
        }
        open.iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((r, _), _)| *r)
            .collect()
    };
    let mut buffer = [0; MAX_DATAGRAM];
    for rank in ready {
        let Some(socket) = &sockets[rank] else {
            continue;
        };
        let n = match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((n, _)) => n,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(_) => 0,
        };
        let request = match postcard::from_bytes(&buffer[..n]) {
            Ok(Question::Call(call)) => Request::Call(call),
            Ok(Question::Leave) => Request::Leave,
            Ok(Question::Rejoin) => Request::Rejoin,
            // The connection closed, or what came cannot come from a rank.
            Ok(Question::Hello { .. }) | Err(_) => {
                sockets[rank] = None;
                sim.handle_exit(rank);
                continue;
            }
        };
        sim.handle_call(rank, request);
    }
    Ok(())
}
