//! Which fabric a program runs on, and who its ranks are there.

use super::choice::{FabricChoice, ModelOption};
use super::mode::Mode;
use super::place::{MOST_PER_NODE, Placement};
use launch::JobError;
use portals_core::ProcessId;
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

    /// Other words of users for it.
    const fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Verbs => &["rdma", "infiniband", "ib", "roce"],
            Self::Seastar | Self::Shm => &[],
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
            .find(|k| k.name() == s || k.aliases().contains(&s))
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
    #[error("unknown fabric \"{name}\"; the fabrics are auto, verbs, shm and seastar")]
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
    /// The ranks of a job that names no fabric cannot agree on one.
    #[error("no fabric reaches all ranks: {reason}")]
    Undecided {
        /// Which rank is the cause, and what to do.
        reason: String,
    },
    /// The faults that were asked for cannot be meant.
    #[error("{reason}")]
    Faults {
        /// Where in the fault file, what, and what is wanted.
        reason: String,
    },
    /// The places of ranks that were asked for cannot be meant.
    #[error("{reason}")]
    Map {
        /// Where in the file, what, and what is wanted.
        reason: String,
    },
    /// The exchange with the other ranks failed.
    #[error("start-up of the job failed")]
    Job(#[from] JobError),
}

impl FabricError {
    /// What is missing and what to do, for who says by itself that the fabric cannot be used.
    #[must_use]
    pub fn into_reason(self) -> String {
        match self {
            Self::Unusable { reason, .. } => reason,
            other => other.to_string(),
        }
    }
}

/// The choices of a run; `portolan run` passes them through the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// `PORTOLAN_FABRIC`; [`FabricChoice::Auto`] when unset.
    pub fabric: FabricChoice,
    /// `PORTOLAN_DEVICE`: verbs device; the first usable one when unset.
    pub device: Option<String>,
    /// `PORTOLAN_CHANNEL`: how the verbs fabric carries messages; `rc` when unset.
    pub channel: Channel,
    /// `PORTOLAN_MACHINE`: machine parameters of the model, a name or a file; `xt4` when unset.
    pub machine: String,
    /// `PORTOLAN_MACHINE_SET`: parameters of that machine that have another value, as `host.trap=0.2`, see
    /// [`SET`](Self::SET); none when unset.
    pub set: Vec<String>,
    /// `PORTOLAN_RANKS_PER_NODE`: which node and process id each rank has; 1 when unset.
    pub place: Placement,
    /// `GASNET_SUPERNODE_MAXSIZE`: how many ranks of one machine share memory under the verbs fabric; 0, when unset,
    /// is all of them, 1 none.
    pub most_sharing: u32,
    /// `PORTOLAN_TOPOLOGY`: the model's grid, as `4x4x2` or `4x4x2,mesh`; when unset the smallest
    /// torus that holds the nodes.
    pub topology: Option<String>,
    /// `PORTOLAN_MAP`: which rank sits on which place of the model's grid, as `random:7` or a file; `linear` when
    /// unset.
    pub map: Option<String>,
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
            fabric: FabricChoice::Auto,
            device: None,
            channel: Channel::Rc,
            machine: "xt4".to_owned(),
            set: Vec::new(),
            place: Placement::ONE,
            most_sharing: 0,
            topology: None,
            map: None,
            mode: Mode::Generic,
            faults: None,
            fault_seed: None,
        }
    }
}

impl FabricConfig {
    /// Parameters of the modelled machine, each `SECTION.KEY=VALUE`, with commas between them. Times are microseconds
    /// where they have no unit.
    pub const SET: &str = "PORTOLAN_MACHINE_SET";
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

    /// The fabric for processes that are all on one machine.
    pub const fn kind(&self) -> FabricKind {
        self.fabric.on_one_machine()
    }

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
        let of_model = ModelOption::ALL
            .into_iter()
            .filter(|option| var(option.variable).is_some());
        Ok(Self {
            fabric: var("PORTOLAN_FABRIC")
                .map_or(Ok(default.fabric), |name| name.parse())?
                .with(of_model),
            device: var("PORTOLAN_DEVICE"),
            channel: var(Self::CHANNEL).map_or(Ok(default.channel), |value| {
                value.parse().map_err(|_| FabricError::Variable {
                    name: Self::CHANNEL,
                    value: value.chars().take(60).collect(),
                    expected: "rc, ud or auto".to_owned(),
                })
            })?,
            machine: var(ModelOption::MACHINE.variable).unwrap_or(default.machine),
            set: var(Self::SET).map_or_else(Vec::new, |all| {
                all.split(',').map(|one| one.trim().to_owned()).collect()
            }),
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
            topology: var(ModelOption::TOPOLOGY.variable),
            map: var(ModelOption::MAP.variable),
            mode: var(ModelOption::MODE.variable).map_or(Ok(default.mode), |value| {
                value.parse().map_err(|_| FabricError::Variable {
                    name: ModelOption::MODE.variable,
                    value: value.chars().take(60).collect(),
                    expected: "generic or accelerated".to_owned(),
                })
            })?,
            faults: var(Self::FAULTS),
            fault_seed: var(Self::FAULT_SEED),
        })
    }
}
