//! Raw declarations of libibverbs and librdmacm, opened at run time.
//!
//! The build needs no system package, and a program runs on machines without RDMA: [`verbs`] opens
//! `libibverbs.so.1` on first use and says so if it is absent. [`types`] holds the part of
//! `infiniband/verbs.h` that `verbs-backend` uses, [`library`] the functions, and [`inline`] those that C
//! programs get as `static inline` functions from the header. [`cma()`] does the same for `librdmacm.so.1`, which only those
//! need whose devices make connections by the RDMA connection manager; [`mod@cma`] holds its types.
//!
//! Enumerations of the header are plain integers with constants here, so that a value that this crate does
//! not know is data and not undefined behaviour.
//!
//! The declarations derive from rdma-core's headers under the OpenIB.org BSD license; the notice is in
//! `LICENSE-OpenIB.txt` beside this crate's `Cargo.toml`.

pub mod cma;
pub mod inline;
pub mod library;
pub mod types;

pub use library::{Cma, LoadError, Verbs, cma, verbs};
pub use types::*;
