//! The GASNet portals-conduit: active messages, puts and gets, barriers, on the Portals 3.3
//! interface and nothing below it.
//!
//! ```text
//!  client ─► am/        requests, replies, handlers          ┐
//!                frames/    the same between ranks that share memory │
//!         ─► rma/       puts and gets, ops their handles     │   conduit.rs  polling and waiting; settle.rs many ends
//!         ─► barrier    notify, wait, try                    ├─► core.rs     events to state
//!         ─► exit       leaving together                     │   descriptors.rs, matchbits.rs
//!         ─► bootstrap  init, attach                         ┘          │
//!  resources.rs: chunks, tickets; credits/                       portals-shim Interface
//! ```
//!
//! The descriptor table, message formats and resource rules are the portals-conduit's;
//! `matchbits.rs` and `descriptors.rs` draw them, `docs/src/mechanisms/conduit.md` tells them.
//!
//! # Invariants
//!
//! 1. Requests are taken from their queue only with everything in hand that a reply needs, so a
//!    reply never waits and two ranks that flood each other both progress.
//! 2. Every message's events have room: sends hold tickets until they are complete, requests hold
//!    credits lent by the target, replies land in chunks their requests hold.
//! 3. No client code runs while the state is borrowed; a handler may call whatever takes a token or
//!    only looks.
//! 4. A wait is one blocking poll of all queues that may be handled; there is no clock but the
//!    fabric's.
//!
//! # Example
//!
//! ```
//! use conduit::{BarrierName, HandlerEntry, threads};
//! use std::{cell::Cell, rc::Rc};
//!
//! let ends = threads::run(2, |conduit| {
//!     let seen = Rc::new(Cell::new(0));
//!     let counter = seen.clone();
//!     let handlers = vec![HandlerEntry::new(0, move |_, _, args| counter.set(args[0]))];
//!     let add = conduit.attach(handlers, 4096).unwrap()[0];
//!     let peer = 1 - conduit.mynode();
//!     conduit.am_request_short(peer, add, &[42]).unwrap();
//!     conduit.block_until(|| seen.get() == 42);
//!     conduit.put(peer, conduit.segment(peer).addr, b"hello").unwrap();
//!     conduit.barrier(BarrierName::Anonymous).unwrap();
//!     let mut word = [0; 5];
//!     conduit.local_segment().unwrap().read(0, &mut word).unwrap();
//!     word
//! });
//! assert!(ends.iter().all(|e| *e == threads::RankEnd::Returned(*b"hello")));
//! ```

mod am;
mod barrier;
mod bootstrap;
mod chunks;
mod conduit;
mod core;
mod credit_files;
mod credits;
mod debugging;
mod descriptors;
mod dissemination;
mod env;
mod error;
mod exchange;
mod exclusive;
mod exit;
mod fault;
mod frames;
pub mod hsl;
mod leaving;
mod matchbits;
mod memory;
mod ops;
mod par;
mod pinning;
mod ranks;
mod resources;
mod rma;
mod segment;
mod settle;
mod signals;
pub mod threads;
mod tickets;
pub mod trace;

#[cfg(test)]
mod tests;

pub use am::{
    FIRST_EXTENDED, FIRST_HANDLER, Handler, HandlerEntry, MAX_ARGS, MAX_LONG, MAX_MEDIUM,
    MAX_PACKED, Payload, Token,
};
pub use conduit::Conduit;
pub use credits::{PeerCredits, PlanError, migration};
pub use debugging::OnError;
pub use dissemination::BarrierName;
pub use env::EnvError;
pub use error::{AmError, AttachError, BarrierError, InitError, RmaError};
pub use exchange::{Exchange, ExchangeError};
pub use hsl::{Hsl, HslError};
pub use ops::{Handle, Implicit};
pub use par::{Par, ParHandler};
pub use pinning::{Elsewhere, FirehoseStats};
pub use portals_shim::gate::this_thread;
pub use portals_shim::job::{end_by, is_child_of_rank};
pub use portals_shim::{
    ClockKind, Interface, Region, RegionError, is_own_thread, recv_within, say, spawn_own_thread,
    with_causes,
};
pub use rma::{Counted, Near, Piece};
pub use segment::SegInfo;
