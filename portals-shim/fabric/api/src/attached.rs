//! What a fabric hands to the interface above it.

use super::address::AddressBook;
use super::bridge::Bridge;
use super::direct::Direct;
use super::library::Library;
use super::nal::Nal;
use super::region::Trust;
use portals_core::{Ni, NiConfig, ProcessId};

/// The library of one interface, joined to its fabric, and who else is there.
#[derive(Debug)]
pub struct Attached {
    bridge: Box<dyn Bridge>,
    config: NiConfig,
    peers: Vec<ProcessId>,
}

impl Attached {
    /// A library in this process, over `nal`. `peers` are the processes of all ranks, in their order. No descriptor of `ni`
    /// has been made before but as `trust` promises.
    pub fn here<N: Nal + 'static>(ni: Ni, nal: N, peers: Vec<ProcessId>, trust: Trust) -> Self {
        let config = *ni.config();
        let bridge = Box::new(Direct::new(Library::new(ni, nal, trust)));
        Self::elsewhere(bridge, config, peers, trust)
    }

    /// A library that is reached by calls as values.
    pub fn elsewhere(
        bridge: Box<dyn Bridge>,
        config: NiConfig,
        peers: Vec<ProcessId>,
        _: Trust,
    ) -> Self {
        Self {
            bridge,
            config,
            peers,
        }
    }

    /// How calls reach the library, who this process is, and who is there.
    pub fn into_parts(self, _: Trust) -> (Box<dyn Bridge>, NiConfig, Vec<ProcessId>) {
        (self.bridge, self.config, self.peers)
    }
}

/// An interface that belongs to no job, and the book of those that it can talk to.
#[derive(Debug)]
pub struct OpenEndpoint {
    /// The interface; it has no ranks.
    pub attached: Attached,
    /// The peers that it knows, and its own address.
    pub book: AddressBook,
}
