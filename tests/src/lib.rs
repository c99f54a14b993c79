//! Conformance, device, fault and command-line tests.

pub mod conformance;
pub mod harness;
