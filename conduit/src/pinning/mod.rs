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
//!              home.rs       what of the own memory is pinned; also for own transfers of a job whose segments are pinned
//!                 │          as a whole (local.rs)
//!              units.rs      the pieces of a pinned unit, each a descriptor of its own
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
mod elsewhere;
mod home;
mod lanes;
mod local;
mod long;
mod maps;
mod messages;
mod open;
mod stacks;
mod talk;
mod transfer;
mod units;
pub(crate) mod wait;
mod wire;

use crate::core::Core;
use crate::fault::{Fault, refused};
use crate::ops::Key;
use crate::tmpmd::UserMem;
use ::firehose::{Counts, Holder, Limits, Ticket};
pub use elsewhere::Elsewhere;
pub(crate) use home::Home;
use lanes::Lanes;
pub(crate) use local::SEGMENT_USES;
use std::collections::HashMap;
use wire::Reaches;

/// Portals of pinned units, from this one up to the last that every interface has. A unit's list is as long as a portal
/// has units, and a SeaStar goes along it for each message.
const PORTAL: u32 = 40;
const PORTALS: u64 = 24;

/// The portal of the unit with these match bits.
const fn portal_of(bits: u64) -> u32 {
    PORTAL + (bits % PORTALS) as u32
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

/// What of other ranks' memory this one may reach, and its messages there, in a job whose segments are not pinned as a whole.
#[derive(Debug)]
pub(crate) struct Fire {
    holder: Holder<Reaches>,
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
    pub(crate) fn new(core: &mut Core, limits: Limits) -> Result<Self, Fault> {
        let none = Fault::Malformed {
            node: core.me,
            what: "no room for an operation",
        };
        let longs = core.ops.explicit().ok_or(none)?;
        let ni = &core.ni;
        let lanes = Lanes::new(ni, core.descriptors.queues.safe, core.env.msg_limit)
            .map_err(refused("PtlMDBind of all memory"))?;
        Ok(Self {
            holder: Holder::new(limits, core.nodes),
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

    /// Whether a lending's memory is still to be read, or written.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        self.lanes.touches(lending)
    }
}

impl Core {
    /// What is pinned of others' memory by units, and of the own; `None` in a job whose segments are pinned as a whole.
    fn firehoses(&mut self) -> Option<(&mut Fire, &mut Home)> {
        self.fire.as_mut().zip(self.home.as_mut())
    }

    pub(crate) fn firehose_stats(&self) -> Option<FirehoseStats> {
        let home = self.home.as_ref()?;
        let unit = home.limits.shape.unit_len();
        let share = u64::from(home.limits.share) * unit;
        let fire = self.fire.as_ref();
        Some(FirehoseStats {
            remote: fire.map(|f| f.holder.counts()).unwrap_or_default(),
            own: home.owner.counts(),
            pinned: home.owner.pinned() * unit,
            limits: (
                share * u64::from(self.nodes.saturating_sub(1)),
                share,
                u64::from(home.limits.victims) * unit,
            ),
            copies: fire.map_or(0, |f| f.copies),
        })
    }
}

impl crate::Conduit {
    /// What is pinned and how often it was; `None` in a job whose segments are pinned as a whole and whose other memory is
    /// pinned for each message.
    pub fn firehose_stats(&self) -> Option<FirehoseStats> {
        self.core.borrow().firehose_stats()
    }
}
