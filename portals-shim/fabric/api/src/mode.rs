//! Who matches on the simulated machine.

use std::fmt;
use std::str::FromStr;

/// Who holds the Portals state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The kernel of its node.
    #[default]
    Generic,
    /// The firmware of its NIC.
    Accelerated,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Generic, Self::Accelerated];

    /// The word of the command line and of results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Accelerated => "accelerated",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No mode has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mode \"{0}\"; the modes are generic and accelerated")]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(s: &str) -> Result<Self, UnknownMode> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == s);
        found.ok_or_else(|| UnknownMode(s.chars().take(60).collect()))
    }
}
