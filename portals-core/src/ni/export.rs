//! Event queues that somebody else keeps: the firmware of an accelerated process holds the
//! interface, but its queues are rings in host memory that the process reads by itself.
//!
//! ```text
//!   export_events ──► every event goes to poll_exported instead of a queue
//!                     eq_taken tells how far the process has read (only rule 47 asks)
//!   import_events ──► the queues are kept here again, with what the process has not read
//! ```
//!
//! Sequence numbers go on in both directions, so that a ring's reader can tell what it missed.

use super::Ni;
use crate::error::Error;
use crate::event::Event;
use crate::handle::EqHandle;
use alloc::vec::Vec;

/// What a queue's keeper gives back of it.
#[derive(Clone, Debug)]
pub struct UnreadEvents {
    /// The queue.
    pub eq: EqHandle,
    /// Its events that the process has not taken, oldest first.
    pub events: Vec<Event>,
    /// Events before them were lost.
    pub lost: bool,
}

impl Ni {
    /// Walks match lists from now on, however long they are: for a model of a machine that did, which charges what is
    /// looked at ([`Deposit::searched`](crate::Deposit)). For an interface without entries.
    pub fn walk_lists(&mut self) {
        self.matching.walk_always();
    }

    /// From now on events are not kept in queues but handed out by [`Ni::poll_exported`]. To be
    /// called before the first queue is made.
    pub fn export_events(&mut self) {
        self.outlet.exported.get_or_insert_default();
    }

    /// The oldest event that has not been handed out, and its queue.
    pub fn poll_exported(&mut self) -> Option<(EqHandle, Event)> {
        self.outlet.exported.as_mut()?.pop_front()
    }

    /// The sequence number of a queue's next event. A queue of `n` events begins with `-n`.
    pub fn eq_sequence(&self, eq: EqHandle) -> Result<u32, Error> {
        Ok(self.eq(eq)?.next_sequence())
    }

    /// The process has taken (or lost) every event of an exported queue before `next`.
    pub fn eq_taken(&mut self, eq: EqHandle, next: u32) -> Result<(), Error> {
        self.eq_mut(eq)?.taken(next);
        Ok(())
    }

    /// Keeps the queues here again; `unread` names every one of them. Events that were not handed
    /// out follow those of `unread`.
    pub fn import_events(&mut self, unread: Vec<UnreadEvents>) {
        let rest = self.outlet.exported.take().unwrap_or_default();
        for UnreadEvents { eq, events, lost } in unread {
            if let Ok(queue) = self.eq_mut(eq) {
                let before = queue.unread();
                queue.keep(events, lost);
                let after = queue.unread();
                self.outlet.unread = self.outlet.unread + after - before;
            }
        }
        for (eq, event) in rest {
            if let Ok(queue) = self.eq_mut(eq) {
                let more = usize::from(!queue.is_at_capacity());
                queue.store(event);
                self.outlet.unread += more;
            }
        }
    }
}
