//! Lists of peers whose turn is to come.

use std::collections::VecDeque;

/// Peers in the order in which they were added.
///
/// # Invariants
///
/// A peer is in the list once at most, and exactly while the mark that it has for this list is set.
#[derive(Debug, Default)]
pub(super) struct List(VecDeque<u32>);

/// Whether a peer is in a list; each peer has one for each list.
#[derive(Debug, Default)]
pub(super) struct Mark(bool);

impl Mark {
    #[inline]
    pub(super) const fn is_set(&self) -> bool {
        self.0
    }
}

impl List {
    /// Adds a peer behind all others, unless it is here.
    #[inline]
    pub(super) fn add(&mut self, id: u32, mark: &mut Mark) {
        if !mark.0 {
            mark.0 = true;
            self.0.push_back(id);
        }
    }

    /// The peer whose turn it is.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.0.front().copied()
    }

    /// Takes that peer out, whose mark this is.
    #[inline]
    pub(super) fn remove_first(&mut self, mark: &mut Mark) {
        mark.0 = false;
        self.0.pop_front();
    }

    /// The turn of the first peer is over, and comes again after all others.
    #[inline]
    pub(super) fn rotate(&mut self) {
        if let Some(first) = self.0.pop_front() {
            self.0.push_back(first);
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_listed_once_and_can_come_again() {
        let mut list = List::default();
        let mut marks = [Mark::default(), Mark::default()];
        for id in [0, 1, 0, 1] {
            list.add(id, &mut marks[id as usize]);
        }
        assert_eq!((list.len(), list.first()), (2, Some(0)));
        list.remove_first(&mut marks[0]);
        assert!(!marks[0].is_set() && marks[1].is_set());
        list.add(0, &mut marks[0]);
        assert_eq!((list.len(), list.first()), (2, Some(1)));
    }

    #[test]
    fn peers_take_turns() {
        let mut list = List::default();
        let mut marks: [Mark; 3] = Default::default();
        for (id, mark) in marks.iter_mut().enumerate() {
            list.add(id as u32, mark);
        }
        let turns = std::iter::from_fn(|| {
            let first = list.first();
            list.rotate();
            first
        });
        assert_eq!(turns.take(7).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
        let mut empty = List::default();
        empty.rotate();
        assert_eq!(empty.first(), None);
    }
}
