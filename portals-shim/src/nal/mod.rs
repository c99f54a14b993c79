//! Network abstraction layers: how messages of one [`Ni`](portals_core::Ni) reach another.
//!
//! | module | fabric |
//! |---|---|
//! | `inproc` | threads of one process, for tests |
//! | `shm` | memory shared by the ranks of one machine |
//! | `verbs` | RDMA |
//! | `composite` | RDMA between machines, shared memory within each |
//! | `seastar` | the simulated SeaStar: node kernels, host driver, ranks |
//!
//! `verbs` with `composite`, and `seastar`, are features of this crate. A program over shared memory alone links neither a device's
//! library nor a simulator.

#[cfg(feature = "verbs")]
pub mod composite;
pub mod inproc;
#[cfg(feature = "seastar")]
pub mod seastar;
#[cfg_attr(
    not(feature = "verbs"),
    allow(
        dead_code,
        unused_imports,
        reason = "what the composite of memory and verbs uses"
    )
)]
pub mod shm;
pub(crate) mod trusted;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use fabric_api::nal::{Attendance, Awaiting, Nal, Nap};

#[cfg(test)]
pub(crate) mod testing;
