//! Endpoints that belong to no job: each opens by itself, and meets others by their addresses.

use crate::fabric::{FabricConfig, FabricError, FabricKind, Opened};
use crate::interface::Interface;
pub use fabric_api::address::{Address, AddressBook, AddressError};
use fabric_api::attached::OpenEndpoint;
use fabric_api::identity::Wishes;
use portals_core::ProcessId;

/// An interface that belongs to no job.
///
/// Clones are the same endpoint, and any thread may call every method. [`Interface::close`] closes it.
///
/// ```
/// use portals_shim::endpoint::Endpoint;
/// use portals_shim::fabric::{FabricConfig, FabricKind};
///
/// let config = FabricConfig { fabric: FabricKind::Shm.into(), ..FabricConfig::default() };
/// let one = Endpoint::open(&config)?;
/// let other = Endpoint::open(&config)?;
/// // The address may travel by any means.
/// let address: [u8; 64] = other.address();
/// let id = one.connect(&address)?;
/// assert_eq!(id, other.interface().id());
/// # one.interface().close()?;
/// # other.interface().close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Endpoint {
    interface: Interface,
    book: AddressBook,
}

impl Endpoint {
    /// Opens an endpoint on the fabric that `config` names, or without a name on that for one machine. Nobody else has to be there.
    ///
    /// # Errors
    /// The fabric cannot be used here, or was built without.
    pub fn open(config: &FabricConfig) -> Result<Self, FabricError> {
        Self::open_with(config, &Wishes::default())
    }

    /// Opens an endpoint with these limits, this number of the interface and this job id; the process id is the fabric's
    /// choice.
    ///
    /// # Errors
    /// Those of [`Endpoint::open`].
    pub fn open_with(config: &FabricConfig, wishes: &Wishes) -> Result<Self, FabricError> {
        let opened = match config.kind() {
            FabricKind::Shm => crate::nal::shm::open_endpoint(wishes),
            #[cfg(feature = "verbs")]
            FabricKind::Verbs => fabric_verbs::endpoint::open_endpoint(config, wishes),
            #[cfg(feature = "seastar")]
            FabricKind::Seastar => crate::nal::seastar::open_endpoint(config, wishes),
            #[cfg(not(all(feature = "seastar", feature = "verbs")))]
            kind => Err(FabricError::Unusable {
                kind,
                reason: crate::fabric::NOT_BUILT.to_owned(),
            }),
        }?;
        let OpenEndpoint { attached, book } = opened;
        let Opened { interface, .. } = attached.into();
        Ok(Self { interface, book })
    }

    /// The interface, for everything but its peers.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The address, which others need to talk to this endpoint: whoever has it may.
    pub fn address(&self) -> [u8; Address::BYTES] {
        self.book.own().to_bytes()
    }

    /// Takes note of a peer, and gives the process id by which operations name it. The connection itself is made when a
    /// message goes there, and who cannot be met then is the failure of that message.
    ///
    /// # Errors
    /// The bytes are no address, or one that cannot be reached from here.
    pub fn connect(&self, address: &[u8]) -> Result<ProcessId, AddressError> {
        self.book.insert(&Address::from_bytes(address)?)
    }

    /// Forgets a peer: operations that are under way to it fail, and so do later ones. Returns whether it was known.
    pub fn disconnect(&self, id: ProcessId) -> bool {
        self.book.remove(id)
    }
}
