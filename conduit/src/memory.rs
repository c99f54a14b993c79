//! Where an operation finds its bytes on this side: memory of the client, or of the own segment.
// UNSAFETY: tells the interface addresses of memory that Rust slices and C callers own, and copies
// answers into it.
#![expect(
    unsafe_code,
    reason = "addresses of slices and of C callers' memory go to the interface, and answers are copied there"
)]

use portals_shim::{Memory, RawMemory, Region, RegionError};

/// Memory of the client, lent to the conduit for one operation.
///
/// Whoever makes one promises with [`UserMem::new`]; everything here relies on that promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserMem {
    addr: *mut u8,
    len: usize,
    /// Which lending this memory belongs to; 0 when nobody counts.
    pub(crate) lending: u64,
}

impl UserMem {
    /// # Safety
    ///
    /// The operations started with this value touch `len` bytes at `addr`. For a put these stay readable
    /// until its local completion; for a get they stay writable and unborrowed until it is complete.
    pub(crate) unsafe fn new(addr: *mut u8, len: usize, lending: u64) -> Self {
        Self { addr, len, lending }
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr.expose_provenance() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes `from .. from + len`, or what of them exists.
    pub(crate) fn part(&self, from: usize, len: usize) -> Self {
        let from = from.min(self.len);
        Self {
            addr: self.addr.wrapping_add(from),
            len: len.min(self.len - from),
            lending: self.lending,
        }
    }

    pub(crate) fn describe(&self) -> RawMemory {
        let memory = Memory::contiguous(self.addr(), self.len as u64);
        // SAFETY: the maker of this value promised the range for as long as an operation touches it
        // (`UserMem::new`); the descriptor made of it initiates that one operation and is unlinked
        // when the operation is complete.
        unsafe { RawMemory::new(memory) }
    }

    /// Copies the memory to `to`, which it may be part of: programs name memory of their own segment.
    #[inline]
    pub(crate) fn copy_to(&self, to: &Region, offset: usize) -> Result<(), RegionError> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: readable by the promise of `UserMem::new`.
        unsafe { to.write_raw(offset, self.addr, self.len) }
    }

    /// Copies the memory to `to`, which has its length.
    pub(crate) fn copy_to_slice(&self, to: &mut [u8]) {
        if self.len == 0 {
            return;
        }
        // SAFETY: readable by the promise of `UserMem::new`; the borrow ends with this call.
        let from = unsafe { std::slice::from_raw_parts(self.addr, self.len) };
        to.copy_from_slice(from);
    }

    /// Fills the memory with `data`, which has its length.
    pub(crate) fn fill(&self, data: &[u8]) {
        if self.len == 0 || data.len() != self.len {
            return;
        }
        // SAFETY: writable and unborrowed by the promise of `UserMem::new`; the borrow ends with
        // this call.
        let to = unsafe { std::slice::from_raw_parts_mut(self.addr, self.len) };
        to.copy_from_slice(data);
    }

    /// Fills the memory from `from`, which it may be part of.
    pub(crate) fn copy_from(&self, from: &Region, offset: usize) -> Result<(), RegionError> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: writable and unborrowed by the promise of `UserMem::new`.
        unsafe { from.read_raw(offset, self.addr, self.len) }
    }
}

/// Where the bytes of an operation are on this side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// There are none.
    Empty,
    /// Memory the client lends.
    User(UserMem),
    /// The own segment.
    Segment { offset: usize, len: usize },
    /// Nowhere any more: the bytes are at the destination.
    Placed { len: usize },
}

impl Source {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::User(m) => m.len(),
            Self::Segment { len, .. } | Self::Placed { len } => *len,
        }
    }

    /// Bytes `from .. from + len`.
    pub(crate) fn part(&self, from: usize, len: usize) -> Self {
        match self {
            Self::Empty | Self::Placed { .. } => *self,
            Self::User(m) => Self::User(m.part(from, len)),
            Self::Segment { offset, .. } => Self::Segment {
                offset: offset + from,
                len,
            },
        }
    }
}
