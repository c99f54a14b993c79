//! Endpoints that belong to no job: each joins an open simulation ([`Simulation`](super::Simulation)) by itself.
//!
//! The address of an endpoint has its process id and, as contact, a number of the simulation: within one simulation every
//! endpoint reaches every other.

mod member;
#[cfg(test)]
mod tests;

use super::choice::{check_choice, unusable};
use super::owner::{JobRank, Owner};
use super::rank::Client;
use super::simulation::SIMULATION_VARIABLE;
use super::start::Address as Place;
use super::trusted::TRUST;
use fabric_api::address::{Address, AddressBook};
use fabric_api::attached::{Attached, OpenEndpoint};
use fabric_api::config::{FabricConfig, FabricError, FabricKind};
use fabric_api::identity::Wishes;
use host::fork::Own;
use host::hash::fnv1a;
use host::secret::random;
use launch::Job;
use member::Member;
use portals_core::{Limits, NiConfig};
use std::sync::OnceLock;

/// Opens an endpoint in the simulation that the environment names. A rank of a launcher's job has the place of its rank; other
/// processes have the next free one. The process id is that of the place, and the clock begins at the present of the simulation.
///
/// # Errors
/// The environment names no simulation, it cannot be reached, or it does not take this endpoint: the message says why, and
/// what to do.
pub fn open_endpoint(config: &FabricConfig, wishes: &Wishes) -> Result<OpenEndpoint, FabricError> {
    check_choice(config)?;
    let word = std::env::var(SIMULATION_VARIABLE).unwrap_or_default();
    if word.is_empty() {
        return Err(unusable(format!(
            "{SIMULATION_VARIABLE} is not set, so there is no simulation that an endpoint could join; `portolan simulate --places N` \
             starts one and prints the variable, `portolan run --fabric seastar --places N -- PROGRAM` runs a program in one"
        )));
    }
    let place = Place::from_word(&word).ok_or_else(|| {
        unusable(format!(
            "{SIMULATION_VARIABLE} is not a word that `portolan simulate` prints"
        ))
    })?;
    let owner = Owner {
        process: own_number()?,
        job_rank: JobRank::of_this_process(),
    };
    join(&place, wishes, owner)
}

/// A number that no other process has.
fn own_number() -> Result<u64, FabricError> {
    static NUMBER: Own<OnceLock<u64>> = Own::unset();
    let own = NUMBER.get();
    if let Some(number) = own.get() {
        return Ok(*number);
    }
    let mut bytes = [0; 8];
    random(&mut bytes).map_err(|e| unusable(format!("no random bytes: {e}")))?;
    Ok(*own.get_or_init(|| u64::from_ne_bytes(bytes)))
}

/// Joins as an endpoint of this process.
fn join(place: &Place, wishes: &Wishes, owner: Owner) -> Result<OpenEndpoint, FabricError> {
    let socket = place.connect(&Job::singleton())?;
    // The name of the socket has 64 random bits.
    let number = fnv1a(place.name().as_bytes());
    let wished = NiConfig {
        limits: wishes.limits.min(Limits::LIBRARY),
        ..wishes.config(fabric_api::place::Placement::ONE, 0, job_of(number))
    };
    let (client, id) = Client::arrive(socket, &place.secret, &wished, owner)
        .map_err(|why| unusable(format!("the simulation did not take this endpoint: {why}")))?;
    let config = NiConfig { id, ..wished };
    let own = Address::new(FabricKind::Seastar, id, &number.to_be_bytes())
        .map_err(|e| unusable(e.to_string()))?;
    let book = AddressBook::new(own, reachable);
    let member = Member::new(client, book.clone());
    let attached = Attached::elsewhere(Box::new(member), config, Vec::new(), TRUST);
    Ok(OpenEndpoint { attached, book })
}

/// The job id of the endpoints of a simulation: 16 bits, for which the SeaStar's header has room, and not the one that is any
/// job in programs for Cray's systems.
fn job_of(number: u64) -> u32 {
    ((number ^ number >> 32) as u32 & 0xffff).min(0xfffe)
}

fn reachable(own: &Address, other: &Address) -> Result<(), String> {
    match own.contact() == other.contact() {
        true => Ok(()),
        false => Err(format!(
            "it is in another simulation; both must join the one that {SIMULATION_VARIABLE} names"
        )),
    }
}
