//! The path of an outgoing message.

use super::frame::{ANNOUNCEMENT, Kind, MESSAGE_HEAD, Writer};
use super::handshake::Stage;
use super::memory::{RegistryError, Transfer, Use};
use super::peer::Fill;
use super::proto::select::{self, Protocol};
use super::verbs::{After, Announced, Record, Verbs, Work};
use crate::trusted::MEMORY;
use fabric_api::call::RemoteKey;
use fabric_api::delivery;
use portals_core::{Header, MdHandle, Ni, NiFail, Segment, Transmit};
use verbs_backend::Remote;

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
        match peer.session.stage {
            Stage::Failed => delivery::refuse(ni, tx),
            Stage::Idle => {
                peer.held.push_back(tx.clone());
                self.dial(ni, rank);
            }
            _ => peer.held.push_back(tx.clone()),
        }
    }

    /// Sends a put in a frame at once, whose bytes `fill` writes; `false`, and nothing has happened, if that cannot be.
    #[inline(always)]
    pub(super) fn send_eager_now(&mut self, rank: usize, header: &Header, fill: impl Fill) -> bool {
        let Some(peer) = self.peers.get_mut(rank) else {
            return false;
        };
        let len = header.payload_len() as usize;
        if let Err(fill) = peer.send_again(header, len, fill) {
            if !peer.send_now(&self.send_pool, MESSAGE_HEAD + len, |w| {
                w.header(header, len as u64);
                if len > 0 {
                    fill.fill(w.room(len));
                }
            }) {
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

    /// Sends a request for the peer's library, with its data or with word of where that is.
    pub(super) fn send_by_message(&mut self, ni: &mut Ni, rank: usize, tx: &Transmit) {
        let Transmit {
            header,
            md,
            payload,
            op,
            ..
        } = tx;
        if let Some(peer) = self.peer(rank) {
            peer.request_sent(header);
            peer.framed();
        }
        self.counters.paths.two_sided += 1;
        if select::by_message(header.payload_len()) == Protocol::RndvRead {
            return self.announce(ni, rank, header, *md, payload, After::Send(*op));
        }
        self.eager(rank, header, |room| MEMORY.gather_into(payload, room));
        // The data has been copied.
        if let Some(op) = *op {
            ni.send_end(op, NiFail::OK);
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
