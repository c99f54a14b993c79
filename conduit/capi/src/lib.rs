//! GASNet-1 for C programs: the functions that `include/gasnet.h` declares, over the conduit.
//!
//! ```text
//!  C program ──► job, am, rma, values, sync, barrier, vis, coll   one entry for each function
//!                unmap, memory that the program takes away
//!                blockuntil, how a wait for a condition looks at it again
//!                clock, the time of the model, and computing
//!                credits, what is counted of them
//!                lock, the handler-safe lock and no-interrupt sections; trace, lines and counts of calls
//!                reach, what depends on the segment mode
//!                  │ ptr    arguments: what C passes, by type
//!                  ▼
//!                state      the one conduit; how to wait; how to fail
//!                  ▼
//!                conduit::Conduit in GASNET_SEQ, conduit::Par otherwise
//! ```
//!
//! Three thin crates, `seq`, `parsync` and `par`, make the libraries of the thread models: they have the symbols by
//! which a program of another model does not link.
//!
//! # Invariants
//!
//! 1. There is no lock here. In SEQ the conduit has one thread; otherwise threads take turns with it by the conduit's
//!    own means (`conduit::Par`), which is also how a handler replies and how a wait lets others in. Requests go to
//!    `Par` as they are, which takes no turn for those that need none.
//! 2. A put or get of memory that this process reaches by itself is a bounds check and a copy, in every thread model,
//!    and no operation allocates.
//! 3. A mistake in a call of the core API is answered by a code. A mistake in a call of the extended API ends the process with
//!    a line that names the call, and in a debug build the place it was made from. Null where memory, arguments, lists or
//!    handles are needed is a mistake too. Nothing unwinds into C.
//! 4. A handler may wait for a lock of the program (HSL) while the conduit is locked. So GASNet forbids a thread that holds an
//!    HSL to wait for the conduit. Debug builds look at that; others leave it to the program.

pub mod am;
pub mod barrier;
pub mod blockuntil;
pub mod clock;
pub mod coll;
mod crash;
pub mod credits;
mod ending;
pub mod install;
pub mod job;
pub mod lock;
pub mod ptr;
mod reach;
pub mod rma;
pub mod state;
pub mod sync;
pub mod trace;
pub mod unmap;
pub mod values;
pub mod vis;

pub use job::init;
pub use reach::Reach;
pub use state::{Build, Endpoint, Mode, endpoint};
