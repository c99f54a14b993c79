//! What a process knows of the machine it runs on: who its peers are and whether they live, its limits and memory, its
//! processors, its privileges and environment, and how it speaks to people.
//!
//! | module | question |
//! |---|---|
//! | [`accept`], [`peer`], [`secret`], [`life`], [`held`], [`process`], [`procfs`], [`mod@group`], [`machine`] | who is at the other end, where, and does it live? |
//! | [`ids`] | who is this process? |
//! | [`limit`], [`memory_limits`], [`processors`] | what may this process have? |
//! | [`privilege`], [`variables`] | whose environment is this? |
//! | [`own_thread`], [`bystander`] | whose thread is this? |
//! | [`detached`], [`null_stdio`] | how does it start others? |
//! | [`mod@fork`] | is this process still the one that has begun something? |
//! | [`mod@hash`] | are two things that processes tell each other of the same? |
//! | [`mod@say`], [`handover`], [`shared_file`], [`dump`] | what leaves the process? |
//!
//! A process id is a number that the next process may get, and it means something in one PID namespace only. So a process is
//! held by a descriptor (a pidfd, its memory, its socket). Who it is, is proven by what the kernel says of its socket
//! ([`peer::Credentials`]) and by a [`secret::Secret`] that the ranks of one job have and nobody else.
//!
//! All functions may be called from any thread.
//!
//! ```
//! let limits = host::MemoryLimits::now();
//! assert!(limits.memory() <= limits.machine);
//! assert!(!host::allowed_processors().is_empty());
//! ```

pub mod accept;
#[cfg(test)]
mod again;
pub mod awake;
pub mod bystander;
pub mod detached;
pub mod dump;
pub mod fork;
pub mod group;
pub mod handover;
pub mod hash;
pub mod held;
pub mod ids;
pub mod life;
pub mod limit;
pub mod machine;
pub mod memory_limits;
pub mod null_stdio;
pub mod own_thread;
pub mod peer;
pub mod privilege;
pub mod process;
pub mod processors;
pub mod procfs;
pub mod say;
pub mod secret;
pub mod shared_file;
pub mod variables;

pub use bystander::Bystander;
pub use memory_limits::MemoryLimits;
pub use own_thread::{is_own_thread, spawn_own_thread};
pub use privilege::{PRIVILEGED, is_privileged};
pub use processors::allowed_processors;
pub use say::{note, say, with_causes};
pub use variables::{nearest, unknown_variables};
