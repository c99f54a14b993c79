//! Portals 3.3 over one fabric: shared memory, RDMA verbs, the SeaStar model, or the threads of one process.
//!
//! ```text
//!  Interface            the API (PtlNIInit … PtlGetPut), `interface.rs`
//!     │ Call            every function as a value, `call.rs`
//!     ├── in this process ──► Library { Ni, Nal }            `library.rs`
//!     │                         └── fabric/shm, fabric/verbs, fabric/inproc
//!     └── trap ── socket ──►  node kernel: Library { Ni, SSNAL }   fabric/seastar
//! ```
//!
//! [`fabric`] is the one place that knows which fabric a program runs on; [`job`] is how its
//! processes found each other.

pub mod endpoint;
pub mod fabric;
mod interface;
pub mod nal;
mod time_left;
mod trusted;

pub use fabric_api::attached::Attached;
pub use fabric_api::bridge::{Caller, ClockKind, Window};
pub use fabric_api::call::{
    Brief, Channels, EqList, Paths, PollError, Polled, RemoteKey, Taken, Target, Wait,
};
pub use fabric_api::delivery::Message;
pub use fabric_api::op::{Capabilities, Get, Mode, Posted, Put, Report};
pub use fabric_api::region::{RawMemory, Region, RegionError, Trust, WeakRegion};
pub use fabric_api::{gate, place};
pub use fabric_shm::{FRAME, Frame, Lane, Link, Links, Near, Unfetched};
pub use host::awake::{Awake, recv_within};
pub use host::bystander::spawn_bystander;
pub use host::own_thread::with_signals_blocked;
pub use host::{
    Bystander, MemoryLimits, PRIVILEGED, allowed_processors, handover, ids, is_own_thread,
    is_privileged, limit, nearest, say, spawn_own_thread, unknown_variables, with_causes,
};
pub use interface::{Interface, MdMemory, MdSpec, RegionPart};

pub use launch as job;
pub use portals_core as core;
pub use portals_core::{
    ANY, AcEntry, AckRequest, EqHandle, Error, Event, EventKind, Handle, InsertPosition, Limits,
    MAX_MESSAGE, MdHandle, MdOptions, MdSnapshot, MeHandle, MeSpec, Memory, NiFail, ProcessId,
    Segment, Status, THRESHOLD_INFINITE, Unlink, Usage,
};
pub use time_left::TimeLeft;
