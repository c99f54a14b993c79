//! How a process of a job is reached by datagrams.

use crate::directory;
use std::io;
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

/// What others must know to talk to a process, which nobody can guess.
pub(crate) fn random_token() -> io::Result<u64> {
    let mut token = [0; 8];
    host::secret::random(&mut token)?;
    Ok(u64::from_ne_bytes(token))
}

/// A key of datagrams that nobody can guess. Keys with the highest bit are the kernel's.
pub(crate) fn random_qkey() -> io::Result<u32> {
    Ok(random_token()? as u32 & 0x7fff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_datagrams_differ_and_are_not_the_kernels() {
        let keys: Vec<u32> = (0..64).map(|_| random_qkey().unwrap()).collect();
        assert!(keys.iter().all(|key| key >> 31 == 0));
        assert!(keys.iter().any(|key| *key != keys[0]));
    }
}
