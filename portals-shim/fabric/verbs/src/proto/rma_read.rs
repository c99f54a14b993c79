//! `rma read`: an RDMA READ of memory that the peer advertises, or whose key it has given. The peer's library has no part.
//!
//! ```text
//!   start:     checks ─► advert ─► post
//!   complete:  completion ─► REPLY_START, REPLY_END
//! ```
//!
//! # Recovery
//!
//! What a broken connection left undone is read again over the next one ([`recover`]). A withdrawal by the peer waits for that
//! (`peer/send_queue/withdrawal.rs`).
//!
//! # Invariants
//!
//! * What is declined here has had no effect, and goes by the general path, as with `rma write`.

use super::connected::Connected;
use super::offload::answer_in_place;
use super::op::{Kind, Op};
use super::select::{self, Protocol};
use crate::memory::{Transfer, Use};
use crate::peer::Recovery;
use crate::verbs::{Verbs, Work};
use fabric_api::call::Target;
use portals_core::{Body, InPlace, Landing, MdHandle, Ni, NiFail, Transmit};
use verbs_backend::Remote;

/// What becomes of a READ that a broken connection left undone, which changes nothing at the peer.
pub(super) const fn recover() -> Recovery {
    Recovery::Again
}

impl Verbs {
    /// Makes a get into a region of `md`, if it reads the peer's memory now, into memory in one piece that is registered.
    /// `false`, and nothing has happened, if it does not, or is to be refused.
    #[inline(always)]
    pub(crate) fn get_now(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        let Ok(Some(landing)) = ni.landing(md, region) else {
            return false;
        };
        let read = self.rma_read_now(&landing, from);
        if read {
            ni.pass_get(&landing);
        }
        read
    }

    /// Reads what a get takes from the peer's memory, if that can be now. `false`, and nothing has happened, if it cannot.
    #[inline(always)]
    pub(crate) fn rma_read_now(&mut self, landing: &Landing, from: &Target) -> bool {
        self.read_unanswered();
        let (md, local) = (landing.md, landing.memory);
        let Some(rank) = self.rank_of(from.process) else {
            return false;
        };
        let Some(peer) = self.peers.get(rank) else {
            return false;
        };
        if self.closed || !peer.takes_now() || local.len > self.adapter.max_message() {
            return false;
        }
        let Some((_, lkey)) = self.registry.again(md, local, Use::Landing) else {
            return false;
        };
        let op = Op::immediate(Kind::Get, self.id, from, local.len);
        let state = Connected {
            timing: self.am_gets.is_timing(),
            ..Connected::now(peer)
        };
        let (remote, by_am) = match select::select(&op, &state, &self.thresholds) {
            Protocol::RmaRead(remote) => (remote, false),
            Protocol::GetByAm(remote) => (remote, true),
            _ => return false,
        };
        let id = self.offloaded.get(
            rank,
            InPlace {
                md,
                target: from.process,
                pt_index: from.pt_index,
                match_bits: from.match_bits,
                offset: landing.offset,
                length: local.len,
            },
        );
        let transfer = Transfer {
            local,
            lkey,
            remote,
            read: true,
            again: false,
            announced: false,
        };
        self.peers.sent_to(rank);
        self.begin_get(rank, transfer, id, by_am);
        true
    }

    /// Reads what a get takes from the peer's memory, into memory that is registered for it; `false`: it goes by a message.
    pub(super) fn start_rma_read(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        tx: &Transmit,
        remote: Remote,
    ) -> bool {
        let h = &tx.header;
        let Body::Get {
            length,
            reply_md,
            reply_offset,
            ..
        } = h.body
        else {
            return false;
        };
        // A landing in pieces goes the two-sided way.
        let [landing] = *tx.landing.as_slice() else {
            return false;
        };
        let Some((_, lkey)) = self.registered(ni, tx.md, landing, Use::Landing) else {
            return false;
        };
        if let Some(op) = tx.op {
            ni.send_end(op, NiFail::OK);
        }
        let transfer = Transfer {
            local: landing,
            lkey,
            remote,
            read: true,
            again: false,
            announced: false,
        };
        self.post_transfer(
            rank,
            transfer,
            Work::Read(answer_in_place(h, reply_md, reply_offset, length)),
        );
        self.counters.protocols.rma_read += 1;
        true
    }

    #[inline(always)]
    pub(crate) fn post_read(&mut self, rank: usize, transfer: Transfer, id: u64) {
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.sq.transfer(transfer, id);
            self.due.pump |= peer.sq.wants_pump();
            self.counters.protocols.rma_read += 1;
        }
    }
}
