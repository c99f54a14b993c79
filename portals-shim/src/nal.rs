//! Network abstraction layers: how messages of one [`Ni`](portals_core::Ni) reach another.
//!
//! | module | crate | fabric |
//! |---|---|---|
//! | `inproc` | `fabric-inproc` | threads of one process, for tests |
//! | `shm` | `fabric-shm` | memory shared by the ranks of one machine |
//! | `verbs` | `fabric-verbs` | RDMA |
//! | `composite` | `fabric-both` | RDMA between machines, shared memory within each |
//! | `seastar` | `fabric-seastar` | the simulated SeaStar: node kernels, host driver, ranks |
//!
//! `verbs` with `composite`, and `seastar`, are features of this crate. A program over shared memory alone links neither a device's
//! library nor a simulator.

#[cfg(feature = "verbs")]
pub use fabric_both as composite;
pub use fabric_inproc as inproc;
#[cfg(feature = "seastar")]
pub use fabric_seastar as seastar;
pub use fabric_shm as shm;
#[cfg(feature = "verbs")]
pub use fabric_verbs as verbs;

pub use fabric_api::nal::{
    Armed, Attendance, Awaiting, Direction, Look, Nal, Nap, Outcome, Schedule, Waiter,
};
