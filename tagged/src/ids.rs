//! Communicator ids of this process, and whose turn it is to agree on one. No I/O.
//!
//! # Invariants
//! * Of the communicators whose ranks look for an id, one at a time has the turn here, and gives an id away only while it has
//!   the turn at all of its ranks: no two get the same.
//! * The turn goes to the one with the lowest id, so the one with the lowest id of all gets it at all ranks, and some agreement
//!   always ends: all ranks of a communicator that asks anywhere have come to ask.
//! * An id of a communicator that is gone is in use until nothing that was begun with it is left.

use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Ids {
    used: BTreeSet<u32>,
    /// Of these, those whose communicator is gone.
    left: Vec<u32>,
    /// Communicators whose ranks look for an id.
    asking: BTreeSet<u32>,
    turn: Option<u32>,
}

impl Ids {
    /// Those of a world: that of the communicator of all ranks is in use.
    pub(crate) fn new() -> Self {
        Self {
            used: BTreeSet::from([0]),
            left: Vec::new(),
            asking: BTreeSet::new(),
            turn: None,
        }
    }

    /// The ranks of communicator `by` look for an id.
    pub(crate) fn ask(&mut self, by: u32) {
        self.asking.insert(by);
    }

    /// They have one, or do not get one.
    pub(crate) fn done(&mut self, by: u32) {
        self.asking.remove(&by);
        self.give_way(by);
    }

    /// Whether it is their turn, until they give way.
    pub(crate) fn has_turn(&mut self, by: u32) -> bool {
        if self.turn.is_none() && self.asking.first() == Some(&by) {
            self.turn = Some(by);
        }
        self.turn == Some(by)
    }

    /// It is not their turn everywhere.
    pub(crate) fn give_way(&mut self, by: u32) {
        self.turn.take_if(|turn| *turn == by);
    }

    /// The lowest free id from `from` on.
    pub(crate) fn free(&self, from: u32, max: u32) -> Option<u32> {
        let mut free = from;
        for used in self.used.range(from..) {
            if *used != free {
                break;
            }
            free += 1;
        }
        (free <= max).then_some(free)
    }

    pub(crate) fn is_used(&self, id: u32) -> bool {
        self.used.contains(&id)
    }

    pub(crate) fn take(&mut self, id: u32) {
        self.used.insert(id);
    }

    /// The ranks have agreed on it, and this one makes no communicator of it.
    pub(crate) fn untake(&mut self, id: u32) {
        self.used.remove(&id);
    }

    /// The communicator is gone.
    pub(crate) fn leave(&mut self, id: u32) {
        self.left.push(id);
    }

    /// Those of communicators that are gone, to be given to [`Ids::leave`] again or to [`Ids::untake`].
    pub(crate) fn take_left(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_turn_and_the_lowest_gets_it_next() {
        let mut ids = Ids::new();
        for by in [7, 3, 5] {
            ids.ask(by);
        }
        assert_eq!([7, 3, 5].map(|by| ids.has_turn(by)), [false, true, false]);
        ids.ask(1);
        assert!(!ids.has_turn(1) && ids.has_turn(3));
        ids.give_way(5);
        assert!(ids.has_turn(3));
        ids.give_way(3);
        assert!(!ids.has_turn(3) && ids.has_turn(1));
        ids.done(1);
        ids.done(3);
        assert!(!ids.has_turn(7) && ids.has_turn(5));
        ids.done(5);
        assert!(ids.has_turn(7));
    }

    #[test]
    fn the_lowest_free_id_is_given_and_one_that_was_left_is_none() {
        let mut ids = Ids::new();
        for id in [1, 2, 4] {
            ids.take(id);
        }
        assert_eq!(ids.free(1, 9), Some(3));
        assert_eq!((ids.free(4, 9), ids.free(4, 4)), (Some(5), None));
        ids.leave(1);
        assert!(ids.is_used(1));
        assert_eq!(ids.free(1, 9), Some(3));
        assert_eq!(ids.take_left(), [1]);
        ids.untake(1);
        assert_eq!(ids.free(1, 9), Some(1));
    }
}
