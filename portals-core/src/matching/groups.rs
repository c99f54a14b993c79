//! A group: the entries of one key, in list order.
//!
//! A group is threaded (`before`, `after`) for the search, and a treap over the labels for the
//! insertion: a new entry finds its place in O(log n) even among 100,000 equal ones. Priorities are
//! a function of the slot, so equal programs build equal trees. Labelling anew keeps the order and
//! so needs no change here.

use super::buckets::mix;
use super::{Me, NONE};
use crate::table::Table;

/// An entry's place in its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// The thread, in list order.
    before: u32,
    pub(super) after: u32,
    /// The tree.
    up: u32,
    left: u32,
    right: u32,
}

impl Node {
    pub(super) const ALONE: Self = Self {
        before: NONE,
        after: NONE,
        up: NONE,
        left: NONE,
        right: NONE,
    };
}

/// The entries of one key; both fields are [`NONE`] or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    root: u32,
    /// The first in list order.
    pub(super) first: u32,
}

type Entries = Table<Me>;

fn node(entries: &Entries, slot: u32) -> Node {
    entries.at(slot).map_or(Node::ALONE, |me| me.node)
}

fn set(entries: &mut Entries, slot: u32, change: impl FnOnce(&mut Node)) {
    if let Some(me) = entries.at_mut(slot) {
        change(&mut me.node);
    }
}

fn label(entries: &Entries, slot: u32) -> u64 {
    entries.at(slot).map_or(0, |me| me.label)
}

const fn priority(slot: u32) -> u64 {
    mix(slot as u64)
}

impl Group {
    pub(super) const EMPTY: Self = Self {
        root: NONE,
        first: NONE,
    };

    /// The group whose first entry is `first`.
    pub(super) fn beginning_with(entries: &Entries, first: u32) -> Self {
        let mut root = first;
        loop {
            let up = node(entries, root).up;
            if up == NONE {
                return Self { root, first };
            }
            root = up;
        }
    }

    pub(super) const fn is_empty(self) -> bool {
        self.root == NONE
    }

    /// Adds an entry, which has its label, at its place.
    pub(super) fn insert(&mut self, entries: &mut Entries, slot: u32) {
        let own = label(entries, slot);
        let (mut up, mut before, mut after) = (NONE, NONE, NONE);
        let mut at = self.root;
        while at != NONE {
            up = at;
            if own < label(entries, at) {
                after = at;
                at = node(entries, at).left;
            } else {
                before = at;
                at = node(entries, at).right;
            }
        }
        set(entries, slot, |n| {
            *n = Node {
                before,
                after,
                up,
                ..Node::ALONE
            };
        });
        set(entries, before, |n| n.after = slot);
        set(entries, after, |n| n.before = slot);
        if before == NONE {
            self.first = slot;
        }
        if up == NONE {
            self.root = slot;
        } else if up == before {
            set(entries, up, |n| n.right = slot);
        } else {
            set(entries, up, |n| n.left = slot);
        }
        loop {
            let up = node(entries, slot).up;
            if up == NONE || priority(up) >= priority(slot) {
                break;
            }
            self.rotate_up(entries, slot);
        }
    }

    pub(super) fn remove(&mut self, entries: &mut Entries, slot: u32) {
        loop {
            let n = node(entries, slot);
            let child = match (n.left, n.right) {
                (NONE, NONE) => break,
                (NONE, child) | (child, NONE) => child,
                (l, r) if priority(l) > priority(r) => l,
                (_, r) => r,
            };
            self.rotate_up(entries, child);
        }
        let n = node(entries, slot);
        self.replace_child(entries, n.up, slot, NONE);
        set(entries, n.before, |b| b.after = n.after);
        set(entries, n.after, |a| a.before = n.before);
        if self.first == slot {
            self.first = n.after;
        }
        set(entries, slot, |n| *n = Node::ALONE);
    }

    /// Makes `child` what `old` was below `up`.
    fn replace_child(&mut self, entries: &mut Entries, up: u32, old: u32, child: u32) {
        if up == NONE {
            self.root = child;
        } else {
            set(entries, up, |n| {
                if n.left == old {
                    n.left = child;
                } else {
                    n.right = child;
                }
            });
        }
    }

    /// Exchanges `slot` with its parent, keeping the order.
    fn rotate_up(&mut self, entries: &mut Entries, slot: u32) {
        let own = node(entries, slot);
        let up = own.up;
        let above = node(entries, up);
        let inner = if above.left == slot {
            set(entries, up, |n| n.left = own.right);
            set(entries, slot, |n| n.right = up);
            own.right
        } else {
            set(entries, up, |n| n.right = own.left);
            set(entries, slot, |n| n.left = up);
            own.left
        };
        set(entries, inner, |n| n.up = up);
        set(entries, up, |n| n.up = slot);
        set(entries, slot, |n| n.up = above.up);
        self.replace_child(entries, above.up, up, slot);
    }

    /// Panics unless the tree, the thread and the labels say the same. Returns the number of
    /// entries and the height.
    #[cfg(test)]
    pub(super) fn check(self, entries: &Entries) -> (usize, usize) {
        fn below(entries: &Entries, slot: u32, up: u32, out: &mut alloc::vec::Vec<u32>) -> usize {
            if slot == NONE {
                return 0;
            }
            let n = node(entries, slot);
            assert_eq!(n.up, up);
            assert!(up == NONE || priority(up) >= priority(slot));
            let left = below(entries, n.left, slot, out);
            out.push(slot);
            1 + left.max(below(entries, n.right, slot, out))
        }
        let mut inorder = alloc::vec::Vec::new();
        let height = below(entries, self.root, NONE, &mut inorder);
        assert!(inorder.is_sorted_by(|a, b| label(entries, *a) < label(entries, *b)));
        let (mut at, mut before, mut thread) = (self.first, NONE, alloc::vec::Vec::new());
        while at != NONE {
            thread.push(at);
            assert_eq!(node(entries, at).before, before);
            before = at;
            at = node(entries, at).after;
        }
        assert_eq!(thread, inorder);
        (inorder.len(), height)
    }
}
