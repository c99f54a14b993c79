//! `eager ring`: a short frame is written where the peer polls, into memory of its own for this side, a ring.
//!
//! A frame that is sent takes a receive, a completion and a new receive; one that is written takes a look at memory.
//!
//! ```text
//!   receiver                                             peer
//!   32 short frames without a sleep ── Ring, where ────▶ writes short frames there, sends the others
//!   looks at the next slot ◀── RDMA WRITE of a frame ───
//!   goes to sleep ──────────────────── Ring, no slots ─▶ writes there no more
//!   looks now and then ◀─────────────────── RingLeft ─── a message: its completion wakes
//! ```
//!
//! This file has the receiver's half; the sender's is `peer/send_queue/eager_ring.rs`. What is started and completed is a frame, as by
//! `eager send`.
//!
//! # Recovery
//!
//! A ring ends with the connection: when all completions of the broken one are taken, the frames in the ring are, and its
//! memory is not written any more. What is there later has not been received, and is sent again over the next connection.
//!
//! # Invariants
//!
//! * A frame in a ring takes a credit and a number like one that is sent, in the order of posting. There are as many slots
//!   as credits, so that a slot is written again only after its frame was taken.
//! * Both ends count the same frames. A written frame whose number is not the next one stays in its slot.
//! * Frames are taken by their numbers. A message that is sent does not say its number; but a connection keeps the order,
//!   so that with the completion of a message all frames before it are in the ring: those are taken first.
//! * Two writes become visible in any order: a frame that comes after data that was written into a descriptor goes as a
//!   message, whose completion says that the data is there (`PeerRing::data_was_written`).
//! * Writes make no completion here, so whoever arms the completion queue asks its peers to leave their rings. Until one
//!   has answered, which wakes, no sleep is longer than [`LAST_NAP`]: what it wrote before is there at the next look. One that
//!   has not answered by then may compute; it is asked by a datagram to look, which its attendant does.
//! * One peer at a time knows the key of a ring; its memory holds nothing but that peer's frames.

mod rings;
mod slots;

use super::ending::Ending;
use crate::frame::{FrameError, Kind, PREFIX, RING};
use crate::memory::Use;
use crate::verbs::Verbs;
use portals_core::Ni;
use rings::Ring;
pub(crate) use rings::{ACTIVE, MOST, Rings};
use slots::{Reader, WORDS};
use verbs_backend::Remote;
use zerocopy::IntoBytes;

pub(crate) use slots::END;
pub(crate) use slots::{SLOT, end, taken};

/// Frames taken from a ring in one go; then others have their turn.
const TURN: usize = 32;
/// Polls in a row that find frames in rings, after which one looks at the completion queue in any case.
const ROWS: u32 = 8;

impl Verbs {
    /// Takes what is in the rings; whether that is all that this poll looks at.
    #[inline]
    pub(crate) fn look_at_rings(&mut self, ni: &mut Ni) -> bool {
        let mut any = false;
        for at in (0..self.rings.open.len()).rev() {
            if self.rings.is_full(at) {
                any |= self.take_from(ni, at, TURN);
            }
        }
        any
    }

    /// Whether a poll that found something in the rings need not look at the completion queue.
    #[inline]
    pub(crate) fn rings_are_enough(&mut self) -> bool {
        self.rings.rows += 1;
        let enough = self.rings.rows < ROWS && self.conn.pending == 0;
        if !enough {
            self.rings.rows = 0;
        }
        enough
    }

    /// Takes all frames of a peer's ring that come before what it has sent next.
    #[inline]
    pub(crate) fn take_ring(&mut self, ni: &mut Ni, rank: usize) {
        if self.rings.any()
            && let Some(at) = self.rings.of(rank)
        {
            self.take_from(ni, at, usize::MAX);
        }
    }

    /// Takes at most so many frames.
    #[inline(never)]
    fn take_from(&mut self, ni: &mut Ni, at: usize, most: usize) -> bool {
        let Some(rank) = self.rings.open.get(at).map(|r| r.rank) else {
            return false;
        };
        let spare = self.rings.copy.take();
        let mut copy = spare.unwrap_or_else(|| Box::new([0; WORDS]));
        let mut any = false;
        for _ in 0..most {
            // Handling a frame may end the ring.
            let ring = self.rings.open.get_mut(at).filter(|r| r.rank == rank);
            let peer = self.peers.get_mut(rank);
            let Some((ring, peer)) = ring.zip(peer) else {
                break;
            };
            let Some((len, value)) = ring.reader.take(peer.received.frames(), &mut copy) else {
                break;
            };
            any = true;
            peer.received.by_ring(true);
            self.counters.ring_frames += 1;
            let bytes = copy.as_bytes().get(..len).unwrap_or_default();
            self.handle_frame(ni, rank, bytes, value);
            if let Some(peer) = self.peer(rank) {
                peer.received.by_ring(false);
            }
            if !self.rings.is_full(at) {
                break;
            }
        }
        self.due.pump |= any;
        self.rings.copy = Some(copy);
        // What the frames say changes nothing for other peers.
        if let Some(peer) = self.peers.get_mut(rank)
            && peer.sq.wants_pump()
        {
            peer.sq.pump(&self.send_pool);
            self.conn.pending += usize::from(peer.sq.is_broken());
        }
        any
    }

    /// A frame of `len` bytes of a peer came as a message.
    #[inline]
    pub(crate) fn count_short_frame(&mut self, rank: usize, len: usize) {
        if self.rings.limit == 0 || taken(len).is_none() {
            return;
        }
        let sleeps = self.rings.sleeps;
        if self
            .peer(rank)
            .is_some_and(|p| p.received.is_active(sleeps))
        {
            self.open_ring(rank);
        }
    }

    /// Opens a ring for a peer, if it has none and there may be one more.
    #[cold]
    fn open_ring(&mut self, rank: usize) {
        let open = !self.closed && self.peer(rank).is_some_and(|p| p.is_open());
        if !open || self.rings.of(rank).is_some() {
            return;
        }
        let own = self.rings.left.iter().position(|r| r.rank == rank);
        let kept = own.map(|at| self.rings.left.swap_remove(at));
        let Some(mut ring) = kept.or_else(|| self.make_ring(rank)) else {
            return;
        };
        let Some(at) = ring.mr.remote(0) else { return };
        ring.reader.begin();
        self.rings.open.push(ring);
        let pool = &self.send_pool;
        if let Some(peer) = self.peers.get_mut(rank) {
            let slots = peer.sq.slots();
            peer.sq.send(pool, Kind::Ring, false, RING, |w| {
                w.ring(slots.into(), SLOT, at);
            });
        }
    }

    /// Memory for one more ring: new, since another peer may still know the key of what was left.
    fn make_ring(&mut self, rank: usize) -> Option<Ring> {
        if self.rings.open.len() + self.rings.left.len() >= self.rings.limit {
            self.rings.left.pop()?;
        }
        let reader = Reader::new(self.peer(rank)?.sq.slots().into())?;
        match self.registry.of_buffer(reader.region(), Use::OpenPut) {
            Ok(mr) => Some(Ring {
                rank,
                asked: false,
                mr,
                reader,
            }),
            Err(error) => {
                tracing::debug!(%error, "no more rings");
                self.rings.limit = self.rings.open.len() + self.rings.left.len();
                None
            }
        }
    }

    /// Somebody is about to sleep until a completion comes: peers leave the rings.
    pub(crate) fn shut_rings(&mut self) {
        let nowhere = Remote {
            address: 0,
            rkey: 0,
        };
        let late = self.rings.late();
        self.ask_to_look(late);
        for rank in self.rings.sleep() {
            self.due.pump = true;
            let pool = &self.send_pool;
            if let Some(peer) = self.peers.get_mut(rank) {
                peer.sq
                    .send(pool, Kind::Ring, false, RING, |w| w.ring(0, SLOT, nowhere));
            }
        }
    }

    /// A peer has a ring for this side, or, with no slots, wants it to be left.
    pub(crate) fn handle_ring_offer(&mut self, rank: usize, at: Remote, slots: u32, size: u32) {
        let pool = &self.send_pool;
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        if slots == 0 {
            peer.sq.leave_ring();
            return peer.sq.send(pool, Kind::RingLeft, false, PREFIX, |_| {});
        }
        if !peer.sq.enter_ring(at, slots, size) {
            self.counters.bad_frames += 1;
            tracing::warn!(peer = rank, "{}", FrameError::Ring { slots, size });
        }
    }

    /// A peer has left its ring: the frames in it were before this one.
    pub(crate) fn handle_ring_left(&mut self, rank: usize) {
        match self.rings.close(rank) {
            Some(mut ring) if ring.reader.is_clean() => {
                ring.asked = false;
                self.rings.left.push(ring);
            }
            _ => {
                self.counters.bad_frames += 1;
                tracing::warn!(peer = rank, "{}", FrameError::RingLeft);
            }
        }
    }

    /// The connection to a peer has ended, and all of its completions are taken: the frames in its ring are, too.
    pub(crate) fn end_ring(&mut self, ni: &mut Ni, rank: usize) {
        self.take_ring(ni, rank);
        self.drop_ring(rank);
    }

    /// The peer has no connection any more.
    pub(crate) fn drop_ring(&mut self, rank: usize) {
        self.rings.close(rank);
        self.rings.left.retain(|r| r.rank != rank);
    }
}

/// The ring of a peer that is given up is free.
pub(super) const ENDING: Ending = Ending {
    under_way: |_, _| 0,
    end: |verbs, _, rank| verbs.drop_ring(rank),
};

#[cfg(test)]
mod tests;
