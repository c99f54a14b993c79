//! Why a command failed, and the exit status that goes with it.

use std::io;

use portals_shim::fabric::FabricError;
use portals_shim::with_causes;

use crate::guest::GuestError;

/// A failure of this command itself, as opposed to one of the program it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CmdError {
    /// What the user typed cannot be meant.
    #[error("{0}")]
    Usage(String),
    /// The fabric cannot be used on this machine; the message says what to do.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The guest could not run the command.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The simulated machine could not be built or served.
    #[error(transparent)]
    Simulation(#[from] portals_shim::nal::seastar::ServeError),
    /// A device could not be served.
    #[error(transparent)]
    Device(#[from] nic_device::DeviceError),
    /// The system refused something.
    #[error("{what}")]
    System {
        /// What was tried, as `cannot …`.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be shown.
    #[error(transparent)]
    Read(#[from] crate::page::ReadError),
    /// Anything else, in one line.
    #[error("{0}")]
    Failed(String),
}

impl CmdError {
    /// The exit status: 2 for bad usage, 3 for a fabric that cannot be used here, 1 otherwise; the guest
    /// has its own.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Fabric(
                FabricError::Unknown { .. } | FabricError::Faults { .. } | FabricError::Map { .. },
            ) => 2,
            Self::Fabric(FabricError::Unusable { .. } | FabricError::Undecided { .. }) => 3,
            Self::Guest(error) => error.exit_status(),
            Self::Fabric(_)
            | Self::Simulation(_)
            | Self::Device(_)
            | Self::System { .. }
            | Self::Read(_)
            | Self::Failed(_) => 1,
        }
    }
}

/// Says why a command failed, if it did; the exit status.
pub(crate) fn conclude(done: Result<u8, CmdError>) -> u8 {
    done.unwrap_or_else(|error| {
        portals_shim::say(format_args!("portolan: {}", with_causes(&error)));
        error.status()
    })
}
