//! A write of relaxed order: it is posted together with the message after it, by one doorbell.
//!
//! The write makes no completion of its own: that of the message is both's. If the adapter takes the first and refuses
//! the second, the connection counts as broken, and both are found in `window` and `queue` when it is mended.

use super::waiting::Queued;
use super::window::Flying;
use super::{COPY, SendQueue};
use crate::frame;
use crate::memory::Transfer;
use verbs_backend::qp::PostError;
use verbs_backend::{Buffer, SendBatch, SendFlags};

/// A write, and its record.
type RelaxedWrite = (Transfer, u64);

/// A write that waits for the message that tells of it, and memory for posting the two.
///
/// # Invariants
///
/// * `chain` is empty between calls.
#[derive(Debug)]
pub(super) struct Relaxed {
    write: Option<RelaxedWrite>,
    chain: SendBatch,
}

impl Relaxed {
    pub(super) fn new() -> Self {
        Self {
            write: None,
            chain: SendBatch::new(),
        }
    }

    /// Writes that wait: one or none.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        usize::from(self.write.is_some())
    }

    /// A write waits for its message.
    #[inline(always)]
    pub(super) fn hold(&mut self, transfer: Transfer, id: u64) {
        self.write = Some((transfer, id));
    }

    /// The write that waits does so no more.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<RelaxedWrite> {
        self.write.take()
    }
}

impl SendQueue {
    /// The place of the next frame: behind that of a write that waits.
    #[inline]
    pub(super) fn place_of_frame(&mut self) -> Option<&mut [u8; COPY]> {
        self.window.ahead_mut(self.relaxed.len())
    }

    /// Posts a write that waits, without a message.
    #[inline]
    pub(super) fn flush_relaxed(&mut self) {
        if self.relaxed.len() > 0 {
            self.post_relaxed();
        }
    }

    #[cold]
    fn post_relaxed(&mut self) {
        if self.qp.is_none() || self.broken {
            return self.unhold();
        }
        if let Some((transfer, id)) = self.relaxed.take() {
            self.post_transfer(&transfer, id);
        }
    }

    /// Moves a write that waits to the head of the queue.
    pub(super) fn unhold(&mut self) {
        if let Some((transfer, id)) = self.relaxed.take() {
            self.queue.push_front(Queued::Transfer { transfer, id });
        }
    }

    /// Posts a write and behind it a frame of `len` bytes, which is in `buffer`, or else in the place after the write's.
    pub(super) fn post_behind(
        &mut self,
        (transfer, id): RelaxedWrite,
        buffer: Option<Buffer>,
        len: usize,
    ) {
        let (owed, done) = (self.credits.owed(), self.requests_done);
        // The frame's number is the one after the write's.
        let plain = self.window.plain(1);
        let Some(qp) = &self.qp else {
            return self.queue.push_front(Queued::Transfer { transfer, id });
        };
        let chain = &mut self.relaxed.chain;
        let written = transfer.push(chain, id, self.max_inline);
        let (framed, flying) = match buffer {
            Some(mut buffer) => {
                frame::stamp(&mut buffer[..len], owed, done);
                let (op, from) = self.headers.send_op(&buffer[..len]);
                let framed = chain.push_owned(plain, op, buffer, from..len, SendFlags::empty());
                (framed.map_err(|r| r.error), Flying::Buffered(len))
            }
            None => {
                let place = self.window.ahead_mut(1);
                let Some(frame) = place.and_then(|place| place.get_mut(..len)) else {
                    chain.clear();
                    return self.queue.push_front(Queued::Transfer { transfer, id });
                };
                frame::stamp(frame, owed, done);
                let (op, from) = self.headers.send_op(frame);
                let framed = chain.push_inline(plain, op, &frame[from..], SendFlags::SIGNALLED);
                (framed, Flying::Small { len, silent: false })
            }
        };
        let result = written.and(framed).map_err(PostError::from);
        let result = result.and_then(|()| qp.post(chain));
        let accepted = match &result {
            Ok(()) => 2,
            Err(error) => error.accepted(),
        };
        if accepted > 0 {
            let silent = true;
            self.fly(Flying::RelaxedWrite {
                transfer,
                id,
                silent,
            });
        }
        match result {
            Ok(()) => self.posted(flying),
            Err(error) => {
                let owned = self.relaxed.chain.take_owned().next();
                // A write that was accepted has its place, and the frame's is the next one.
                let ahead = usize::from(accepted == 0);
                let bytes = match &owned {
                    Some((buffer, _)) => buffer.get(..len),
                    None => self.window.ahead(ahead).and_then(|p| p.get(..len)),
                };
                let frame = bytes.map(<[u8]>::to_vec);
                self.not_posted(&error, frame);
                if accepted == 0 {
                    self.queue.push_front(Queued::Transfer { transfer, id });
                }
            }
        }
        self.relaxed.chain.clear();
    }
}
