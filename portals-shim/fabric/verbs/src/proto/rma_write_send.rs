//! `rma write, send`: an RDMA WRITE into a descriptor with an event queue, and behind it on the same connection the notice that
//! has the owner post the events. An RDMA WRITE with an immediate value is both, where the notice is that of the put before.
//!
//! ```text
//!   initiator                                    target
//!   long put, in a frame ──────────────────────▶ copied into the descriptor; the fourth one has it
//!                        ◀────────── Advertise   advertised to this peer, with its handle
//!   start:  WRITE of the data ─────────────────▶ in place
//!           Notice with the header ────────────▶ PUT_START, PUT_END, ack
//!   complete:  SEND_END, then the ack (`peer/requests/acks.rs`)
//! ```
//!
//! # Recovery
//!
//! What a broken connection left undone is not written again, since the peer may have taken the descriptor back: it goes over
//! the next connection by `eager send`, with its data ([`recover`], `peer/send_queue/rma_write_send.rs`).
//!
//! # Invariants
//!
//! * The descriptor is the one that address translation would have found when it was advertised: entries before it
//!   in its list, or access control entries, that have come since take effect once every peer has confirmed, and what a
//!   peer has written before it confirms is handled before its confirmation.
//! * A peer can have events posted only to descriptors that are advertised to it, within their memory, by a header that matches.
//! * They are advertised only to peers that send long puts, so that a withdrawal waits for no other.

use crate::frame::{self, Ends, FrameError};
use crate::memory::{Transfer, Use};
use crate::peer::Recovery;
use crate::verbs::{Record, Verbs, Work};
use portals_core::{Header, MdHandle, Ni, NiFail, OpId, Segment, Transmit};
use verbs_backend::Remote;

/// Long puts of a peer in frames, after which the descriptor of the last is advertised to it.
const OFTEN: u32 = 4;
/// Longest descriptor that is opened so, bytes: all of it is registered meanwhile.
const LONGEST: u64 = 64 << 20;

/// What becomes of a put that a broken connection left undone; of one that is sent again the data goes in a message.
pub(super) const fn recover(arrived: bool) -> Recovery {
    match arrived {
        true => Recovery::Done,
        false => Recovery::Again,
    }
}

impl Verbs {
    /// Writes a put to where it goes in the descriptor `md` of the peer, which has events, and notifies the peer.
    /// `false`: nothing has happened.
    pub(crate) fn start_rma_write_send(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        tx: &Transmit,
        remote: Remote,
        md: MdHandle,
    ) -> bool {
        let [local] = tx.payload.as_slice() else {
            return false;
        };
        let Ok((_, lkey)) = self.keys(ni, tx.md, *local, Use::Local) else {
            // Memory that cannot be registered is copied, now and from here on.
            self.thresholds.stop_notifying();
            return false;
        };
        self.post_write_send(rank, &tx.header, (*local, lkey), (remote, md), tx.op);
        if let Some(peer) = self.peer(rank) {
            peer.requests.request_sent(&tx.header);
        }
        true
    }

    /// Writes a put ([`Verbs::start_rma_write_send`]) that has not begun and goes at once, from memory that was registered
    /// for the one before; the number of its record, whose operation [`Verbs::put_begun`] names. What the operation costs
    /// here is computed while the data is under way.
    #[inline(never)]
    pub(crate) fn rma_write_send_now(
        &mut self,
        rank: usize,
        header: &Header,
        (local, md): (Segment, MdHandle),
        to: (Remote, MdHandle),
    ) -> Option<u64> {
        let (_, lkey) = self.registry.again(md, local, Use::Local)?;
        let id = self.post_write_send(rank, header, (local, lkey), to, None);
        self.peer(rank)?.requests.put_sent(header);
        self.peers.sent_to(rank);
        self.due.pump = true;
        Some(id as u64)
    }

    /// The operation of a put that [`Verbs::rma_write_send_now`] has sent.
    #[inline(always)]
    pub(crate) fn put_begun(&mut self, number: u64, begun: OpId) {
        if let Some(Record {
            work: Work::Write { op, .. },
            ..
        }) = self.records.get_mut(number as usize)
        {
            *op = Some(begun);
        }
    }

    /// Posts a put that [`Peer::may_notify`], from memory with a key to a place in the memory of the peer's descriptor; its
    /// record.
    #[inline]
    fn post_write_send(
        &mut self,
        rank: usize,
        header: &Header,
        (local, lkey): (Segment, u32),
        (remote, md): (Remote, MdHandle),
        op: Option<OpId>,
    ) -> usize {
        let id = self.records.vacant_key();
        let transfer = Transfer {
            local,
            lkey,
            remote,
            read: false,
            again: true,
            announced: false,
        };
        if let Some(peer) = self.peer(rank) {
            peer.requests.write_sent(header, id as u64);
            peer.sq.post_write_send(transfer, id as u64, header, md);
        }
        self.records.insert(Record {
            peer: rank,
            left: 1,
            fail: NiFail::OK,
            work: Work::Write {
                op,
                ack: None,
                _staged: None,
            },
        });
        self.counters.protocols.rma_write_send += 1;
        id
    }

    /// A put for `md` came in a frame: one of a peer that goes on so may as well be written, if it is long.
    #[inline(always)]
    pub(crate) fn count_framed_put(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        header: &Header,
        md: MdHandle,
    ) {
        if self.thresholds.notifies(header.payload_len()) {
            self.count_long_put(ni, rank, header.pt_index, md);
        }
    }

    #[inline(never)]
    fn count_long_put(&mut self, ni: &mut Ni, rank: usize, portal: u32, md: MdHandle) {
        let Some(peer) = self.peer(rank) else { return };
        let often = peer.received.count_long_put(OFTEN);
        let short = ni.md_query(md).is_ok_and(|s| s.length <= LONGEST);
        if !often || !short || !ni.open_to_writes(md) {
            return;
        }
        let first = peer.received.begin_to_notify();
        self.show(ni, portal);
        if first {
            self.advertise_all(ni, rank);
        }
    }

    /// A peer has written `len` bytes and gives `value`: a put with the descriptor and header of its last notice.
    pub(crate) fn handle_write_immediate(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        value: Option<u32>,
        len: u64,
    ) {
        let own = self.id;
        let Some(peer) = self.peer(rank) else { return };
        let Some(who) = peer.session.who else { return };
        let ends = Ends {
            target: own,
            source: peer.id,
            who,
        };
        match peer.received.notice_again(len as usize, &ends) {
            Ok((header, md)) => {
                let value = value.unwrap_or_default();
                let prefix = frame::prefix_of(value, peer.requests.done());
                peer.handle_prefix(&prefix, true);
                self.handle_notice(ni, rank, &header, md);
            }
            Err(error) => self.bad_frame(rank, &error),
        }
    }

    /// A peer has written a put into `md`.
    pub(crate) fn handle_notice(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        header: &Header,
        md: MdHandle,
    ) {
        let notifies = self.peer(rank).is_some_and(|p| p.received.notifies());
        let earlier = self.published.is_unconfirmed(md);
        let open = earlier || self.published.holds(md) == Some(header.pt_index);
        let taken = if notifies && open {
            ni.notified_put(header, md, earlier)
        } else {
            None
        };
        self.request_done(rank);
        match taken {
            Some(taken) => {
                if let Some(ack) = taken.ack {
                    self.eager(rank, &ack, |_| {});
                }
            }
            None => {
                self.counters.bad_frames += 1;
                tracing::warn!(peer = rank, "{}", FrameError::Notice);
            }
        }
    }
}
