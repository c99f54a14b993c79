//! `eager send`: header and data in one frame, which takes a receive of the peer, whose library matches it.
//!
//! ```text
//!   start:     header and data written where the frame is kept, SEND_END ─► SEND, or `eager ring`, or queued for a credit
//!   complete:  a place in the send queue is free; of short frames, which nobody waits for, few make a completion
//! ```
//!
//! A put whose header is that of the put before goes without it (`header_cache.rs`). Replies and acks are such frames too.
//!
//! # Recovery
//!
//! Frames that a broken connection left undone are kept whole, and sent again over the next one, except those that the peer
//! says it has had ([`recover`]).

use super::select::{self, Protocol};
use crate::frame::{Kind, MESSAGE_HEAD, Writer};
use crate::peer::{Fill, Recovery};
use crate::trusted::MEMORY;
use crate::verbs::{After, Verbs};
use portals_core::{Header, Ni, NiFail, Transmit};

/// What becomes of a frame that a broken connection left undone.
pub(super) const fn recover(arrived: bool) -> Recovery {
    match arrived {
        true => Recovery::Done,
        false => Recovery::Again,
    }
}

impl Verbs {
    /// Sends a put in a frame at once, whose bytes `fill` writes; `false`, and nothing has happened, if that cannot be.
    #[inline(always)]
    pub(crate) fn send_eager_now(&mut self, rank: usize, header: &Header, fill: impl Fill) -> bool {
        let Some(peer) = self.peers.get_mut(rank) else {
            return false;
        };
        let len = header.payload_len() as usize;
        if let Err(fill) = peer.sq.send_again(header, len, fill) {
            if !peer.sq.send_now(&self.send_pool, MESSAGE_HEAD + len, |w| {
                w.header(header, len as u64);
                if len > 0 {
                    fill.fill(w.room(len));
                }
            }) {
                return false;
            }
            peer.sq.remember(header);
        }
        peer.requests.put_sent(header);
        peer.requests.framed();
        self.peers.sent_to(rank);
        self.due.pump = true;
        self.counters.protocols.eager += 1;
        true
    }

    /// Sends a request for the peer's library, with its data or with word of where that is.
    pub(crate) fn send_by_message(&mut self, ni: &mut Ni, rank: usize, tx: &Transmit) {
        let Transmit {
            header,
            md,
            payload,
            op,
            ..
        } = tx;
        if let Some(peer) = self.peer(rank) {
            peer.requests.request_sent(header);
            peer.requests.framed();
        }
        if select::by_message(header.payload_len()) == Protocol::RndvRead {
            self.counters.protocols.rndv_read += 1;
            return self.send_rts(ni, rank, header, *md, payload, After::Send(*op));
        }
        self.counters.protocols.eager += 1;
        self.eager(rank, header, |room| MEMORY.gather_into(payload, room));
        // The data has been copied.
        if let Some(op) = *op {
            ni.send_end(op, NiFail::OK);
        }
    }

    /// A header and the data that `fill` writes after it.
    pub(crate) fn eager(&mut self, rank: usize, header: &Header, fill: impl FnOnce(&mut [u8])) {
        let len = header.payload_len() as usize;
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        peer.sq.send(
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
}
