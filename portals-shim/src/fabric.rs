//! Which fabric a program runs on. Nothing above this module asks.

use crate::interface::Interface;
use crate::job::{Job, JobError};
use crate::nal::inproc::{Hub, InProc};
use portals_core::{Limits, Ni, NiConfig, ProcessId};
use std::fmt;
use std::str::FromStr;

/// The process id that a rank has on its node unless it wishes for another.
pub const RANK_PID: u32 = 128;

/// The largest process id; headers on the SeaStar have 16 bits for it, and all ones is no process.
pub const LARGEST_PID: u32 = 0xfffe;

/// A fabric by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricKind {
    /// The simulated Cray SeaStar.
    Seastar,
    /// RDMA verbs.
    Verbs,
}

impl FabricKind {
    /// All, in the order users should read them.
    pub const ALL: [Self; 2] = [Self::Seastar, Self::Verbs];

    /// The word of the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seastar => "seastar",
            Self::Verbs => "verbs",
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

/// Why a fabric could not be opened. The message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// No fabric has this name.
    #[error("unknown fabric \"{name}\"; the fabrics are seastar and verbs")]
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
    /// `PORTOLAN_MACHINE`: machine parameters of the model, `xt4` when unset.
    pub machine: String,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self {
            kind: FabricKind::Seastar,
            device: None,
            machine: "xt4".to_owned(),
        }
    }
}

impl FabricConfig {
    /// Reads the environment.
    pub fn from_env() -> Result<Self, FabricError> {
        let var = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
        let default = Self::default();
        Ok(Self {
            kind: var("PORTOLAN_FABRIC").map_or(Ok(default.kind), |k| k.parse())?,
            device: var("PORTOLAN_DEVICE"),
            machine: var("PORTOLAN_MACHINE").unwrap_or(default.machine),
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
    match config.kind {
        FabricKind::Seastar => crate::nal::seastar::check(&config.machine),
        FabricKind::Verbs => crate::nal::verbs::check(config.device.as_deref()),
    }
    .map_err(|reason| FabricError::Unusable {
        kind: config.kind,
        reason,
    })
}

/// What a process asks of its interface; ranks need not ask for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Process id, up to [`LARGEST_PID`].
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
    pub(crate) fn config(&self, rank: u32, jid: u32) -> NiConfig {
        NiConfig {
            id: ProcessId::new(rank, self.pid),
            limits: self.limits.min(Limits::LIBRARY),
            interface: self.interface,
            get_send_events: self.get_send_events,
            ..rank_config(rank, self.jid.unwrap_or(jid))
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
    pub(crate) fn collect(&self, job: &Job, jid: u32) -> Result<Vec<ProcessId>, JobError> {
        (0..job.size())
            .map(|rank| {
                let common = rank_config(rank, jid).id;
                if self.wishes.is_none() {
                    return Ok(common);
                }
                match job.get(&Self::key(rank, &self.opening)) {
                    Ok(pid) => Ok(ProcessId::new(rank, pid.parse().unwrap_or(common.pid))),
                    Err(JobError::NoSuchKey { .. }) => Ok(common),
                    Err(e) => Err(e),
                }
            })
            .collect()
    }
}

/// Opens the fabric; collective over the job.
pub fn open(job: &Job, config: &FabricConfig) -> Result<Opened, FabricError> {
    open_wishing(job, config, None)
}

/// As [`open`] with wishes; ranks must all call this one or all the other.
pub fn open_with(job: &Job, config: &FabricConfig, wishes: &Wishes) -> Result<Opened, FabricError> {
    open_wishing(job, config, Some(wishes))
}

fn open_wishing(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Opened, FabricError> {
    match config.kind {
        FabricKind::Seastar => crate::nal::seastar::open(job, config, wishes),
        FabricKind::Verbs => crate::nal::verbs::open(job, config, wishes),
    }
}

/// The identity of a rank: its own node, the common process id.
pub(crate) fn rank_config(rank: u32, jid: u32) -> NiConfig {
    NiConfig {
        id: ProcessId::new(rank, RANK_PID),
        uid: rustix::process::geteuid().as_raw(),
        jid,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    }
}

/// `n` interfaces joined within this process, one for each of `n` threads: a fabric for tests.
pub fn in_process(n: u32) -> Vec<Opened> {
    let hub = Hub::new(n, RANK_PID);
    let peers: Vec<_> = (0..n).map(|r| rank_config(r, 1).id).collect();
    (0..n)
        .map(|r| Opened {
            interface: Interface::direct(Ni::new(rank_config(r, 1)), InProc::new(hub.clone(), r)),
            peers: peers.clone(),
        })
        .collect()
}
