//! The Portals 3.3 object model and delivery rules as a pure state machine.
//!
//! [`Ni`] holds one network interface: portal table, match entries (ME), memory descriptors (MD),
//! event queues (EQ), access control. It performs no I/O, reads no clock and dereferences no
//! memory. Whoever owns it (the host library on verbs, a node kernel or the firmware on SeaStar)
//! moves headers and bytes and reports back:
//!
//! ```text
//!   API call ──► put / get / get_put ──► Transmit { header, payload segments, op }
//!                                           │ the owner sends it, then
//!                                           └► send_end(op)               SEND_END, UNLINK
//!   header from the wire ──► handle_header ──► Incoming::Deposit { op, segments, … }
//!                                           │    bytes go to the segments, then
//!                                           │    deposit_end(op) ──► Option<ack Header>
//!                                           ├► Incoming::Reply   … reply_end(op)
//!                                           ├► Incoming::Swap    … swap_end(op)
//!                                           ├► Incoming::Acked     (the ACK event is posted)
//!                                           └► Incoming::Dropped   (counted)
//! ```
//!
//! # Invariants
//!
//! 1. An MD is *in use* from the call that returned an operation for it (`Transmit::op`,
//!    `Incoming::*::op`) until the matching `*_end`; while in use it cannot be unlinked, so the
//!    segments handed out stay valid (rules 62 and 66). Waiting for an ack or a reply is
//!    not use.
//! 2. The moment an END, ACK or REPLY_END event can be read the MD can be unlinked (rule 60).
//! 3. One accepted operation costs one threshold count; the event snapshot shows the count after it
//!    (rules 37-45).
//! 4. Events of one operation are posted START, END, UNLINK in this order, on one queue.
//! 5. A handle never names another object than the one it was made for, until its slot has been
//!    reused 1024 times.
//! 6. A header from a peer, however malformed, changes nothing but a drop counter unless it passes
//!    every rule of address translation (rules 1-9), or answers a request that awaits an answer.
//!
//! "Rule N" and "unlink rule N" are those of the book's pages `docs/src/mechanisms/matching.md`,
//! `descriptors.md` and `events.md`; "row N" is one of `docs/src/portals-differences.md`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ac;
mod ack;
mod advert;
mod eq;
mod error;
mod event;
mod handle;
pub mod header;
mod matching;
mod md;
mod memory;
mod ni;
mod table;
mod types;
mod usage;

pub use ac::AcEntry;
pub use ack::Ack;
pub use advert::Advert;
pub use error::Error;
pub use event::{Event, EventKind, MdSnapshot, NiFail};
pub use handle::{EqHandle, Handle, HandleKind, MdHandle, MeHandle, OpId};
pub use header::{Body, Fields, FieldsError, Header};
pub use md::MdDesc;
pub use memory::{Memory, Segment, Segments};
pub use ni::{
    AckRequest, Deposit, Deposited, DropReason, First, InPlace, Incoming, Landing, MeSpec, Ni,
    NiConfig, Place, ReadyPut, ReplyOut, Status, Swap, Transmit, UnreadEvents,
};
pub use types::{
    ANY, InsertPosition, Limits, MAX_MESSAGE, MdOptions, ProcessId, THRESHOLD_INFINITE, Unlink,
};
pub use usage::{ALIGNMENTS, Gauge, Usage};
