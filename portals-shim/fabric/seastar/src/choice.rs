//! What is to be simulated, as the configuration of the fabric and the environment choose it.

use super::faults;
use super::grid;
use super::map::Map;
use super::sim::Setting;
use fabric_api::choice::ModelOption;
use fabric_api::config::{FabricConfig, FabricError, FabricKind};
use fabric_api::mode::Mode;
use nic_model::{Faults, Machine, Os, Topology};
use std::time::Duration;

/// The hidden subcommand of `portolan` that runs [`simulate`](super::simulate).
pub const SIMULATION_COMMAND: &str = "seastar-sim";
/// Environment variable that names the `portolan` executable when it is found nowhere else.
pub const EXECUTABLE_VARIABLE: &str = "PORTOLAN_EXE";

/// Whether the machine's parameters are known and the grid can be built.
pub fn check(config: &FabricConfig) -> Result<(), String> {
    machine_of(config).map(|_| ())
}

/// Whether the faults make sense, and, for a job of `ranks`, are of nodes and links of its machine.
pub fn check_faults(config: &FabricConfig, ranks: Option<u32>) -> Result<(), String> {
    let faults = faults_of(config)?;
    let Some(places) = grid_of(config, ranks)? else {
        return Ok(());
    };
    // What is wrong with the map is said of it.
    let mapped = map_of(config).and_then(|map| mapped(&map, &places, config, ranks));
    let places = mapped.unwrap_or(places);
    let from = |file: &String| format!("{file}: ");
    let from = config.faults.as_ref().map_or_else(String::new, from);
    faults.check(&places).map_err(|why| format!("{from}{why}"))
}

/// Whether the map makes sense, and, for a job of `ranks`, gives each a place of the grid.
pub fn check_map(config: &FabricConfig, ranks: Option<u32>) -> Result<(), String> {
    let map = map_of(config)?;
    match grid_of(config, ranks)? {
        Some(grid) => mapped(&map, &grid, config, ranks).map(|_| ()),
        None => Ok(()),
    }
}

/// The grid that is chosen, or that of a job of `ranks`.
fn grid_of(config: &FabricConfig, ranks: Option<u32>) -> Result<Option<Topology>, String> {
    if let Some(text) = &config.topology {
        return grid::parse(text).map(Some);
    }
    let nodes = ranks.map(|ranks| ranks.div_ceil(config.place.per_node()).max(1));
    Ok(nodes.and_then(|nodes| Topology::torus(grid::near_cube(nodes)).ok()))
}

/// The grid with the nodes of `ranks` at their places. One that is too small stays as it is: the simulation says so.
fn mapped(
    map: &Map,
    grid: &Topology,
    config: &FabricConfig,
    ranks: Option<u32>,
) -> Result<Topology, String> {
    let per_node = config.place.per_node();
    let ranks = ranks.unwrap_or(0);
    if ranks.div_ceil(per_node) as usize > grid.nodes() {
        return Ok(grid.clone());
    }
    let on: Vec<usize> = (0..ranks).map(|rank| (rank / per_node) as usize).collect();
    map.apply(grid, &on)
}

fn map_of(config: &FabricConfig) -> Result<Map, String> {
    let Some(text) = &config.map else {
        return Ok(Map::default());
    };
    if Map::is_file(text) {
        may_read(ModelOption::MAP.variable, text)?;
    }
    Map::parse(text)
}

/// Names the machine of the model.
const MACHINE: &str = "PORTOLAN_MACHINE";

/// Whoever calls a program with privileges chooses its environment, but no file that it reads.
fn may_read(variable: &str, file: &str) -> Result<(), String> {
    if host::is_privileged() {
        let why = host::PRIVILEGED;
        return Err(format!(
            "{variable} is {file:?}, and no file is read: {why}"
        ));
    }
    Ok(())
}

fn faults_of(config: &FabricConfig) -> Result<Faults, String> {
    if let Some(file) = &config.faults {
        may_read(FabricConfig::FAULTS, file)?;
    }
    faults::choose(config.faults.as_deref(), config.fault_seed.as_deref())
}

/// What an MPI library costs the processor of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiLayer {
    /// For a message before Portals, nanoseconds.
    pub send: u64,
    /// For a message after Portals, nanoseconds.
    pub receive: u64,
    /// To start a copy, nanoseconds.
    pub copy_start: u64,
    /// To go on with it, bytes per microsecond.
    pub copy_rate: u64,
}

/// The parameters of the machine of this choice.
///
/// # Errors
/// [`FabricError::Unusable`]: there is no such machine, or it does not have the mode.
pub fn machine(config: &FabricConfig) -> Result<Machine, FabricError> {
    machine_of(config)
        .map(|setting| setting.machine)
        .map_err(unusable)
}

/// Of the machine of this choice.
///
/// # Errors
/// Those of [`machine`].
pub fn mpi_layer(config: &FabricConfig) -> Result<MpiLayer, FabricError> {
    let host = machine(config)?.host;
    Ok(MpiLayer {
        send: host.mpi_send.as_ns(),
        receive: host.mpi_receive.as_ns(),
        copy_start: host.memcpy_fixed.as_ns(),
        copy_rate: host.memcpy_rate.bytes_per_us(),
    })
}

/// Whether a choice of machine is a file, and not the name of a built-in one.
pub fn is_machine_file(choice: &str) -> bool {
    Machine::is_file(choice)
}

/// Whether a map is a file of places, and not a word for a rule.
pub fn is_map_file(map: &str) -> bool {
    Map::is_file(map)
}

/// How long a rank may run without a call before virtual time passes without it, in seconds of wall time; 0 is for
/// ever. When unset it is 60 in a job, and 1 in an open simulation.
pub const SILENT_RANK: &str = "PORTOLAN_SILENT_RANK";

/// That of ranks of a job.
const JOBS_PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn patience(usual: Duration) -> Result<Option<Duration>, String> {
    let value = match std::env::var(SILENT_RANK) {
        Ok(value) if !value.is_empty() => value,
        _ => return Ok(Some(usual)),
    };
    let seconds = value.parse().ok().filter(|s| (0.0..=1e6).contains(s));
    let seconds: f64 = seconds.ok_or_else(|| {
        let shown: String = value.chars().take(60).collect();
        format!("{SILENT_RANK}={shown:?}: expected seconds from 0 to 1000000")
    })?;
    Ok((seconds > 0.0).then(|| Duration::from_secs_f64(seconds)))
}

/// The machine to simulate with its faults; an error says what is wrong with the choice.
pub(super) fn setting(config: &FabricConfig) -> Result<Setting, String> {
    Ok(Setting {
        faults: faults_of(config)?,
        ..machine_of(config)?
    })
}

/// The machine without its faults.
pub(super) fn machine_of(config: &FabricConfig) -> Result<Setting, String> {
    let mode = config.mode;
    if Machine::is_file(&config.machine) {
        may_read(MACHINE, &config.machine)?;
    }
    let machine = Machine::choose(&config.machine).map_err(|error| {
        let source = std::error::Error::source(&error).map(|s| format!(": {s}"));
        format!("{error}{}", source.unwrap_or_default())
    })?;
    let set = |machine: Machine, setting: &String| machine.with_setting(setting);
    let machine = config.set.iter().try_fold(machine, set);
    let machine = machine.map_err(|error| format!("{}: {error}", ModelOption::SET))?;
    if mode == Mode::Accelerated && machine.os != Os::Catamount {
        return Err(format!(
            "accelerated mode needs contiguous memory, as under Catamount; machine {} runs {}",
            machine.name,
            machine.os.name()
        ));
    }
    let topology = config.topology.as_deref().map(grid::parse).transpose()?;
    Ok(Setting {
        machine,
        topology,
        map: map_of(config)?,
        mode,
        faults: Faults::none(),
        patience: patience(JOBS_PATIENCE)?,
    })
}

pub(super) fn unusable(reason: impl Into<String>) -> FabricError {
    FabricError::Unusable {
        kind: FabricKind::Seastar,
        reason: reason.into(),
    }
}

/// Whether the model can be used as it was chosen.
pub(super) fn check_choice(config: &FabricConfig) -> Result<(), FabricError> {
    check_map(config, None).map_err(|reason| FabricError::Map { reason })?;
    check_faults(config, None).map_err(|reason| FabricError::Faults { reason })?;
    check(config).map_err(unusable)
}
