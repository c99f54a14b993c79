//! Protocols: how operations go over a connection, and the choice among them.
//!
//! | file | decides |
//! |---|---|
//! | `select.rs` | which protocol an operation goes by: the only chooser |
//! | `eager_send.rs` | data that travels with its header |
//! | `eager_ring.rs`, `eager_ring/` | the same, written where a polling peer looks |
//! | `header_cache.rs` | headers that are not sent again |
//! | `rndv_read.rs` | longer data, which the target reads |
//! | `rma_write.rs` | puts by RDMA WRITE, without the peer's library |
//! | `rma_read.rs` | gets by RDMA READ, without the peer's library |
//! | `rma_write_send.rs` | puts by RDMA WRITE whose owner is notified, and posts the events |
//! | `get_by_am.rs`, `get_by_am/` | short gets that the peer's library answers |
//! | `offload.rs`, `offload/` | those of one request, while they are under way |
//! | `counts.rs` | how many operations each has carried |
//! | `op.rs`, `connected.rs` | what the choice sees of the operation, and of the peer |

pub(crate) mod connected;
pub(crate) mod counts;
pub(crate) mod eager_ring;
mod eager_send;
pub(crate) mod get_by_am;
pub(crate) mod header_cache;
pub(crate) mod offload;
pub(crate) mod op;
mod rma_read;
mod rma_write;
mod rma_write_send;
mod rndv_read;
pub(crate) mod select;

use crate::peer::{Fill, Lost, Recovery};
use crate::verbs::Verbs;
use fabric_api::call::RemoteKey;
use fabric_api::nal::Outcome;
use portals_core::{Body, Header, MdHandle, Ni, Segment, Transmit};
use select::Protocol;

/// A put that leaves at once or not at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutNow<'a> {
    pub(crate) header: &'a Header,
    /// Its descriptor and memory; none of one whose bytes somebody packs, which is in one piece if it does not leave so.
    pub(crate) memory: Option<(MdHandle, &'a [Segment])>,
    pub(crate) key: Option<&'a RemoteKey>,
    /// That memory may be read after the call.
    pub(crate) lend: bool,
}

/// What becomes of a request that a broken connection left undone, by its protocol; `arrived`: the peer has had it.
pub(crate) fn recover(lost: &Lost, arrived: bool) -> Recovery {
    match lost {
        Lost::Frame(_) => eager_send::recover(arrived),
        Lost::Read { .. } => rma_read::recover(),
        Lost::Write(_) => rma_write::recover(arrived, false),
        Lost::RelaxedWrite { .. } => rma_write::recover(arrived, true),
        Lost::WriteImmediate { .. } => rma_write_send::recover(arrived),
        Lost::Refused(_) => Recovery::Failed,
    }
}

impl Verbs {
    /// Starts a put that can leave at once, whose bytes `fill` writes into its frame.
    #[inline(always)]
    pub(crate) fn put_now(&mut self, ni: &Ni, put: &PutNow<'_>, fill: impl Fill) -> Outcome {
        let header = put.header;
        let rank = self.rank_of(header.target);
        let peer = rank.and_then(|rank| Some((rank, self.peers.get(rank)?)));
        let peer = peer.filter(|(_, peer)| !self.closed && peer.takes_now());
        let Some((rank, peer)) = peer else {
            return Outcome::Declined;
        };
        let piece = match put.memory {
            Some((md, [piece])) => Some((*piece, md)),
            _ => None,
        };
        let contiguous = piece.is_some() || put.memory.is_none();
        let taken = match peer.protocol_of(header, contiguous, put.key, &self.thresholds) {
            // Where a key was given, what goes by a message has an operation of its own.
            Protocol::Eager => put.key.is_none() && self.send_eager_now(rank, header, fill),
            Protocol::RmaWrite { remote, acks } => piece
                .is_some_and(|(data, _)| self.rma_write_now(rank, header, data, (remote, acks))),
            Protocol::RmaWriteSend { remote, md } => {
                let piece = piece.filter(|_| put.lend && ni.has_room());
                let number =
                    piece.and_then(|p| self.rma_write_send_now(rank, header, p, (remote, md)));
                return number.map_or(Outcome::Declined, Outcome::Lent);
            }
            Protocol::RndvRead | Protocol::RmaRead(_) | Protocol::GetByAm(_) => false,
        };
        match taken {
            true => Outcome::Taken,
            false => Outcome::Declined,
        }
    }

    /// Starts an operation on a connected peer, for memory that `key` reaches, by the protocol that is chosen for it. What is
    /// done once happens on this path: memory is registered, and what is longer than the port takes is split.
    pub(crate) fn start(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        tx: &Transmit,
        key: Option<&RemoteKey>,
    ) {
        let Some(peer) = self.peers.get(rank) else {
            return;
        };
        let contiguous = match tx.header.body {
            Body::Get { .. } => tx.landing.len() == 1,
            _ => tx.payload.len() == 1,
        };
        let started = match peer.protocol_of(&tx.header, contiguous, key, &self.thresholds) {
            Protocol::RmaWrite { remote, acks } => self.start_rma_write(ni, rank, tx, remote, acks),
            Protocol::RmaRead(remote) | Protocol::GetByAm(remote) => {
                self.start_rma_read(ni, rank, tx, remote)
            }
            Protocol::RmaWriteSend { remote, md } => {
                self.start_rma_write_send(ni, rank, tx, remote, md)
            }
            Protocol::Eager | Protocol::RndvRead => false,
        };
        // Also what the adapters cannot do after all, as memory cannot be registered.
        if !started {
            self.send_by_message(ni, rank, tx);
        }
    }
}
