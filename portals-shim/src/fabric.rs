//! Which fabric a program runs on. Nothing above this module asks.

use crate::interface::Interface;
use crate::nal::inproc::{Hub, InProc};
pub use crate::nal::seastar::Mode;
pub use crate::place::Placement;
pub use crate::place::{LARGEST_PID, MOST_PER_NODE, RANK_PID};
use host::privilege::{PRIVILEGED, is_privileged};
use launch::{Job, JobError};
use portals_core::{Limits, Ni, NiConfig, ProcessId};
use std::fmt;
use std::str::FromStr;

/// A fabric by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricKind {
    /// The simulated Cray SeaStar.
    Seastar,
    /// RDMA verbs.
    Verbs,
    /// Memory that the ranks of one machine share.
    Shm,
}

impl FabricKind {
    /// All, in the order users should read them.
    pub const ALL: [Self; 3] = [Self::Seastar, Self::Verbs, Self::Shm];

    /// The word of the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seastar => "seastar",
            Self::Verbs => "verbs",
            Self::Shm => "shm",
        }
    }

    /// Whether a put, or a look that does not wait, may come to a system call of a device or of the model.
    pub const fn calls_the_system(self) -> bool {
        match self {
            Self::Seastar | Self::Verbs => true,
            Self::Shm => false,
        }
    }
}

impl fmt::Display for FabricKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FabricKind {
    type Err = FabricError;

    fn from_str(s: &str) -> Result<Self, FabricError> {
        Self::ALL
            .into_iter()
            .find(|k| k.name() == s)
            .ok_or_else(|| FabricError::Unknown { name: s.to_owned() })
    }
}

/// How the verbs fabric carries messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// A reliable connection to each peer that was talked to, and RDMA.
    #[default]
    Rc,
    /// Reliable datagrams: two queue pairs for all peers, no RDMA.
    Ud,
    /// Reliable datagrams, and a connection to each peer that is talked to much, within a budget.
    Auto,
}

impl Channel {
    /// All, in the order users should read them.
    pub const ALL: [Self; 3] = [Self::Rc, Self::Ud, Self::Auto];

    /// The word of the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Ud => "ud",
            Self::Auto => "auto",
        }
    }
}

impl FromStr for Channel {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|c| c.name() == s);
        found.ok_or_else(|| format!("unknown channel \"{s}\"; the channels are rc, ud and auto"))
    }
}

/// Why a fabric could not be opened. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// No fabric has this name.
    #[error("unknown fabric \"{name}\"; the fabrics are seastar, verbs and shm")]
    Unknown {
        /// The name given.
        name: String,
    },
    /// It cannot be used on this machine.
    #[error("fabric {kind} cannot be used here: {reason}")]
    Unusable {
        /// Which.
        kind: FabricKind,
        /// What is missing and what to do.
        reason: String,
    },
    /// A variable of the environment has a value that cannot be meant.
    #[error("{name} is \"{value}\": {expected} is expected")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// Two ranks would be the same process.
    #[error("ranks {first} and {second} both want process id {} of node {}", id.pid, id.nid)]
    SameProcess {
        /// The lower of the ranks.
        first: usize,
        /// The other.
        second: usize,
        /// What both want to be.
        id: ProcessId,
    },
    /// The faults that were asked for cannot be meant.
    #[error("{reason}")]
    Faults {
        /// Where in the fault file, what, and what is wanted.
        reason: String,
    },
    /// The exchange with the other ranks failed.
    #[error("start-up of the job failed")]
    Job(#[from] JobError),
}

/// The choices of a run; `portolan run` passes them through the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// `PORTOLAN_FABRIC`; the SeaStar model when unset.
    pub kind: FabricKind,
    /// `PORTOLAN_DEVICE`: verbs device; the first usable one when unset.
    pub device: Option<String>,
    /// `PORTOLAN_CHANNEL`: how the verbs fabric carries messages; `rc` when unset.
    pub channel: Channel,
    /// `PORTOLAN_MACHINE`: machine parameters of the model, a name or a file; `xt4` when unset.
    pub machine: String,
    /// `PORTOLAN_RANKS_PER_NODE`: which node and process id each rank has; 1 when unset.
    pub place: Placement,
    /// `GASNET_SUPERNODE_MAXSIZE`: how many ranks of one machine share memory under the verbs fabric; 0, when unset,
    /// is all of them, 1 none.
    pub most_sharing: u32,
    /// `PORTOLAN_TOPOLOGY`: the model's grid, as `4x4x2` or `4x4x2,mesh`; when unset the smallest
    /// torus that holds the nodes.
    pub topology: Option<String>,
    /// `PORTOLAN_SEASTAR_MODE`: who matches on the model, `generic` (the kernels) when unset.
    pub mode: Mode,
    /// `PORTOLAN_SEASTAR_FAULTS`: a file with what goes wrong on the model; nothing when unset.
    pub faults: Option<String>,
    /// `PORTOLAN_SEASTAR_FAULT_SEED`: `N` or `N:RATE=VALUE,…`, see [`FAULT_SEED`](Self::FAULT_SEED).
    pub fault_seed: Option<String>,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            kind: FabricKind::Seastar,
            device: None,
            channel: Channel::Rc,
            machine: "xt4".to_owned(),
            place: Placement::ONE,
            most_sharing: 0,
            topology: None,
            mode: Mode::Generic,
            faults: None,
            fault_seed: None,
        }
    }
}

impl FabricConfig {
    /// Names a fault file of the model.
    pub const FAULTS: &str = "PORTOLAN_SEASTAR_FAULTS";
    /// The seed of the model's random faults, which takes the place of the fault file's, and after a
    /// colon their rates, if not those of the file: `7`, `7:lost_packets=1000,link_bit_errors=50`.
    pub const FAULT_SEED: &str = "PORTOLAN_SEASTAR_FAULT_SEED";
    /// See [`FabricConfig::most_sharing`].
    pub const MOST_SHARING: &str = "GASNET_SUPERNODE_MAXSIZE";
    /// See [`FabricConfig::channel`].
    pub const CHANNEL: &str = "PORTOLAN_CHANNEL";
    const RANKS_PER_NODE: &str = "PORTOLAN_RANKS_PER_NODE";
    const MODE: &str = "PORTOLAN_SEASTAR_MODE";

    /// Reads the environment.
    pub fn from_env() -> Result<Self, FabricError> {
        let var = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
        let default = Self::default();
        if let Some(value) = var("PORTOLAN_SPIN").filter(|v| v.trim().parse::<u64>().is_err()) {
            return Err(FabricError::Variable {
                name: "PORTOLAN_SPIN",
                value: value.chars().take(60).collect(),
                expected: "a number of microseconds".to_owned(),
            });
        }
        let is_file = |value: &String| crate::nal::seastar::is_machine_file(value);
        let named = [
            ("PORTOLAN_MACHINE", var("PORTOLAN_MACHINE").filter(is_file)),
            (Self::FAULTS, var(Self::FAULTS)),
        ];
        for (name, value) in named {
            if let Some(value) = value.filter(|_| is_privileged()) {
                return Err(FabricError::Variable {
                    name,
                    value: value.chars().take(60).collect(),
                    expected: format!("no file ({PRIVILEGED})"),
                });
            }
        }
        Ok(Self {
            kind: var("PORTOLAN_FABRIC").map_or(Ok(default.kind), |k| k.parse())?,
            device: var("PORTOLAN_DEVICE"),
            channel: var(Self::CHANNEL).map_or(Ok(default.channel), |value| {
                value.parse().map_err(|_| FabricError::Variable {
                    name: Self::CHANNEL,
                    value: value.chars().take(60).collect(),
                    expected: "rc, ud or auto".to_owned(),
                })
            })?,
            machine: var("PORTOLAN_MACHINE").unwrap_or(default.machine),
            place: var(Self::RANKS_PER_NODE).map_or(Ok(default.place), |value| {
                let place = value.parse().ok().and_then(Placement::new);
                place.ok_or_else(|| FabricError::Variable {
                    name: Self::RANKS_PER_NODE,
                    value: value.chars().take(60).collect(),
                    expected: format!("a number from 1 to {MOST_PER_NODE}"),
                })
            })?,
            most_sharing: var(Self::MOST_SHARING).map_or(Ok(0), |value| {
                value.trim().parse().map_err(|_| FabricError::Variable {
                    name: Self::MOST_SHARING,
                    value: value.chars().take(60).collect(),
                    expected: "a number of ranks, 0 for no limit".to_owned(),
                })
            })?,
            topology: var("PORTOLAN_TOPOLOGY"),
            mode: var(Self::MODE).map_or(Ok(default.mode), |value| {
                value.parse().map_err(|_| FabricError::Variable {
                    name: Self::MODE,
                    value: value.chars().take(60).collect(),
                    expected: "generic or accelerated".to_owned(),
                })
            })?,
            faults: var(Self::FAULTS),
            fault_seed: var(Self::FAULT_SEED),
        })
    }
}

/// An open interface and the ids of all ranks, own included, by rank.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The interface.
    pub interface: Interface,
    /// `peers[r]` is rank `r`.
    pub peers: Vec<ProcessId>,
}

/// Whether the fabric can be used on this machine; the error says why not.
pub fn check(config: &FabricConfig) -> Result<(), FabricError> {
    check_for(config, None)
}

/// As [`check`], for a job of `ranks`, if that is known: the faults that are asked for are of nodes
/// that it has.
pub fn check_for(config: &FabricConfig, ranks: Option<u32>) -> Result<(), FabricError> {
    let faults = match config.kind {
        FabricKind::Seastar => crate::nal::seastar::check_faults(config, ranks),
        _ if config.faults.is_some() || config.fault_seed.is_some() => {
            Err("faults can be chosen for the SeaStar model only: --fabric seastar".to_owned())
        }
        _ => Ok(()),
    };
    faults.map_err(|reason| FabricError::Faults { reason })?;
    match config.kind {
        FabricKind::Seastar => crate::nal::seastar::check(config),
        FabricKind::Verbs => crate::nal::verbs::check(config.device.as_deref()),
        FabricKind::Shm => crate::nal::shm::check(ranks),
    }
    .map_err(|reason| FabricError::Unusable {
        kind: config.kind,
        reason,
    })
}

/// What a process asks of its interface; ranks need not ask for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Process id, up to [`LARGEST_PID`]; [`RANK_PID`] is no wish: ranks that share a node then have
    /// that and the following ones.
    pub pid: u32,
    /// Limits, cut to [`Limits::LIBRARY`].
    pub limits: Limits,
    /// Number of the interface within the process, 0 to 6.
    pub interface: u8,
    /// See [`NiConfig::get_send_events`].
    pub get_send_events: bool,
    /// Job id, up to 65535; without a wish the job's own.
    pub jid: Option<u32>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            pid: RANK_PID,
            limits: Limits::LIBRARY,
            interface: 0,
            get_send_events: false,
            jid: None,
        }
    }
}

impl Wishes {
    /// Who `rank` is if it gets what it wishes.
    pub(crate) fn config(&self, place: Placement, rank: u32, jid: u32) -> NiConfig {
        let id = match self.pid {
            RANK_PID => place.of(rank),
            pid => place.of_pid(rank, pid),
        };
        NiConfig {
            id,
            limits: self.limits.min(Limits::LIBRARY),
            interface: self.interface,
            get_send_events: self.get_send_events,
            ..rank_config(place, rank, self.jid.unwrap_or(jid))
        }
    }
}

/// The exchange of process ids where ranks may have different ones.
pub(crate) struct Ids<'a> {
    wishes: Option<&'a Wishes>,
    opening: String,
}

impl<'a> Ids<'a> {
    /// Before the fence: tells the own process id unless it is the common one.
    pub(crate) fn announce(
        job: &Job,
        wishes: Option<&'a Wishes>,
        opening: &str,
    ) -> Result<Self, JobError> {
        if let Some(w) = wishes.filter(|w| w.pid != RANK_PID) {
            job.put(&Self::key(job.rank(), opening), w.pid.to_string())?;
        }
        let opening = opening.to_owned();
        Ok(Self { wishes, opening })
    }

    fn key(rank: u32, opening: &str) -> String {
        format!("portolan.pid.{rank}{opening}")
    }

    /// After it: everybody's id. Without wishes nobody is asked, and all have the common one.
    pub(crate) fn collect(
        &self,
        job: &Job,
        place: Placement,
    ) -> Result<Vec<ProcessId>, FabricError> {
        let id = |rank| {
            let common = place.of(rank);
            if self.wishes.is_none() {
                return Ok(common);
            }
            match job.get(&Self::key(rank, &self.opening)) {
                Ok(pid) => Ok(place.of_pid(rank, pid.parse().unwrap_or(common.pid))),
                Err(JobError::NoSuchKey { .. }) => Ok(common),
                Err(e) => Err(e),
            }
        };
        let ids = (0..job.size()).map(id).collect::<Result<Vec<_>, _>>()?;
        for (second, id) in ids.iter().enumerate() {
            let first = place.find(*id, |rank| rank < second && ids[rank] == *id);
            if let Some(first) = first {
                let id = *id;
                return Err(FabricError::SameProcess { first, second, id });
            }
        }
        Ok(ids)
    }
}

/// Opens the fabric; collective over the job.
pub fn open(job: &Job, config: &FabricConfig) -> Result<Opened, FabricError> {
    launch::stdio::occupy();
    open_wishing(job, config, None)
}

/// As [`open`] with wishes; ranks must all call this one or all the other.
pub fn open_with(job: &Job, config: &FabricConfig, wishes: &Wishes) -> Result<Opened, FabricError> {
    launch::stdio::occupy();
    open_wishing(job, config, Some(wishes))
}

fn open_wishing(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Opened, FabricError> {
    if job.rank() == 0 {
        host::variables::say_unknown();
    }
    match config.kind {
        FabricKind::Seastar => crate::nal::seastar::open(job, config, wishes),
        FabricKind::Verbs => crate::nal::composite::open(job, config, wishes),
        FabricKind::Shm => crate::nal::shm::open(job, config, wishes),
    }
}

/// The identity of a rank that wishes for nothing.
pub(crate) fn rank_config(place: Placement, rank: u32, jid: u32) -> NiConfig {
    NiConfig {
        id: place.of(rank),
        uid: rustix::process::geteuid().as_raw(),
        jid,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    }
}

/// The number of a job by its name: 16 bits, for which the SeaStar's header has room, without the one that is any job
/// in programs for Cray's systems.
fn job_number(id: &str) -> u32 {
    let hash = id.bytes().fold(0x811c_9dc5u32, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    ((hash ^ hash >> 16) & 0xffff).min(0xfffe)
}

/// The identity of this process in a job.
pub(crate) fn identity(job: &Job, place: Placement, wishes: Option<&Wishes>) -> NiConfig {
    let jid = job_number(job.id());
    wishes.map_or_else(
        || rank_config(place, job.rank(), jid),
        |w| w.config(place, job.rank(), jid),
    )
}

/// `n` interfaces joined within this process, one for each of `n` threads: a fabric for tests.
pub fn in_process(n: u32) -> Vec<Opened> {
    in_process_placed(n, Placement::ONE)
}

/// An interface of one process that reaches itself alone; its node is that of [`Placement::ONE`].
pub fn alone(config: NiConfig) -> Opened {
    let id = config.id;
    let nal = InProc::new(Hub::new(vec![id], Placement::ONE), 0);
    Opened {
        interface: Interface::direct(Ni::new(config), nal),
        peers: vec![id],
    }
}

/// As [`in_process`], with several ranks on a node.
pub fn in_process_placed(n: u32, place: Placement) -> Vec<Opened> {
    let configs: Vec<_> = (0..n).map(|r| rank_config(place, r, 1)).collect();
    let peers: Vec<_> = configs.iter().map(|c| c.id).collect();
    let hub = Hub::new(peers.clone(), place);
    (0..)
        .zip(configs)
        .map(|(own, config)| Opened {
            interface: Interface::direct(Ni::new(config), InProc::new(hub.clone(), own)),
            peers: peers.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_numbers_of_16_bits_none_of_which_is_any_job() {
        let numbers: Vec<u32> = (0..200_000)
            .map(|n| job_number(&format!("job-{n}")))
            .collect();
        assert!(numbers.iter().all(|n| *n < 0xffff));
        let distinct: std::collections::HashSet<_> = numbers.iter().collect();
        assert!(distinct.len() > 50_000, "{}", distinct.len());
        assert_eq!(numbers[7], job_number("job-7"));
    }
}
