//! Portals over RDMA verbs: a reliable connection to each rank that was talked to.
//!
//! ```text
//!   put, get ──► advertised descriptor at the peer?                                 proto/select.rs
//!                 ├─ yes, and nothing of ours is under way there:
//!                 │     RDMA WRITE or READ; its completion makes SEND_END, ACK, REPLY   proto/rma_write.rs, proto/rma_read.rs
//!                 │     a short get: a message, where the peer's library is quicker     proto/get_by_am.rs
//!                 ├─ one with events, a put of 2 to 8 KiB: RDMA WRITE, then the header   proto/rma_write_send.rs
//!                 └─ no: frame in the peer's shared receive queue, matched there        proto/eager_send.rs
//!                        ├─ up to 8 KiB: the data travels with the header
//!                        └─ more: the header says where the data is, and the target
//!                           reads it straight into the matched descriptor             proto/rndv_read.rs
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `verbs.rs`, `verbs/` | the state of a rank, by parts, and its progress |
//! | `connect.rs` | device, queues, the exchange of addresses |
//! | `contact.rs` | how a process of a job is reached |
//! | `advice.rs` | what users are told of a device that cannot be used |
//! | `directory.rs` | how ranks find each other |
//! | `endpoint.rs`, `endpoint/` | endpoints that belong to no job, and how they find each other |
//! | `plan.rs` | how much each connection gets of the device |
//! | `settings.rs` | what users may set |
//! | `handshake.rs` | what two processes say to each other to connect |
//! | `mail.rs` | what carries that |
//! | `cm.rs` | connections that the connection manager makes |
//! | `witness.rs` | ends of requests where the adapter's own say too little: iWARP |
//! | `link.rs` | connections that are made, broken, mended and given up |
//! | `events.rs` | what the device tells, and when somebody has to look |
//! | `timer.rs` | when words to a peer are said again, and when it is given up |
//! | `watch.rs` | requests that the adapter forgets |
//! | `nal.rs` | the fabric's methods |
//! | `proto/` | protocols, and which of them carries an operation: `proto/select.rs` |
//! | `protocols.rs` | the table of them that users see |
//! | `send.rs` | operations before there is a connection, registration, what is split |
//! | `completion.rs` | what the end of a request does |
//! | `receive.rs` | what a frame from a peer does |
//! | `onesided.rs` | which descriptors peers may reach, and their withdrawal |
//! | `adverts.rs` | which descriptors of peers may be reached |
//! | `peer.rs`, `peer/` | one peer: connecting, send queue, requests, what was received |
//! | `memory.rs` | registration, requests on descriptor memory |
//! | `frame.rs` | the bytes of a frame |
//! | `channel.rs` | connections, datagrams or both: the switch |
//! | `datagram/` | Portals over reliable datagrams instead |
//! | `auto/` | datagrams first, connections to the peers that are worth one |
//!
//! # Ordering
//!
//! A reliable connection keeps the order of what is posted, but a frame has its effect when the
//! target's library handles it, while an RDMA operation has its at once. Therefore a one-sided
//! operation is used only when every earlier request to that peer has had its effect
//! (`Peer::is_settled`); otherwise it goes the two-sided way (rule 24).

mod adverts;
mod advice;
pub mod auto;
pub mod channel;
mod cm;
mod completion;
mod connect;
mod contact;
pub mod datagram;
mod directory;
pub mod endpoint;
mod events;
mod frame;
mod handshake;
mod link;
mod mail;
mod memory;
mod nal;
mod onesided;
mod peer;
mod plan;
mod proto;
pub mod protocols;
mod receive;
mod send;
mod settings;
mod timer;
mod trusted;
mod verbs;
mod watch;
mod witness;

pub use connect::PREFETCH;
pub use connect::{check, chosen_gid, in_threads, in_threads_of};
pub use verbs::Verbs;

/// Whether bytes of a peer are a frame; for the fuzz target of the parser.
#[doc(hidden)]
pub fn is_frame(bytes: &[u8]) -> bool {
    frame::is_frame(bytes)
}

#[cfg(test)]
pub(crate) mod tests;
