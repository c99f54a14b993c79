//! Messages with tags, multi-receives and remote memory over Portals, by the rules of libfabric: the engine of the provider.
//!
//! ```text
//!   send, up to 2 KiB ──► a frame, where the two share memory ──copied──► the receive, or kept
//!   send, up to 4 KiB ──► a slot ──put──► landing buffer of the peer ──copied──► the receive, or kept
//!   send, longer ──► exposed; an envelope is put ··············──► the receive gets it, without a copy
//!   write, read ──► put with ack, get, of memory that its owner has registered under a key
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `endpoint.rs` | what programs call; who may call what |
//! | `core.rs` | what is sent, and what waits |
//! | `arrivals.rs` | what arrives, and who gets it |
//! | `peers.rs`, `queue.rs` | how much a peer may be sent, and what waits for that |
//! | `departed.rs` | who takes the place of a peer that has ended |
//! | `removed.rs` | how long a peer is kept that was removed from an address vector |
//! | `order.rs` | which of a peer's messages is handled next |
//! | `landing.rs` | where messages land, and where short ones are sent from |
//! | `frames.rs` | short messages past Portals, between endpoints that share memory |
//! | `rendezvous.rs` | long messages: announced, and taken from where they are |
//! | `matching.rs` | which receive takes which message |
//! | `remote.rs`, `atomic.rs`, `accesses.rs` | remote memory; atomic operations on it; counts of what peers do with it |
//! | `wire.rs` | what a message's header says |
//! | `notes.rs` | what a program is told of peers' writes, and what happens while it does not look |
//! | `completion.rs`, `addresses.rs` | completion queues and counters; numbers of peers |
//! | `wait.rs`, `endpoint/watch.rs` | how a program sleeps until there is a completion; who makes progress meanwhile |
//! | `pool.rs` | bytes that are used again |
//! | `memory.rs` | the program's memory: all unsafe code |
//!
//! # Invariants
//!
//! * **Nothing that arrives is dropped.** A peer sends no more messages than it was granted, and a grant is made after the room
//!   for it. A grant is given back when a message has been handled, and not when somebody asks for it: so a program that
//!   asks for the last of many messages first gets it. A note of a write is handled when its completion has room.
//! * **What nobody asks for is bounded.** From 1 MiB of a peer on, its messages come as envelopes of 32 bytes, whose bytes stay
//!   at the sender. A completion queue that is full holds peers up whose writes make completions in it. A peer that makes this
//!   side keep more than an honest one can has left the protocol and is given up.
//! * Messages of a pair are matched in the order in which they were sent, long ones among short ones.
//! * Nobody sleeps over a completion: while a wait object is awaited, its endpoints make progress by themselves.
//! * Every operation has one end: a completion, or a failure with its cause. A peer that is gone ends what is under way to it.

mod accesses;
pub mod addresses;
mod arrivals;
pub mod atomic;
mod capacity;
pub mod completion;
mod core;
mod departed;
mod endpoint;
mod frames;
mod landing;
mod matching;
pub mod memory;
mod multi_receives;
pub mod names;
mod notes;
mod order;
mod peers;
mod pool;
mod queue;
mod remote;
mod removed;
mod rendezvous;
pub mod wait;
mod wire;

pub use crate::core::Refused;
pub use accesses::Counts;
pub use endpoint::{AtomicCall, Endpoint, Message, OpenError};
pub use landing::{EAGER, RoomError};
pub use matching::Wanted;
pub use peers::Remote;
pub use portals_shim::ProcessId;
pub use remote::Access;
