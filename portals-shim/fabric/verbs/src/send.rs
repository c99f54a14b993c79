//! Operations on a peer that may not be connected, the registration of their memory, and requests that are split.

use super::handshake::Stage;
use super::memory::{RegistryError, Transfer, Use};
use super::verbs::{Record, Verbs, Work};
use fabric_api::call::RemoteKey;
use fabric_api::delivery;
use portals_core::{MdHandle, Ni, NiFail, Segment, Transmit};

/// No memory of a process is as long.
const EVERYTHING: u64 = 1 << 46;

impl Verbs {
    /// Sends a message of this process, which is for memory that `key` reaches.
    pub(super) fn send_message(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        let target = tx.header.target;
        let rank = self
            .rank_of(target)
            .or_else(|| self.assign_index(ni, target))
            .filter(|_| !self.closed && !self.gone);
        let Some(rank) = rank else {
            return delivery::refuse(ni, tx);
        };
        if let Some(peer) = self.peer(rank)
            && peer.is_open()
            && peer.held.is_empty()
        {
            return self.start(ni, rank, tx, key);
        }
        let Some(peer) = self.meet(rank) else {
            return delivery::refuse(ni, tx);
        };
        match peer.session.stage() {
            Stage::Failed => delivery::refuse(ni, tx),
            Stage::Idle => {
                peer.held.push_back(tx.clone());
                self.dial(ni, rank);
            }
            _ => peer.held.push_back(tx.clone()),
        }
    }

    /// Registers a descriptor's memory ([`Verbs::keys`]); `None`, with a message, when the system refuses.
    pub(super) fn registered(
        &mut self,
        ni: &Ni,
        md: MdHandle,
        piece: Segment,
        purpose: Use,
    ) -> Option<(u32, u32)> {
        match self.keys(ni, md, piece, purpose) {
            Ok(keys) => Some(keys),
            Err(error) => {
                tracing::error!(%error, "the operation fails");
                None
            }
        }
    }

    /// Registers the contiguous descriptor that holds `piece`; gives (rkey, lkey).
    pub(super) fn keys(
        &mut self,
        ni: &Ni,
        md: MdHandle,
        piece: Segment,
        purpose: Use,
    ) -> Result<(u32, u32), RegistryError> {
        if let Some(keys) = self.registry.again(md, piece, purpose) {
            return Ok(keys);
        }
        let own = matches!(purpose, Use::Local | Use::Landing | Use::Source);
        if own && let Some(keys) = self.registry.within_pinned(md, piece, purpose) {
            return Ok(keys);
        }
        if self.registry.len() > 64 {
            self.prune(ni);
        }
        // The whole descriptor, or the whole piece of one of several, so that its next operation finds it registered.
        let around = ni.md_piece(md, piece);
        // One over all memory stands for what each operation names.
        let around = around.filter(|(whole, _)| whole.len < EVERYTHING);
        let (whole, pieces) = around.unwrap_or((piece, 1));
        self.registry.of_md(md, (whole, pieces), purpose)
    }

    /// Posts a transfer in as many pieces as the port wants; `work` happens after the last.
    pub(super) fn post_transfer(&mut self, rank: usize, transfer: Transfer, work: Work) -> usize {
        let left = transfer
            .local
            .len
            .div_ceil(self.adapter.max_message())
            .max(1) as usize;
        let id = self.records.insert(Record {
            peer: rank,
            left,
            fail: NiFail::OK,
            work,
        });
        let most = self.adapter.max_message();
        let Some(peer) = self.peer(rank) else {
            return id;
        };
        let mut next = Some(transfer);
        while let Some(t) = next {
            let (piece, rest) = t.split(most);
            peer.sq.transfer(piece, id as u64);
            next = rest;
        }
        id
    }
}
