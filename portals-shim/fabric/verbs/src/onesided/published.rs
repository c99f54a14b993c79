//! What peers have been told of the own memory.
//!
//! # Invariants
//!
//! * Each withdrawal in `waiting` awaits somebody.

use portals_core::{Advert, MdHandle};
use std::collections::{BTreeMap, BTreeSet};

/// What peers have been told.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(super) lists: BTreeMap<u32, Vec<Advert>>,
    pub(super) next_token: u32,
    /// Being taken back, and not to be shown again although its owner still has it.
    pub(super) leaving: Option<MdHandle>,
    /// Publications that took something back and that some peers have not confirmed.
    pub(super) waiting: BTreeMap<u32, Withdrawal>,
}

/// What a publication took back, and who has not confirmed it.
#[derive(Debug)]
pub(super) struct Withdrawal {
    pub(super) mds: Vec<MdHandle>,
    pub(super) peers: BTreeSet<usize>,
}

impl Published {
    pub(crate) fn confirmed(&mut self, rank: usize, token: u32) {
        if let Some(withdrawal) = self.waiting.get_mut(&token) {
            withdrawal.peers.remove(&rank);
            if withdrawal.peers.is_empty() {
                self.waiting.remove(&token);
            }
        }
    }

    /// A peer that is gone confirms nothing, and reaches nothing.
    pub(crate) fn forget_peer(&mut self, rank: usize) {
        self.waiting.retain(|_, withdrawal| {
            withdrawal.peers.remove(&rank);
            !withdrawal.peers.is_empty()
        });
    }

    /// Who has not confirmed something.
    pub(crate) fn awaited(&self) -> BTreeSet<usize> {
        let waiting = self.waiting.values();
        waiting.flat_map(|w| w.peers.iter().copied()).collect()
    }

    /// Whether a peer may still believe that it can reach the descriptor.
    pub(crate) fn is_unconfirmed(&self, md: MdHandle) -> bool {
        self.waiting.values().any(|w| w.mds.contains(&md))
    }

    pub(crate) fn holds(&self, md: MdHandle) -> Option<u32> {
        self.lists
            .iter()
            .find(|(_, list)| list.iter().any(|a| a.md == md))
            .map(|(portal, _)| *portal)
    }
}
