//! Whose endpoint it is that joins an open simulation.
//!
//! A program of several processes is the same in every run only if its endpoints get the same places, and begin together, however the system
//! runs its processes. Variables of a launcher say the rank of a process and the size of its job. They are a hint: the launcher is not
//! asked. An endpoint without them, or with wrong ones, gets the next place; nobody waits for long for a rank that does not come.

use serde::{Deserialize, Serialize};

/// The rank of a process in its job of several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobRank {
    /// Less than `size`.
    pub(super) rank: u32,
    pub(super) size: u32,
}

/// The process of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    /// The same for all endpoints of the process, and for nobody else.
    pub(super) process: u64,
    /// None: it was started by itself.
    pub(super) job_rank: Option<JobRank>,
}

impl Owner {
    /// A process that was started by itself.
    pub(super) const fn alone(process: u64) -> Self {
        Self {
            process,
            job_rank: None,
        }
    }
}

/// Variables of launchers, the nearest first: hydra and its kin, Open MPI's, and Slurm. Slurm's are those of a step: a batch script has
/// `SLURM_NTASKS` too, and is one process.
const VARIABLES: [(&str, &str); 3] = [
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

impl JobRank {
    /// None where the numbers are not those of one process of several.
    pub(super) fn new(rank: u32, size: u32) -> Option<Self> {
        (rank < size && size > 1).then_some(Self { rank, size })
    }

    /// That of this process, as its environment says.
    pub(super) fn of_this_process() -> Option<Self> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let both = VARIABLES.map(|(rank, size)| get(rank).zip(get(size)));
        let (rank, size) = both.into_iter().flatten().next()?;
        Self::new(rank.parse().ok()?, size.parse().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(set: &[(&str, &str)]) -> Option<JobRank> {
        let find = |name: &str| set.iter().find(|(n, _)| *n == name);
        JobRank::from_lookup(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_nearest_launcher_says_the_rank() {
        let open = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let hydra = [("PMI_RANK", "2"), ("PMI_SIZE", "3")];
        assert_eq!(by(&open), Some(JobRank { rank: 1, size: 4 }));
        assert_eq!(
            by(&[open, hydra].concat()),
            Some(JobRank { rank: 2, size: 3 })
        );
    }

    #[test]
    fn a_batch_script_of_slurm_is_one_process_and_a_step_has_several() {
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        assert_eq!(by(&batch), None);
        let step = [&batch[..], &[("SLURM_STEP_NUM_TASKS", "4")]].concat();
        assert_eq!(by(&step), Some(JobRank { rank: 0, size: 4 }));
    }

    #[test]
    fn what_is_no_rank_of_several_is_none() {
        for (rank, size) in [("0", "1"), ("2", "2"), ("x", "2"), ("-1", "2"), ("0", "")] {
            assert_eq!(
                by(&[("PMI_RANK", rank), ("PMI_SIZE", size)]),
                None,
                "{rank} of {size}"
            );
        }
        assert_eq!(by(&[("PMI_RANK", "0")]), None);
        assert_eq!(by(&[]), None);
    }
}
