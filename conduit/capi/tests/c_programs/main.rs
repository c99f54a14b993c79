//! C programs against the headers and the libraries, as ranks of jobs.
//!
//! They need a C compiler; without one the tests say so and pass.

mod bad;
#[path = "../../../../tests/built.rs"]
mod built;
mod calls;
mod children;
mod clock;
mod costs;
mod credits;
mod edges;
mod ends;
mod headers;
mod programs;
mod variables;
