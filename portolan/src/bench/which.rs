//! Which conduit a measurement is of.

use super::name::Name;

/// A conduit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Which {
    /// The one over Portals
    #[default]
    Portals,
    /// Active messages and puts over tagged messages, as mpi-conduit had them
    Mpi,
}

impl Which {
    /// The word of the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Portals => "portals",
            Self::Mpi => "mpi",
        }
    }

    /// Whether this conduit has the measurement, or it is of none.
    pub(crate) fn has(self, name: Name) -> bool {
        self == Self::Portals || name.is_of_both_conduits()
    }
}
