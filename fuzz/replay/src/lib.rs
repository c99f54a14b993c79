//! What the fuzz targets do with their bytes.
//!
//! Each target is a function of bytes that panics when a promise is broken. `fuzz/targets` gives
//! them to libFuzzer; `tests/replay.rs` runs them over the committed corpora and over random bytes.

pub mod accelerated;
pub mod calls;
pub mod datagrams;
pub mod frames;
pub mod input;
pub mod pmi;
pub mod registers;
pub mod wire;

/// A target: its name, which is also its corpus' directory, and its body. The body returns how
/// often it got past the checks: messages taken, lines parsed.
pub type Target = (&'static str, fn(&[u8]) -> u32);

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("wire", wire::run),
    ("calls", calls::run),
    ("frames", frames::run),
    ("pmi", pmi::run),
    ("registers", registers::run),
    ("accelerated", accelerated::run),
    ("datagrams", datagrams::run),
];
