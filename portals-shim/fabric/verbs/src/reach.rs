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

mod adverts;

use super::frame::RemoteMd;
use super::memory::{Transfer, Use};
use super::peer::{PLAIN, Peer};
use super::send::reached_by;
use crate::verbs::Verbs;
pub(super) use adverts::Adverts;
use fabric_api::call::RemoteKey;
use fabric_api::call::Target;
use portals_core::{Body, Header, InPlace, Landing, MdHandle, Ni, ProcessId, Segment};
use verbs_backend::Remote;

/// Where an operation goes in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) remote: Remote,
    /// The descriptor sends acks.
    pub(super) acks: bool,
    /// The owner posts events of it, and is to be told of what is written, by this handle.
    pub(super) events: Option<MdHandle>,
}

/// What a put or get asks of its target: access index, offset, length, whether it is a put.
type Asked = (u32, u64, u64, bool);

#[inline(always)]
fn asked(header: &Header) -> Option<Asked> {
    match header.body {
        Body::Put {
            length,
            remote_offset,
            ac_index,
            ..
        } => Some((ac_index, remote_offset, length, true)),
        Body::Get {
            length,
            remote_offset,
            ac_index,
            ..
        } => Some((ac_index, remote_offset, length, false)),
        _ => None,
    }
}

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

/// How a put goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To a descriptor that the adapters serve alone.
    OpenEndpoint(Reach),
    /// Perhaps to one whose owner is to be told afterwards: as the general way finds, which then need not look twice.
    General,
    /// To the peer's library.
    Frame,
}

impl Peer {
    /// The memory that the adapters reach alone for this operation, by the key that its sender has or by an advert, if it
    /// comes after everything before it.
    #[inline]
    pub(super) fn reach(&self, header: &Header, key: Option<RemoteKey>) -> Option<Reach> {
        if !self.is_settled() {
            return None;
        }
        match key {
            Some(key) => reached_by(key, header),
            None => self.advertised(header).filter(|r| r.events.is_none()),
        }
    }

    /// How a put that could go at once does; those from `write_from` bytes on may be written.
    #[inline(always)]
    pub(super) fn way(&self, put: &Header, write_from: usize) -> Way {
        if self.adverts.of(put.pt_index).is_empty() {
            return Way::Frame;
        }
        self.way_where_adverts_are(put, write_from)
    }

    /// How a put goes that could go at once, where descriptors of the portal are advertised.
    #[inline(never)]
    fn way_where_adverts_are(&self, put: &Header, write_from: usize) -> Way {
        if super::thresholds::written(write_from, put.payload_len() as usize) && self.may_write() {
            return Way::General;
        }
        match self.reach(put, None) {
            Some(reach) => Way::OpenEndpoint(reach),
            None => Way::Frame,
        }
    }

    /// The memory that the peer advertises for this operation.
    #[inline]
    pub(super) fn advertised(&self, header: &Header) -> Option<Reach> {
        let Header {
            source,
            pt_index,
            match_bits,
            ..
        } = *header;
        self.found(source, pt_index, match_bits, asked(header)?)
    }

    /// The memory that the peer advertises for what is asked.
    #[inline(always)]
    fn found(
        &self,
        source: ProcessId,
        pt_index: u32,
        match_bits: u64,
        (ac_index, offset, length, is_put): Asked,
    ) -> Option<Reach> {
        let list = self.adverts.of(pt_index);
        let end = offset.checked_add(length).filter(|_| length > 0)?;
        let takes = |md: &RemoteMd| {
            md.admits(source, ac_index, match_bits)
                && (if is_put { md.put } else { md.get })
                && end <= md.length
        };
        // The first one mostly does: no call for it.
        let found = match list {
            [first, ..] if takes(first) => first,
            _ => list.iter().find(|md| takes(md))?,
        };
        Some(Reach {
            remote: Remote {
                address: found.start.address + offset,
                rkey: found.start.rkey,
            },
            acks: found.ack,
            events: found.events,
        })
    }
}

impl Verbs {
    /// The memory that the adapters reach for an operation: alone ([`Peer::reach`]), or for a put whose owner is notified
    /// afterwards, which need not wait.
    #[inline]
    pub(super) fn reach_of(&mut self, rank: usize, header: &Header) -> Option<Reach> {
        let aimed = self.aimed.take();
        let peer = self.peers.get(rank)?;
        if aimed.is_some() {
            return peer.reach(header, aimed);
        }
        let found = peer.advertised(header)?;
        (found.events.is_some() || peer.is_settled()).then_some(found)
    }

    /// Writes a short put into memory that `key` reaches, if it goes there now.
    #[inline(always)]
    pub(super) fn write_aimed_now(
        &mut self,
        header: &Header,
        payload: &[Segment],
        key: RemoteKey,
    ) -> bool {
        let Some(rank) = self.rank_of(header.target) else {
            return false;
        };
        let peer = self.peers.get(rank);
        let peer = peer.filter(|p| !self.closed && p.takes_now());
        let reach = peer.and_then(|p| p.reach(header, Some(key)));
        reach.is_some_and(|reach| self.write_now(rank, header, payload, reach))
    }

    /// Writes a short put to where it reaches in the peer's memory.
    #[inline]
    pub(super) fn write_now(
        &mut self,
        rank: usize,
        header: &Header,
        payload: &[Segment],
        reach: Reach,
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
        let ([data], Some(peer)) = (payload, self.peers.get_mut(rank)) else {
            return false;
        };
        if length > peer.max_inline() as u64 {
            return false;
        }
        let ack = ack_md.filter(|_| reach.acks);
        let ack = ack.map(|md| answer_in_place(header, md, remote_offset, length));
        let id = self.alone.put(rank, ack);
        peer.write_inline(*data, reach.remote, id);
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
        let short = data.len <= peer.max_inline() as u64 && data.len < self.write_from as u64;
        if self.closed || !short || !peer.takes_now() || !peer.is_settled() {
            return false;
        }
        let asked = (to.ac_index, to.remote_offset, data.len, true);
        let found = peer.found(self.id, to.pt_index, to.match_bits, asked);
        let Some(Reach {
            remote,
            events: None,
            acks: true,
        }) = found
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
        let Some(peer) = self.peers.get_mut(rank) else {
            return false;
        };
        if self.closed
            || !peer.takes_now()
            || !peer.is_settled()
            || local.len > self.adapter.max_message()
        {
            return false;
        }
        let Some((_, lkey)) = self.registry.again(md, local, Use::Landing) else {
            return false;
        };
        let asked = (from.ac_index, from.remote_offset, local.len, false);
        let found = peer.found(self.id, from.pt_index, from.match_bits, asked);
        let Some(Reach {
            remote,
            events: None,
            ..
        }) = found
        else {
            return false;
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
        self.begin_get(rank, transfer, id);
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

#[cfg(test)]
mod tests;
