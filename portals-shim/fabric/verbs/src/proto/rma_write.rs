//! `rma write`: an RDMA WRITE into memory that the peer advertises, or whose key it has given. The peer's library has no part.
//!
//! ```text
//!   start:     checks ─► advert ─► post, SEND_END ─────── short: the post has copied the data
//!              checks ─► advert ─► registered, post ───── long
//!   complete:  completion ─► (long: SEND_END) ─► the ACK that the target would have sent
//! ```
//!
//! # Recovery
//!
//! What a broken connection left undone is not written again, since the peer may have taken the memory back: the put has
//! failed, and its ACK is not awaited, unless a frame that was sent later has arrived ([`recover`]). A relaxed put is written again, as nobody
//! looks at its memory before a later message says so.
//!
//! # Invariants
//!
//! * What is declined here has had no effect, and goes by the general path, which also does what is done once: connecting,
//!   registering memory, splitting what is longer than the port takes.

use super::connected::Connected;
use super::offload::answer_in_place;
use super::op::{Kind, Op};
use super::select::{self, Protocol};
use crate::memory::{Transfer, Use};
use crate::peer::Recovery;
use crate::verbs::{Verbs, Work};
use fabric_api::call::Target;
use fabric_api::nal::Outcome;
use portals_core::{Body, Header, InPlace, Landing, Ni, NiFail, OpId, ReadyPut, Segment, Transmit};
use verbs_backend::Remote;

/// What becomes of a WRITE that a broken connection left undone.
pub(super) const fn recover(arrived: bool, relaxed: bool) -> Recovery {
    match (arrived, relaxed) {
        (true, _) => Recovery::Done,
        (false, true) => Recovery::Again,
        (false, false) => Recovery::Failed,
    }
}

impl Verbs {
    /// Writes a short put to where it reaches in the peer's memory.
    #[inline]
    pub(crate) fn rma_write_now(
        &mut self,
        rank: usize,
        header: &Header,
        data: Segment,
        (remote, acks): (Remote, bool),
    ) -> bool {
        let Body::Put {
            length,
            remote_offset,
            ack_md,
            ..
        } = header.body
        else {
            return false;
        };
        let ack = ack_md.filter(|_| acks);
        let ack = ack.map(|md| answer_in_place(header, md, remote_offset, length));
        let written = self.write_short(rank, data, remote, ack);
        if written {
            self.peers.sent_to(rank);
        }
        written
    }

    /// Posts a write that copies its data; `false`, and nothing has happened, if that is too long for it.
    #[inline(always)]
    fn write_short(
        &mut self,
        rank: usize,
        data: Segment,
        remote: Remote,
        ack: Option<InPlace>,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(rank) else {
            return false;
        };
        if data.len > peer.sq.max_inline() as u64 {
            return false;
        }
        let id = self.offloaded.put(rank, ack);
        peer.sq.write_inline(data, remote, id);
        self.due.pump |= peer.sq.wants_pump();
        self.counters.protocols.rma_write += 1;
        true
    }

    /// Writes a short put that is acknowledged, if that can be now. `false`, and nothing has happened, if it cannot.
    #[inline(always)]
    pub(crate) fn rma_write_awaited(&mut self, source: &Landing, to: &Target) -> bool {
        self.read_unanswered();
        let data = source.memory;
        let Some(rank) = self.rank_of(to.process) else {
            return false;
        };
        let Some(peer) = self.peers.get(rank) else {
            return false;
        };
        if self.closed || !peer.takes_now() {
            return false;
        }
        let op = Op::immediate(Kind::Put, self.id, to, data.len);
        let state = Connected::now(peer);
        let Protocol::RmaWrite { remote, acks: true } =
            select::select(&op, &state, &self.thresholds)
        else {
            return false;
        };
        let ack = InPlace {
            md: source.md,
            target: to.process,
            pt_index: to.pt_index,
            match_bits: to.match_bits,
            offset: to.remote_offset,
            length: data.len,
        };
        let written = self.write_short(rank, data, remote, Some(ack));
        if written {
            self.peers.sent_to(rank);
        }
        written
    }

    /// Writes a put into the peer's memory, from memory that is registered for it; `false`: it goes by a message.
    pub(super) fn start_rma_write(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        tx: &Transmit,
        remote: Remote,
        acks: bool,
    ) -> bool {
        let h = &tx.header;
        let Body::Put {
            length,
            remote_offset,
            ack_md,
            ..
        } = h.body
        else {
            return false;
        };
        let ack = ack_md.filter(|_| acks);
        let ack = ack.map(|md| answer_in_place(h, md, remote_offset, length));
        if let [data] = *tx.payload.as_slice()
            && self.write_short(rank, data, remote, ack)
        {
            // The data has been copied.
            if let Some(op) = tx.op {
                ni.send_end(op, NiFail::OK);
            }
            return true;
        }
        let (local, lkey, staged) = match tx.payload.as_slice() {
            [one] => match self.registered(ni, tx.md, *one, Use::Local) {
                Some((_, lkey)) => (*one, lkey, None),
                None => return false,
            },
            pieces => match self.stage(pieces, length, Use::Local, true) {
                Some(s) => (
                    Segment {
                        addr: s.region.addr(),
                        len: length,
                    },
                    s.mr.lkey(),
                    Some(s),
                ),
                None => return false,
            },
        };
        let transfer = Transfer {
            local,
            lkey,
            remote,
            read: false,
            again: false,
            announced: false,
        };
        self.post_transfer(
            rank,
            transfer,
            Work::Write {
                op: tx.op,
                ack,
                _staged: staged.map(Box::new),
            },
        );
        self.counters.protocols.rma_write += 1;
        true
    }

    /// Writes the payload of a put, which will be in place before anything that is sent to that peer from here on. Should
    /// the connection break before, it is written again: the peer does not look at it before a later message says so.
    pub(crate) fn rma_write_relaxed(&mut self, ni: &Ni, ready: &ReadyPut) -> Outcome {
        let acked = matches!(
            ready.header.body,
            Body::Put {
                ack_md: Some(_),
                ..
            }
        );
        let ([local], false, true) = (&*ready.payload, acked, ni.has_room()) else {
            return Outcome::Declined;
        };
        let rank = self.rank_of(ready.header.target);
        let peer = rank.and_then(|rank| Some((rank, self.peers.get(rank)?)));
        let peer = peer.filter(|(_, peer)| !self.closed && !self.gone && peer.takes_now());
        let Some((rank, peer)) = peer else {
            return Outcome::Declined;
        };
        let op = Op::of(&ready.header, true).relaxed();
        let chosen = select::select(&op, &Connected::now(peer), &self.thresholds);
        let Protocol::RmaWrite { remote, .. } = chosen else {
            return Outcome::Declined;
        };
        let Some((_, lkey)) = self.registered(ni, ready.md, *local, Use::Local) else {
            return Outcome::Declined;
        };
        let transfer = Transfer {
            local: *local,
            lkey,
            remote,
            read: false,
            again: true,
            announced: false,
        };
        let work = Work::Write {
            op: None,
            ack: None,
            _staged: None,
        };
        self.due.pump = true;
        self.counters.protocols.rma_write += 1;
        Outcome::Lent(self.post_transfer(rank, transfer, work) as u64)
    }

    /// A write that has a record is over, and its memory is free.
    pub(crate) fn write_done(
        &mut self,
        ni: &mut Ni,
        op: Option<OpId>,
        ack: Option<InPlace>,
        fail: NiFail,
    ) {
        if let Some(op) = op {
            ni.send_end(op, fail);
        }
        match ack {
            Some(ack) if fail == NiFail::OK => ni.ack_in_place(&ack),
            Some(ack) => ni.ack_lost(&self.unanswered(&ack), fail),
            None => {}
        }
    }
}
