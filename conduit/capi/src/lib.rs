//! GASNet-1 for C programs: the functions that `include/gasnet.h` declares, over the conduit.
//!
//! ```text
//!  C program ──► job, am, rma, sync, barrier, vis, coll   one entry for each function
//!                lock, the handler-safe lock and no-interrupt sections
//!                  │ ptr    a caller's memory
//!                  ▼
//!                state      the one conduit, under one lock; how to wait; how to fail
//!                  ▼
//!                conduit::Conduit
//! ```
//!
//! Three thin crates, `seq`, `parsync` and `par`, make the libraries of the thread models: they have the symbols by
//! which a program of another model does not link.
//!
//! # Invariants
//!
//! 1. Every use of the conduit is under the lock of `state.rs`. It may be taken again by the thread that holds it,
//!    which is how a handler replies.
//! 2. In PAR no wait holds the lock: it polls, gives the lock up, and polls again, so that every thread gets its turn.
//!    Otherwise a wait is the conduit's own, which leaves the processor to others.
//! 3. What a call of the core API can get wrong is a code; what a call of the extended API can get wrong ends the
//!    process with a line that names the call, and in a debug build the place it was made from. Nothing unwinds into C.
//! 4. A lock of the program (HSL) may be waited for while the conduit is locked, by a handler; whoever holds an HSL
//!    never waits for the conduit, which is a rule of GASNet and looked at in debug builds.

pub mod am;
pub mod barrier;
pub mod coll;
pub mod install;
pub mod job;
pub mod lock;
mod ptr;
pub mod rma;
pub mod state;
pub mod sync;
pub mod vis;

pub use job::init;
pub use state::Mode;
