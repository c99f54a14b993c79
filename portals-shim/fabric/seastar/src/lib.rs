//! Portals over the simulated Cray SeaStar.
//!
//! ```text
//!  rank (process or thread)              the process that holds the simulation
//!  start.rs    rank 0 starts it          door.rs     who may join
//!  rank.rs     every call a question ──► server.rs   sockets; line.rs: one
//!                 over a socket,         sim.rs      virtual time, the order of everything
//!                 proto.rs               kernel.rs   a node's kernel: traps and interrupts
//!                                        process.rs  its processes; local.rs: between them
//!                                        ssnal.rs    the host driver; header.rs: 48 bytes
//!                                        memory.rs   what the NIC reaches; usermem.rs: of ranks,
//!                                                    areas.rs: which they may access
//!                                        firmware-sim, nic-model
//! ```
//!
//! Rank 0 starts the simulation ([`SIMULATION_COMMAND`]) and publishes its socket's name. The
//! simulation ends when the last rank has left.

mod accel;
mod areas;
mod door;
mod faults;
mod grid;
mod header;
mod kept;
mod kernel;
mod line;
mod local;
mod lost;
mod memory;
mod process;
mod proto;
pub mod protocols;
mod rank;
mod server;
mod sim;
mod ssnal;
mod start;
mod trace;
mod trusted;
mod usermem;

use crate::trusted::TRUST;
use fabric_api::attached::Attached;
use fabric_api::config::{FabricConfig, FabricError, FabricKind};
use fabric_api::identity::{Ids, Wishes, identity, rank_config};
use fabric_api::place::Placement;
use host::own_thread::spawn_own_thread;
use host::secret::Secret;
use launch::Job;
use nic_model::{Faults, Machine, Os, Topology};
use portals_core::{NiConfig, ProcessId};
use rank::{Client, Of};
use start::Address;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub use fabric_api::mode::Mode;
pub use server::ServeError;
use sim::Setting;
pub use sim::SimError;
pub use start::simulate;
pub use trace::{
    COUNTERS_VARIABLE, ERRORS_VARIABLE, LINKS_VARIABLE, PACKETS_VARIABLE, PCAP_VARIABLE,
    SVG_VARIABLE, TITLE_VARIABLE, TRACE_VARIABLE, WINDOW_VARIABLE, parse_window,
};

/// Whether a packet that arrived at node `nid` starts with a header, which then is what
/// encoding it gives; for the fuzz target of the decoder.
#[doc(hidden)]
pub fn is_header(packet: &[u8], nid: u32) -> bool {
    header::decode(packet, nid).is_ok_and(|(header, end)| {
        let (bytes, len) = header::encode(&header);
        end == len && header::decode(&bytes[..len], nid) == Ok((header, len))
    })
}

/// The hidden subcommand of `portolan` that runs [`simulate`].
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
    let grid = config.topology.as_deref().map(grid::parse).transpose()?;
    let places = match (grid, ranks) {
        (Some(grid), _) => Some(grid),
        (None, Some(ranks)) => {
            let nodes = ranks.div_ceil(config.place.per_node()).max(1);
            Topology::torus(grid::near_cube(nodes)).ok()
        }
        (None, None) => None,
    };
    let Some(places) = places else {
        return Ok(());
    };
    let from = |file: &String| format!("{file}: ");
    let from = config.faults.as_ref().map_or_else(String::new, from);
    faults.check(&places).map_err(|why| format!("{from}{why}"))
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

/// Of the machine of this choice.
pub fn mpi_layer(machine: &str) -> Result<MpiLayer, FabricError> {
    let config = FabricConfig {
        machine: machine.to_owned(),
        ..FabricConfig::default()
    };
    let host = machine_of(&config).map_err(unusable)?.machine.host;
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

/// How long a rank may run without a call before virtual time passes without it, in seconds of wall time; 0 is for
/// ever, 60 when unset.
pub const SILENT_RANK: &str = "PORTOLAN_SILENT_RANK";

fn patience() -> Result<Option<Duration>, String> {
    const USUAL: Duration = Duration::from_secs(60);
    let value = match std::env::var(SILENT_RANK) {
        Ok(value) if !value.is_empty() => value,
        _ => return Ok(Some(USUAL)),
    };
    let seconds = value.parse().ok().filter(|s| (0.0..=1e6).contains(s));
    let seconds: f64 = seconds.ok_or_else(|| {
        let shown: String = value.chars().take(60).collect();
        format!("{SILENT_RANK}={shown:?}: expected seconds from 0 to 1000000")
    })?;
    Ok((seconds > 0.0).then(|| Duration::from_secs_f64(seconds)))
}

/// The machine to simulate with its faults; an error says what is wrong with the choice.
fn setting(config: &FabricConfig) -> Result<Setting, String> {
    Ok(Setting {
        faults: faults_of(config)?,
        ..machine_of(config)?
    })
}

/// The machine without its faults.
fn machine_of(config: &FabricConfig) -> Result<Setting, String> {
    let mode = config.mode;
    if Machine::is_file(&config.machine) {
        may_read(MACHINE, &config.machine)?;
    }
    let machine = Machine::choose(&config.machine).map_err(|error| {
        let source = std::error::Error::source(&error).map(|s| format!(": {s}"));
        format!("{error}{}", source.unwrap_or_default())
    })?;
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
        mode,
        faults: Faults::none(),
        patience: patience()?,
    })
}

fn unusable(reason: impl Into<String>) -> FabricError {
    FabricError::Unusable {
        kind: FabricKind::Seastar,
        reason: reason.into(),
    }
}

fn join(
    socket: OwnedFd,
    secret: &Secret,
    rank: u32,
    config: NiConfig,
    of: Of,
    peers: Vec<ProcessId>,
) -> Result<Attached, FabricError> {
    let client = Client::join(socket, secret, rank, &config, of)
        .map_err(|why| unusable(format!("the simulation did not take this rank: {why}")))?;
    Ok(Attached::elsewhere(Box::new(client), config, peers, TRUST))
}

/// Whether the model can be used as it was chosen.
fn check_choice(config: &FabricConfig) -> Result<(), FabricError> {
    check_faults(config, None).map_err(|reason| FabricError::Faults { reason })?;
    check(config).map_err(unusable)
}

/// Joins the simulation of the job; collective. Rank 0 starts it.
pub fn open(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Attached, FabricError> {
    let opening = job.next_opening();
    let key = format!("portolan.seastar{opening}");
    let ids = Ids::announce(job, wishes, &opening)?;
    check_choice(config)?;
    let mut own_line = None;
    if job.rank() == 0 {
        let started = start::start(job, config);
        // The others must not wait for a name that will never come.
        let value = match &started {
            Ok((address, _)) => address.to_text(),
            Err(_) => String::new(),
        };
        job.put(&key, &value)?;
        job.fence()?;
        own_line = Some(started?.1);
    } else {
        job.fence()?;
    }
    let address = Address::from_text(&job.get(&key)?)
        .ok_or_else(|| unusable("rank 0 could not start the simulation; see its message"))?;
    let place = config.place;
    let peers = ids.collect(job, place)?;
    let config = identity(job, place, wishes);
    let socket = match own_line {
        Some(socket) => socket,
        None => address.connect(job)?,
    };
    join(
        socket,
        &address.secret,
        job.rank(),
        config,
        Of::Process,
        peers,
    )
}

/// A simulation in a thread of this process, and `ranks` sockets to it; for ranks that are threads.
///
/// Each element is to be turned into an interface by [`InThread::join`] on the rank's own thread,
/// because joining waits for all others.
pub fn in_threads(ranks: u32, machine: &str) -> Result<Vec<InThread>, FabricError> {
    let config = FabricConfig {
        machine: machine.to_owned(),
        ..FabricConfig::default()
    };
    in_threads_of(ranks, &config)
}

/// Starts a simulation for ranks that are threads, with the choices of `config` that are for the model.
pub fn in_threads_of(ranks: u32, config: &FabricConfig) -> Result<Vec<InThread>, FabricError> {
    let setting = setting(config).map_err(unusable)?;
    in_threads_on(ranks, config.place, setting)
}

/// Starts a simulation for ranks that are threads, on a machine made by the caller.
pub fn in_threads_with(
    ranks: u32,
    place: Placement,
    machine: Machine,
    mode: Mode,
) -> Result<Vec<InThread>, FabricError> {
    let setting = Setting {
        machine,
        topology: None,
        mode,
        faults: Faults::none(),
        patience: None,
    };
    in_threads_on(ranks, place, setting)
}

fn in_threads_on(
    ranks: u32,
    place: Placement,
    setting: Setting,
) -> Result<Vec<InThread>, FabricError> {
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let secret = Secret::new().map_err(|e| unusable(format!("no random bytes: {e}")))?;
    for rank in 0..ranks {
        let (a, b) =
            start::pair().map_err(|e| unusable(format!("cannot make a socket pair: {e}")))?;
        ours.push(InThread {
            socket: a,
            secret,
            rank,
            ranks,
            place,
        });
        theirs.push(b);
    }
    let serve = move || {
        if let Err(e) = server::serve_connected(theirs, secret, setting) {
            tracing::error!("simulation: {e}");
        }
    };
    spawn_own_thread("seastar-sim", serve)
        .map_err(|e| unusable(format!("cannot start a thread: {e}")))?;
    Ok(ours)
}

/// A rank-to-be of [`in_threads`].
#[derive(Debug)]
pub struct InThread {
    socket: OwnedFd,
    secret: Secret,
    rank: u32,
    ranks: u32,
    place: Placement,
}

impl InThread {
    /// Which rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Joins and waits for the others.
    pub fn join(self) -> Result<Attached, FabricError> {
        const JID: u32 = 1;
        join(
            self.socket,
            &self.secret,
            self.rank,
            rank_config(self.place, self.rank, JID),
            Of::Thread,
            (0..self.ranks).map(|r| self.place.of(r)).collect(),
        )
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod faulty;

#[cfg(test)]
mod given_up;

#[cfg(test)]
mod many_peers;

#[cfg(test)]
mod silent;
