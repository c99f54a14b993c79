//! Small writes that are posted together.

use super::SendQueue;
use super::waiting::Queued;
use super::window::{Flying, Window};
use crate::trusted::MEMORY;
use portals_core::Segment;
use verbs_backend::{Remote, SendOp};

/// A small write that is to be posted together with others; its bytes have their place in the window.
#[derive(Clone, Copy, Debug)]
struct Small {
    len: usize,
    remote: Remote,
    id: u64,
}

/// Small writes that are posted by one call, and requests under way from which on they are collected: the first ones
/// must not wait for the later ones, and keep the adapter busy meanwhile.
const TOGETHER: usize = verbs_backend::qp::CHAIN;
pub(super) const BUSY: usize = 2;

/// Small writes that wait for others, posted in the next poll at the latest.
///
/// # Invariants
///
/// * They are at most [`TOGETHER`]. The bytes of the one with number `n` are in the place of the request after `n` others.
#[derive(Debug, Default)]
pub(super) struct Batch {
    writes: Vec<Small>,
}

impl Batch {
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// One more, whose bytes are in their place; whether there are as many now as are posted together.
    fn add(&mut self, small: Small) -> bool {
        self.writes.push(small);
        self.writes.len() >= TOGETHER
    }
}

/// The bytes of a write of the batch; `collect` has written them.
fn bytes<'a>(window: &'a Window, number: usize, small: &Small) -> &'a [u8] {
    let data = window.ahead(number);
    data.and_then(|place| place.get(..small.len))
        .unwrap_or_default()
}

impl SendQueue {
    /// Adds to the batch, and posts it if it is full.
    pub(super) fn collect(&mut self, data: Segment, remote: Remote, id: u64) {
        let len = data.len as usize;
        let place = self.window.ahead_mut(self.batch.len());
        let Some(place) = place.and_then(|c| c.get_mut(..len)) else {
            return self.queue_inline(data, remote, id);
        };
        MEMORY.gather_into(&[data], place);
        if self.batch.add(Small { len, remote, id }) {
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
        let writes = self.batch.writes.iter().enumerate();
        let mut requests = writes.map(|(number, small)| {
            let data = bytes(&self.window, number, small);
            (small.id, SendOp::Write(small.remote), data)
        });
        let result = qp.post_inline_chain(&mut requests);
        let accepted = match &result {
            Ok(count) => *count,
            Err(error) => error.accepted(),
        };
        for number in 0..accepted {
            let Small { id, len, .. } = self.batch.writes[number];
            let (len, silent) = (len as u64, number + 1 < total);
            self.fly(Flying::Write { id, len, silent });
        }
        match result {
            Ok(_) => self.batch.writes.clear(),
            Err(error) => {
                self.refused(&error);
                self.unbatch(accepted);
            }
        }
    }

    /// Moves the batch from its write `first` on, which could not be posted, to the head of the queue.
    pub(super) fn unbatch(&mut self, first: usize) {
        let rest = self.batch.writes.drain(..).skip(first);
        for (number, small) in rest.enumerate().collect::<Vec<_>>().into_iter().rev() {
            self.queue.push_front(Queued::Inline {
                data: bytes(&self.window, number, &small).to_vec(),
                remote: small.remote,
                id: small.id,
            });
        }
    }

    #[cold]
    pub(super) fn queue_inline(&mut self, data: Segment, remote: Remote, id: u64) {
        let mut bytes = Vec::new();
        MEMORY.gather(&[data], &mut bytes);
        self.queue.push_back(Queued::Inline {
            data: bytes,
            remote,
            id,
        });
    }
}
