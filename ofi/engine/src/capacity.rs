//! How much an endpoint makes room for.

/// How many events, operations that wait, counted accesses and entries of a completion queue there is room for. Tests have less room,
/// so that they come to each bound on a slow device too.
pub(crate) const CAPACITY: usize = if cfg!(test) { 1 << 14 } else { 1 << 16 };
