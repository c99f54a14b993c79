//! What this rank holds of other ranks' memory.

use super::deferred::Queue;
use super::lanes::Lanes;
use super::wire::Reaches;
use crate::memory::UserMem;
use crate::ops::Key;
use ::firehose::{Counts, Holder, Limits, Ticket};
use portals_shim::{EqHandle, Error, Interface};
use std::collections::BTreeMap;

/// What of other ranks' memory this one may reach, and its messages there, in a job whose segments are not pinned as a whole.
#[derive(Debug)]
pub(crate) struct Firehoses {
    pub(super) holder: Holder<Reaches>,
    pub(super) lanes: Lanes,
    pub(super) limits: Limits,
    next_ticket: Ticket,
    /// How waits ended that nobody has looked at.
    pub(super) outcomes: BTreeMap<Ticket, bool>,
    /// Answers to copies: whether there was memory.
    pub(super) copied: BTreeMap<Ticket, bool>,
    /// Where answers go that carry data.
    pub(super) landings: BTreeMap<Ticket, UserMem>,
    pub(super) copies: u64,
    /// What puts of Longs' payloads count on.
    pub(super) longs: Key,
    /// What begins later.
    pub(super) deferred: Queue,
}

impl Firehoses {
    /// `under_way`: most messages at one time. `longs`: what puts of Longs' payloads count on.
    pub(super) fn new(
        (ni, safe): (&Interface, EqHandle),
        (limits, nodes): (Limits, u32),
        under_way: u32,
        longs: Key,
    ) -> Result<Self, Error> {
        Ok(Self {
            holder: Holder::new(limits, nodes),
            lanes: Lanes::new(ni, safe, under_way)?,
            limits,
            next_ticket: 0,
            outcomes: BTreeMap::new(),
            copied: BTreeMap::new(),
            landings: BTreeMap::new(),
            copies: 0,
            longs,
            deferred: Queue::default(),
        })
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.next_ticket
    }

    /// Whether a lending's memory is still to be read, or written.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        self.lanes.touches(lending)
    }
}

/// What of memory is pinned, and what was pinned so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirehoseStats {
    /// What this rank held of others, or had to ask for.
    pub remote: Counts,
    /// What it pinned, for peers and for its own transfers.
    pub own: Counts,
    /// Bytes pinned.
    pub pinned: u64,
    /// Bytes that peers may hold of this rank together, and each; and bytes for its own transfers.
    pub limits: (u64, u64, u64),
    /// Transfers that went as copies, because their memory could not be pinned.
    pub copies: u64,
}

/// Lines of a statistics file.
impl std::fmt::Display for FirehoseStats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (r, o, (m, share, victims)) = (&self.remote, &self.own, self.limits);
        writeln!(
            f,
            "# firehoses: {m} bytes for peers, {share} each, {victims} for own transfers and victims"
        )?;
        writeln!(
            f,
            "# at peers: hits {} misses {} evictions {} requests {} waits {} copies {}",
            r.hits, r.misses, r.evictions, r.moves, r.waits, self.copies
        )?;
        writeln!(
            f,
            "# here: hits {} misses {} evictions {} pins {} unpins {} refused {} pinned {}",
            o.hits, o.misses, o.evictions, o.pins, o.unpins, o.refused, self.pinned
        )
    }
}
