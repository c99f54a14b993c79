//! The path of an outgoing message.

use super::cell::{self, Kind};
use super::map::Map;
use super::peer::{After, Load, Outgoing};
use super::protocols::{Protocol, choose};
use super::{Core, RndvSend};
use fabric_api::delivery;
use portals_core::{Header, Ni, NiFail, Segment, Segments, Transmit};
use std::sync::atomic::Ordering;

impl Core {
    /// Sends a message of this process; see the module's picture.
    #[inline]
    pub(super) fn send(&mut self, map: &Map, ni: &mut Ni, tx: &mut Transmit) {
        match self.rank_of(tx.header.target) {
            Some(rank) => self.send_to(map, ni, rank, tx),
            None => delivery::refuse(ni, tx),
        }
    }

    /// Sends a message to a peer that is known.
    #[inline]
    pub(super) fn send_to(&mut self, map: &Map, ni: &mut Ni, rank: usize, tx: &mut Transmit) {
        if self.closed || self.peers[rank].gone {
            return delivery::refuse(ni, tx);
        }
        if self.one_sided(map, ni, rank, tx) {
            return;
        }
        self.counters.paths.two_sided += 1;
        let after = tx.op.map_or(After::Nothing, After::Send);
        let payload = std::mem::take(&mut tx.payload);
        self.send_pieces(map, ni, rank, tx.header, payload, after);
    }

    /// Sends a put at once, if it is short, nothing waits before it, and no descriptor is shown that would take it
    /// without the peer.
    #[inline]
    pub(super) fn send_now(&mut self, map: &Map, header: &Header, payload: &[Segment]) -> bool {
        let Some(rank) = self.rank_of(header.target) else {
            return false;
        };
        let (block, ring) = (self.layout.block(rank), self.ring_to(rank));
        let peer = &mut self.peers[rank];
        if self.closed
            || peer.gone
            || !peer.waiting.is_empty()
            || peer.table.may_take(map, block, header)
            || !peer.write_short(map, ring, header, payload)
        {
            return false;
        }
        self.latest = rank;
        self.counters.paths.two_sided += 1;
        self.call(map, rank);
        true
    }

    /// A header, and data of a descriptor of this process.
    #[inline]
    pub(super) fn send_pieces(
        &mut self,
        map: &Map,
        ni: &mut Ni,
        rank: usize,
        header: Header,
        data: Segments,
        after: After,
    ) {
        let len = header.payload_len();
        let message = match choose(len, data.len(), self.peers[rank].attaches) {
            Protocol::Rendezvous => self.rts(rank, header, data, after),
            Protocol::Cell | Protocol::Bulk | Protocol::Parts => {
                Outgoing::message(header, Load::Pieces(data), after)
            }
        };
        self.post(map, ni, rank, message);
    }

    /// The RTS of long data; `after` happens when the peer has read it.
    fn rts(&mut self, rank: usize, header: Header, data: Segments, after: After) -> Outgoing {
        let places = cell::write_pieces(&data);
        let rndv_send = RndvSend {
            rank,
            after,
            header,
            data,
        };
        let token = match self.spare_tokens.pop() {
            Some(token) => token,
            None => {
                self.rndv_sends.push(None);
                self.rndv_sends.len() - 1
            }
        };
        self.rndv_sends[token] = Some(rndv_send);
        self.outstanding += 1;
        self.peers[rank].rndv_sends += 1;
        Outgoing {
            kind: Kind::ReadyToSend,
            len: places.len() as u64,
            load: Load::Bytes(places.into_iter().collect()),
            token: token as u32,
            ..Outgoing::message(header, Load::none(), After::Nothing)
        }
    }

    /// Writes a message to the peer's ring, or keeps it until there is room.
    #[inline]
    pub(super) fn post(&mut self, map: &Map, ni: &mut Ni, rank: usize, mut m: Outgoing) {
        let ring = self.ring_to(rank);
        let peer = &mut self.peers[rank];
        let mut wrote = false;
        let done = peer.waiting.is_next(&m) && peer.write(map, ring, &mut m, &mut wrote);
        if done {
            peer.waiting.written(&m);
            Self::end(ni, m.after, NiFail::OK);
        } else {
            if peer.waiting.is_empty() {
                self.backlog.push(rank);
            }
            peer.waiting.push(m);
        }
        if wrote {
            self.call(map, rank);
        }
    }

    /// Something was written for a peer: makes sure that it looks.
    #[inline]
    pub(super) fn call(&mut self, map: &Map, rank: usize) {
        let block = self.layout.block(rank);
        let peer = &mut self.peers[rank];
        if !peer.met {
            peer.met = true;
            let own = self.layout.block(self.rank);
            own.writes_to(map, rank / 64)
                .fetch_or(1 << (rank % 64), Ordering::Release);
            let bit = 1 << (self.rank % 64);
            block
                .contacts(map, self.rank / 64)
                .fetch_or(bit, Ordering::SeqCst);
        }
        let order = peer.order;
        self.ring(map, rank, order);
    }
}
