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
//!    │        ids.rs      communicator ids, and whose turn it is to agree on one
//!    │        unexpected.rs, request.rs
//!  portals-shim
//! ```
//!
//! # A program
//! ```no_run
//! use portals_shim::{Region, fabric::{self, FabricConfig}, job::Job};
//! use tagged::{Options, Slice, World};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let job = Job::from_env()?;
//!     let opened = fabric::open(&job, &FabricConfig::from_env()?)?;
//!     let world = World::open(opened, job.rank(), &Options::default(), || job.fence())?;
//!     let (comm, buffer) = (world.comm(), Region::new(64)?);
//!     if comm.rank() == 0 {
//!         buffer.write(0, b"hello")?;
//!         for to in 1..comm.size() {
//!             comm.send(Slice::new(&buffer, 0, 5)?, to, 7)?;
//!         }
//!     } else {
//!         let status = comm.recv(Slice::whole(&buffer), None, Some(7))?;
//!         println!("rank {} has {} bytes of rank {}", comm.rank(), status.len, status.source);
//!     }
//!     // Without these two the launcher takes the rank for one that failed, and others may miss what it sent.
//!     world.finish(|| job.fence())?;
//!     job.finalize()?;
//!     Ok(())
//! }
//! ```
//!
//! # How a message goes
//! | message | receive is posted | it is not |
//! |---|---|---|
//! | short (up to [`Options::short`] bytes, not synchronous) | put into the receive's memory | put into an overflow buffer, copied from there |
//! | long or synchronous | put into the receive's memory; its ack ends the send | its header alone; the receive fetches the data by a get, which ends the send |
//!
//! # Threads
//! Every type is `Send` and `Sync`, and any thread may duplicate and split communicators, each its own at the same time. A context has one lock; communicators of different contexts share nothing above
//! Portals, and nothing at all if their contexts have different interfaces ([`World::open_scalable`]). A blocking call holds the lock while it waits, unless the world is opened with [`Options::threads`]; then it
//! polls.

mod calls;
mod collective;
mod comm;
mod context;
mod counts;
mod error;
mod flow;
mod header;
mod ids;
pub mod layout;
mod options;
mod request;
mod slice;
mod status;
mod unexpected;
mod world;

pub use collective::CommError;
pub use comm::Comm;
pub use counts::Counts;
pub use error::{CallError, OpenError, RequestError, TagError};
pub use layout::{Layout, TagMode};
pub use options::Options;
pub use request::{Message, Request};
pub use slice::Slice;
pub use status::Status;
pub use world::World;
