//! Which fabric a user asks for, and what that comes to on one machine.

use crate::config::{FabricConfig, FabricError, FabricKind};
use std::fmt;
use std::str::FromStr;

/// A property of the SeaStar model that no other fabric has: whoever chooses one asks for the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelOption {
    /// Its option on the command line.
    pub option: &'static str,
    /// Its variable in the environment.
    pub variable: &'static str,
}

impl ModelOption {
    /// `--machine`.
    pub const MACHINE: Self = Self::new("--machine", "PORTOLAN_MACHINE");
    /// `--set`.
    pub const SET: Self = Self::new("--set", FabricConfig::SET);
    /// `--topology`.
    pub const TOPOLOGY: Self = Self::new("--topology", "PORTOLAN_TOPOLOGY");
    /// `--map`.
    pub const MAP: Self = Self::new("--map", "PORTOLAN_MAP");
    /// `--mode`.
    pub const MODE: Self = Self::new("--mode", "PORTOLAN_SEASTAR_MODE");
    /// `--faults`.
    pub const FAULTS: Self = Self::new("--faults", FabricConfig::FAULTS);
    /// `--fault-seed`.
    pub const FAULT_SEED: Self = Self::new("--fault-seed", FabricConfig::FAULT_SEED);
    /// All, in the order in which they are looked for.
    pub const ALL: [Self; 7] = [
        Self::MACHINE,
        Self::SET,
        Self::TOPOLOGY,
        Self::MAP,
        Self::MODE,
        Self::FAULTS,
        Self::FAULT_SEED,
    ];

    const fn new(option: &'static str, variable: &'static str) -> Self {
        Self { option, variable }
    }
}

impl fmt::Display for ModelOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.option, self.variable)
    }
}

/// A user's choice of a fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FabricChoice {
    /// The fastest one that reaches every rank: shared memory on one machine, RDMA between machines.
    #[default]
    Auto,
    /// None by name, but something that only the SeaStar model has.
    Model(ModelOption),
    /// This one, by name.
    Named(FabricKind),
}

impl FabricChoice {
    /// The word for [`FabricChoice::Auto`].
    pub const AUTO: &str = "auto";

    /// The choice, if the user has also chosen these properties of the model. A name counts more.
    pub fn with(self, chosen: impl IntoIterator<Item = ModelOption>) -> Self {
        match (self, chosen.into_iter().next()) {
            (Self::Auto, Some(option)) => Self::Model(option),
            _ => self,
        }
    }

    /// The fabric for processes that are all on one machine.
    pub const fn on_one_machine(self) -> FabricKind {
        match self {
            Self::Auto => FabricKind::Shm,
            Self::Model(_) => FabricKind::Seastar,
            Self::Named(kind) => kind,
        }
    }

    /// Why `ranks` ranks of one machine take that fabric; `None` if the user has named it.
    pub fn reason(self, ranks: u32) -> Option<String> {
        match self {
            Self::Auto if ranks == 1 => Some("the job has one rank".to_owned()),
            Self::Auto => Some(format!("all {ranks} ranks are on one machine")),
            Self::Model(option) => Some(format!("only the model has {option}")),
            Self::Named(_) => None,
        }
    }
}

impl From<FabricKind> for FabricChoice {
    fn from(kind: FabricKind) -> Self {
        Self::Named(kind)
    }
}

impl fmt::Display for FabricChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto | Self::Model(_) => f.write_str(Self::AUTO),
            Self::Named(kind) => kind.fmt(f),
        }
    }
}

impl FromStr for FabricChoice {
    type Err = FabricError;

    fn from_str(s: &str) -> Result<Self, FabricError> {
        match s {
            Self::AUTO => Ok(Self::Auto),
            name => name.parse().map(Self::Named),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_field_name_the_verbs_fabric() {
        for word in ["verbs", "rdma", "infiniband", "ib", "roce"] {
            let choice: FabricChoice = word.parse().unwrap();
            assert_eq!(choice, FabricChoice::Named(FabricKind::Verbs), "{word}");
            assert_eq!(choice.to_string(), "verbs");
        }
        assert_eq!("auto".parse::<FabricChoice>().unwrap(), FabricChoice::Auto);
        for kind in FabricKind::ALL {
            let choice: FabricChoice = kind.name().parse().unwrap();
            assert_eq!(choice, FabricChoice::Named(kind));
        }
        let error = "myrinet".parse::<FabricChoice>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown fabric \"myrinet\"; the fabrics are auto, verbs, shm and seastar"
        );
    }

    #[test]
    fn one_machine_has_memory_unless_the_model_or_a_name_is_asked_for() {
        let auto = FabricChoice::Auto;
        assert_eq!(auto.with([]), auto);
        assert_eq!(auto.on_one_machine(), FabricKind::Shm);
        assert_eq!(auto.reason(1).unwrap(), "the job has one rank");
        assert_eq!(auto.reason(4).unwrap(), "all 4 ranks are on one machine");
        for option in ModelOption::ALL {
            let model = auto.with([option]);
            assert_eq!(model.on_one_machine(), FabricKind::Seastar);
            assert!(model.reason(4).unwrap().contains(option.variable));
        }
        for kind in FabricKind::ALL {
            let named = FabricChoice::from(kind).with(ModelOption::ALL);
            assert_eq!((named.on_one_machine(), named.reason(4)), (kind, None));
        }
    }
}
