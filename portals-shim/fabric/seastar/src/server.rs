//! The simulation's side: sockets in, sockets out, and [`Sim`] between them. It waits for no single rank: one that does not
//! read its answers leaves the simulation.

mod places;

use super::choice::SILENT_RANK;
use super::door::Door;
use super::line::{Line, Received, Sent};
use super::proto::{MAX_DATAGRAM, Question, Reply};
use super::sim::{Request, Return, Setting, Sim, SimError};
use super::trace;
use super::usermem::UserMemory;
use host::secret::Secret;
use portals_core::NiConfig;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub(super) use places::serve_places;

/// How long all ranks have to connect, from the first that did.
pub(super) const GATHER: Duration = Duration::from_secs(30);

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
    #[error(
        "only {came} of {want} ranks joined the simulation within {GATHER:?}; rank {first} did not{because}"
    )]
    Missing {
        /// Ranks that joined.
        came: usize,
        /// Ranks of the job.
        want: usize,
        /// The first of the others.
        first: usize,
        /// What kept connections out, if anything did; begins with a semicolon.
        because: String,
    },
    /// A rank ended while others were still to come.
    #[error("rank {rank} left before all ranks had joined")]
    Left {
        /// Which.
        rank: usize,
    },
    /// The simulation cannot read and write the memory of a rank.
    #[error("the memory of rank {rank} cannot be reached: {why}")]
    Memory {
        /// Which.
        rank: u32,
        /// The end of the sentence.
        why: String,
    },
    /// The simulation cannot read and write the memory of an endpoint.
    #[error("the memory of the endpoint cannot be reached: {why}")]
    Endpoint {
        /// The end of the sentence.
        why: String,
    },
    /// Whoever started this process does not say what for.
    #[error("standard input is not the line of a rank that starts a simulation: {0}")]
    Begin(String),
    /// A rank of this job came with another build.
    #[error("a connection did not say hello as a rank of this job: {0}")]
    Hello(String),
}

pub(super) fn system(what: &'static str) -> impl FnOnce(Errno) -> ServeError {
    move |source| ServeError::System { what, source }
}

/// Waits for `want` ranks, which have `secret`, on a listening socket; `founder` is the line of rank 0, which started this.
/// Then simulates until all have left. When that cannot be, every rank that came is told why.
pub(super) fn serve(
    listener: OwnedFd,
    founder: OwnedFd,
    secret: Secret,
    want: usize,
    setting: Setting,
) -> Result<(), ServeError> {
    // Whoever has connected may be gone before it is accepted.
    rustix::io::ioctl_fionbio(&listener, true).map_err(system("using the socket"))?;
    begin(Door::new(secret, listener, want, Some(founder)), setting)
}

fn begin(door: Door, setting: Setting) -> Result<(), ServeError> {
    let mut configs: Vec<NiConfig> = Vec::new();
    let mut memories: Vec<Box<dyn UserMemory>> = Vec::new();
    let mut connected = Vec::new();
    for joined in door.gather()? {
        configs.push(joined.config);
        memories.push(Box::new(joined.memory));
        connected.push(Some(Connected {
            line: joined.line,
            process: joined.process,
            silence_told: false,
        }));
    }
    let ranks = Ranks::new(connected)?;
    match Sim::new(setting, &configs, memories) {
        Ok(mut sim) => {
            trace::begin(&mut sim);
            simulate(sim, ranks)
        }
        Err(error) => {
            for rank in ranks.connected.iter().flatten() {
                rank.line.refuse(&error.to_string());
            }
            Err(error.into())
        }
    }
}

/// A rank that takes part.
#[derive(Debug)]
struct Connected {
    line: Line,
    /// Tells of the end of its process.
    process: Option<OwnedFd>,
    /// It was said that it makes no call.
    silence_told: bool,
}

/// Most descriptors that are found ready at one time.
const READY: usize = 256;

/// What a descriptor that is no rank's is watched as.
const OTHER: u64 = u64::MAX;

/// The connections of all ranks.
struct Ranks {
    connected: Vec<Option<Connected>>,
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    /// They are endpoints, at places.
    endpoints: bool,
    /// A descriptor that is watched as [`OTHER`] was ready.
    other: bool,
}

/// What a descriptor of a rank is watched as: its socket, or its process.
const fn watched(rank: usize, process: bool) -> epoll::EventData {
    epoll::EventData::new_u64((rank as u64) << 1 | process as u64)
}

/// Has a rank watched.
fn watch(epoll: &OwnedFd, rank: usize, of: &Connected) -> Result<(), Errno> {
    let flags = epoll::EventFlags::IN;
    epoll::add(epoll, &of.line, watched(rank, false), flags)?;
    if let Some(process) = &of.process {
        epoll::add(epoll, process, watched(rank, true), flags)?;
    }
    Ok(())
}

impl Ranks {
    fn new(connected: Vec<Option<Connected>>) -> Result<Self, ServeError> {
        let watched = || -> Result<OwnedFd, Errno> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for (rank, of) in connected.iter().enumerate() {
                let Some(of) = of else { continue };
                watch(&epoll, rank, of)?;
            }
            Ok(epoll)
        };
        let epoll = watched().map_err(system("watching the ranks"))?;
        Ok(Self {
            connected,
            epoll,
            ready: Vec::with_capacity(READY),
            endpoints: false,
            other: false,
        })
    }

    /// Answers a rank. One that is gone, or does not read, takes part no longer.
    fn answer(&mut self, sim: &mut Sim, rank: usize, reply: &Reply) {
        let said = match &self.connected[rank] {
            Some(of) => of.line.say(reply),
            None => Sent::Closed,
        };
        match said {
            Sent::Done => {}
            Sent::Closed => self.gone(sim, rank),
            Sent::Full => self.dismiss(sim, rank, "does not read its answers"),
        }
    }

    /// The process of a rank has ended, or has closed its connection.
    fn gone(&mut self, sim: &mut Sim, rank: usize) {
        self.forget(rank);
        sim.handle_exit(rank);
    }

    /// A rank lives and does not keep to the rules.
    fn dismiss(&mut self, sim: &mut Sim, rank: usize, why: &str) {
        let who = if self.endpoints {
            "the endpoint at place"
        } else {
            "rank"
        };
        tracing::error!("{who} {rank} {why}; the simulation goes on without it");
        self.forget(rank);
        sim.handle_dismissal(rank);
    }

    fn forget(&mut self, rank: usize) {
        let Some(of) = self.connected[rank].take() else {
            return;
        };
        // Others may have the same socket open, so that closing it would not be the end of watching it.
        let _ = epoll::delete(&self.epoll, &of.line);
        if let Some(process) = &of.process {
            let _ = epoll::delete(&self.epoll, process);
        }
    }

    /// Waits for at least one question and hands all that have come to the simulation. While that has more to do by itself
    /// it is only looked who has gone.
    fn hear(&mut self, sim: &mut Sim) -> Result<(), ServeError> {
        let busy = sim.has_more();
        let patience = sim.patience.and_then(|p| Timespec::try_from(p).ok());
        let limit = if busy {
            Some(Timespec::default())
        } else {
            patience
        };
        let spare = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.epoll, spare, limit.as_ref()) {
            Ok(0) if !busy => self.silence(sim),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(system("waiting for a call")(errno)),
        }
        while let Some(event) = self.ready.pop() {
            if event.data.u64() == OTHER {
                self.other = true;
                continue;
            }
            let rank = (event.data.u64() >> 1) as usize;
            let process = event.data.u64() & 1 != 0;
            let flags = event.flags;
            let closed = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            if process || (busy && closed) {
                self.gone(sim, rank);
            } else if !busy {
                self.hear_rank(sim, rank);
            }
        }
        Ok(())
    }

    /// No rank has said anything for as long as one may run without a call.
    fn silence(&mut self, sim: &mut Sim) {
        for rank in sim.go_on_without_silent() {
            let said = self.connected[rank].as_mut().map(|of| &mut of.silence_told);
            match said {
                // Endpoints may wait for others again and again.
                Some(said) if self.endpoints => {
                    if !std::mem::replace(said, true) {
                        say_silent("the endpoint at place", rank, sim.patience);
                    }
                }
                _ => say_silent("rank", rank, sim.patience),
            }
        }
    }

    fn hear_rank(&mut self, sim: &mut Sim, rank: usize) {
        let Some(of) = &self.connected[rank] else {
            return;
        };
        let mut buffer = [0; MAX_DATAGRAM];
        let question: Option<Question> = match of.line.hear(&mut buffer) {
            Received::Nothing => return,
            Received::Closed => return self.gone(sim, rank),
            Received::TooLong => None,
            Received::Datagram(n) => postcard::from_bytes(&buffer[..n]).ok(),
        };
        let Some(question) = question else {
            return self.dismiss(sim, rank, "says what no rank says");
        };
        if !sim.handle_call(rank, question.into()) {
            self.dismiss(sim, rank, "asks before it is answered");
        }
    }
}

impl From<Question> for Request {
    fn from(question: Question) -> Self {
        match question {
            Question::Call(call) => Self::Call(call),
            Question::Slice(eqs, nanos) => Self::Slice(eqs, nanos),
            Question::Leave => Self::Leave,
            Question::Rejoin => Self::Rejoin,
            Question::Strayed(call) => Self::Strayed(call),
            Question::Enter => Self::Enter,
            Question::Forget(peer) => Self::Forget(peer),
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

/// What the ranks of a job are answered, and when its files are written.
#[derive(Debug)]
pub(super) struct Answers {
    told_of_all: bool,
    /// Deadlocks before the calls that are being answered.
    before: u64,
}

impl Answers {
    pub(super) fn new(sim: &Sim) -> Self {
        Self {
            told_of_all: false,
            before: sim.deadlocks(),
        }
    }

    /// Who returns, and with what answer.
    pub(super) fn of(&mut self, sim: &mut Sim, returned: Return) -> (usize, Reply) {
        let Return {
            rank,
            clock,
            result,
        } = returned;
        let deadlocked = sim.deadlocks() > self.before && result.is_err();
        let note = match deadlocked {
            true => deadlock_note(sim),
            false => String::new(),
        };
        if sim.live() == 0 || deadlocked {
            self.end(sim);
        }
        let reply = Reply {
            clock: clock.as_ps(),
            result,
            note,
        };
        (rank, reply)
    }

    /// All that return now have their answers.
    pub(super) fn all_given(&mut self, sim: &Sim) {
        self.before = sim.deadlocks();
    }

    /// The job is at its end: writes its files, once.
    pub(super) fn end(&mut self, sim: &mut Sim) {
        trace::end(sim, &mut self.told_of_all);
    }
}

fn simulate(mut sim: Sim, mut ranks: Ranks) -> Result<(), ServeError> {
    for rank in 0..ranks.connected.len() {
        let started = Reply::begun(sim.start());
        ranks.answer(&mut sim, rank, &started);
    }
    let mut answers = Answers::new(&sim);
    while sim.live() > 0 {
        while let Some(returned) = sim.poll_return() {
            let (rank, reply) = answers.of(&mut sim, returned);
            ranks.answer(&mut sim, rank, &reply);
        }
        if sim.live() == 0 {
            break;
        }
        let live = sim.live();
        if !sim.has_more() {
            answers.all_given(&sim);
        }
        ranks.hear(&mut sim)?;
        if sim.live() < live {
            // A rank has vanished; its launcher will end this process too.
            answers.end(&mut sim);
        }
    }
    answers.end(&mut sim);
    Ok(())
}

/// Says which rank has held virtual time for so long.
pub(super) fn say_silent(who: &str, rank: usize, patience: Option<Duration>) {
    let seconds = patience.map_or(0.0, |p| p.as_secs_f64());
    let _ = writeln!(
        std::io::stderr(),
        "portolan: {who} {rank} has made no call for {seconds} s and held virtual time; the others go on without it, and what \
         they see is not the same in every run ({SILENT_RANK} is how long they wait, 0 for ever)"
    );
}
