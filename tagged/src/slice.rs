//! Memory that messages are sent from and received into.

use crate::error::CallError;
use portals_shim::{MdMemory, Region, RegionPart};

/// Part of a region. The region is shared: what a message does to the bytes while it is under way, the program sees.
#[derive(Clone, Debug)]
pub struct Slice {
    pub(crate) region: Region,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Slice {
    /// `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`CallError::Buffer`] when the region does not have them.
    pub fn new(region: &Region, offset: usize, len: usize) -> Result<Self, CallError> {
        if offset.checked_add(len).is_none_or(|end| end > region.len()) {
            return Err(CallError::Buffer {
                offset,
                len,
                region: region.len(),
            });
        }
        Ok(Self {
            region: region.clone(),
            offset,
            len,
        })
    }

    /// All of a region.
    pub fn whole(region: &Region) -> Self {
        Self {
            region: region.clone(),
            offset: 0,
            len: region.len(),
        }
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `len` bytes; `None` when there are none, or not so many.
    pub(crate) fn part(&self, len: usize) -> Option<Self> {
        (len > 0 && len <= self.len).then(|| Self {
            region: self.region.clone(),
            offset: self.offset,
            len,
        })
    }

    /// Where it lies.
    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        self.region.addr() + self.offset as u64
    }

    pub(crate) const fn lent(&self) -> RegionPart<'_> {
        RegionPart {
            region: &self.region,
            offset: self.offset,
            len: self.len,
        }
    }

    pub(crate) fn memory(&self) -> MdMemory {
        if self.len == 0 {
            return MdMemory::Empty;
        }
        MdMemory::Region {
            region: self.region.clone(),
            offset: self.offset,
            len: self.len,
        }
    }
}
