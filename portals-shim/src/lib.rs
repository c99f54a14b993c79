//! Portals 3.3 over one fabric: verbs, the SeaStar model, or one process.

pub mod job;
