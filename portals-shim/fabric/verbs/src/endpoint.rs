//! Endpoints that belong to no job: each opens by itself, and meets others by their addresses.
//!
//! ```text
//!   connect(bytes) ──► book ──► first message to it: an index, a peer, CONNECT ──► as in a job (link.rs)
//!   CONNECT of somebody who has the token ──► book, index, peer
//!   disconnect(id) ──► book ──► bell ──► operations fail, DISCONNECT, the index is free
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `endpoint/contact.rs` | what an address says |
//! | `endpoint/vector.rs` | which peer has which index: the address vector |
//! | `endpoint/words.rs` | what a word says besides, and whether it belongs to this session |
//! | `endpoint/peers.rs` | who comes, who goes, whose word counts |
//! | `endpoint/nal.rs` | the fabric: `Verbs` that follow the book |
//!
//! In a job an index is a rank, and the job's key space has its contact. Here an index is given out when a process is first
//! talked to or first heard of, is free again when the peer goes, and the book has the contact. Everything else is the same.
//!
//! # Address
//!
//! The process id is 31 random bits for the node, never 0, and a random process number from 1 to 0xfffe. The contact is where
//! words go, and a token (`endpoint/contact.rs`).
//!
//! # Strangers
//!
//! A word counts if it has the token of its target and the whole address of its sender, which contains the sender's token.
//! No table grows by any other. Who has both is entered into the book by a CONNECT, if the book permits. An endpoint has at
//! most [`PEERS`] peers at a time; the next one is refused, unless one that was given up can make room.

mod contact;
mod nal;
mod peers;
mod vector;
mod words;

use super::advice::{failed, unusable};
use super::connect::Unconnected;
use super::directory::Directory;
use super::settings::Settings;
use crate::contact::random_token;
use crate::trusted::TRUST;
use contact::reachable;
use fabric_api::address::AddressBook;
use fabric_api::attached::{Attached, OpenEndpoint};
use fabric_api::config::{Channel, FabricConfig, FabricError};
use fabric_api::identity::{Wishes, endpoint_config};
use fabric_api::place::Placement;
use portals_core::{Ni, NiConfig};
use std::collections::BTreeMap;

pub(crate) use contact::{Contact, Means};
pub(crate) use nal::EndpointNal;
pub(crate) use vector::AddressVector;
pub(crate) use words::{BYTES as WORD, Sender};

/// Peers that an endpoint talks to at a time, if the device has the queues: those that were given up and not disconnected
/// are among them until somebody needs their place.
pub const PEERS: u32 = 256;

/// An endpoint that has its queues and knows nobody.
pub(super) fn open(
    device: Option<&str>,
    settings: Settings,
    wishes: &Wishes,
    most: u32,
) -> Result<(NiConfig, EndpointNal), FabricError> {
    let config = endpoint_config(wishes).map_err(failed)?;
    let (id, token) = (config.id, random_token().map_err(failed)?);
    let made = Unconnected::with(0, most.saturating_add(1), device, settings, |_| most)?;
    let made = made.for_endpoint(token);
    let contact = Contact {
        means: made.means(),
        address: made.contact().0,
        token,
    };
    let own = contact.address_of(id).ok_or_else(|| {
        unusable("the device gives no address that others could use: PORTOLAN_GID chooses another")
    })?;
    let book = AddressBook::new(own, reachable);
    let most = made.connections() as usize;
    let nobody = Directory::of(BTreeMap::new());
    let verbs = made.nal(&config, Placement::ONE, vec![id], nobody, false)?;
    Ok((config, EndpointNal::new(verbs, book, contact.means, most)))
}

/// Opens an endpoint on a device. Nobody else has to be there, and everybody is reached over the device, also processes of
/// this machine. Any thread may call it.
///
/// # Errors
/// The device cannot be used, or the channel is not `rc`: datagrams are for jobs.
pub fn open_endpoint(config: &FabricConfig, wishes: &Wishes) -> Result<OpenEndpoint, FabricError> {
    if config.channel != Channel::Rc {
        let channel = config.channel.name();
        return Err(unusable(format!(
            "the channel {channel} is for jobs: endpoints without a job are connected (PORTOLAN_CHANNEL=rc)"
        )));
    }
    let settings = Settings::from_env().map_err(unusable)?;
    let (config, nal) = open(config.device.as_deref(), settings, wishes, PEERS)?;
    let book = nal.book().clone();
    let attached = Attached::here(Ni::new(config), nal, Vec::new(), TRUST).map_err(unusable)?;
    Ok(OpenEndpoint { attached, book })
}

#[cfg(test)]
mod tests {
    use super::contact::is_process;
    use super::*;

    #[test]
    fn identities_are_ids_that_endpoints_may_have_and_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let id = endpoint_config(&Wishes::default()).unwrap().id;
            let token = random_token().unwrap();
            assert!(is_process(id), "{id:?}");
            assert!(seen.insert(token) && seen.insert(u64::from(id.nid) << 32 | u64::from(id.pid)));
        }
    }
}
