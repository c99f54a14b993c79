//! The door of an open simulation: a thread that lets endpoints in for as long as the simulation is there, so that strangers
//! have no part of its time.

use super::super::line::Line;
use super::super::owner::Owner;
use super::super::proto::{Arrival, Handed};
use super::super::server::{ServeError, system};
use super::super::usermem::{Files, ProcessMemory};
use super::{Door, NO_HELLO, Verdict};
use host::own_thread::spawn_own_thread;
use host::secret::Secret;
use portals_core::NiConfig;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// An endpoint that has proven itself.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) line: Line,
    /// What it wishes.
    pub(crate) config: NiConfig,
    /// The process that has opened it.
    pub(crate) of: Owner,
    pub(crate) memory: ProcessMemory,
    /// Tells of the end of its process.
    pub(crate) process: Option<OwnedFd>,
}

/// Where the door brings endpoints.
#[derive(Debug)]
pub(super) struct Arrivals {
    newcomers: Sender<Newcomer>,
    /// Counted up for each.
    bell: Arc<OwnedFd>,
    /// The other end is closed when the simulation has ended.
    pub(super) end: OwnedFd,
}

/// The simulation's side of its door.
#[derive(Debug)]
pub(crate) struct Attended {
    pub(crate) newcomers: Receiver<Newcomer>,
    /// Readable when somebody has come.
    pub(crate) bell: Arc<OwnedFd>,
    /// Closed with this value.
    _end: OwnedFd,
}

/// Attends a listening socket in a thread until the value that is returned is dropped.
pub(crate) fn attend(listener: OwnedFd, secret: Secret) -> Result<Attended, ServeError> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let bell = Arc::new(bell.map_err(system("making an event descriptor"))?);
    let (end, ours) = super::super::start::pair().map_err(system("making a pair of sockets"))?;
    let (sender, newcomers) = channel();
    let mut door = Door::new(secret, listener, 0, None);
    door.arrivals = Some(Arrivals {
        newcomers: sender,
        bell: Arc::clone(&bell),
        end,
    });
    let attends = move || {
        loop {
            match door.step() {
                Ok(()) => {}
                Err(ServeError::Left { .. }) => return,
                Err(error @ ServeError::System { .. }) => {
                    tracing::error!("nobody can join the simulation any more: {error}");
                    return;
                }
                // Of the one who has come.
                Err(error) => tracing::debug!("an endpoint was refused: {error}"),
            }
        }
    };
    spawn_own_thread("seastar-door", attends).map_err(|e| {
        system("starting a thread")(
            rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::AGAIN),
        )
    })?;
    Ok(Attended {
        newcomers,
        bell,
        _end: ours,
    })
}

impl Door {
    /// Hands an endpoint to the simulation.
    pub(super) fn announce(&self, newcomer: Newcomer) {
        let Some(arrivals) = &self.arrivals else {
            return;
        };
        // The simulation may have ended; then so has everybody's line.
        if arrivals.newcomers.send(newcomer).is_ok() {
            // It is full only when the simulation has been told long since.
            let _ = rustix::io::write(arrivals.bell.as_fd(), &1u64.to_ne_bytes());
        }
    }

    /// What an arrival behind the right secret comes to.
    pub(super) fn judge_arrival(rest: &[u8], fds: Vec<OwnedFd>) -> Verdict {
        let unfit = |why: String| Verdict::Unfit(ServeError::Hello(why));
        let arrival: Arrival = match postcard::from_bytes(rest) {
            Ok(arrival) => arrival,
            Err(error) => return unfit(format!("{NO_HELLO}: {error}")),
        };
        let files = match &arrival.memory {
            Handed::Files(probe) => Files::received(fds, probe),
            Handed::Refused(why) => Err(why.clone()),
        };
        match files {
            Ok(files) => Verdict::Endpoint(arrival, ProcessMemory::new(Arc::new(files))),
            Err(why) => Verdict::Unfit(ServeError::Endpoint { why }),
        }
    }
}
