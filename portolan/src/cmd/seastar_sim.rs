//! `portolan seastar-sim`: the process that holds the simulated machine of a job.
//!
//! Rank 0 starts it, with the listening socket as standard input.

use clap::Args;
use portals_shim::fabric::FabricConfig;
use portals_shim::nal::seastar::{Mode, simulate};

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
    /// Grid of the machine
    #[arg(long)]
    topology: Option<String>,
    /// Who matches: generic or accelerated
    #[arg(long, default_value_t = Mode::Generic)]
    mode: Mode,
    /// File with what goes wrong
    #[arg(long)]
    faults: Option<String>,
    /// Seed of what goes wrong at random
    #[arg(long)]
    fault_seed: Option<String>,
}

/// Serves the ranks until all have left.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let config = FabricConfig {
        machine: options.machine.clone(),
        topology: options.topology.clone(),
        mode: options.mode,
        faults: options.faults.clone(),
        fault_seed: options.fault_seed.clone(),
        ..FabricConfig::default()
    };
    simulate(options.ranks, &config)?;
    Ok(0)
}
