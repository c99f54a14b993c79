//! Virtual time for programs that read the system's clocks: a library that `portolan run --clock virtual` preloads.
//!
//! A thread that has made calls on the SeaStar model reads the virtual time of its rank by `clock_gettime`, `gettimeofday`, `time` and
//! `timespec_get`; what sleeps takes virtual time; what waits until a time of these clocks waits until then. All other threads, and all programs
//! before they have opened an interface, have the host's clocks.
//!
//! | file | has |
//! |---|---|
//! | `sources.rs` | the libraries of Portolan in this process, which are asked |
//! | `clock/offer/src/source.rs` | what these give |
//! | `clocks.rs` | the functions that read a clock |
//! | `sleeps.rs` | those that sleep |
//! | `deadlines.rs` | those that wait until a time |
//! | `times.rs` | seconds and nanoseconds |
//! | `real.rs` | the C library's functions behind these |
//!
//! Nothing here unwinds, allocates or has a lock, and any thread may call all of it, handlers of signals too. A thread may be cancelled in
//! a function that sleeps or waits: none of them holds anything.

mod clocks;
mod deadlines;
mod real;
mod sleeps;
#[path = "../offer/src/source.rs"]
mod source;
mod sources;
mod times;
