//! Small writes that are posted together.

use super::SendQueue;
use super::queue::Queued;
use super::window::Flying;
use crate::memory;
use crate::trusted::MEMORY;
use portals_core::Segment;
use verbs_backend::{Remote, SendOp};

/// A small write that is to be posted together with others; its bytes have their place in the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    len: usize,
    remote: Remote,
    id: u64,
}

/// Small writes that are posted by one call, and requests under way from which on they are collected: the first ones
/// must not wait for the later ones, and keep the adapter busy meanwhile.
pub(super) const TOGETHER: usize = verbs_backend::qp::CHAIN;
const BUSY: usize = 2;

impl SendQueue {
    /// Writes `data`, which has at most [`SendQueue::max_inline`] bytes, to the peer's memory; the call copies it.
    pub(crate) fn write_inline(&mut self, data: Segment, remote: Remote, id: u64) {
        self.flush_relaxed();
        if self.queue.is_empty() && self.has_room() {
            if self.window.loud() >= BUSY {
                return self.collect(data, remote, id);
            }
            self.flush();
            if let Some(qp) = &self.qp {
                match memory::write_inline(qp, id, data, remote) {
                    Ok(()) => {
                        return self.fly(Flying::Write {
                            id,
                            len: data.len,
                            silent: false,
                        });
                    }
                    Err(error) => self.refused(&error),
                }
            }
        }
        self.flush();
        self.queue_inline(data, remote, id);
    }

    /// Adds to the batch, and posts it if it is full.
    fn collect(&mut self, data: Segment, remote: Remote, id: u64) {
        let len = data.len as usize;
        let place = self.window.ahead_mut(self.batch.len());
        let Some(place) = place.and_then(|c| c.get_mut(..len)) else {
            return self.queue_inline(data, remote, id);
        };
        MEMORY.gather_into(&[data], place);
        self.batch.push(Small { len, remote, id });
        if self.batch.len() >= TOGETHER {
            self.flush();
        }
    }

    /// Posts what was kept back to be posted together with something else: the batch, or a write.
    #[inline]
    pub(crate) fn flush(&mut self) {
        self.flush_batch();
        self.flush_relaxed();
    }

    /// Posts the batch.
    #[inline]
    pub(super) fn flush_batch(&mut self) {
        if !self.batch.is_empty() {
            self.post_batch();
        }
    }

    fn post_batch(&mut self) {
        let Some(qp) = self.qp.as_ref().filter(|_| !self.broken) else {
            return self.unbatch(0);
        };
        let total = self.batch.len();
        let mut requests = self.batch.iter().enumerate().map(|(number, small)| {
            let data = self.window.ahead(number);
            let data = data.and_then(|c| c.get(..small.len));
            // A slice of a place is there, since `collect` has written it.
            (
                small.id,
                SendOp::Write(small.remote),
                data.unwrap_or_default(),
            )
        });
        let result = qp.post_inline_chain(&mut requests);
        let accepted = match &result {
            Ok(count) => *count,
            Err(error) => error.accepted(),
        };
        for number in 0..accepted {
            let Small { id, len, .. } = self.batch[number];
            let (len, silent) = (len as u64, number + 1 < total);
            self.fly(Flying::Write { id, len, silent });
        }
        match result {
            Ok(_) => self.batch.clear(),
            Err(error) => {
                self.refused(&error);
                self.unbatch(accepted);
            }
        }
    }

    /// Moves the batch from its write `first` on, which could not be posted, to the head of the queue.
    pub(super) fn unbatch(&mut self, first: usize) {
        let rest = self.batch.len().saturating_sub(first);
        for number in (0..rest).rev() {
            let small = self.batch[first + number];
            let data = self.window.ahead(number);
            let data = data.and_then(|c| c.get(..small.len));
            self.queue.push_front(Queued::Inline {
                data: data.unwrap_or_default().to_vec(),
                remote: small.remote,
                id: small.id,
            });
        }
        self.batch.clear();
    }

    #[cold]
    fn queue_inline(&mut self, data: Segment, remote: Remote, id: u64) {
        let mut bytes = Vec::new();
        MEMORY.gather(&[data], &mut bytes);
        self.queue.push_back(Queued::Inline {
            data: bytes,
            remote,
            id,
        });
    }
}
