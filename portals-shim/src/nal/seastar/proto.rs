//! What a rank and the simulation say to each other: one datagram of a sequenced-packet socket for
//! each question and each answer.
//!
//! ```text
//!   rank                         simulation
//!    │ Hello { config, version } ──► │   (all ranks, then time starts)
//!    │ ◄──────────── Reply Done    │
//!    │ Call ─────────────────────► │
//!    │ ◄──────────── Reply answer  │   … one question at a time
//! ```

use crate::call::{Answer, Call};
use portals_core::{Error, NiConfig};
use serde::{Deserialize, Serialize};

/// Both sides must be built alike; the number changes with every change of these types.
pub(super) const VERSION: u32 = 5;
/// Longest datagram, bytes: a call with 64 iovec entries fits many times.
pub(super) const MAX_DATAGRAM: usize = 16 * 1024;

/// What a rank says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// First of all.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// Its rank in the job.
        rank: u32,
        /// Who it is; its node id says on which node.
        config: NiConfig,
    },
    /// An API call.
    Call(Call),
    /// The rank waits for others outside.
    Leave,
    /// It is back.
    Rejoin,
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    /// The rank's clock, picoseconds.
    pub(super) clock: u64,
    /// The call's result.
    pub(super) result: Result<Answer, Error>,
    /// What the user should know of a failure; empty otherwise.
    pub(super) note: String,
}
