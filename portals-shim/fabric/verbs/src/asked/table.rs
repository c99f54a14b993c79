//! The gets that are asked for, or timed.

use super::choice::{Reads, Way};
use crate::memory::Transfer;
use std::time::Instant;

/// The get that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) peer: usize,
    /// Of its request, and what that would be to the adapters.
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
    pub(super) way: Way,
    pub(super) since: Instant,
}

/// Gets that are asked for, or timed.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(super) reads: Reads,
    pub(super) pending: Option<Pending>,
    pub(super) timed: Option<Timed>,
    /// Of the last request, modulo 2^32.
    pub(super) number: u32,
}

impl Asks {
    pub(crate) fn new(reads: Reads) -> Self {
        Self {
            reads,
            pending: None,
            timed: None,
            number: 0,
        }
    }

    /// Of the last request.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[inline(always)]
    pub(crate) fn under_way(&self) -> bool {
        self.pending.is_some()
    }
}
