//! Puts and gets that the network adapters make alone, in one step of the library: an inline write, or a read straight
//! into a descriptor that was used before.
//!
//! ```text
//!   put:  checks ─► advert ─► post, SEND_END ─── completion ─► ACK
//!   get:  checks ─► advert ─► post ───────────── completion ─► REPLY_START, REPLY_END
//! ```
//!
//! # Invariants
//!
//! * What is refused here has had no effect, and goes the general way (`send.rs`), which also does what is done once:
//!   connecting, registering memory, splitting what is longer than the port takes.
//! * The choice is the general way's: same advert, same conditions, so that which of both an operation takes cannot be
//!   told from what it does.

use super::memory::{Transfer, Use};
use super::peer::PLAIN;
use super::proto::connected::Connected;
use super::proto::op::{Kind, Op};
use super::proto::select::{self, Protocol};
use crate::verbs::Verbs;
use fabric_api::call::Target;
use portals_core::{Body, Header, InPlace, Landing, MdHandle, Ni, Segment};
use verbs_backend::Remote;

/// The answer to a request whose target gives none itself, for `md`.
#[inline(always)]
pub(super) fn answer_in_place(request: &Header, md: MdHandle, offset: u64, length: u64) -> InPlace {
    InPlace {
        md,
        target: request.target,
        pt_index: request.pt_index,
        match_bits: request.match_bits,
        offset,
        length,
    }
}

impl Verbs {
    /// Writes a short put to where it reaches in the peer's memory.
    #[inline]
    pub(super) fn write_now(
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
        let Some(peer) = self.peers.get_mut(rank) else {
            return false;
        };
        if length > peer.max_inline() as u64 {
            return false;
        }
        let ack = ack_md.filter(|_| acks);
        let ack = ack.map(|md| answer_in_place(header, md, remote_offset, length));
        let id = self.alone.put(rank, ack);
        peer.write_inline(data, remote, id);
        self.due.pump |= peer.wants_pump();
        self.went_alone(rank);
        true
    }

    /// Writes a short put that is acknowledged, if that can be now. `false`, and nothing has happened, if it cannot.
    #[inline(always)]
    pub(super) fn write(&mut self, source: &Landing, to: &Target) -> bool {
        self.ask_no_more();
        let data = source.memory;
        let Some(rank) = self.rank_of(to.process) else {
            return false;
        };
        let Some(peer) = self.peers.get_mut(rank) else {
            return false;
        };
        let short = data.len <= peer.max_inline() as u64;
        if self.closed || !short || !peer.takes_now() {
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
        let id = self.alone.put(rank, Some(ack));
        peer.write_inline(data, remote, id);
        self.due.pump |= peer.wants_pump();
        self.went_alone(rank);
        true
    }

    /// Makes a get into a region of `md`, if it reads the peer's memory now, into memory in one piece that is registered.
    /// `false`, and nothing has happened, if it does not, or is to be refused.
    #[inline(always)]
    pub(super) fn read_now(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        let Ok(Some(landing)) = ni.landing(md, region) else {
            return false;
        };
        let read = self.read(&landing, from);
        if read {
            ni.pass_get(&landing);
        }
        read
    }

    /// Reads what a get takes from the peer's memory, if that can be now. `false`, and nothing has happened, if it cannot.
    #[inline(always)]
    pub(super) fn read(&mut self, landing: &Landing, from: &Target) -> bool {
        self.ask_no_more();
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
            timing: self.asks.is_timing(),
            ..Connected::now(peer)
        };
        let (remote, by_am) = match select::select(&op, &state, &self.thresholds) {
            Protocol::RmaRead(remote) => (remote, false),
            Protocol::GetByAm(remote) => (remote, true),
            _ => return false,
        };
        let id = self.alone.get(
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
        };
        self.peers.sent_to(rank);
        self.begin_get(rank, transfer, id, by_am);
        true
    }

    /// Takes the completion of a request of this id that has succeeded, and of the silent ones before it. `false`: it is
    /// one without a record, and nothing has happened.
    #[inline(always)]
    pub(super) fn ended_alone(&mut self, ni: &mut Ni, id: u64, qpn: u32) -> bool {
        if id >= PLAIN {
            return false;
        }
        let Some(rank) = self.peers.by_qpn(qpn) else {
            return false;
        };
        let mut any = false;
        while let Some(peer) = self.peers.get_mut(rank)
            && let Some(done) = peer.done_up_to(id)
        {
            any = true;
            self.due.pump |= peer.wants_pump();
            self.piece_done(ni, done, false);
            if done == id {
                break;
            }
        }
        any
    }

    #[inline]
    fn went_alone(&mut self, rank: usize) {
        self.peers.sent_to(rank);
        self.counters.paths.one_sided += 1;
    }
}
