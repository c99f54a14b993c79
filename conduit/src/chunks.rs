//! Send buffers cut into chunks of one size.
//!
//! A chunk is named by its byte offset in the buffer, which is what travels in match bits. The last
//! freed chunk is the next taken: it is the one most likely to be cached.

use portals_shim::{Region, RegionError};

/// Bytes of a chunk; also the largest active message header with its payload.
pub(crate) const CHUNK: usize = 2048;

/// What a chunk is lent to; `T` says what its owner must remember.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    region: Region,
    uses: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Chunks<T> {
    pub(crate) fn new(count: u32) -> Result<Self, RegionError> {
        let region = Region::new(count as usize * CHUNK)?;
        Ok(Self {
            region,
            uses: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
        })
    }

    /// The memory of all chunks.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Bytes of all chunks; the region may be longer.
    pub(crate) fn bytes(&self) -> usize {
        self.count() * CHUNK
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.uses.len()
    }

    /// A free chunk's offset.
    pub(crate) fn take(&mut self, what: T) -> Option<u32> {
        let index = self.free.pop()?;
        self.uses[index as usize] = Some(what);
        Some(index * CHUNK as u32)
    }

    /// The offset of the chunk that [`Chunks::take`] would give.
    #[inline]
    pub(crate) fn next(&self) -> Option<u32> {
        self.free.last().map(|index| index * CHUNK as u32)
    }

    fn index(offset: u64) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        offset.is_multiple_of(CHUNK).then_some(offset / CHUNK)
    }

    /// What the chunk at `offset` is lent to; `None` for a free chunk or no chunk at all.
    pub(crate) fn lent(&self, offset: u64) -> Option<&T> {
        self.uses.get(Self::index(offset)?)?.as_ref()
    }

    /// Takes a chunk back; `None`, and nothing changes, if it was not lent.
    pub(crate) fn release(&mut self, offset: u64) -> Option<T> {
        let index = Self::index(offset)?;
        let what = self.uses.get_mut(index)?.take()?;
        self.free.push(u32::try_from(index).ok()?);
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_distinct_and_come_back_once() {
        let mut c = Chunks::new(3).unwrap();
        let taken: Vec<_> = (0..3).map(|i| c.take(i).unwrap()).collect();
        assert_eq!(taken, [0, 2048, 4096]);
        assert!(c.take(9).is_none());
        assert_eq!(c.lent(2048), Some(&1));
        assert_eq!(c.release(2048), Some(1));
        assert_eq!(c.release(2048), None);
        assert_eq!(c.release(2049), None);
        assert_eq!(c.release(1 << 40), None);
        assert_eq!(c.next(), Some(2048));
        assert_eq!(c.take(7), Some(2048));
        assert_eq!(c.next(), None);
        assert_eq!(c.bytes(), 6144);
    }
}
