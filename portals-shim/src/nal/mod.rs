//! Network abstraction layers: how messages of one [`Ni`](portals_core::Ni) reach another.
//!
//! | module | fabric |
//! |---|---|
//! | `inproc` | threads of one process, for tests |
//! | `shm` | memory shared by the ranks of one machine |
//! | `verbs` | RDMA |
//! | `composite` | RDMA between machines, shared memory within each |
//! | `seastar` | the simulated SeaStar: node kernels, host driver, ranks |

pub mod composite;
pub mod inproc;
pub mod seastar;
pub mod shm;
pub(crate) mod trusted;
pub mod verbs;

pub use fabric_api::nal::{Attendance, Awaiting, Nal, Nap};

#[cfg(test)]
pub(crate) mod testing;
