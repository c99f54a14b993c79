//! Short gets that the peer's library answers, where that has been quicker than a read by the adapters.
//!
//! An adapter reads a peer's memory without its program. How quick that is, is the adapter's affair: SoftRoCE leaves the
//! peer's part to a tasklet, and a kernel thread woken for it preempts the reader; a peer that polls answers in half that
//! time. So short gets are timed both ways now and then, and go the quicker one ([`choice`]). One that is asked for and
//! not answered soon is read by the adapters: no get waits for a program that computes.
//!
//! ```text
//!   get ── adapters quicker, or long ──► RDMA READ
//!    └─ ReadRequest ──► peer: registered for readers? ──► ReadResponse with the data ──► copied, over
//!         └─ no answer in LOOKS looks, or refused,  ──► RDMA READ; what is answered later is passed over
//!            or something is to be sent, or a sleep
//! ```
//!
//! # Invariants
//!
//! * Gets that could be read by the adapters are asked for, and no others: the descriptor is advertised, nothing happens to
//!   it by an operation, every earlier request has had its effect.
//! * At most one is asked for at a time, and before this rank begins anything else the adapters read it: whatever comes
//!   after it on the connection comes after a READ, as if it had been one from the start.
//! * The peer gives what its adapter would give: memory registered for readers now, by that key. What it does not know is
//!   left to the adapter's verdict.
//! * An answer ends the get only if no READ was posted for it, and a READ is posted only if no answer has ended it: data
//!   comes once, and never after the end.

pub(super) mod choice;
mod table;

use super::frame::{FrameError, Kind, READ_REQUEST, TOKEN};
use super::memory::Transfer;
use crate::proto::select::SHORT_GET;
use crate::trusted::MEMORY;
use crate::verbs::Verbs;
use portals_core::{Ni, Segment};
use std::time::Instant;
pub(super) use table::Asks;
use table::{Pending, Timed};
use verbs_backend::Remote;

/// Looks without an answer, after which the adapters read.
const LOOKS: u32 = 1024;
/// Glances at the rings in one look that waits for nothing but an answer.
const GLANCES: u32 = 16;

const _: () = assert!(TOKEN + SHORT_GET as usize + super::ring::END <= super::ring::SLOT);

impl Verbs {
    /// A short get begins, of which some are timed.
    #[inline]
    pub(super) fn measure(&mut self, rank: usize, id: u64, by_am: bool) {
        if self.asks.timed.is_some() {
            return;
        }
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        if peer.gets.advance() {
            let since = Instant::now();
            self.asks.timed = Some(Timed {
                peer: rank,
                id,
                by_am,
                since,
            });
        }
    }

    #[inline(never)]
    pub(super) fn ask(&mut self, rank: usize, transfer: Transfer, id: u64) {
        let number = self.asks.number.wrapping_add(1);
        self.asks.number = number;
        self.asks.pending = Some(Pending {
            peer: rank,
            id,
            transfer,
            looks: LOOKS,
        });
        let (at, len) = (transfer.remote, transfer.local.len as u32);
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.send(
                &self.send_pool,
                Kind::ReadRequest,
                false,
                READ_REQUEST,
                |w| {
                    w.read_request(number, at, len);
                },
            );
            self.due.pump |= peer.wants_pump();
        }
    }

    /// Something else begins, or somebody is about to sleep: the adapters read what is asked for.
    #[inline(always)]
    pub(super) fn ask_no_more(&mut self) {
        if self.asks.under_way() {
            self.read_instead();
        }
    }

    /// One more look is taken.
    #[inline(always)]
    pub(super) fn look_for_answer(&mut self) {
        if let Some(pending) = &mut self.asks.pending {
            pending.looks -= 1;
            if pending.looks == 0 {
                self.read_instead();
            }
        }
    }

    /// Looks for the answer on behalf of a caller that waits for nothing else: a little longer at the rings.
    #[inline]
    pub(super) fn watch_for_answer(&mut self) {
        self.look_for_answer();
        if self.asks.under_way() && !self.crowded {
            let _ = (0..GLANCES).any(|_| self.rings.watch());
        }
    }

    #[cold]
    fn read_instead(&mut self) {
        let Some(pending) = self.asks.pending.take() else {
            return;
        };
        if self.asks.timed.is_some_and(|t| t.id == pending.id) {
            self.asks.timed = None;
        }
        if let Some(peer) = self.peer(pending.peer) {
            peer.gets.late();
        }
        self.post_read(pending.peer, pending.transfer, pending.id);
    }

    /// A get is over, well or not, and is not asked for any more.
    #[inline(always)]
    pub(super) fn get_over(&mut self, id: u64, well: bool) {
        if self.asks.timed.is_some() {
            self.timed_over(id, well);
        }
    }

    #[cold]
    fn timed_over(&mut self, id: u64, well: bool) {
        let Some(timed) = self.asks.timed.take_if(|t| t.id == id) else {
            return;
        };
        if let Some(peer) = self.peer(timed.peer).filter(|_| well) {
            peer.gets.took(timed.by_am, timed.since.elapsed());
        }
    }

    /// A peer is given up, whose gets fail.
    pub(super) fn forget_asked(&mut self, rank: usize) {
        self.asks.pending.take_if(|p| p.peer == rank);
    }

    /// A peer asks for `len` bytes of memory here.
    pub(super) fn read_asked(&mut self, rank: usize, number: u32, at: Remote, len: u32) {
        let memory = self.readable(rank, at, len);
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        let size = TOKEN + memory.map_or(0, |m| m.len as usize);
        peer.send(
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
    pub(super) fn readable(&mut self, rank: usize, at: Remote, len: u32) -> Option<Segment> {
        let peer = self.peers.get(rank)?;
        let may = peer.session.who == Some(self.conn.who) && u64::from(len) <= SHORT_GET;
        may.then(|| self.registry.readable(at, len.into()))?
    }

    /// A peer answers a get, or refuses to: `None`.
    pub(super) fn read_answered(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        number: u32,
        data: Option<&[u8]>,
    ) {
        let own = self.asks.pending.filter(|p| p.peer == rank);
        let Some(pending) = own.filter(|_| number == self.asks.number) else {
            // Of one that the adapters have read meanwhile.
            if self.asks.number.wrapping_sub(number) >= 1 << 31 {
                self.bad_frame(rank, &FrameError::NotAsked);
            }
            return;
        };
        let local = pending.transfer.local;
        match data {
            Some(data) if data.len() as u64 == local.len => {
                self.asks.pending = None;
                MEMORY.scatter(&[local], data);
                self.counters.paths.asked += 1;
                self.offloaded_done(ni, pending.id);
            }
            _ => self.read_instead(),
        }
    }
}
