//! An open simulation: endpoints join at any time, and it ends when its founder does.

use super::super::door::{Newcomer, attend};
use super::super::proto::Reply;
use super::super::sim::{Return, Setting, Sim, SimError};
use super::super::{line::Line, line::Received, line::Sent, trace};
use super::{Connected, OTHER, Ranks, ServeError, system, watch};
use fabric_api::place::Placement;
use host::peer::{has_exited, pidfd};
use host::secret::Secret;
use rustix::event::epoll;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// Simulates a machine with `places` places, which endpoints that have `secret` take over a listening socket, until `founder`
/// is closed at its other end. Tells the founder when it begins, or why not.
pub(crate) fn serve_places(
    listener: OwnedFd,
    founder: OwnedFd,
    secret: Secret,
    setting: Result<Setting, SimError>,
    (places, place): (u32, Placement),
) -> Result<(), ServeError> {
    let founder = Founder {
        process: pidfd(&founder).ok(),
        line: Line::new(founder),
    };
    let served = setting
        .map_err(ServeError::from)
        .and_then(|setting| begin(listener, &founder, secret, setting, (places, place)));
    if let Err(error) = &served {
        founder.line.refuse(&error.to_string());
    }
    served
}

fn begin(
    listener: OwnedFd,
    founder: &Founder,
    secret: Secret,
    setting: Setting,
    (places, place): (u32, Placement),
) -> Result<(), ServeError> {
    rustix::io::ioctl_fionbio(&listener, true).map_err(system("using the socket"))?;
    let mut sim = Sim::open(setting, places, place)?;
    let connected = (0..places).map(|_| None).collect();
    let mut ranks = Ranks::new(connected)?;
    ranks.endpoints = true;
    let door = attend(listener, secret)?;
    let fds = [
        Some(door.bell.as_fd()),
        Some(founder.line.as_fd()),
        founder.process.as_ref().map(|p| p.as_fd()),
    ];
    for fd in fds.into_iter().flatten() {
        let data = epoll::EventData::new_u64(OTHER);
        epoll::add(&ranks.epoll, fd, data, epoll::EventFlags::IN)
            .map_err(system("watching the founder"))?;
    }
    trace::begin(&mut sim);
    founder.line.say(&Reply::begun(sim.now()));
    let mut gathering = Gathering::default();
    loop {
        while let Some(Return {
            rank,
            clock,
            result,
        }) = sim.poll_return()
        {
            let answer = Reply {
                clock: clock.as_ps(),
                result,
                note: String::new(),
            };
            ranks.answer(&mut sim, rank, &answer);
        }
        ranks.hear(&mut sim)?;
        gathering.look(&mut sim);
        if !std::mem::take(&mut ranks.other) {
            continue;
        }
        if founder.has_gone() {
            break;
        }
        let mut count = [0; 8];
        // Nobody has come, unless it can be read.
        if rustix::io::read(&door.bell, &mut count).is_ok() {
            while let Ok(newcomer) = door.newcomers.try_recv() {
                ranks.admit(&mut sim, newcomer);
            }
        }
    }
    let mut told_of_all = false;
    trace::end(&mut sim, &mut told_of_all);
    Ok(())
}

/// Since when ranks of a job wait for each other: no longer than one may be silent, whoever else calls meanwhile.
#[derive(Debug, Default)]
struct Gathering {
    since: Option<Instant>,
}

impl Gathering {
    fn look(&mut self, sim: &mut Sim) {
        if !sim.is_gathering() {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if sim
            .patience
            .is_some_and(|patience| since.elapsed() >= patience)
        {
            tracing::info!("some ranks of a job have met nobody; the others begin without them");
            sim.stop_gathering();
            self.since = None;
        }
    }
}

/// Whoever started the simulation.
struct Founder {
    line: Line,
    /// Tells of its end, also while a child of it has the line.
    process: Option<OwnedFd>,
}

impl Founder {
    fn has_gone(&self) -> bool {
        self.process.as_ref().is_some_and(has_exited)
            || self.line.hear(&mut [0; 1]) == Received::Closed
    }
}

impl Ranks {
    /// Gives an endpoint a place, or says why it has none.
    fn admit(&mut self, sim: &mut Sim, newcomer: Newcomer) {
        let Newcomer {
            line,
            config,
            of,
            memory,
            process,
        } = newcomer;
        let Some((place, id)) = sim.admit(config, Box::new(memory), of) else {
            return line.refuse(&format!(
                "each of its {} places is taken (portolan simulate --places)",
                self.connected.len()
            ));
        };
        // Of one that has closed and is still connected.
        self.forget(place);
        let of = Connected {
            line,
            process,
            silence_told: false,
        };
        let joins = watch(&self.epoll, place, &of).is_ok()
            && of.line.say(&Reply::begun(sim.now())) == Sent::Done
            && of.line.send(&id) == Sent::Done;
        self.connected[place] = Some(of);
        if !joins {
            self.gone(sim, place);
        }
    }
}
