//! An open simulation as its founder sees it: a process that holds a machine with places for endpoints, and lives as long as
//! the founder's line to it.
//!
//! ```text
//!   founder                         simulation                    endpoint
//!     │ starts it, with one end of a    │                           │
//!     │ pair of sockets as its input    │                           │
//!     │ listening socket, secret ─────► │                           │
//!     │ ◄──────────────────────── begun │                           │
//!     │ PORTOLAN_SIMULATION ─► environment ────────────────────────►│
//!     │                                 │ ◄──────────────── arrival │
//!     │                                 │ clock, process id ───────►│
//! ```

use super::choice::{check_choice, patience, setting, unusable};
use super::proto::{MAX_DATAGRAM, Reply};
use super::server::{ServeError, serve_places};
use super::sim::{Setting, SimError};
use super::start::{Address, Begun, begun, found, permit_descriptors};
use fabric_api::config::{FabricConfig, FabricError};
use host::awake::Awake;
use launch::Job;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Names the open simulation that endpoints join: its secret, its socket, and where that is.
pub const SIMULATION_VARIABLE: &str = "PORTOLAN_SIMULATION";

/// How long an endpoint may run without a call before virtual time passes without it, where
/// [`SILENT_RANK`](super::choice::SILENT_RANK) does not say. Unlike ranks of a job, endpoints may wait for each other by any means.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a simulation that was ended may take to write its files.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// An open simulation, which ends with this value, and with the process that has it.
#[derive(Debug)]
pub struct Simulation {
    address: Address,
    /// None when it is being ended.
    line: Option<OwnedFd>,
    child: Child,
}

impl Simulation {
    /// Starts the simulation of a machine with room for `places` endpoints, in the places that `config` says.
    ///
    /// # Errors
    /// The machine cannot be simulated as it was chosen, or no process for it can be started.
    pub fn start(config: &FabricConfig, places: u32) -> Result<Self, FabricError> {
        check_choice(config)?;
        let address = Address::new(&Job::singleton())
            .map_err(|e| unusable(format!("no random bytes: {e}")))?;
        let count = places.to_string();
        let per_node = config.place.per_node().to_string();
        let how_many = ["--places", &count, "--ranks-per-node", &per_node];
        let (line, child) = found(&address, config, &how_many, |command| {
            // A signal of the terminal is for the founder alone, which ends the simulation in order.
            command.process_group(0).spawn()
        })?;
        let simulation = Self {
            address,
            line: Some(line),
            child,
        };
        match simulation.hear() {
            Some(Reply { result: Ok(_), .. }) => Ok(simulation),
            Some(Reply { note, .. }) => Err(unusable(note)),
            None => Err(unusable("the simulation ended before it began")),
        }
    }

    /// What the simulation says first.
    fn hear(&self) -> Option<Reply> {
        let line = self.line.as_ref()?;
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            match recv(line, &mut buffer[..], RecvFlags::empty()) {
                Ok((n, _)) if n > 0 => return postcard::from_bytes(&buffer[..n]).ok(),
                Err(Errno::INTR) => {}
                _ => return None,
            }
        }
    }

    /// The value of [`SIMULATION_VARIABLE`] for programs that join: who has it may.
    pub fn word(&self) -> String {
        self.address.to_word()
    }

    /// Waits until the simulation has ended by itself, which it does only when it fails.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Drop for Simulation {
    /// Ends the simulation, and waits until its files are written.
    fn drop(&mut self) {
        drop(self.line.take());
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let ended = pid
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .is_none_or(|child| ends(&child, Awake::new(ENDS_WITHIN)));
        if !ended {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Whether a process ends in this time. If both are stopped meanwhile, as by Ctrl-Z, it had no time.
fn ends(process: &OwnedFd, mut left: Awake) -> bool {
    loop {
        let over = left.is_over();
        let slice = Timespec::try_from(left.slice()).unwrap_or_default();
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&slice)) {
            Ok(0) | Err(Errno::INTR) if over => return false,
            Ok(0) | Err(Errno::INTR) => {}
            // Where the system does not let it be waited for so, it is waited for by its number.
            _ => return true,
        }
    }
}

/// The body of [`SIMULATION_COMMAND`](super::choice::SIMULATION_COMMAND) for endpoints: serves them until the process that has
/// started this one, and said so by standard input, has ended.
///
/// # Errors
/// A system call failed. When the model cannot be built the founder is told.
pub fn simulate_places(places: u32, config: &FabricConfig) -> Result<(), ServeError> {
    let Some(Begun {
        founder,
        listener,
        secret,
    }) = begun()?
    else {
        return Ok(());
    };
    let chosen = || -> Result<Setting, String> {
        Ok(Setting {
            patience: patience(PATIENCE)?,
            ..setting(config)?
        })
    };
    let setting = chosen().map_err(SimError::Setting);
    permit_descriptors();
    match serve_places(listener, founder, secret, setting, (places, config.place)) {
        // The founder was told, and says it.
        Err(ServeError::Sim(error)) => {
            tracing::debug!("the simulation cannot begin: {error}");
            Ok(())
        }
        served => served,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;
    use std::time::Instant;

    #[test]
    fn a_simulation_that_was_stopped_is_not_late() {
        let mut child = std::process::Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(!ends(&process, Awake::new(Duration::ZERO)));
        drop(child.stdin.take());
        let stopped = Instant::now() - Duration::from_secs(3600);
        assert!(ends(&process, Awake::since(ENDS_WITHIN, stopped)));
        child.wait().unwrap();
    }
}
