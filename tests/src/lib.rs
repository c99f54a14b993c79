//! Conformance, device, fault and command-line tests.
