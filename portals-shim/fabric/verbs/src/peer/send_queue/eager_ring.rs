//! The peer's ring for this side's short frames (`proto/eager_ring.rs`): which frames go there, and how.

use super::COPY;
use super::SendQueue;
use super::window::Flying;
use crate::frame;
use crate::proto::eager_ring::{SLOT, end};
use crate::proto::select::{Carrier, carrier};
use verbs_backend::{Remote, SendOp};

// A frame that fits a slot fits where it is kept.
const _: () = assert!(SLOT <= COPY);

/// A ring in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ring {
    start: Remote,
    slots: u64,
    /// The slot that is written next.
    at: u64,
}

/// The peer's ring, if it has one for this side, and whether a frame may go there.
#[derive(Debug, Default)]
pub(super) struct PeerRing {
    ring: Option<Ring>,
    /// Data was written into the peer's memory since the last message: the peer sees it only with a completion.
    unordered: bool,
}

impl PeerRing {
    /// Whether there is one.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.ring.is_some()
    }

    /// Data was written into the peer's memory.
    #[inline(always)]
    pub(super) fn data_was_written(&mut self) {
        self.unordered = true;
    }

    /// A message was posted, whose completion at the peer shows it the data before.
    #[inline(always)]
    pub(super) fn message_was_posted(&mut self) {
        self.unordered = false;
    }

    /// Frames go as messages from here on.
    pub(super) fn leave(&mut self) {
        self.ring = None;
    }

    #[cfg(test)]
    pub(super) fn is_unordered(&self) -> bool {
        self.unordered
    }
}

impl SendQueue {
    /// The peer has a ring of so many slots of `size` bytes for this side; `false` if that cannot be: a credit takes one
    /// slot.
    pub(crate) fn enter_ring(&mut self, start: Remote, slots: u32, size: u32) -> bool {
        let len = u64::from(slots) * SLOT as u64;
        let fits = slots == u32::from(self.credits.granted())
            && size as usize == SLOT
            && start.address.is_multiple_of(8)
            && start.address.checked_add(len).is_some();
        self.ring.ring = fits.then_some(Ring {
            start,
            slots: slots.into(),
            at: 0,
        });
        fits
    }

    /// Frames go as messages from here on.
    pub(crate) fn leave_ring(&mut self) {
        self.ring.leave();
    }

    /// Writes a frame of `len` bytes, which is in the place of the next request and goes by `op` from its byte `from` on,
    /// into the ring; `false`, and nothing has happened, if there is none, or the frame is not for it.
    #[inline(always)]
    pub(super) fn post_in_ring(&mut self, op: SendOp, from: usize, len: usize) -> bool {
        let (id, (flags, silent)) = (self.window.plain(0), self.window.unsignalled());
        let unordered = self.ring.unordered;
        let (Some(ring), Some(qp)) = (&mut self.ring.ring, &self.qp) else {
            return false;
        };
        let value = match op {
            SendOp::SendImmediate(value) => Some(value),
            _ => None,
        };
        let place = self.window.place_mut();
        let Some(place) = place else {
            return false;
        };
        let ordered = !unordered && !frame::is_of_rings(place);
        let Carrier::Ring(taken) = carrier(len - from, self.max_inline, true, ordered) else {
            return false;
        };
        let Some(bytes) = place.get_mut(from..from + taken) else {
            return false;
        };
        end(bytes, len - from, self.undone.sent(), value);
        let end = (ring.at + 1) * SLOT as u64;
        let remote = Remote {
            address: ring.start.address + end - taken as u64,
            rkey: ring.start.rkey,
        };
        match qp.post_inline(id, SendOp::Write(remote), bytes, flags) {
            Ok(()) => {
                ring.at += 1;
                if ring.at == ring.slots {
                    ring.at = 0;
                }
                self.posted(Flying::Small { len, silent });
            }
            Err(error) => {
                let frame = place.get(..len).map(<[u8]>::to_vec);
                self.not_posted(&error, frame);
            }
        }
        true
    }

    /// Where the peer's ring is.
    #[cfg(test)]
    pub(crate) fn ring_at(&self) -> Option<Remote> {
        Some(self.ring.ring?.start)
    }

    /// The slot of it that is written next.
    #[cfg(test)]
    pub(crate) fn next_slot(&self) -> u64 {
        self.ring.ring.map_or(0, |r| r.at)
    }
}
