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
//! | `ending.rs` | what each keeps for a peer, and how that ends when the peer is given up |
//! | `counts.rs` | how many operations each has carried |
//! | `op.rs`, `connected.rs` | what the choice sees of the operation, and of the peer |

pub(crate) mod connected;
pub(crate) mod counts;
pub(crate) mod eager_ring;
mod eager_send;
pub(crate) mod ending;
pub(crate) mod get_by_am;
pub(crate) mod header_cache;
pub(crate) mod offload;
pub(crate) mod op;
mod rma_read;
mod rma_write;
mod rma_write_send;
mod rndv_read;
pub(crate) mod select;

use crate::completion;
use crate::peer::{Lost, Recovery};
use crate::verbs::Verbs;
use connected::Connected;
use ending::Ending;
use fabric_api::call::RemoteKey;
use op::Op;
use portals_core::{Body, Ni, Transmit};
use select::Protocol;

/// What becomes of a request that a broken connection left undone, by its protocol; `arrived`: the peer has had it.
pub(crate) fn recover(lost: &Lost, arrived: bool) -> Recovery {
    match lost {
        Lost::Frame(_) => eager_send::recover(arrived),
        Lost::Read { .. } => rma_read::recover(),
        Lost::Write(_) => rma_write::recover(arrived, false),
        Lost::RelaxedWrite { .. } => rma_write::recover(arrived, true),
        Lost::WriteImmediate { .. } => rma_write_send::recover(arrived),
        Lost::Refused(_) => Recovery::Failed,
        Lost::Fault(_) => Recovery::Fault,
    }
}

/// What is kept for a peer and ends with it, in the order in which the program sees the failures.
const ENDINGS: [Ending; 6] = [
    eager_ring::ENDING,
    get_by_am::ENDING,
    rndv_read::ENDING_AT_TARGET,
    completion::ENDING,
    offload::ENDING,
    rndv_read::ENDING,
];

/// Operations of this side that fail with a peer.
pub(crate) fn under_way(verbs: &Verbs, rank: usize) -> usize {
    let of = |ending: &Ending| (ending.under_way)(verbs, rank);
    ENDINGS.iter().map(of).sum()
}

/// Ends what the protocols keep for a peer that is given up.
pub(crate) fn end(verbs: &mut Verbs, ni: &mut Ni, rank: usize) {
    for ending in &ENDINGS {
        (ending.end)(verbs, ni, rank);
    }
}

impl Verbs {
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
        let op = Op::of(&tx.header, contiguous);
        let state = Connected::by_key(peer, key);
        let started = match select::select_apart(&op, &state, &self.thresholds) {
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
