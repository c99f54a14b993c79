//! The word that peers read.

use crate::memory::{Registry, Staged, Transfer, Use};
use fabric_api::region::Region;
use portals_core::Segment;
use verbs_backend::mr::MrError;
use verbs_backend::{Endpoint, Gid, Remote};

/// Bytes of the word.
const WORD: u64 = 8;

/// The word that peers read, and where theirs are read into.
#[derive(Debug)]
pub(crate) struct Witness {
    word: Staged,
    landing: Staged,
}

impl Witness {
    pub(crate) fn new(registry: &Registry) -> Result<Self, MrError> {
        let staged = |purpose| {
            let region = Region::new(WORD as usize).map_err(|_| MrError::Memory {
                length: WORD as usize,
            })?;
            let mr = registry.of_buffer(&region, purpose)?;
            Ok(Staged { mr, region })
        };
        Ok(Self {
            word: staged(Use::Source)?,
            landing: staged(Use::Landing)?,
        })
    }

    /// The end of a connection, which says where the witness is: the connection manager knows where it is, so that the address has
    /// room for the witness.
    pub(crate) fn encode_in(&self, end: Endpoint) -> Endpoint {
        let at = self.word.mr.remote(0).unwrap_or(Remote {
            address: 0,
            rkey: 0,
        });
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&at.address.to_be_bytes());
        gid[8..12].copy_from_slice(&at.rkey.to_be_bytes());
        Endpoint {
            gid: Gid(gid),
            ..end
        }
    }

    /// The witness of the peer whose end this is.
    pub(crate) fn decode(end: &Endpoint) -> Remote {
        let bytes = u128::from_be_bytes(end.gid.0);
        Remote {
            address: (bytes >> 64) as u64,
            rkey: (bytes >> 32) as u32,
        }
    }

    /// A read of a peer's.
    pub(crate) fn read(&self, remote: Remote) -> Transfer {
        Transfer {
            local: Segment {
                addr: self.landing.region.addr(),
                len: WORD,
            },
            lkey: self.landing.mr.lkey(),
            remote,
            read: true,
            again: false,
            announced: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_has_the_witness() {
        let mut gid = [0; 16];
        gid[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let end = Endpoint {
            gid: Gid(gid),
            ..crate::link::NOWHERE
        };
        let at = Witness::decode(&end);
        assert_eq!(at.address, 0x0102_0304_0506_0708);
        assert_eq!(at.rkey, 0x090a_0b0c);
    }
}
