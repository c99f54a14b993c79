//! What a fabric hands to the interface above it.

use super::address::AddressBook;
use super::bridge::Bridge;
use super::direct::{Direct, NoThread};
use super::library::Library;
use super::nal::Nal;
use super::region::Trust;
use portals_core::{Ni, NiConfig, ProcessId};
use std::any::Any;

/// The library of one interface, joined to its fabric, and who else is there.
#[derive(Debug)]
pub struct Attached {
    bridge: Box<dyn Bridge>,
    config: NiConfig,
    peers: Vec<ProcessId>,
    extension: Option<Box<dyn Any + Send>>,
}

impl Attached {
    /// A library in this process, over `nal`. `peers` are the processes of all ranks, in their order. No descriptor of `ni`
    /// has been made before but as `trust` promises.
    /// Its fabric may have descriptors, for which a thread is started.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn here<N: Nal + 'static>(
        ni: Ni,
        nal: N,
        peers: Vec<ProcessId>,
        trust: Trust,
    ) -> Result<Self, NoThread> {
        let config = *ni.config();
        let bridge = Box::new(Direct::attended(Library::new(ni, nal, trust))?);
        Ok(Self::elsewhere(bridge, config, peers, trust))
    }

    /// The same, of a fabric whose peers wake it through memory, or not at all. Nobody attends to descriptors that it has.
    pub fn unattended<N: Nal + 'static>(
        ni: Ni,
        nal: N,
        peers: Vec<ProcessId>,
        trust: Trust,
    ) -> Self {
        let config = *ni.config();
        let bridge = Box::new(Direct::unattended(Library::new(ni, nal, trust)));
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
            extension: None,
        }
    }

    /// With what the fabric offers to programs that know its type, past the library.
    #[must_use]
    pub fn with_extension(self, extension: Box<dyn Any + Send>) -> Self {
        Self {
            extension: Some(extension),
            ..self
        }
    }

    /// The parts, for the interface.
    pub fn into_parts(self, _: Trust) -> Parts {
        Parts {
            bridge: self.bridge,
            config: self.config,
            peers: self.peers,
            extension: self.extension,
        }
    }
}

/// What an interface is made of.
#[derive(Debug)]
pub struct Parts {
    /// How calls reach the library.
    pub bridge: Box<dyn Bridge>,
    /// Who this process is, and what it may have.
    pub config: NiConfig,
    /// The processes of all ranks, in their order.
    pub peers: Vec<ProcessId>,
    /// What the fabric offers past the library.
    pub extension: Option<Box<dyn Any + Send>>,
}

/// An interface that belongs to no job, and the book of those that it can talk to.
#[derive(Debug)]
pub struct OpenEndpoint {
    /// The interface; it has no ranks.
    pub attached: Attached,
    /// The peers that it knows, and its own address.
    pub book: AddressBook,
}
