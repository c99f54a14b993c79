//! Tag matching: MPI-style messages on Portals match bits, as the OFI MTL lays them out.
//!
//! ```text
//!  World    one per process: layout, contexts                      world.rs
//!  Comm     communicators: send, receive, probe, dup, split        comm.rs, collective.rs
//!    │        the functions of each message, by kind of layout     calls.rs
//!    │
//!  context  match list, queues, requests, the unexpected           context/
//!    │        layout.rs   (communicator, source, tag) in 64 bits
//!    │        flow.rs     credits: every short message has a place
//!    │        unexpected.rs, request.rs
//!  portals-shim
//! ```
//!
//! # How a message goes
//! | message | receive is posted | it is not |
//! |---|---|---|
//! | short (up to [`Options::short`] bytes, not synchronous) | put into the receive's memory | put into an overflow buffer, copied from there |
//! | long or synchronous | put into the receive's memory; its ack ends the send | its header alone; the receive fetches the data by a get, which ends the send |
//!
//! # Threads
//! Every type is `Send` and `Sync`. A context has one lock; communicators of different contexts share nothing above
//! Portals, and nothing at all if their contexts have different interfaces ([`World::open_scalable`]). A blocking call holds the lock while it waits, unless the world is opened with [`Options::threads`]; then it
//! polls.

mod calls;
mod collective;
mod comm;
mod context;
mod error;
mod flow;
mod header;
pub mod layout;
mod options;
mod request;
mod slice;
mod unexpected;
mod world;

pub use collective::CommError;
pub use comm::Comm;
pub use error::{CallError, OpenError, RequestError, TagError};
pub use layout::{Layout, TagMode};
pub use options::Options;
pub use request::{Message, Request};
pub use slice::Slice;
pub use world::World;

/// What is known of a message that was received or found; of one sent, only its length means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who sent it: a rank of the communicator; where an error names it, of the job.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Bytes received; of a message that was only found, bytes it has.
    pub len: usize,
}

impl Status {
    const fn sent(len: usize) -> Self {
        Self {
            source: 0,
            tag: 0,
            len,
        }
    }
}

/// What a context has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sends with a credit.
    pub short: u64,
    /// Sends that the receiver released.
    pub released: u64,
    /// Receives that were posted.
    pub posted: u64,
    /// Receives of a message that had come before.
    pub unexpected: u64,
    /// Of these, those whose data was got from its sender.
    pub fetched: u64,
    /// Messages moved out of a full overflow buffer.
    pub moved: u64,
    /// Messages that gave credits back and did nothing else.
    pub credit_messages: u64,
    /// Messages that were not from whom they said, dropped.
    pub forged: u64,
}
