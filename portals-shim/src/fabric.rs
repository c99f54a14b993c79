//! Which fabric a program runs on. Nothing above this module asks.

use crate::interface::Interface;
use crate::job::{Job, JobError};
use crate::nal::inproc::{Hub, InProc};
use portals_core::{Limits, Ni, NiConfig, ProcessId};
use std::fmt;
use std::str::FromStr;

/// The process id that every rank has on its node.
pub const RANK_PID: u32 = 128;

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

/// Opens the fabric; collective over the job.
pub fn open(job: &Job, config: &FabricConfig) -> Result<Opened, FabricError> {
    match config.kind {
        FabricKind::Seastar => crate::nal::seastar::open(job, config),
        FabricKind::Verbs => crate::nal::verbs::open(job, config),
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
