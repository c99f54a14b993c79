//! `portolan seastar-sim`: the process that holds the simulated machine of a job, or one that endpoints join.
//!
//! Rank 0 starts it, or `portolan simulate`, with one end of a pair of sockets as standard input.

use clap::Args;
use portals_shim::fabric::FabricConfig;
use portals_shim::nal::seastar::{Mode, simulate, simulate_places};
use portals_shim::place::Placement;

use crate::error::CmdError;

/// Options of `portolan seastar-sim`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Ranks that will connect
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), required_unless_present = "places")]
    ranks: Option<u32>,
    /// Places for endpoints, which join when they like
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "ranks")]
    places: Option<u32>,
    /// Places of a node
    #[arg(long, default_value_t = 1)]
    ranks_per_node: u32,
    /// Machine whose parameters are used
    #[arg(long)]
    machine: String,
    /// Parameters of it that have another value
    #[arg(long)]
    set: Vec<String>,
    /// Grid of the machine
    #[arg(long)]
    topology: Option<String>,
    /// Which rank sits on which place of it
    #[arg(long)]
    map: Option<String>,
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

/// Serves the ranks until all have left, or endpoints until the founder has.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let config = FabricConfig {
        machine: options.machine.clone(),
        set: options.set.clone(),
        topology: options.topology.clone(),
        map: options.map.clone(),
        mode: options.mode,
        faults: options.faults.clone(),
        fault_seed: options.fault_seed.clone(),
        place: Placement::new(options.ranks_per_node).unwrap_or_default(),
        ..FabricConfig::default()
    };
    match options.places {
        Some(places) => simulate_places(places, &config)?,
        None => simulate(options.ranks.unwrap_or(1), &config)?,
    }
    Ok(0)
}
