//! The get that is not answered, and the one that is timed.

use crate::memory::Transfer;
use std::time::Instant;

/// A get that the peer's library has not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) peer: usize,
    /// Of its request, and what that would be to the adapter.
    pub(super) id: u64,
    pub(super) transfer: Transfer,
    /// Looks that are left.
    pub(super) looks: u32,
}

/// A get whose time is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) peer: usize,
    pub(super) id: u64,
    /// Which protocol it goes by.
    pub(super) by_am: bool,
    pub(super) since: Instant,
}

/// Gets by active message, and what is measured of them.
#[derive(Debug, Default)]
pub(crate) struct AmGets {
    pub(super) pending: Option<Pending>,
    pub(super) timed: Option<Timed>,
    /// Of the last request, modulo 2^32.
    pub(super) number: u32,
}

impl AmGets {
    /// Of the last request.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// A get is being timed.
    #[inline(always)]
    pub(crate) fn is_timing(&self) -> bool {
        self.timed.is_some()
    }

    #[inline(always)]
    pub(crate) fn under_way(&self) -> bool {
        self.pending.is_some()
    }
}
