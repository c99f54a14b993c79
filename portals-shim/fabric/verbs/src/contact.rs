//! How a process of a job is reached by datagrams.

use crate::directory;
use std::hash::{BuildHasher, Hasher, RandomState};
use verbs_backend::DatagramAddress;

/// Where a process takes datagrams, and the token that they must carry.
pub(crate) type Contact = (DatagramAddress, u64);

const CONTACT: usize = DatagramAddress::BYTES + 8;

pub(crate) fn contact_bytes(contact: &Contact) -> [u8; CONTACT] {
    let mut bytes = [0; CONTACT];
    let (address, token) = bytes.split_at_mut(DatagramAddress::BYTES);
    address.copy_from_slice(&contact.0.to_bytes());
    token.copy_from_slice(&contact.1.to_be_bytes());
    bytes
}

impl directory::Contact for Contact {
    fn key(rank: u32, opening: &str) -> String {
        format!("portolan.verbs.{rank}{opening}")
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (address, rest) = bytes.split_first_chunk::<{ DatagramAddress::BYTES }>()?;
        let (token, rest) = rest.split_first_chunk::<8>()?;
        let address = DatagramAddress::from_bytes(address)?;
        Some(((address, u64::from_be_bytes(*token)), rest))
    }
}

/// How ranks find each other.
pub(crate) type Directory = directory::Directory<Contact>;

/// A number that nobody else has, most likely.
pub(crate) fn random() -> u64 {
    // The standard library seeds its hashers from the system's randomness.
    RandomState::new().build_hasher().finish()
}
