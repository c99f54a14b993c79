//! Memory that is pinned when it is needed: firehoses over active messages.
//!
//! ```text
//!  put, get ─► transfer.rs   cuts it into units, holds the remote one, pins the local ones
//!                 │  miss                              └─► messages.rs: starts and ends a message, and a short put to a
//!              talk.rs       move, moved, recall, and      unit that is held in one step; Lanes: descriptors over all
//!                 │          copies of what cannot be      memory, one for each message under way
//!                 │          pinned
//!              ::firehose    who may keep what
//!                 │
//!              units.rs      a pinned unit is a match entry and a descriptor of its own
//! ```
//!
//! # Invariants
//!
//! 1. A message to a unit is under way only while this rank holds the unit (`Lane::there`), and one from or to local memory
//!    that is not a chunk only while its units are pinned (`Lane::here`); both are given back by its last event.
//! 2. A match entry's bits are never used twice, so a message finds the unit that it was meant for or none.
//! 3. Memory is pinned only where the kernel lists it as readable and writable (`maps.rs`). A put or get of anything else ends
//!    with [`crate::RmaError::Unmapped`], and nothing is touched.
//! 4. Whoever waits for a unit at a peer holds none, nor anything at home.

mod edge;
mod lanes;
mod long;
mod maps;
mod messages;
mod open;
mod talk;
mod transfer;
mod units;
pub(crate) mod wait;
mod wire;

use crate::core::Core;
use crate::fault::{Fault, refused};
use crate::ops::Key;
use crate::tmpmd::UserMem;
use ::firehose::{Counts, Holder, Limits, Owner, Ticket};
use lanes::Lanes;
use maps::Maps;
use std::collections::HashMap;
use units::{Pin, Units};
use wire::Reach;

/// Portals of pinned units, from this one up to the last that every interface has. A unit's list is as long as a portal
/// has units, and a SeaStar goes along it for each message.
const PORTAL: u32 = 40;
const PORTALS: u64 = 24;

/// The portal of the unit with these match bits.
const fn portal_of(bits: u64) -> u32 {
    PORTAL + (bits % PORTALS) as u32
}

/// What of a rank's memory others reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// A segment of so many bytes.
    Segment(usize),
    /// All of it.
    Everything,
    /// What it opens ([`crate::Conduit::open`]).
    Opened,
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

/// All of it, in a job without segments.
#[derive(Debug)]
pub(crate) struct Fire {
    owner: Owner<Pin>,
    holder: Holder<Reach>,
    units: Units,
    maps: Maps,
    lanes: Lanes,
    limits: Limits,
    next_ticket: Ticket,
    /// How waits ended that nobody has looked at.
    outcomes: HashMap<Ticket, bool>,
    /// Answers to copies: whether there was memory.
    copied: HashMap<Ticket, bool>,
    /// Where answers go that carry data.
    landings: HashMap<Ticket, UserMem>,
    copies: u64,
    /// What puts of Longs' payloads count on.
    longs: Key,
}

impl Fire {
    pub(crate) fn new(core: &mut Core, limits: Limits, what: Reached) -> Result<Self, Fault> {
        let none = Fault::Malformed {
            node: core.me,
            what: "no room for an operation",
        };
        let longs = core.ops.explicit().ok_or(none)?;
        let ni = &core.ni;
        let lanes = Lanes::new(ni, core.descriptors.queues.safe, core.env.msg_limit)
            .map_err(refused("PtlMDBind of all memory"))?;
        Ok(Self {
            owner: Owner::new(limits, core.nodes),
            holder: Holder::new(limits, core.nodes),
            units: Units::new(ni, limits.shape),
            maps: Maps::new(what == Reached::Opened),
            lanes,
            limits,
            next_ticket: 0,
            outcomes: HashMap::new(),
            copied: HashMap::new(),
            landings: HashMap::new(),
            copies: 0,
            longs,
        })
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.next_ticket
    }

    fn stats(&self, nodes: u32) -> FirehoseStats {
        let unit = self.limits.shape.unit_len();
        let share = u64::from(self.limits.share) * unit;
        FirehoseStats {
            remote: self.holder.counts(),
            own: self.owner.counts(),
            pinned: self.owner.pinned() * unit,
            limits: (
                share * u64::from(nodes.saturating_sub(1)),
                share,
                u64::from(self.limits.victims) * unit,
            ),
            copies: self.copies,
        }
    }

    /// Whether a lending's memory is still to be read, or written.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        self.lanes.touches(lending)
    }
}

impl crate::Conduit {
    /// What is pinned and how often it was; `None` in a job with segments.
    pub fn firehose_stats(&self) -> Option<FirehoseStats> {
        let nodes = self.nodes();
        self.core.borrow().fire.as_ref().map(|f| f.stats(nodes))
    }
}
