//! Peers that are no ranks of a job: an address as bytes, and the book of those that a process knows.
//!
//! An endpoint opens by itself. Its [`Address`] travels by any means: a file, a socket, the exchange of an MPI. Whoever has it
//! may talk to the endpoint, so it is a secret of those who belong together, as a job's key space is.
//!
//! ```text
//!   0        version
//!   1        fabric
//!   2..6     node id, big endian
//!   6..10    process id, big endian
//!   10..64   where the endpoint is, as its fabric has it
//! ```
//!
//! Over shared memory all behind 32 bytes is 0, and may be left out: programs have room for 32 at least.

use crate::bell::Bell;
use crate::config::FabricKind;
use portals_core::ProcessId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Of the format of addresses.
const VERSION: u8 = 2;

/// Where an endpoint can be reached, which only its fabric understands.
pub type Contact = [u8; Address::CONTACT];

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It has another length.
    #[error(
        "an address has {} bytes, or fewer where its fabric needs fewer, not {len}",
        Address::BYTES
    )]
    Length {
        /// The bytes that were given.
        len: usize,
    },
    /// It is of another version, or no address.
    #[error("the address is of version {version}, this library knows version {VERSION}")]
    Version {
        /// The version that it names.
        version: u8,
    },
    /// It names no fabric, or no process.
    #[error("the bytes are not an address of an endpoint")]
    Malformed,
    /// The endpoint is on another fabric.
    #[error("the address is of fabric {theirs}, and this endpoint is on {ours}")]
    OtherFabric {
        /// Where the address is valid.
        theirs: FabricKind,
        /// The fabric of the endpoint.
        ours: FabricKind,
    },
    /// The endpoint cannot be reached from here.
    #[error("the endpoint cannot be reached from here: {reason}")]
    Elsewhere {
        /// What separates the two.
        reason: String,
    },
    /// Another address of the same process is known.
    #[error("process {} of node {} is known by another address", id.pid, id.nid)]
    Taken {
        /// Of both.
        id: ProcessId,
    },
}

/// Where an endpoint can be reached, and the process id that it has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address {
    kind: FabricKind,
    id: ProcessId,
    contact: Contact,
}

impl fmt::Debug for Address {
    /// Without the contact, which has a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Bytes of an address: MPIs have room for 64.
    pub const BYTES: usize = 64;
    /// Bytes of that which only the fabric understands.
    pub const CONTACT: usize = Self::BYTES - 10;

    /// How many bytes of an address on this fabric say anything; those behind them are zeros, and may be left out.
    pub const fn len_on(kind: FabricKind) -> usize {
        match kind {
            FabricKind::Shm => 32,
            _ => Self::BYTES,
        }
    }

    /// Of an endpoint on a fabric; what `contact` leaves is filled with zeros.
    ///
    /// # Errors
    /// The contact is too long.
    pub fn new(kind: FabricKind, id: ProcessId, contact: &[u8]) -> Result<Self, AddressError> {
        let mut all = [0; Self::CONTACT];
        let len = contact.len();
        let room = all.get_mut(..len).ok_or(AddressError::Length { len })?;
        room.copy_from_slice(contact);
        Ok(Self {
            kind,
            id,
            contact: all,
        })
    }

    /// The fabric that the endpoint is on.
    pub const fn kind(&self) -> FabricKind {
        self.kind
    }

    /// The process id that messages to the endpoint name.
    pub const fn id(&self) -> ProcessId {
        self.id
    }

    /// What only the fabric understands.
    pub const fn contact(&self) -> &Contact {
        &self.contact
    }

    /// The address as bytes that may travel by any means.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        let kind = FabricKind::ALL.iter().position(|kind| *kind == self.kind);
        bytes[1] = kind.map_or(u8::MAX, |kind| kind as u8);
        bytes[2..6].copy_from_slice(&self.id.nid.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.id.pid.to_be_bytes());
        bytes[10..].copy_from_slice(&self.contact);
        bytes
    }

    /// The address that these bytes are.
    ///
    /// # Errors
    /// They are none, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AddressError> {
        let len = bytes.len();
        let mut all = [0; Self::BYTES];
        let room = all.get_mut(..len).ok_or(AddressError::Length { len })?;
        room.copy_from_slice(bytes);
        let [version, kind, ..] = all;
        let kind = FabricKind::ALL.get(usize::from(kind)).copied();
        if len != Self::BYTES && kind.is_none_or(|kind| len != Self::len_on(kind)) {
            return Err(AddressError::Length { len });
        }
        if version != VERSION {
            return Err(AddressError::Version { version });
        }
        let bytes = all;
        let word = |at: usize| bytes[at..].first_chunk().map(|w| u32::from_be_bytes(*w));
        let contact = bytes[10..].first_chunk();
        let (kind, contact) = kind.zip(contact).ok_or(AddressError::Malformed)?;
        let (nid, pid) = word(2).zip(word(6)).ok_or(AddressError::Malformed)?;
        // Node 0 is "the own node" to old programs.
        if nid == 0 {
            return Err(AddressError::Malformed);
        }
        Ok(Self {
            kind,
            id: ProcessId::new(nid, pid),
            contact: *contact,
        })
    }
}

/// Says why an endpoint with the second address cannot be reached from one with the first.
pub type Reachable = fn(own: &Address, other: &Address) -> Result<(), String>;

#[derive(Debug)]
struct Inner {
    own: Address,
    reachable: Reachable,
    known: Mutex<BTreeMap<ProcessId, Noted>>,
    /// Raised by every change.
    generation: AtomicU64,
    /// Rung when a peer is removed.
    bell: OnceLock<Arc<Bell>>,
}

/// A peer in an [`AddressBook`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub address: Address,
    /// The generation of the book since when it is known: another one if it was removed and inserted again.
    pub since: u64,
}

#[derive(Debug)]
struct Noted {
    entry: Entry,
    /// Its own request has made it known, and the program has not.
    inbound: bool,
}

/// The addresses that an endpoint knows; clones are the same book.
///
/// The endpoint's owner writes into it, and its fabric looks a process up when a message is sent to it. Any thread may call
/// every method; none waits for a peer.
#[derive(Clone, Debug)]
pub struct AddressBook(Arc<Inner>);

impl AddressBook {
    /// Of an endpoint with the address `own`.
    pub fn new(own: Address, reachable: Reachable) -> Self {
        Self(Arc::new(Inner {
            own,
            reachable,
            known: Mutex::default(),
            generation: AtomicU64::new(0),
            bell: OnceLock::new(),
        }))
    }

    /// Has removals ring this bell, so that a fabric that sleeps sees them. The first bell stays.
    pub fn ring_when_removed(&self, bell: Arc<Bell>) {
        let _ = self.0.bell.set(bell);
    }

    /// Raises the generation, and gives the new one.
    fn changed(&self) -> u64 {
        self.0.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ProcessId, Noted>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the endpoint itself.
    pub fn own(&self) -> &Address {
        &self.0.own
    }

    /// Takes note of a peer, and gives the id by which messages reach it. An address that is known already changes nothing.
    ///
    /// # Errors
    /// It is of another fabric, cannot be reached from here, or another one has the same id.
    pub fn insert(&self, address: &Address) -> Result<ProcessId, AddressError> {
        self.note(address, false)
    }

    /// Takes note of a peer that asks for a connection by itself, until [`AddressBook::remove_inbound`]; the same as
    /// [`AddressBook::insert`] for one that the program knows.
    ///
    /// # Errors
    /// Those of [`AddressBook::insert`].
    pub fn insert_inbound(&self, address: &Address) -> Result<ProcessId, AddressError> {
        self.note(address, true)
    }

    fn note(&self, address: &Address, inbound: bool) -> Result<ProcessId, AddressError> {
        let own = &self.0.own;
        if address.kind != own.kind {
            return Err(AddressError::OtherFabric {
                theirs: address.kind,
                ours: own.kind,
            });
        }
        let id = address.id;
        if address == own {
            return Ok(id);
        }
        (self.0.reachable)(own, address).map_err(|reason| AddressError::Elsewhere { reason })?;
        if id == own.id {
            return Err(AddressError::Taken { id });
        }
        let mut known = self.known();
        match known.get_mut(&id) {
            Some(before) if before.entry.address == *address => before.inbound &= inbound,
            Some(_) => return Err(AddressError::Taken { id }),
            None => {
                let since = self.changed();
                let address = *address;
                let entry = Entry { address, since };
                known.insert(id, Noted { entry, inbound });
            }
        }
        Ok(id)
    }

    /// Forgets a peer: what is under way to it ends, and what is sent to it from now on fails. Returns whether it was known.
    pub fn remove(&self, id: ProcessId) -> bool {
        let removed = self.known().remove(&id).is_some();
        if removed {
            self.changed();
            if let Some(bell) = self.0.bell.get() {
                bell.ring();
            }
        }
        removed
    }

    /// Whether nothing but its own request has made a peer known.
    pub fn is_inbound(&self, id: ProcessId) -> bool {
        self.known().get(&id).is_some_and(|noted| noted.inbound)
    }

    /// Forgets a peer that has ended, if nothing but its own request had made it known: who comes and goes leaves nothing here.
    pub fn remove_inbound(&self, id: ProcessId) {
        let mut known = self.known();
        if known.get(&id).is_some_and(|noted| noted.inbound) {
            known.remove(&id);
            self.changed();
        }
    }

    /// The address of a peer, if it is known.
    pub fn find(&self, id: ProcessId) -> Option<Address> {
        self.entry(id).map(|entry| entry.address)
    }

    /// The address of a peer, if it is known, and since when.
    pub fn entry(&self, id: ProcessId) -> Option<Entry> {
        self.known().get(&id).map(|noted| noted.entry)
    }

    /// How many peers are known.
    pub fn len(&self) -> usize {
        self.known().len()
    }

    /// Whether nobody is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes with every peer that comes or goes: a fabric that keeps what it has looked up compares it.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(nid: u32, contact: &[u8]) -> Address {
        Address::new(FabricKind::Shm, ProcessId::new(nid, 7), contact).unwrap()
    }

    fn book() -> AddressBook {
        AddressBook::new(address(1, b"own"), |_, other| {
            match other.contact().starts_with(b"far") {
                true => Err("it is far".to_owned()),
                false => Ok(()),
            }
        })
    }

    #[test]
    fn who_has_come_by_itself_is_forgotten_unless_the_program_knows_it() {
        let book = book();
        let [a, b] = [address(2, b"a"), address(3, b"b")];
        for peer in [&a, &b] {
            book.insert_inbound(peer).unwrap();
        }
        let since = book.entry(b.id()).unwrap().since;
        book.insert(&b).unwrap();
        book.insert_inbound(&b).unwrap();
        assert_eq!(book.entry(b.id()).unwrap().since, since);
        assert_eq!([&a, &b].map(|p| book.is_inbound(p.id())), [true, false]);
        let generation = book.generation();
        for peer in [&a, &b, &address(4, b"c")] {
            book.remove_inbound(peer.id());
        }
        assert_eq!((book.find(a.id()), book.find(b.id())), (None, Some(b)));
        assert_eq!((book.len(), book.generation()), (1, generation + 1));
    }

    #[test]
    fn an_address_travels_as_bytes_and_others_are_refused() {
        let address = address(9, b"somewhere");
        let mut bytes = address.to_bytes();
        assert_eq!(Address::from_bytes(&bytes), Ok(address));
        assert_eq!(
            Address::from_bytes(&bytes[1..]),
            Err(AddressError::Length { len: 63 })
        );
        bytes[1] = 9;
        assert_eq!(Address::from_bytes(&bytes), Err(AddressError::Malformed));
        bytes[0] = 9;
        let version = AddressError::Version { version: 9 };
        assert_eq!(Address::from_bytes(&bytes), Err(version));
        let nobody = Address::new(FabricKind::Shm, ProcessId::new(0, 7), b"").unwrap();
        let said = Address::from_bytes(&nobody.to_bytes());
        assert_eq!(said, Err(AddressError::Malformed));
        // What its fabric does not need may be left out, and nothing else.
        let short = Address::new(FabricKind::Shm, ProcessId::new(1, 7), &[1; 22]).unwrap();
        let bytes = short.to_bytes();
        assert_eq!(Address::from_bytes(&bytes[..32]), Ok(short));
        for len in [0, 1, 31, 33] {
            let refused = Address::from_bytes(&bytes[..len]);
            assert_eq!(refused, Err(AddressError::Length { len }));
        }
        let long = Address::new(FabricKind::Shm, ProcessId::new(1, 7), &[1; 55]);
        assert_eq!(long, Err(AddressError::Length { len: 55 }));
        let shown = format!("{address:?}");
        assert!(!shown.contains("somewhere"), "{shown}");
    }

    #[test]
    fn a_book_knows_whom_it_was_told_of() {
        let book = book();
        let (own, peer) = (*book.own(), address(2, b"near"));
        assert_eq!(book.find(peer.id()), None);
        assert_eq!(book.insert(&own), Ok(own.id()));
        let before = book.generation();
        for _ in 0..2 {
            assert_eq!(book.insert(&peer), Ok(peer.id()));
        }
        assert_eq!(book.find(peer.id()), Some(peer));
        assert_eq!(book.generation(), before + 1);
        assert!(book.remove(peer.id()) && !book.remove(peer.id()));
        assert_eq!(book.find(peer.id()), None);
        assert_eq!(book.generation(), before + 2);
    }

    #[test]
    fn a_peer_that_was_removed_and_inserted_again_is_known_anew_and_removals_ring() {
        let (book, peer) = (book(), address(2, b"near"));
        let bell = Arc::new(Bell::new().unwrap());
        book.ring_when_removed(Arc::clone(&bell));
        let rung = || {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let mut fds = [PollFd::new(bell.descriptor(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
        };
        book.insert(&peer).unwrap();
        let before = book.entry(peer.id()).unwrap();
        assert_eq!(before.since, book.generation());
        book.insert(&peer).unwrap();
        assert_eq!(book.entry(peer.id()), Some(before));
        assert!(!rung());
        assert!(book.remove(peer.id()) && rung());
        book.insert(&peer).unwrap();
        let after = book.entry(peer.id()).unwrap();
        assert!(after.address == peer && after.since > before.since);
    }

    #[test]
    fn who_cannot_be_reached_or_has_the_id_of_another_is_refused() {
        let book = book();
        let id = ProcessId::new(2, 7);
        book.insert(&address(2, b"near")).unwrap();
        let taken = AddressError::Taken { id };
        assert_eq!(book.insert(&address(2, b"other")), Err(taken));
        assert_eq!(book.find(id), Some(address(2, b"near")));
        let elsewhere = AddressError::Elsewhere {
            reason: "it is far".to_owned(),
        };
        assert_eq!(book.insert(&address(3, b"far")), Err(elsewhere));
        let other = Address::new(FabricKind::Verbs, id, b"").unwrap();
        assert!(matches!(
            book.insert(&other),
            Err(AddressError::OtherFabric { .. })
        ));
        let own_id = address(1, b"another");
        assert!(matches!(
            book.insert(&own_id),
            Err(AddressError::Taken { .. })
        ));
    }
}
