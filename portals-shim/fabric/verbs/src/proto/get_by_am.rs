//! `get by active message`: the peer's library answers a short get, where that has been quicker than its adapter.
//!
//! An adapter reads a peer's memory without its program. How quick that is, is the adapter's affair: SoftRoCE leaves the
//! peer's part to a tasklet, and a kernel thread woken for it preempts the reader; a peer that polls answers in half that
//! time. So short gets are timed by both protocols now and then, and go by the quicker one ([`measured`]). One that is not
//! answered soon is read by the adapter: no get waits for a program that computes.
//!
//! ```text
//!   start:     ReadRequest ──► peer: registered for readers? ──► ReadResponse with the data
//!   complete:  ReadResponse ─► copied, REPLY_START, REPLY_END
//!   else:      no answer in LOOKS looks, or refused,  ──► `rma read`; a later answer is passed over
//!              or something is to be sent, or a sleep
//! ```
//!
//! # Recovery
//!
//! A request or response that a broken connection left undone is sent again, as every frame. A get whose peer is given up fails.
//!
//! # Invariants
//!
//! * Gets that could go by `rma read` go so, and no others: the descriptor is advertised, nothing happens to
//!   it by an operation, every earlier request has had its effect.
//! * At most one get is unanswered at a time, and before this rank begins anything else the adapter reads it: whatever comes
//!   after it on the connection comes after a READ, as if it had been one from the start.
//! * The peer gives what its adapter would give: memory registered for readers now, by that key. What it does not know is
//!   left to the adapter's verdict.
//! * An answer ends the get only if no READ was posted for it, and a READ is posted only if no answer has ended it: data
//!   comes once, and never after the end.

pub(crate) mod measured;
mod table;

use super::eager_ring::{END, SLOT};
use super::ending::Ending;
use super::select::SHORT_GET;
use crate::frame::{FrameError, Kind, READ_REQUEST, TOKEN};
use crate::memory::Transfer;
use crate::trusted::MEMORY;
use crate::verbs::Verbs;
use portals_core::{Ni, NiFail, Segment};
use std::time::Instant;
pub(crate) use table::AmGets;
use table::{Pending, Timed};
use verbs_backend::Remote;

/// Looks without an answer, after which the adapter reads.
const LOOKS: u32 = 1024;
/// Looks at the rings in one look of a caller that waits for nothing but an answer.
const RING_LOOKS: u32 = 16;

const _: () = assert!(TOKEN + SHORT_GET as usize + END <= SLOT);

/// No READ takes the place of an answer that does not come: the get fails as one that was offloaded.
pub(super) const ENDING: Ending = Ending {
    under_way: |_, _| 0,
    end: |verbs, _, rank| {
        verbs.am_gets.pending.take_if(|p| p.peer == rank);
    },
};

impl Verbs {
    /// Begins a get by the protocol that was chosen for it, under `id`.
    #[inline(always)]
    pub(crate) fn begin_get(&mut self, rank: usize, transfer: Transfer, id: u64, by_am: bool) {
        if self.thresholds.measures() && self.thresholds.may_get_by_am(transfer.local.len) {
            self.measure(rank, id, by_am);
        }
        match by_am {
            true => self.start_get_by_am(rank, transfer, id),
            false => self.post_read(rank, transfer, id),
        }
    }

    /// A short get begins, of which some are timed.
    #[inline]
    fn measure(&mut self, rank: usize, id: u64, by_am: bool) {
        if self.am_gets.timed.is_some() {
            return;
        }
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        if peer.gets.advance() {
            let since = Instant::now();
            self.am_gets.timed = Some(Timed {
                peer: rank,
                id,
                by_am,
                since,
            });
        }
    }

    /// Asks the peer's library for what a get takes.
    #[inline(never)]
    fn start_get_by_am(&mut self, rank: usize, transfer: Transfer, id: u64) {
        let number = self.am_gets.number.wrapping_add(1);
        self.am_gets.number = number;
        self.am_gets.pending = Some(Pending {
            peer: rank,
            id,
            transfer,
            looks: LOOKS,
        });
        let (at, len) = (transfer.remote, transfer.local.len as u32);
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.sq.send(
                &self.send_pool,
                Kind::ReadRequest,
                false,
                READ_REQUEST,
                |w| {
                    w.read_request(number, at, len);
                },
            );
            self.due.pump |= peer.sq.wants_pump();
        }
    }

    /// Something else begins, or somebody is about to sleep: the adapter reads what was not answered.
    #[inline(always)]
    pub(crate) fn read_unanswered(&mut self) {
        if self.am_gets.under_way() {
            self.fall_back_to_read();
        }
    }

    /// One more look is taken.
    #[inline(always)]
    pub(crate) fn look_for_answer(&mut self) {
        if let Some(pending) = &mut self.am_gets.pending {
            pending.looks -= 1;
            if pending.looks == 0 {
                self.fall_back_to_read();
            }
        }
    }

    /// Looks for the answer on behalf of a caller that waits for nothing else: a little longer at the rings.
    #[inline]
    pub(crate) fn watch_for_answer(&mut self) {
        self.look_for_answer();
        if self.am_gets.under_way() && !self.crowded {
            let _ = (0..RING_LOOKS).any(|_| self.rings.watch());
        }
    }

    #[cold]
    fn fall_back_to_read(&mut self) {
        let Some(pending) = self.am_gets.pending.take() else {
            return;
        };
        if self.am_gets.timed.is_some_and(|t| t.id == pending.id) {
            self.am_gets.timed = None;
        }
        if let Some(peer) = self.peer(pending.peer) {
            peer.gets.late();
        }
        self.post_read(pending.peer, pending.transfer, pending.id);
    }

    /// A get is over, well or not, and so is its time.
    #[inline(always)]
    pub(crate) fn stop_timing(&mut self, id: u64, well: bool) {
        if self.am_gets.timed.is_some() {
            self.timed_over(id, well);
        }
    }

    #[cold]
    fn timed_over(&mut self, id: u64, well: bool) {
        let Some(timed) = self.am_gets.timed.take_if(|t| t.id == id) else {
            return;
        };
        if let Some(peer) = self.peer(timed.peer).filter(|_| well) {
            peer.gets.took(timed.by_am, timed.since.elapsed());
        }
    }

    /// A peer asks for `len` bytes of memory here.
    pub(crate) fn answer_am_get(&mut self, rank: usize, number: u32, at: Remote, len: u32) {
        let memory = self.readable(rank, at, len);
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        let size = TOKEN + memory.map_or(0, |m| m.len as usize);
        peer.sq.send(
            &self.send_pool,
            Kind::ReadResponse,
            memory.is_none(),
            size,
            |w| {
                w.token(number);
                if let Some(memory) = memory {
                    MEMORY.gather_into(&[memory], w.room(memory.len as usize));
                }
            },
        );
    }

    /// The memory that it may have.
    pub(crate) fn readable(&mut self, rank: usize, at: Remote, len: u32) -> Option<Segment> {
        let peer = self.peers.get(rank)?;
        let may = peer.session.who == Some(self.conn.who) && u64::from(len) <= SHORT_GET;
        may.then(|| self.registry.readable(at, len.into()))?
    }

    /// A peer answers a get, or refuses to: `None`.
    pub(crate) fn am_get_answered(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        number: u32,
        data: Option<&[u8]>,
    ) {
        let own = self.am_gets.pending.filter(|p| p.peer == rank);
        let Some(pending) = own.filter(|_| number == self.am_gets.number) else {
            // Of one that the adapter has read meanwhile.
            if self.am_gets.number.wrapping_sub(number) >= 1 << 31 {
                self.bad_frame(rank, &FrameError::NotAsked);
            }
            return;
        };
        let local = pending.transfer.local;
        match data {
            Some(data) if data.len() as u64 == local.len => {
                self.am_gets.pending = None;
                MEMORY.scatter(&[local], data);
                self.counters.protocols.get_by_am += 1;
                self.piece_done(ni, pending.id, NiFail::OK);
            }
            _ => self.fall_back_to_read(),
        }
    }
}
