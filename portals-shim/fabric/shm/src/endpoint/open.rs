//! How an endpoint opens: its id, its socket, and whom it can reach.

use super::socket::{Contact, Watch};
use super::{Endpoint, Links};
use crate::VERSION;
use crate::alarm::Alarm;
use crate::nap;
use crate::open::unusable;
use crate::trusted::TRUST;
use fabric_api::address::{Address, AddressBook};
use fabric_api::attached::{Attached, OpenEndpoint};
use fabric_api::bell::Bell;
use fabric_api::call::Paths;
use fabric_api::config::{FabricError, FabricKind};
use fabric_api::identity::{Wishes, endpoint_config};
use host::fork::Unshared;
use host::hash::fnv1a;
use host::processors;
use portals_core::{Ni, NiConfig};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How often another random id is tried. Of 47 bits two are the same only if somebody makes it so.
const TRIES: u32 = 4;
/// What a program of libfabric has for an address.
const _: () =
    assert!(Address::BYTES - Address::CONTACT + Contact::BYTES == Address::len_on(FabricKind::Shm));

/// What tells this start of the kernel, and the layout of memory that this library knows, from others.
fn machine() -> u64 {
    let id = host::machine::id();
    let text = format!("{VERSION} {}", crate::machine_of(&id));
    fnv1a(text.as_bytes())
}

/// Whether one endpoint can share memory with another, by their addresses.
fn reachable(own: &Address, other: &Address) -> Result<(), String> {
    let places = [own, other].map(|address| Contact::from_bytes(address.id(), address.contact()));
    let [Some(own), Some(other)] = places else {
        return Err("its address makes no sense".to_owned());
    };
    if own.machine != other.machine {
        return Err(
            "it is on another machine, or of another version of portolan; shared memory joins the processes of one"
                .to_owned(),
        );
    }
    if own.network != other.network && own.network != 0 && other.network != 0 {
        return Err("it is in another network namespace, where its socket has no name".to_owned());
    }
    Ok(())
}

/// Opens an endpoint that belongs to no job; nobody else has to be there.
///
/// # Errors
/// The system has no memory, no descriptor or no thread for it.
pub fn open_endpoint(wishes: &Wishes) -> Result<OpenEndpoint, FabricError> {
    let nal = Endpoint::new(wishes)?;
    let (config, book) = (nal.config, nal.book.clone());
    let links = Box::new(nal.links.clone());
    let attached = Attached::here(Ni::new(config), nal, Vec::new(), TRUST)
        .map_err(|e| unusable(e.to_string()))?
        .with_extension(links);
    Ok(OpenEndpoint { attached, book })
}

fn socket(error: io::Error) -> FabricError {
    unusable(format!("no socket for peers to connect to: {error}"))
}

/// A process id that no other endpoint of this machine has, and the socket that is named after it.
fn listen(wishes: &Wishes) -> Result<(NiConfig, Contact, OwnedFd), FabricError> {
    let mut tries = 0;
    loop {
        let config = endpoint_config(wishes).map_err(|e| unusable(format!("no random id: {e}")))?;
        let contact = Contact::new(config.id, machine()).map_err(socket)?;
        match contact.listen() {
            Ok(listener) => return Ok((config, contact, listener)),
            Err(Errno::ADDRINUSE) if tries < TRIES => tries += 1,
            Err(errno) => return Err(socket(errno.into())),
        }
    }
}

impl Endpoint {
    pub(super) fn new(wishes: &Wishes) -> Result<Self, FabricError> {
        // The registration takes microseconds while the program has one thread. Later it takes milliseconds, for which the first peer
        // would wait, and all others with it.
        let _ = nap::register_for_order();
        let (config, contact, listener) = listen(wishes)?;
        let address = Address::new(FabricKind::Shm, config.id, &contact.to_bytes())
            .map_err(|e| unusable(e.to_string()))?;
        let watch = Watch::new().map_err(|e| socket(e.into()))?;
        watch
            .add(&listener, super::LISTENER)
            .map_err(|e| socket(e.into()))?;
        let bell = Arc::new(Bell::new().map_err(socket)?);
        let book = AddressBook::new(address, reachable);
        // Whoever is disconnected is left though the program makes no call.
        book.ring_when_removed(Arc::clone(&bell));
        Ok(Self {
            config,
            contact,
            book,
            generation: 0,
            listener: Unshared::new(listener),
            pause: None,
            told: false,
            watch,
            alarm: Alarm::new().map_err(socket)?,
            bell,
            peers: Vec::new(),
            index: BTreeMap::new(),
            latest: 0,
            links: Links::default(),
            attempts: Vec::new(),
            accepted: Vec::new(),
            tokens: super::LISTENER,
            crowded: processors::at_once() < 2,
            paths: Paths::default(),
            closed: false,
        })
    }
}
