//! Ends of requests by the word of a witness, where the adapter's own say too little (`witness.rs`).
//!
//! ```text
//!   flying:   write  frame  write  read of the witness
//!             └─ ended here ─┘  └─ its completion ends all before it
//! ```
//!
//! # Invariants
//!
//! * A request stays in the window, with all that is needed to make it again, until a read posted after it has completed.
//! * At most one read of the witness is under way; there is always a place for it in the send queue.
//! * A connection that breaks leaves in `lost` everything that no read has confirmed, as far as it may be made again.
//! * Frames in buffers that the adapter has not ended come back when the queue pair is destroyed. One that does not cannot be
//!   sent again: its peer is given up.
//! * A read that was the oldest request when two connections in a row broke is not made a third time: it may be what
//!   breaks them.

use super::window::Flying;
use super::{CREDIT, PLAIN, SendQueue};
use crate::memory::Transfer;
use crate::witness::Witness;
use std::collections::VecDeque;
use std::sync::Arc;
use verbs_backend::{Buffer, Endpoint, Remote, Status};

/// What is known of requests that the adapter has ended.
#[derive(Debug)]
pub(super) struct Confirm {
    own: Arc<Witness>,
    /// The peer's.
    theirs: Remote,
    /// Buffers of requests that have ended here, with their tags, in order.
    early: VecDeque<(u64, Buffer)>,
    /// Requests, the oldest ones, that have ended here.
    ended: usize,
    /// The witness is being read.
    asked: bool,
    /// Records of reads that are not made again, and how the adapter says that they have ended.
    refused: Vec<(u64, Status)>,
    /// The record of the read that was the oldest request when the last connection broke.
    suspect: Option<u64>,
    /// A frame that was not confirmed is not there to be sent again: the adapter never ended it.
    gap: bool,
}

/// What [`SendQueue::take_confirmed`] has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmed {
    /// A request without a record.
    Plain,
    /// One of this record.
    Record(u64),
}

impl SendQueue {
    /// From here on requests end so, or by their own completions.
    pub(crate) fn confirm_by(&mut self, witness: Option<(Arc<Witness>, &Endpoint)>) {
        let Some((own, end)) = witness else { return };
        let theirs = Witness::decode(end);
        self.window.keep_place_for_mark();
        self.headers.keep_none();
        match &mut self.confirm {
            Some(confirm) => confirm.theirs = theirs,
            None => {
                self.confirm = Some(Box::new(Confirm {
                    own,
                    theirs,
                    early: VecDeque::new(),
                    ended: 0,
                    asked: false,
                    refused: Vec::new(),
                    suspect: None,
                    gap: false,
                }));
            }
        }
    }

    /// Forgets what belongs to the connection before.
    pub(super) fn confirm_anew(&mut self) {
        if let Some(confirm) = &mut self.confirm {
            confirm.early.clear();
            confirm.ended = 0;
            confirm.asked = false;
            confirm.refused.clear();
        }
    }

    /// Requests that have ended here and are not confirmed.
    pub(super) fn ended_here(&self) -> usize {
        self.confirm.as_ref().map_or(0, |c| c.ended)
    }

    /// A request has ended here, with its buffer if it has one; whether it was under way.
    pub(crate) fn ended(&mut self, id: u64, status: Status, buffer: Option<Buffer>) -> bool {
        let oldest = self.window.oldest();
        let Some(confirm) = &mut self.confirm else {
            return false;
        };
        confirm.early.extend(buffer.map(|buffer| (id, buffer)));
        let is_it = |flying: &Flying| match flying {
            Flying::Credit => id == CREDIT,
            Flying::Read { id: own, .. }
            | Flying::RelaxedWrite { id: own, .. }
            | Flying::WriteImmediate { id: own, .. }
            | Flying::Write { id: own, .. } => *own == id,
            Flying::Small { .. } | Flying::Buffered(_) | Flying::Mark => false,
        };
        let at = match id {
            CREDIT.. => self.window.iter().position(is_it),
            PLAIN.. => Some((id as u32).wrapping_sub(oldest) as usize),
            _ => {
                let mut rest = self.window.iter().enumerate().skip(confirm.ended);
                rest.find(|(_, flying)| is_it(flying)).map(|(at, _)| at)
            }
        };
        let at = at.filter(|at| *at < self.window.len());
        if let Some(at) = at {
            confirm.ended = confirm.ended.max(at + 1);
        }
        if status != Status::SUCCESS && !status.is_of_connection() && id < PLAIN {
            confirm.refused.push((id, status));
        }
        at.is_some()
    }

    /// Takes the oldest request, which is done, as are all up to the read `id`; says whether it was that.
    pub(crate) fn take_confirmed(&mut self, id: u64) -> Option<(Confirmed, bool)> {
        let number = self.window.oldest();
        let flying = self.window.pop()?;
        let confirm = self.confirm.as_mut()?;
        confirm.ended = confirm.ended.saturating_sub(1);
        Some(match flying {
            Flying::Mark => {
                confirm.asked = false;
                (Confirmed::Plain, id == PLAIN | u64::from(number))
            }
            Flying::Buffered(_) => {
                confirm.early.pop_front();
                (Confirmed::Plain, false)
            }
            Flying::Credit => {
                if confirm.early.front().is_some_and(|(tag, _)| *tag == CREDIT) {
                    confirm.early.pop_front();
                }
                self.credits.returning(false);
                (Confirmed::Plain, false)
            }
            Flying::Small { .. } => (Confirmed::Plain, false),
            Flying::Read { id: own, .. } => (Confirmed::Record(own), own == id),
            Flying::RelaxedWrite { id: own, .. }
            | Flying::WriteImmediate { id: own, .. }
            | Flying::Write { id: own, .. } => (Confirmed::Record(own), false),
        })
    }

    /// Reads the peer's witness, unless that is under way, or nothing is.
    pub(super) fn ask_witness(&mut self) {
        let Some(confirm) = &self.confirm else { return };
        if self.window.is_empty() || confirm.asked || self.window.is_full() {
            return;
        }
        let read: Transfer = confirm.own.read(confirm.theirs);
        let Some(qp) = &self.qp else { return };
        match read.post(qp, self.window.plain(0)) {
            Ok(()) => {
                self.fly(Flying::Mark);
                if let Some(confirm) = &mut self.confirm {
                    confirm.asked = true;
                }
            }
            Err(error) if self.is_connected() => self.refused(&error),
            Err(error) => tracing::debug!(peer = self.nid, %error, "no mark"),
        }
    }

    /// Asks for a confirmation ([`SendQueue::mark`]), if something has ended here that is not confirmed.
    pub(crate) fn ask_if_ended(&mut self) {
        if self.ended_here() > 0 {
            self.ask_witness();
        }
    }

    /// The connection has broken: a read that is the oldest request for the second time in a row is not made again.
    pub(super) fn suspect_oldest(&mut self) {
        let oldest = match self.window.front() {
            Some(Flying::Read { id, .. }) => Some(*id),
            _ => None,
        };
        if let Some(confirm) = &mut self.confirm
            && !self.window.is_empty()
        {
            let before = std::mem::replace(&mut confirm.suspect, oldest);
            if before == oldest {
                let refused = oldest.map(|id| (id, Status::REMOTE_ACCESS));
                confirm.refused.extend(refused);
            }
        }
    }

    /// How the oldest request of a broken connection has ended, and its buffer.
    pub(super) fn unconfirmed_oldest(&mut self) -> (Status, Option<Buffer>) {
        let Some(confirm) = &mut self.confirm else {
            return (Status::FLUSHED, None);
        };
        match self.window.front() {
            Some(Flying::Buffered(_)) => {
                let buffer = confirm.early.pop_front();
                confirm.gap |= buffer.is_none();
                (Status::FLUSHED, buffer.map(|(_, buffer)| buffer))
            }
            Some(Flying::Credit) => {
                if confirm.early.front().is_some_and(|(tag, _)| *tag == CREDIT) {
                    confirm.early.pop_front();
                }
                (Status::FLUSHED, None)
            }
            Some(Flying::Read { id, .. }) => {
                let mut refused = confirm.refused.iter();
                let refused = refused.find(|(refused, _)| refused == id);
                (refused.map_or(Status::FLUSHED, |(_, status)| *status), None)
            }
            _ => (Status::FLUSHED, None),
        }
    }

    /// Whether frames are kept until they are confirmed.
    pub(in crate::peer) fn confirms(&self) -> bool {
        self.confirm.is_some()
    }

    /// The adapter has given back what it had not ended.
    pub(crate) fn given_back(&mut self, buffers: Vec<(Buffer, u64)>) {
        if let Some(confirm) = &mut self.confirm {
            let given = buffers.into_iter().map(|(buffer, tag)| (tag, buffer));
            confirm.early.extend(given);
        }
    }

    /// Whether a frame that may not have come cannot be sent again.
    pub(crate) fn has_gap(&self) -> bool {
        self.confirm.as_ref().is_some_and(|c| c.gap)
    }
}
