//! Whose endpoint it is that joins an open simulation.
//!
//! A program of several processes is the same in every run only if its endpoints get the same places, and begin together, however the system
//! runs their processes. Its launcher's variables say which of how many a process is. They are a hint: a launcher is not asked, and
//! who has none, or a wrong one, gets the next place and begins at once.

use serde::{Deserialize, Serialize};

/// Which of several processes that were started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Number {
    /// Less than `of`.
    pub(super) rank: u32,
    pub(super) of: u32,
}

/// The process of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The same for all endpoints of the process, and for nobody else.
    pub(super) process: u64,
    /// Which one it is of those that were started together; none: alone.
    pub(super) number: Option<Number>,
}

impl Owner {
    /// A process that was started by itself.
    pub(super) const fn alone(process: u64) -> Self {
        Self {
            process,
            number: None,
        }
    }
}

/// Variables of launchers, the nearest first: hydra and its kin, Open MPI's, and Slurm.
const VARIABLES: [(&str, &str); 3] = [
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

impl Number {
    /// One of several; none where the numbers are not those of one.
    pub(super) fn new(rank: u32, of: u32) -> Option<Self> {
        (rank < of && of > 1).then_some(Self { rank, of })
    }

    /// That of this process, as its environment says.
    pub(super) fn own() -> Option<Self> {
        Self::by(|name| std::env::var(name).ok())
    }

    fn by(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let both = VARIABLES.map(|(rank, of)| get(rank).zip(get(of)));
        let (rank, of) = both.into_iter().flatten().next()?;
        Self::new(rank.parse().ok()?, of.parse().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(set: &[(&str, &str)]) -> Option<Number> {
        let find = |name: &str| set.iter().find(|(n, _)| *n == name);
        Number::by(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_nearest_launcher_numbers_a_process() {
        let open = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let hydra = [("PMI_RANK", "2"), ("PMI_SIZE", "3")];
        assert_eq!(by(&open), Some(Number { rank: 1, of: 4 }));
        assert_eq!(by(&[open, hydra].concat()), Some(Number { rank: 2, of: 3 }));
    }

    #[test]
    fn what_is_no_number_of_several_is_none() {
        for (rank, of) in [("0", "1"), ("2", "2"), ("x", "2"), ("-1", "2"), ("0", "")] {
            assert_eq!(
                by(&[("PMI_RANK", rank), ("PMI_SIZE", of)]),
                None,
                "{rank} of {of}"
            );
        }
        assert_eq!(by(&[("PMI_RANK", "0")]), None);
        assert_eq!(by(&[]), None);
    }
}
