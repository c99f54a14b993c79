//! `portolan seastar-sim`: the process that holds the simulated machine of a job.
//!
//! Rank 0 starts it, with the listening socket as standard input.

use clap::Args;
use portals_shim::nal::seastar::simulate;

use crate::error::CmdError;

/// Options of `portolan seastar-sim`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Ranks that will connect
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Machine whose parameters are used
    #[arg(long)]
    machine: String,
}

/// Serves the ranks until all have left.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    simulate(options.ranks, &options.machine)?;
    Ok(0)
}
