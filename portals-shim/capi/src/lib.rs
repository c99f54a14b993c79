//! Portals 3.3 for C programs: the functions that `include/portals3.h` declares.
//!
//! ```text
//!  C program ──► library, ni, me_md, eq, ops, misc     one entry for each function of the API
//!                p3rt, cnos                            ranks, in the two ways programs ask
//!                clock                                 time of the interface, and computing
//!                  │ types   the structures' layout
//!                  │ ptr     pointers of a caller, checked for NULL
//!                  ▼
//!                state     initialised? which interfaces are open? handle → interface
//!                job       joined when first needed, left when the process exits with status 0
//!                exit      `_exit(0)`, which runs no exit handler, leaves it too
//!                  ▼
//!                portals_shim::Interface
//! ```
//!
//! # What an entry promises
//!
//! * It never unwinds into the caller: a panic is `PTL_FAIL`.
//! * Before `PtlInit` it answers `PTL_NO_INIT`, and then, in this order, looks at pointers (NULL is
//!   `PTL_SEGV`), handles (a handle that is stale, of another kind or of no open interface is the
//!   `*_INVALID` of its place) and values.
//! * No lock is held while an event queue's handler runs.
//! * It is no cancellation point, but for a wait for ever: a thread that is cancelled meanwhile ends after it.
//!
//! Any thread may call any function. After a `fork` the child is a process that never initialised,
//! and cannot: `PtlInit` fails there.
//!
//! A Rust program uses `portals-shim` and never links this crate, which defines C symbols.

mod cancel;
pub mod clock;
pub mod cnos;
mod condemned;
mod ending;
pub mod eq;
pub mod exit;
pub mod install;
mod job;
pub mod library;
pub mod me_md;
pub mod memd;
pub mod misc;
pub mod names;
pub mod ni;
pub mod ops;
pub mod p3rt;
mod ptr;
mod state;
pub mod types;
