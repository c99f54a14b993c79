//! Peers that a program has removed from its address vector.
//!
//! A removal frees the number, and says nothing of the peer, which may be about to send, or wait for an answer. So its connection
//! stays until the peer ends, or until many others were removed later: what they hold is bounded.

use portals_shim::ProcessId;
use std::collections::VecDeque;

/// Peers that are kept after they were removed, at most.
const MOST: usize = 64;
/// Peers of which it is known that they have ended, at most: a peer that has come by itself is never removed.
const MOST_LOST: usize = 256;

/// Who was removed, and who has ended.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// In the order of their removal.
    kept: VecDeque<ProcessId>,
    /// The last that the fabric has given up.
    lost: VecDeque<ProcessId>,
}

impl Removed {
    /// Keeps a peer; gives one that is to be disconnected, if too many are kept.
    pub(crate) fn add(&mut self, id: ProcessId) -> Option<ProcessId> {
        self.take_back(id);
        self.kept.push_back(id);
        let first = (self.kept.len() > MOST).then(|| self.kept.pop_front())??;
        self.lost.retain(|lost| *lost != first);
        Some(first)
    }

    /// A peer was inserted again.
    pub(crate) fn take_back(&mut self, id: ProcessId) {
        self.kept.retain(|kept| *kept != id);
    }

    /// The fabric has given a peer up.
    pub(crate) fn lost(&mut self, id: ProcessId) {
        if !self.lost.contains(&id) {
            self.lost.push_back(id);
        }
        if self.lost.len() > MOST_LOST {
            self.lost.pop_front();
        }
    }

    /// Those that were removed and have ended.
    pub(crate) fn ended(&mut self, mut is_back: impl FnMut(ProcessId) -> bool) -> Vec<ProcessId> {
        let lost = &mut self.lost;
        let mut ended = Vec::new();
        self.kept.retain(|id| {
            let over = lost.contains(id) && !is_back(*id);
            if over {
                lost.retain(|lost| lost != id);
                ended.push(*id);
            }
            !over
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(nid: u32) -> ProcessId {
        ProcessId::new(nid, 1)
    }

    #[test]
    fn who_was_removed_stays_until_it_ends() {
        let mut removed = Removed::default();
        removed.lost(id(1));
        removed.lost(id(2));
        for nid in [1, 3, 4, 1] {
            assert_eq!(removed.add(id(nid)), None);
        }
        removed.take_back(id(4));
        removed.lost(id(4));
        assert_eq!(removed.ended(|back| back == id(1)), []);
        assert_eq!(removed.ended(|_| false), [id(1)]);
        assert_eq!(removed.ended(|_| false), []);
        removed.lost(id(3));
        assert_eq!(removed.ended(|_| false), [id(3)]);
    }

    #[test]
    fn peers_that_nobody_removes_are_not_remembered_for_ever() {
        let mut removed = Removed::default();
        for nid in 1..=2 * MOST_LOST as u32 {
            removed.lost(id(nid));
            removed.lost(id(nid));
        }
        assert_eq!(removed.lost.len(), MOST_LOST);
        removed.add(id(1));
        removed.add(id(2 * MOST_LOST as u32));
        assert_eq!(removed.ended(|_| false), [id(2 * MOST_LOST as u32)]);
    }

    #[test]
    fn the_first_of_too_many_is_let_go() {
        let mut removed = Removed::default();
        for nid in 1..=MOST as u32 {
            assert_eq!(removed.add(id(nid)), None);
        }
        assert_eq!(removed.add(id(1)), None, "it is the last one now");
        assert_eq!(removed.add(id(1000)), Some(id(2)));
    }
}
