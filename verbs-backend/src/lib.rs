//! Safe RDMA verbs.
//!
//! A module for each noun of the verbs: [`device`], [`event`], [`gid`], [`pd`], [`mr`], [`buffer`], [`cq`],
//! [`completion`], [`srq`], [`batch`] (work requests), [`qp`] (reliable connections), [`cm`] (connections made by the connection manager) and [`ud`]
//! (datagrams). Beside them [`rd`], which makes datagrams reliable and knows nothing of verbs.
//!
//! ```text
//!   Device ── Pd ──┬── BufferPool ── Buffer   slots of registered memory, owned by a request while posted
//!     │            ├── Window                 registered memory that peers may read and write
//!     │            ├── Mr                     any registered range (unsafe to make)
//!     │            ├── Srq                    receives for many queue pairs
//!     └─── Cq ─────┴── Qp ◀── SendBatch       chain of work requests, one call to post it
//!     │     │
//!     │     └──▶ Completion ◀── Datagrams
//!     └──▶ Event
//! ```
//!
//! # Memory
//!
//! Memory that the adapter may touch is owned by the work request from the post until its completion has been
//! polled. A [`Buffer`] is moved into the queue by the post and comes back by
//! [`Qp::take`] or [`Srq::take`] with the [`Completion`];
//! between the two nobody can name its bytes. Inline data is copied at the post. Ranges that are neither are added
//! by the one unsafe call [`SendBatch::push_raw`], whose contract is the same rule.
//! Memory open to peers ([`Window`]) is never lent as a slice.
//!
//! # Thread safety
//!
//! libibverbs serialises the calls on each object, and every type here is `Send`. `Device`, `Pd`, `Mr`,
//! `BufferPool`, `Cq`, `Srq` and `Qp` are `Sync` as well; a batch is filled by one thread, and a `Window` is
//! `Send` only, since its bytes are read and written without synchronisation. Completions of one queue are polled by
//! several threads at a time without harm; which thread gets which is then open. See [`fork`] for child processes.
//!
//! # Resource cleanup
//!
//! Each object keeps those it was made from alive, so that the order of drops does not matter; dropping the
//! last handle destroys the object. A queue pair is destroyed before the buffers that are still posted to it
//! are freed. If the library refuses to destroy an object, that is logged and its memory is leaked rather than
//! reused.
//!
//! # Library dependency
//!
//! Nothing is linked. `libibverbs.so.1` and the device's provider (on Debian `libibverbs1` and
//! `ibverbs-providers`) are opened by the first call; where they are absent it answers
//! [`DeviceError::NotInstalled`].

pub mod batch;
pub mod buffer;
pub mod cm;
pub mod completion;
pub mod counters;
pub mod cq;
pub mod device;
pub mod event;
pub mod fork;
pub mod gid;
mod inflight;
pub mod mr;
pub mod pd;
pub mod qp;
pub mod rd;
pub mod srq;
pub mod ud;
mod unlisted;

pub use batch::{Segment, SendBatch, SendFlags, SendOp};
pub use buffer::{Buffer, BufferPool, Remote, Window};
pub use completion::{Completion, Opcode, Status};
pub use cq::Cq;
pub use device::{Device, DeviceError, Limits, PortInfo};
pub use event::Event;
pub use gid::{Gid, GidEntry, GidType};
pub use mr::{Access, Mr};
pub use pd::Pd;
pub use qp::{Endpoint, Mtu, Qp, QpOptions, QpState, Route};
pub use srq::Srq;
pub use ud::{Arrival, DatagramAddress, DatagramOptions, DatagramQueue, Datagrams, Destination};
