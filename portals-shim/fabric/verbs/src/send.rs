//! The path of an outgoing message.

use super::frame::{self, ANNOUNCEMENT, EAGER, Kind, MESSAGE_HEAD, Writer};
use super::handshake::Stage;
use super::memory::{RegistryError, Transfer, Use};
use super::peer::Fill;
use super::reach::{Reach, Way, answer_in_place};
use super::verbs::{After, Announced, Record, Verbs, Work};
use crate::trusted::MEMORY;
use fabric_api::call::RemoteKey;
use fabric_api::delivery;
use fabric_api::nal::Outcome;
use portals_core::{Body, Header, MdHandle, Ni, NiFail, ReadyPut, Segment, Transmit};
use verbs_backend::Remote;

/// Where an operation reaches memory whose key its owner has told.
#[inline]
pub(super) fn reached_by(key: RemoteKey, header: &Header) -> Option<Reach> {
    let (Body::Put {
        length,
        remote_offset,
        ..
    }
    | Body::Get {
        length,
        remote_offset,
        ..
    }) = header.body
    else {
        return None;
    };
    let end = remote_offset.checked_add(length)?;
    (length > 0 && end <= key.len).then_some(Reach {
        remote: Remote {
            address: key.base + remote_offset,
            rkey: key.rkey,
        },
        acks: true,
        events: None,
    })
}

/// No memory of a process is as long.
const EVERYTHING: u64 = 1 << 46;

impl Verbs {
    /// Sends a message of this process; see the module's picture.
    pub(super) fn send_message(&mut self, ni: &mut Ni, tx: &mut Transmit) {
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
            return self.dispatch(ni, rank, tx);
        }
        let Some(peer) = self.meet(rank) else {
            return delivery::refuse(ni, tx);
        };
        match peer.session.stage {
            Stage::Failed => delivery::refuse(ni, tx),
            Stage::Idle => {
                peer.held.push_back(tx.clone());
                self.dial(ni, rank);
            }
            _ => peer.held.push_back(tx.clone()),
        }
    }

    /// Sends a put at once, if it is short, nothing waits before it, and no descriptor is advertised that would take it
    /// without the peer.
    #[inline(always)]
    pub(super) fn send_put_now(&mut self, header: &Header, payload: &[Segment]) -> bool {
        self.send_frame_now(header, Some(payload), payload)
    }

    /// Sends a put at once ([`Verbs::send_put_now`]), whose bytes `fill` writes into the frame; they are those of `payload`, if they
    /// lie anywhere.
    #[inline]
    pub(super) fn send_frame_now(
        &mut self,
        header: &Header,
        payload: Option<&[Segment]>,
        fill: impl Fill,
    ) -> bool {
        let Some(rank) = self.rank_of(header.target) else {
            return false;
        };
        let Some(peer) = self.peers.get_mut(rank) else {
            return false;
        };
        if self.closed || !peer.takes_now() {
            return false;
        }
        let len = header.payload_len() as usize;
        match peer.way(header, self.write_from) {
            Way::Frame => {}
            Way::OpenEndpoint(reach) => {
                return payload.is_some_and(|p| self.write_now(rank, header, p, reach));
            }
            Way::General => return false,
        }
        if let Err(fill) = peer.send_again(header, len, fill) {
            if len > EAGER
                || !peer.send_now(&self.send_pool, MESSAGE_HEAD + len, |w| {
                    w.header(header, len as u64);
                    if len > 0 {
                        fill.fill(w.room(len));
                    }
                })
            {
                return false;
            }
            peer.sent_header.remember(header);
        }
        peer.put_sent(header);
        peer.framed();
        self.peers.sent_to(rank);
        self.due.pump = true;
        self.counters.paths.two_sided += 1;
        true
    }

    /// Sends a message to a connected peer.
    pub(super) fn dispatch(&mut self, ni: &mut Ni, rank: usize, tx: &Transmit) {
        let written = match self.reach_of(rank, &tx.header) {
            None => false,
            Some(reach) => match reach.events {
                Some(md) => self.write_put(ni, rank, tx, reach.remote, md),
                None if self.one_sided(ni, rank, tx, reach) => {
                    self.counters.paths.one_sided += 1;
                    return;
                }
                None => false,
            },
        };
        if let Some(peer) = self.peer(rank) {
            peer.requests_sent = peer.requests_sent.wrapping_add(1);
            if !written {
                peer.framed();
            }
            match tx.header.body {
                Body::Get { .. }
                | Body::GetPut { .. }
                | Body::Put {
                    ack_md: Some(_), ..
                } => peer.expect_answer(&tx.header),
                _ => {}
            }
        }
        if written {
            return;
        }
        self.counters.paths.two_sided += 1;
        let Transmit {
            header,
            md,
            payload,
            op,
            ..
        } = tx;
        let (md, op) = (*md, *op);
        if frame::is_eager(header.payload_len()) {
            self.eager(rank, header, |room| MEMORY.gather_into(payload, room));
            // The data has been copied.
            if let Some(op) = op {
                ni.send_end(op, NiFail::OK);
            }
        } else {
            self.announce(ni, rank, header, md, payload, After::Send(op));
        }
    }

    /// A header and the data that `fill` writes after it.
    pub(super) fn eager(&mut self, rank: usize, header: &Header, fill: impl FnOnce(&mut [u8])) {
        let len = header.payload_len() as usize;
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        peer.send(
            &self.send_pool,
            Kind::Message,
            false,
            MESSAGE_HEAD + len,
            |w: &mut Writer<'_>| {
                w.header(header, len as u64);
                fill(w.room(len));
            },
        );
    }

    /// Tells the peer where long data is; `after` happens when it has read it.
    pub(super) fn announce(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        header: &Header,
        md: MdHandle,
        data: &[Segment],
        after: After,
    ) {
        let len = header.payload_len();
        let place = match data {
            [one] => self.registered(ni, md, *one, Use::Source).map(|(rkey, _)| {
                (
                    Remote {
                        address: one.addr,
                        rkey,
                    },
                    None,
                )
            }),
            pieces => self
                .stage(pieces, len, Use::Source, true)
                .and_then(|s| Some((s.mr.remote(0)?, Some(s)))),
        };
        let Some((remote, staged)) = place else {
            return self.not_announced(ni, rank, header, after);
        };
        let token = self.announced.insert(Announced {
            peer: rank,
            after,
            header: *header,
            _staged: staged,
        });
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        peer.send(&self.send_pool, Kind::Announce, false, ANNOUNCEMENT, |w| {
            w.token(token as u32);
            w.place(remote);
            w.header(header, 0);
        });
    }

    /// Long data that cannot be registered is not sent. A request ends here, as if it had never been made; of a
    /// reply the peer gets the header alone, which ends its operation with a failure.
    fn not_announced(&mut self, ni: &mut Ni, rank: usize, header: &Header, after: After) {
        match after {
            After::Send(op) => {
                if let Some(peer) = self.peer(rank) {
                    peer.requests_sent = peer.requests_sent.wrapping_sub(1);
                    peer.expected.forget(header);
                }
                if let Some(op) = op {
                    ni.send_end(op, NiFail::FAIL);
                }
                delivery::fail_answer(ni, header);
            }
            After::Reply(op) => {
                ni.reply_end(op, NiFail::FAIL);
                let Some(peer) = self.peers.get_mut(rank) else {
                    return;
                };
                let pool = &self.send_pool;
                peer.send(pool, Kind::Message, false, MESSAGE_HEAD, |w| {
                    w.header(header, 0);
                });
            }
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

    /// Where a put may be written before messages that were sent earlier have had their effect.
    pub(super) fn ahead(&self, header: &Header) -> Option<(usize, Remote)> {
        let rank = self.rank_of(header.target)?;
        let peer = self.peers.get(rank)?;
        let ready = !self.closed && !self.gone && peer.is_open() && peer.held.is_empty();
        let reach = ready.then(|| peer.advertised(header)).flatten();
        let reach = reach.filter(|r| r.events.is_none())?;
        Some((rank, reach.remote))
    }

    /// Writes the payload of a put, which will be in place before anything that is sent to that peer from here on. Should
    /// the connection break before, it is written again: the peer does not look at it before it is told.
    pub(super) fn write_ahead(&mut self, ni: &Ni, ready: &ReadyPut) -> Outcome {
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
        let Some((rank, remote)) = self.ahead(&ready.header) else {
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
        };
        let work = Work::Write {
            op: None,
            ack: None,
            _staged: None,
        };
        self.due.pump = true;
        self.counters.paths.one_sided += 1;
        Outcome::Lent(self.start(rank, transfer, work) as u64)
    }

    /// Serves a put or get with the NIC alone, if the peer advertises the descriptor that would
    /// take it and nothing of ours is under way there. `false`: go the two-sided way.
    fn one_sided(&mut self, ni: &mut Ni, rank: usize, tx: &Transmit, reach: Reach) -> bool {
        match tx.header.body {
            Body::Put { .. } => self.one_sided_put(ni, rank, tx, reach.remote, reach.acks),
            _ => self.one_sided_get(ni, rank, tx, reach.remote),
        }
    }

    fn one_sided_put(
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
            && let Some(peer) = self.peers.get_mut(rank)
            && length as usize <= peer.max_inline()
        {
            let id = self.alone.put(rank, ack);
            peer.write_inline(data, remote, id);
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
        };
        self.start(
            rank,
            transfer,
            Work::Write {
                op: tx.op,
                ack,
                _staged: staged.map(Box::new),
            },
        );
        true
    }

    fn one_sided_get(&mut self, ni: &mut Ni, rank: usize, tx: &Transmit, remote: Remote) -> bool {
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
        };
        self.start(
            rank,
            transfer,
            Work::Read(answer_in_place(h, reply_md, reply_offset, length)),
        );
        true
    }

    /// Posts a transfer in as many pieces as the port wants; `work` happens after the last.
    pub(super) fn start(&mut self, rank: usize, transfer: Transfer, work: Work) -> usize {
        let left = transfer
            .local
            .len
            .div_ceil(self.adapter.max_message())
            .max(1) as usize;
        let id = self.records.insert(Record {
            peer: rank,
            left,
            failed: false,
            work,
        });
        let most = self.adapter.max_message();
        let Some(peer) = self.peer(rank) else {
            return id;
        };
        let mut next = Some(transfer);
        while let Some(t) = next {
            let (piece, rest) = t.split(most);
            peer.transfer(piece, id as u64);
            next = rest;
        }
        id
    }
}
