//! Virtual time for programs that read the system's clocks.
//!
//! ```text
//!   program ── clock_gettime ──► libportolan-clock.so, preloaded (`portolan run --clock virtual`)
//!                                  └── asks ──► the C library of Portolan in this process: this crate
//!   Portolan's own waits ── clock_gettime ──► the C library, past the preloaded one (`spared.rs`)
//! ```
//!
//! A C library of Portolan calls [`opened`] for each interface, and [`closed`]. Nothing happens where no library is preloaded, where time is
//! the host's, or where the library's own calls are not spared: a static library, whose calls are the program's.
//!
//! | file | has |
//! |---|---|
//! | `timeline.rs` | one time of a process over interfaces that open and close |
//! | `readings.rs` | what is read, and by whom |
//! | `spared.rs` | the edge: the preloaded library, and the functions that Portolan calls past it |

mod readings;
mod spared;
mod timeline;

pub use readings::{closed, opened};
