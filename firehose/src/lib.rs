//! Which memory is pinned, for whom, and for how long: the Firehose algorithm (Bell and Bonachea, 2003) without
//! I/O and without a clock.
//!
//! A network adapter needs the memory at both ends of a transfer pinned. Pinning all of it does not scale; pinning
//! for each transfer costs a round trip and the attention of the other side. Here each rank holds a number of
//! *firehoses* at every other: units of memory that stay pinned for it until it gives them back. While a transfer
//! finds its units under a firehose it needs no message. Otherwise one request names the units wanted and those
//! given up for them, and after one reply the transfer goes.
//!
//! ```text
//!   rank x                                             rank y
//!   Holder: firehoses at y, at z …   ── Move ──►       Owner: memory of y, units held by x, by z …
//!                                    ◄── Moved ──
//!                                    ◄── recall ──     memory is about to be unmapped
//!   Owner: memory of x, own transfers                  Holder
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `shape.rs` | how addresses are cut: pages, or regions |
//! | `limits.rs` | how much may be pinned, for whom |
//! | `owner.rs` | what is pinned here: reference counts, victims, budget |
//! | `holder.rs` | what may be reached elsewhere: hits, requests, replacement, waiting |
//! | `message.rs` | what is said |
//! | `table.rs` | records by unit, with a queue of those that are idle |
//!
//! # Invariants
//!
//! 1. **Pinned.** While a transfer holds a unit (from the answer of [`Holder::ask`] or [`Holder::hit`] to its
//!    [`Holder::release`] or [`Holder::release_one`]; at home from [`Owner::acquire`] or [`Owner::hit`] to [`Owner::release`]), the unit is
//!    pinned under the key that the transfer was given.
//! 2. **Shares.** Of what an owner counts as held by a rank, there are never more than `share` units, whichever of that
//!    rank's requests have arrived in whatever order: a place is taken when the request that fills it is made, and free
//!    again when the request that gives it up is answered.
//! 3. **Budget.** Units in B, C and D (`owner.rs`) are at most `victims`. With 2: at any time at most
//!    `share × (ranks − 1) + victims` units are pinned, and old ones are unpinned before new ones are pinned.
//! 4. **One truth.** When no request is under way between two ranks, what the one holds is what the other counts as held by
//!    it.
//! 5. **Progress.** An owner answers a request at once; it waits for nothing. A transfer gets all its units or none, and
//!    waits for others only while it holds none. So no transfer waits for one that waits, and every transfer of at most
//!    [`Limits::most`] units has its turn, in the order of asking. Whoever needs units at a peer and at home takes those
//!    at the peer first; those at home are taken by transfers that need nothing more.
//! 6. **No overtaking.** A unit that a rank gave up is not asked for again by it before the owner's answer. Messages
//!    may arrive in any order; see `holder.rs`.
//! 7. **No lie survives.** Requests and replies that no rank following these rules makes are refused as a whole and change
//!    nothing.
//!
//! `explore.rs` visits every state of two ranks with three pages each and room for two; `oracle.rs` compares
//! 10^6 random steps with a model that keeps sets.

mod holder;
mod limits;
mod message;
mod owner;
mod shape;
mod stats;
mod table;

#[cfg(test)]
mod explore;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

pub use holder::{AskError, Asked, Grip, Holder, MovedError, Outcome, Ticket};
pub use limits::{LEAST_VICTIMS, LimitError, Limits, Wishes};
pub use message::{Answer, Move, Moved, Refusal};
pub use owner::{MoveError, OwnError, Owner, Pins};
pub use shape::{Extent, Shape, Span, Unit};
pub use stats::Counts;
