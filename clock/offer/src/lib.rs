//! Virtual time for programs that read the system's clocks.
//!
//! ```text
//!   program ── clock_gettime ──► libportolan-clock.so, preloaded (`portolan run --clock virtual`)
//!                                  └── asks ──► the C library of Portolan in this process: this crate
//!   Portolan's own waits ── clock_gettime ──► the C library, past the preloaded one (`bypass.rs`)
//! ```
//!
//! A C library of Portolan calls [`opened`] for each interface, and [`closed`]. Nothing happens where no library is preloaded, or where time is
//! the host's. A static library of Portolan, whose own calls would not bypass the preloaded one, says that the clocks stay the host's.
//!
//! | file | has |
//! |---|---|
//! | `timeline.rs` | one time of a process over interfaces that open and close |
//! | `readings.rs` | what is read, and by whom |
//! | `source.rs` | what the preloaded library is given; that library has the file too |
//! | `bypass.rs` | the edge: the preloaded library, and the functions of the C library that bypass it |

mod bypass;
mod readings;
mod source;
mod timeline;

pub use readings::{closed, opened};
