//! Measurements of the Portals interface itself, between ranks 0 and 1; other ranks only keep the barriers,
//! but for `puts-in-flight`, which puts to all of them.

pub(super) mod bandwidth;
pub(super) mod depth;
mod endpoint;
pub(super) mod flood;
pub(super) mod latency;

pub(super) use endpoint::Endpoint;
pub(crate) use endpoint::Software;
