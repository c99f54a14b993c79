//! A put or get as a value.

use crate::memory::Source;
use crate::ops::{Handle, Key};

/// How an operation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It has a handle.
    Explicit,
    /// With the implicit operations.
    Implicit,
}

/// How the end of an operation is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// By a handle that the caller waits for at once.
    Blocking,
    /// By a handle.
    Explicit,
    /// With the implicit operations.
    Implicit,
    /// With this operation, of which it is a part.
    Part(Key),
}

impl Completion {
    /// Whether the operation has a slot of its own, which its handle names.
    #[inline(always)]
    pub(crate) fn has_handle(self) -> bool {
        matches!(self, Self::Blocking | Self::Explicit)
    }

    /// What the caller gets of an operation that counts on `key`.
    #[inline(always)]
    pub(crate) fn handle(self, key: Key) -> Handle {
        Handle(self.has_handle().then_some(key))
    }
}

impl From<Counted> for Completion {
    fn from(counted: Counted) -> Self {
        match counted {
            Counted::Explicit => Self::Explicit,
            Counted::Implicit => Self::Implicit,
        }
    }
}

/// A put or get of one range, as its caller asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rma {
    pub(crate) get: bool,
    pub(crate) node: u32,
    /// Address in the segment of `node`.
    pub(crate) addr: u64,
    /// The memory of this side.
    pub(crate) local: Source,
    pub(crate) completion: Completion,
    /// The memory of a put is free when the call returns, and not only when the put is complete.
    pub(crate) buffered: bool,
}

impl Rma {
    /// A put whose memory is in use until it is complete.
    #[inline(always)]
    pub(crate) fn put(node: u32, addr: u64, local: Source, completion: Completion) -> Self {
        Self {
            get: false,
            node,
            addr,
            local,
            completion,
            buffered: false,
        }
    }

    /// A get.
    #[inline(always)]
    pub(crate) fn get(node: u32, addr: u64, local: Source, completion: Completion) -> Self {
        Self {
            get: true,
            ..Self::put(node, addr, local, completion)
        }
    }

    /// The same put, whose memory is free when the call returns.
    #[inline(always)]
    pub(crate) fn buffered(self) -> Self {
        Self {
            buffered: true,
            ..self
        }
    }

    /// The same as a part of an operation.
    #[inline(always)]
    pub(crate) fn part_of(self, key: Key) -> Self {
        Self {
            completion: Completion::Part(key),
            ..self
        }
    }

    /// What faults call it.
    #[inline(always)]
    pub(crate) fn name(&self) -> &'static str {
        if self.get { "get" } else { "put" }
    }
}
