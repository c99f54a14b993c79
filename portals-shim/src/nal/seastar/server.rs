//! The simulation's side: sockets in, sockets out, and [`Sim`] between them.

use super::proto::{MAX_DATAGRAM, Question, Reply, VERSION};
use super::sim::{Request, Return, Sim, SimError};
use super::usermem::{ProcessMemory, UserMemory};
use crate::call::Answer;
use nic_model::Machine;
use portals_core::NiConfig;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
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
            config,
        }) if (config.id.nid as usize) < want => {
            let credentials = rustix::net::sockopt::socket_peercred(&socket)
                .map_err(system("asking for a rank's process id"))?;
            let pid = credentials.pid.as_raw_nonzero().get();
            Ok(Some((
                config.id.nid as usize,
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

/// Waits for `want` ranks on a listening socket, then simulates until all have left.
pub(super) fn serve(listener: &OwnedFd, want: usize, machine: Machine) -> Result<(), ServeError> {
    let deadline = Instant::now() + GATHER;
    let mut joined: Vec<Option<Joined>> = (0..want).map(|_| None).collect();
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
        if let Some((rank, j)) = hello(socket, want)? {
            if joined[rank].replace(j).is_some() {
                return Err(ServeError::Hello(format!("rank {rank} twice")));
            }
            came += 1;
        }
    }
    simulate(joined.into_iter().flatten().collect(), machine)
}

/// Simulates for connected sockets that each begin with a hello, in any order.
pub(super) fn serve_connected(sockets: Vec<OwnedFd>, machine: Machine) -> Result<(), ServeError> {
    let want = sockets.len();
    let mut joined: Vec<Option<Joined>> = (0..want).map(|_| None).collect();
    for socket in sockets {
        if let Some((rank, j)) = hello(socket, want)? {
            joined[rank] = Some(j);
        }
    }
    let joined: Vec<Joined> = joined.into_iter().flatten().collect();
    if joined.len() < want {
        return Err(ServeError::Missing {
            came: joined.len(),
            want,
        });
    }
    simulate(joined, machine)
}

fn answer(socket: &OwnedFd, r: &Return) -> bool {
    let mut buffer = [0; MAX_DATAGRAM];
    let reply = Reply {
        clock: r.clock.as_ps(),
        result: r.result,
    };
    let Ok(bytes) = postcard::to_slice(&reply, &mut buffer) else {
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

fn simulate(joined: Vec<Joined>, machine: Machine) -> Result<(), ServeError> {
    let configs: Vec<NiConfig> = joined.iter().map(|j| j.config).collect();
    let memories = joined
        .iter()
        .map(|j| Box::new(ProcessMemory { pid: j.pid }) as Box<dyn UserMemory>)
        .collect();
    let mut sockets: Vec<Option<OwnedFd>> = joined.into_iter().map(|j| Some(j.socket)).collect();
    let mut sim = Sim::new(machine, &configs, memories)?;
    for (rank, socket) in sockets.iter().enumerate() {
        let started = Return {
            rank,
            clock: sim.start(),
            result: Ok(Answer::Done),
        };
        if let Some(socket) = socket {
            answer(socket, &started);
        }
    }
    let mut deadlocks = 0;
    while sim.live() > 0 {
        while let Some(r) = sim.poll_return() {
            let gone = match &sockets[r.rank] {
                Some(socket) => !answer(socket, &r),
                None => true,
            };
            if gone {
                sim.handle_exit(r.rank);
            }
        }
        if sim.deadlocks() > deadlocks {
            deadlocks = sim.deadlocks();
            tracing::error!(
                at_ns = sim.now().as_ns(),
                "every rank waits for an event and nothing is on its way: the program is deadlocked"
            );
        }
        if sim.live() == 0 {
            break;
        }
        hear(&mut sockets, &mut sim)?;
    }
    Ok(())
}

/// Waits for at least one question and hands all that have come to the simulation.
fn hear(sockets: &mut [Option<OwnedFd>], sim: &mut Sim) -> Result<(), ServeError> {
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
            match poll(&mut fds, None) {
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
