//! Measurements of the Portals interface itself, between ranks 0 and 1; other ranks only keep the barriers.

pub(super) mod bandwidth;
pub(super) mod depth;
mod endpoint;
pub(super) mod latency;

pub(super) use endpoint::Endpoint;
pub(crate) use endpoint::Software;
