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
//! `deferred.rs` begins parts of operations later that miss in a call that need not wait.
//! `attach.rs` plans the limits and makes both sides: `firehoses.rs`, what is held of other ranks' memory, and `home.rs`. `forget.rs`
//! has memory unpinned before it goes, and `elsewhere.rs` notes what threads take away that may not use the conduit.
//!
//! # Invariants
//!
//! 1. A message to a unit is under way only while this rank holds the unit (`Lane::there`), and one from or to local memory
//!    that is not a chunk only while its units are pinned (`Lane::here`); both are given back by its last event.
//! 2. A match entry's bits are never used twice, so a message finds the unit that it was meant for or none.
//! 3. Memory is pinned only where the kernel lists it as readable and writable (`maps.rs`). A put or get of anything else ends
//!    with [`crate::RmaError::Unmapped`], and nothing is touched.
//! 4. Whoever waits for a unit at a peer holds none, nor anything at home but the chunk of a deferred put.

mod attach;
mod deferred;
mod edge;
mod elsewhere;
mod firehoses;
mod forget;
mod home;
mod lanes;
mod local;
mod long;
mod maps;
mod messages;
mod stacks;
mod talk;
mod transfer;
mod units;
pub(crate) mod wait;
mod wire;

use crate::core::Core;
pub use elsewhere::Elsewhere;
pub use firehoses::FirehoseStats;
use firehoses::Firehoses;
use home::Home;
use lanes::Lane;
pub(crate) use local::SEGMENT_USES;
use portals_shim::MdHandle;

/// What is pinned when it is needed.
#[derive(Debug, Default)]
pub(crate) struct Pinning {
    /// Of other ranks' memory, in a job whose segments are not pinned as a whole.
    firehoses: Option<Firehoses>,
    /// Of the own memory; `None` where all is pinned at the start, or for each message.
    home: Option<Home>,
}

impl Pinning {
    /// Whether own memory that is pinned for a transfer may stay so.
    pub(crate) fn keeps_own(&self) -> bool {
        self.home.is_some()
    }

    /// Whether a message under way reads or writes the memory of a lending.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        let firehoses = self.firehoses.as_ref();
        firehoses.is_some_and(|firehoses| firehoses.touches(lending))
    }

    #[cfg(test)]
    pub(crate) fn home_mut(&mut self) -> Option<&mut Home> {
        self.home.as_mut()
    }

    /// A descriptor for a message under way; `None` if all are taken, or segments are pinned as a whole.
    fn take_lane(&mut self, lane: &Lane) -> Option<(usize, MdHandle)> {
        self.firehoses.as_mut()?.lanes.take(lane)
    }

    /// Both sides; `None` in a job whose segments are pinned as a whole.
    fn both_sides(&mut self) -> Option<(&mut Firehoses, &mut Home)> {
        self.firehoses.as_mut().zip(self.home.as_mut())
    }
}

impl Core {
    pub(crate) fn firehose_stats(&self) -> Option<FirehoseStats> {
        let home = self.pinning.home.as_ref()?;
        let unit = home.limits.shape.unit_len();
        let share = u64::from(home.limits.share) * unit;
        let firehoses = self.pinning.firehoses.as_ref();
        Some(FirehoseStats {
            remote: firehoses.map(|f| f.holder.counts()).unwrap_or_default(),
            own: home.owner.counts(),
            pinned: home.owner.pinned() * unit,
            limits: (
                share * u64::from(self.ranks.count().saturating_sub(1)),
                share,
                u64::from(home.limits.victims) * unit,
            ),
            copies: firehoses.map_or(0, |f| f.copies),
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
