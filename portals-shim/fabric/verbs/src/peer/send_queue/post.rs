//! Posting: a frame, a transfer, a small write; and what a refusal leaves.

use super::waiting::Queued;
use super::window::Flying;
use super::{CREDIT, SendQueue};
use crate::frame;
use crate::memory::Transfer;
use verbs_backend::qp::PostError;
use verbs_backend::{Buffer, Remote, SendFlags, SendOp};

impl SendQueue {
    /// Accounts a frame that was posted.
    #[inline]
    pub(super) fn posted(&mut self, flying: Flying) {
        if !matches!(flying, Flying::Credit) {
            self.credits.spend();
            self.undone.count_frame();
            // A frame in a ring is posted only where this is so already. One of credits has no number: nobody waits for
            // its completion before the next frame.
            self.ring.message_was_posted();
        }
        self.credits.gave_back();
        self.fly(flying);
    }

    /// A frame was refused: it goes back to the head of the queue.
    #[cold]
    pub(super) fn not_posted(&mut self, error: &PostError, frame: Option<Vec<u8>>) {
        self.refused(error);
        self.credits.gave_back();
        match frame {
            Some(bytes) => self.queue.push_front(Queued::Frame { bytes }),
            None => self.credits.returning(false),
        }
    }

    pub(super) fn refused(&mut self, error: &PostError) {
        self.headers.forget();
        tracing::warn!(peer = self.nid, %error, "connection broken");
        self.broken = true;
    }

    /// Posts a copied frame ([`SendQueue::post_copy_here`]) by a call, where it is rare.
    #[inline(never)]
    pub(super) fn post_copy(&mut self, len: usize, credit: bool) {
        self.post_copy_here(len, credit);
    }

    /// Posts the frame in the place of the next request, or of the one after it if a write waits.
    #[inline(always)]
    pub(super) fn post_copy_here(&mut self, len: usize, credit: bool) {
        if let Some(write) = self.relaxed.take() {
            return self.post_behind(write, None, len);
        }
        let place = self.window.place_mut();
        let Some(frame) = place.and_then(|copy| copy.get_mut(..len)) else {
            return;
        };
        frame::stamp(frame, self.credits.owed(), self.requests_done);
        let (op, from) = self.headers.send_op(frame);
        if credit && self.ring.is_open() && self.post_in_ring(op, from, len) {
            return;
        }
        let place = self.window.place();
        let (Some(frame), Some(qp)) = (place.and_then(|copy| copy.get(..len)), &self.qp) else {
            return;
        };
        let (id, (flags, silent)) = match credit {
            true => (self.window.plain(0), self.window.unsignalled()),
            false => (CREDIT, (SendFlags::SIGNALLED, false)),
        };
        match qp.post_inline(id, op, &frame[from..], flags) {
            Ok(()) if credit => self.posted(Flying::Small { len, silent }),
            Ok(()) => self.posted(Flying::Credit),
            Err(error) => {
                let frame = credit.then(|| frame.to_vec());
                self.not_posted(&error, frame);
            }
        }
    }

    pub(super) fn post_buffer(&mut self, mut buffer: Buffer, len: usize, credit: bool) {
        if let Some(write) = self.relaxed.take() {
            return self.post_behind(write, Some(buffer), len);
        }
        let frame = &mut buffer[..len];
        frame::stamp(frame, self.credits.owed(), self.requests_done);
        let (op, from) = self.headers.send_op(frame);
        let Some(qp) = &self.qp else { return };
        let tag = if credit { self.window.plain(0) } else { CREDIT };
        match qp.post_owned(tag, op, buffer, from..len, SendFlags::empty()) {
            Ok(()) if credit => self.posted(Flying::Buffered(len)),
            Ok(()) => self.posted(Flying::Credit),
            Err(rejected) => {
                let frame = credit.then(|| rejected.buffer[..len].to_vec());
                self.not_posted(&rejected.error, frame);
            }
        }
    }

    #[inline(always)]
    pub(super) fn post_transfer(&mut self, transfer: &Transfer, id: u64) {
        let Some(qp) = &self.qp else { return };
        match transfer.post(qp, id) {
            Ok(()) if transfer.read => self.fly(Flying::Read {
                transfer: *transfer,
                id,
            }),
            Ok(()) if transfer.again => self.fly(Flying::RelaxedWrite {
                transfer: *transfer,
                id,
                silent: false,
            }),
            Ok(()) => self.fly(Flying::Write {
                id,
                len: transfer.local.len,
                silent: false,
            }),
            Err(error) => {
                self.refused(&error);
                self.queue.push_front(Queued::Transfer {
                    transfer: *transfer,
                    id,
                });
            }
        }
    }

    pub(super) fn post_write_inline(&mut self, data: &[u8], remote: Remote, id: u64) {
        let Some(qp) = &self.qp else { return };
        match qp.post_inline(id, SendOp::Write(remote), data, SendFlags::SIGNALLED) {
            Ok(()) => self.fly(Flying::Write {
                id,
                len: data.len() as u64,
                silent: false,
            }),
            Err(error) => {
                self.refused(&error);
                self.queue.push_front(Queued::Inline {
                    data: data.to_vec(),
                    remote,
                    id,
                });
            }
        }
    }
}
