//! What a lost peer leaves: what a protocol, or what several share, keeps for it, and how that ends.
//!
//! Each says so in its own file by a value of [`Ending`]; `proto/mod.rs` has the row of them. What needs no more than a record or
//! an offloaded request ends with those, and says nothing.

use crate::verbs::Verbs;
use portals_core::Ni;

/// What is kept for a peer, by its index, and how that ends when the peer is given up.
pub(crate) struct Ending {
    /// Operations of this side that fail.
    pub(crate) under_way: fn(&Verbs, usize) -> usize,
    pub(crate) end: fn(&mut Verbs, &mut Ni, usize),
}
