//! `portolan simulate`: a simulated machine that endpoints join when they like.

use clap::Args;
use portals_shim::fabric::{self, FabricKind};
use portals_shim::nal::seastar::{SIMULATION_VARIABLE, Simulation};

use crate::choice::FabricArgs;
use crate::cmd::numbers::whole;
use crate::cmd::say;
use crate::error::CmdError;

/// The most endpoints that are simulated.
pub(crate) const PLACES_MAX: u32 = 4096;

/// Options of `portolan simulate`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Endpoints that can be there at one time
    #[arg(long, value_name = "N", value_parser = whole(1..=PLACES_MAX))]
    places: u32,
    #[command(flatten)]
    fabric: FabricArgs,
}

/// Starts a simulation of so many places.
pub(crate) fn start(chosen: &FabricArgs, places: u32) -> Result<Simulation, CmdError> {
    let chosen = chosen.modelled();
    let kind = chosen.kind();
    if kind != FabricKind::Seastar {
        let message = format!("--places is for --fabric seastar; here the fabric is {kind}");
        return Err(CmdError::Usage(message));
    }
    let config = chosen.config();
    fabric::check_for(&config, Some(places))?;
    Ok(Simulation::start(&config, places)?)
}

/// Runs the simulation until a signal ends this process, and so its line to the simulation.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let mut simulation = start(&options.fabric, options.places)?;
    say(&format!("{SIMULATION_VARIABLE}={}", simulation.word()))?;
    let ended = simulation.wait().map_err(|source| CmdError::System {
        what: "cannot wait for the simulation".to_owned(),
        source,
    })?;
    // It has said why.
    Ok(u8::from(!ended.success()))
}
