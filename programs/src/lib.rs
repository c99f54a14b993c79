//! Programs written for the conduit, as libraries so that they can be tested: the binaries only read
//! arguments and print.
//!
//! | program | what it does | what it exercises |
//! |---|---|---|
//! | [`heat3d`] | diffusion on a 3-D grid, faces exchanged every step | Longs, or puts and barriers |
//! | [`gups`] | random updates of a distributed table | the rate of Shorts |
//!
//! Both print a checksum that does not depend on the number of ranks, bit for bit.

pub mod gups;
pub mod heat3d;
mod job;
mod log;
mod sum;

pub use job::{Failed, chain, start};
