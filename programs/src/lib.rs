//! Programs written for the conduit or for tag matching, as libraries so that they can be tested: the binaries only read
//! arguments and print.
//!
//! | program | what it does | what it exercises |
//! |---|---|---|
//! | [`heat3d`] | diffusion on a 3-D grid, faces exchanged every step | Longs, or puts and barriers |
//! | [`gups`] | random updates of a distributed table | the rate of Shorts, or small gets and puts |
//! | [`life`] | the game of life, rows exchanged every generation | tagged messages |
//!
//! All print a checksum that does not depend on the number of ranks, bit for bit.

mod arguments;
pub mod gups;
pub mod heat3d;
mod job;
pub mod life;
pub mod log;
mod memory;
mod sum;

pub use arguments::arguments;
pub use job::{Failed, shown, start};
pub use memory::Memory;
