//! Ends of requests on iWARP.
//!
//! On InfiniBand and RoCE the completion of a send or a write says that it has arrived. On iWARP it says that the memory
//! is free: the data may still be on its way, and may get lost with the connection. But an answer to a read is made only
//! when everything sent before it on the connection has been delivered (RFC 5040, section 5.5). So each process has a
//! word that its peers may read, and what a read of it has followed is done.
//!
//! ```text
//!   write ──────▶                       completion: ignored, but something waits now
//!   read of the peer's witness ──────▶
//!                              ◀──────  completion: the write is done; SEND_END, ACK
//! ```
//!
//! Everything that says what has been done (acknowledgements of one-sided puts, frames that need not be sent again, the
//! close) goes by these ends (`peer/confirm.rs`).

use super::memory::{Registry, Staged, Transfer, Use};
use super::peer::Confirmed;
use super::{Verbs, handshake};
use fabric_api::region::Region;
use portals_core::{Ni, Segment};
use verbs_backend::mr::MrError;
use verbs_backend::{Completion, Endpoint, Gid, Opcode, Remote};

/// Bytes of the word.
const WORD: u64 = 8;

/// The word that peers read, and where theirs are read into.
#[derive(Debug)]
pub(super) struct Witness {
    word: Staged,
    landing: Staged,
}

impl Witness {
    pub(super) fn new(registry: &Registry) -> Result<Self, MrError> {
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

    /// The end of a connection as a peer is told it: the connection manager knows where it is, so that the address has
    /// room for the witness.
    pub(super) fn told(&self, end: Endpoint) -> Endpoint {
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

    /// The witness that a peer has told of.
    pub(super) fn read_from(end: &Endpoint) -> Remote {
        let bytes = u128::from_be_bytes(end.gid.0);
        Remote {
            address: (bytes >> 64) as u64,
            rkey: (bytes >> 32) as u32,
        }
    }

    /// A read of a peer's.
    pub(super) fn read(&self, remote: Remote) -> Transfer {
        Transfer {
            local: Segment {
                addr: self.landing.region.addr(),
                len: WORD,
            },
            lkey: self.landing.mr.lkey(),
            remote,
            read: true,
            again: false,
        }
    }
}

impl Verbs {
    /// Takes a completion where a witness says what is done.
    #[cold]
    pub(super) fn handle_unconfirmed(&mut self, ni: &mut Ni, completion: &Completion) {
        let received = completion.opcode().is_some_and(Opcode::is_receive);
        let rank = self.by_qpn.rank(completion.qpn());
        let peer = rank.and_then(|rank| self.peers.get_mut(rank)?.as_deref_mut());
        let (Some(rank), Some(peer), false) = (rank, peer, received) else {
            return self.handle_completion(ni, completion);
        };
        self.stirred = true;
        let mut id = completion.id();
        let mut buffer = None;
        if completion.owns_buffer() {
            match peer.qp.as_ref().and_then(|qp| qp.take(completion)) {
                Some((taken, tag)) => (id, buffer) = (tag, Some(taken)),
                // A failed receive.
                None => return self.spare.extend(self.srq.take(completion)),
            }
        }
        let known = peer.ended(id, completion.status(), buffer);
        if let Err(error) = completion.result() {
            if !peer.broken && peer.stage != handshake::Stage::Draining && !self.closed {
                tracing::warn!(peer = rank, %error, "connection broken");
            }
            peer.broken = true;
            self.pending += 1;
            return;
        }
        if known && completion.opcode() == Some(Opcode::Read) {
            while let Some((done, last)) = self.peer(rank).and_then(|p| p.take_confirmed(id)) {
                if let Confirmed::Record(done) = done {
                    self.piece_done(ni, done, false);
                }
                if last {
                    break;
                }
            }
        }
        if let Some(peer) = self.peer(rank).filter(|p| !p.broken) {
            peer.ask_if_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_tells_the_witness() {
        let mut gid = [0; 16];
        gid[..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let end = Endpoint {
            gid: Gid(gid),
            ..super::super::link::NOWHERE
        };
        let at = Witness::read_from(&end);
        assert_eq!(at.address, 0x0102_0304_0506_0708);
        assert_eq!(at.rkey, 0x090a_0b0c);
    }
}
