//! Portals 3.3 over one fabric: shared memory, RDMA verbs, the SeaStar model, or the threads of one process.
//!
//! ```text
//!  Interface            the API (PtlNIInit … PtlGetPut), `interface.rs`
//!     │ Call            every function as a value, `call.rs`
//!     ├── in this process ──► Library { Ni, Nal }            `library.rs`
//!     │                         └── nal/shm, nal/verbs, nal/inproc
//!     └── trap ── socket ──►  node kernel: Library { Ni, SSNAL }   nal/seastar
//! ```
//!
//! [`fabric`] is the one place that knows which fabric a program runs on; [`job`] is how its
//! processes found each other.

mod bystander;
mod call;
mod delivery;
mod direct;
mod dump;
pub mod fabric;
pub mod gate;
pub mod handover;
mod identity;
mod interface;
pub mod job;
mod library;
pub mod limit;
mod memory_limits;
pub mod nal;
mod own_thread;
pub mod place;
mod privilege;
mod process;
mod processors;
mod region;
mod say;
mod variables;

pub use bystander::Bystander;
pub use call::{Awaited, Brief, Channels, EqList, Paths, Polled, Taken, Target, Wait};
pub use delivery::Message;
pub use interface::{
    ClockKind, Interface, MdMemory, MdSpec, PollError, RegionPart, RemoteKey, Window,
};
pub use memory_limits::MemoryLimits;
pub use nal::shm::{FRAME, Frame, Lane, Link, Near};
pub use own_thread::{is_own_thread, spawn_own_thread};
pub use privilege::{PRIVILEGED, is_privileged};
pub use processors::allowed_processors;
pub use region::{RawMemory, Region, RegionError, Trust, WeakRegion};
pub use say::say;
pub use variables::{nearest, unknown_variables};

pub use portals_core as core;
pub use portals_core::{
    ANY, AcEntry, AckRequest, EqHandle, Error, Event, EventKind, Handle, InsertPosition, Limits,
    MAX_MESSAGE, MdHandle, MdOptions, MdSnapshot, MeHandle, MeSpec, Memory, NiFail, ProcessId,
    Segment, Status, THRESHOLD_INFINITE, Unlink, Usage,
};
