//! What a program is told of peers' writes that carry data, and what happens while it does not look.
//!
//! These completions are the only ones that peers make by themselves: every other one ends an operation of the program's. So a
//! queue that is full makes peers wait. The credit of a note that comes then is given back when the queue has room again, and
//! the peer's further notes stay with the peer, whose program is told to try again (`FI_EAGAIN`).

use crate::completion::{End, Op};
use crate::core::Core;
use portals_shim::ProcessId;

/// The notes of one peer that have come while the program's queue was full.
///
/// An honest peer has its window of them under way, and a second window if it begins anew. A peer with more has left the
/// protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    come: u32,
    /// Those whose credit is still to be given back.
    held: u32,
}

impl Notes {
    /// One more has come, of a peer with this window; whether an honest peer can have sent it.
    fn hold(&mut self, window: u32) -> bool {
        self.come = self.come.saturating_add(1);
        let honest = self.come <= 2 * window;
        self.held += u32::from(honest);
        honest
    }

    /// The peer is granted a whole window, or nothing.
    pub(crate) fn forget_credits(&mut self) {
        self.held = 0;
    }

    /// The queue has room; the credits that are given back.
    fn release(&mut self) -> u32 {
        std::mem::take(self).held
    }
}

impl Core {
    /// A peer has written, and says so, with data and the number of bytes. Returns whether its credit is given back now.
    pub(crate) fn told_of_write(
        &mut self,
        at: usize,
        from: ProcessId,
        (data, len): (u64, u64),
    ) -> bool {
        let Some(op) = self.on_written else {
            return true;
        };
        let full = self.reporter.is_full(&op);
        let peer = self.peers.get(at);
        if full && !peer.notes.hold(peer.window) {
            let why = "it tells more than it may to a program that does not take completions";
            self.expel(at, why);
            return false;
        }
        self.notes_held |= full;
        let end = End {
            len,
            data: Some(data),
            source: Some(from),
            ..End::default()
        };
        self.reporter.done(&op, &end);
        !full
    }

    /// Gives back what full queues have held, if there is room now.
    #[inline]
    pub(crate) fn release_notes(&mut self) {
        if self.notes_held {
            self.release_held();
        }
    }

    #[cold]
    fn release_held(&mut self) {
        let full = |op: &Op| self.reporter.is_full(op);
        if self.on_written.as_ref().is_some_and(full) {
            return;
        }
        self.notes_held = false;
        for at in 0..self.peers.len() {
            for _ in 0..self.peers.get(at).notes.release() {
                self.owe(at);
            }
        }
    }
}
