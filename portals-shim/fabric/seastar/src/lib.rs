//! Portals over the simulated Cray SeaStar.
//!
//! ```text
//!  rank                                  the process that holds the simulation
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
//! `choice.rs` reads what is to be simulated. Ranks that are threads of one process share the simulation, without sockets: `threads.rs`.
//!
//! Rank 0 starts the simulation ([`SIMULATION_COMMAND`]) and publishes its socket's name. The
//! simulation ends when the last rank has left.
//!
//! An open simulation belongs to no job: endpoints join it one by one, and it ends when its founder does.
//!
//! ```text
//!  endpoint (process)                    founder
//!  endpoint.rs finds it by a word in     simulation.rs  starts it, and ends it
//!              the environment
//!  endpoint/member.rs  its calls, and    the process that holds the simulation
//!              an address book      ──►  door/open.rs   lets endpoints in, in a thread
//!                                        server/places.rs  serves them
//!                                        sim/places.rs  where they are, and when they hold time
//! ```

mod accel;
mod areas;
mod choice;
mod door;
mod endpoint;
mod faults;
mod grid;
mod header;
mod kept;
mod kernel;
mod line;
mod local;
mod lost;
mod map;
mod memory;
mod owner;
mod process;
mod proto;
pub mod protocols;
mod rank;
mod server;
mod sim;
mod simulation;
mod ssnal;
mod start;
mod threads;
mod trace;
mod trusted;
mod usermem;

use crate::trusted::TRUST;
use fabric_api::attached::Attached;
use fabric_api::config::{FabricConfig, FabricError};
use fabric_api::identity::{Ids, Wishes, identity, rank_config};
use fabric_api::place::Placement;
use launch::Job;
use nic_model::{Faults, Machine};
use rank::Client;
use start::Address;
use threads::{ThreadRank, thread_ranks};

pub use choice::{
    EXECUTABLE_VARIABLE, MpiLayer, SILENT_RANK, SIMULATION_COMMAND, check, check_faults, check_map,
    is_machine_file, is_map_file, machine, mpi_layer,
};
use choice::{check_choice, setting, unusable};
pub use endpoint::open_endpoint;
pub use fabric_api::mode::Mode;
pub use server::ServeError;
use sim::Setting;
pub use sim::SimError;
pub use simulation::{SIMULATION_VARIABLE, Simulation, simulate_places};
pub use start::simulate;
pub use trace::{
    BIN_VARIABLE, COUNTERS_VARIABLE, ERRORS_VARIABLE, LINK_SERIES_VARIABLE, LINKS_VARIABLE,
    PACKETS_VARIABLE, PCAP_VARIABLE, SVG_VARIABLE, TITLE_VARIABLE, TRACE_VARIABLE, WINDOW_VARIABLE,
    parse_bin, parse_window,
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

/// A rank was not taken, and why.
fn not_taken(why: String) -> FabricError {
    unusable(format!("the simulation did not take this rank: {why}"))
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
    let client = Client::join(socket, &address.secret, job.rank(), &config).map_err(not_taken)?;
    Ok(Attached::elsewhere(Box::new(client), config, peers, TRUST))
}

/// A simulation in this process, of `ranks` ranks that are threads of it.
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
        map: crate::map::Map::default(),
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
    let of = thread_ranks(ranks, setting).map_err(|e| unusable(e.to_string()))?;
    let in_thread = |(rank, thread)| InThread {
        thread,
        rank,
        ranks,
        place,
    };
    Ok((0..ranks).zip(of).map(in_thread).collect())
}

/// A rank-to-be of [`in_threads`].
#[derive(Debug)]
pub struct InThread {
    thread: ThreadRank,
    rank: u32,
    ranks: u32,
    place: Placement,
}

impl InThread {
    /// Which rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// What takes part, for tests.
    #[cfg(test)]
    fn into_rank(self) -> ThreadRank {
        self.thread
    }

    /// Joins and waits for the others.
    pub fn join(self) -> Result<Attached, FabricError> {
        const JID: u32 = 1;
        let config = rank_config(self.place, self.rank, JID);
        let peers = (0..self.ranks).map(|r| self.place.of(r)).collect();
        let client = Client::join_thread(self.thread, &config).map_err(not_taken)?;
        Ok(Attached::elsewhere(Box::new(client), config, peers, TRUST))
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
