// UNSAFETY: a program gives addresses of its memory, which is read and written here while its operation is under way.
#![expect(
    unsafe_code,
    reason = "reads and writes memory that a program has lent by address"
)]
//! Memory that a program lends for an operation.

use portals_shim::{FRAME, MdMemory, Memory, RawMemory, Region, RegionError, Segment};
use smallvec::SmallVec;

/// The most pieces of one buffer; Portals descriptors take as many.
pub const MOST_PIECES: usize = 64;

/// Bytes of a program, in pieces, until the operation that it was lent for has ended.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    pieces: SmallVec<[Segment; 1]>,
    len: u64,
}

impl Buffer {
    /// # Safety
    ///
    /// Until the completion of the operation that this value is given to, every byte of the pieces stays mapped and may be
    /// read, for an operation that stores into it written too, and the program does neither meanwhile.
    ///
    /// `None`: the lengths have no sum.
    pub unsafe fn new(pieces: impl Iterator<Item = Segment>) -> Option<Self> {
        let pieces: SmallVec<_> = pieces.filter(|piece| piece.len > 0).collect();
        let sum = |sum: u64, piece: &Segment| sum.checked_add(piece.len);
        let len = pieces.iter().try_fold(0, sum)?;
        Some(Self { pieces, len })
    }

    /// The same of one piece, as most are.
    ///
    /// # Safety
    ///
    /// That of [`Buffer::new`].
    #[inline]
    pub unsafe fn of_piece(piece: Segment) -> Self {
        let pieces = match piece.len {
            0 => SmallVec::new(),
            _ => SmallVec::from_buf([piece]),
        };
        Self {
            pieces,
            len: piece.len,
        }
    }

    /// Memory that nobody else has, and that stays: safe.
    ///
    /// ```
    /// use ofi_engine::memory::Buffer;
    ///
    /// let buffer = Buffer::of_leaked(Box::leak(vec![0; 8].into()));
    /// assert_eq!(buffer.len(), 8);
    /// ```
    pub fn of_leaked(bytes: &'static mut [u8]) -> Self {
        let piece = Segment {
            addr: bytes.as_mut_ptr().expose_provenance() as u64,
            len: bytes.len() as u64,
        };
        // SAFETY: the borrow is exclusive and never ends, so that every byte stays mapped and is reached by this value alone.
        unsafe { Self::of_piece(piece) }
    }

    /// Bytes of a region that outlives the operation, for tests.
    #[cfg(test)]
    pub(crate) fn of_region(region: &Region, offset: usize, len: usize) -> Self {
        let piece = Segment {
            addr: region.addr() + offset as u64,
            len: len as u64,
        };
        // SAFETY: tests keep their regions until the operation has ended, and look at them afterwards.
        unsafe { Self::of_piece(piece) }
    }

    /// The same of several pieces, for tests.
    #[cfg(test)]
    pub(crate) fn of_segments(pieces: &[Segment]) -> Self {
        // SAFETY: as in `of_region`.
        unsafe { Self::new(pieces.iter().copied()) }.unwrap_or_default()
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Where the byte at `offset` of a buffer in one piece is; 0 for others.
    pub fn place(&self, offset: u64) -> usize {
        match self.pieces[..] {
            [piece] => (piece.addr + offset) as usize,
            _ => 0,
        }
    }

    /// The pieces of `offset..offset + len`, as far as the buffer goes.
    #[inline]
    fn part(&self, offset: u64, len: u64) -> SmallVec<[Segment; 1]> {
        let [piece] = self.pieces[..] else {
            return self.part_of_several(offset, len);
        };
        let len = len.min(piece.len.saturating_sub(offset));
        match len {
            0 => SmallVec::new(),
            _ => SmallVec::from_buf([Segment {
                addr: piece.addr + offset,
                len,
            }]),
        }
    }

    fn part_of_several(&self, mut offset: u64, mut len: u64) -> SmallVec<[Segment; 1]> {
        let mut part = SmallVec::new();
        for piece in &self.pieces {
            if offset >= piece.len {
                offset -= piece.len;
                continue;
            }
            let n = (piece.len - offset).min(len);
            if n == 0 {
                break;
            }
            part.push(Segment {
                addr: piece.addr + offset,
                len: n,
            });
            (offset, len) = (0, len - n);
        }
        part
    }

    /// The bytes `offset..offset + len`, as far as the buffer goes.
    #[must_use]
    pub fn sub(&self, offset: u64, len: u64) -> Self {
        let pieces = self.part(offset, len);
        let len = pieces.iter().map(|piece| piece.len).sum();
        Self { pieces, len }
    }

    /// The memory for a descriptor, which has to be gone when the operation ends.
    pub fn memory(&self) -> MdMemory {
        let memory = match self.pieces[..] {
            [] => return MdMemory::Empty,
            [piece] => Memory::contiguous(piece.addr, piece.len),
            [first, ..] => Memory::Iovec {
                start: first.addr,
                segments: self.pieces.iter().copied().collect(),
            },
        };
        // SAFETY: whoever made the buffer has promised that it stays readable, and writable where it is stored into, until
        // the operation ends, and by then the descriptor is gone.
        MdMemory::Raw(unsafe { RawMemory::new(memory) })
    }

    /// Copies what a region has from `at` on into the first `len` bytes from `offset` on, as far as the buffer goes.
    ///
    /// # Errors
    /// The region has not so many bytes.
    pub fn store(
        &self,
        offset: u64,
        len: u64,
        from: &Region,
        mut at: usize,
    ) -> Result<(), RegionError> {
        for piece in self.part(offset, len) {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(piece.addr as usize);
            // SAFETY: the maker of the buffer has promised that the piece is mapped, writable, and used by nobody else now.
            let to = unsafe { std::slice::from_raw_parts_mut(to, piece.len as usize) };
            from.read(at, to)?;
            at += to.len();
        }
        Ok(())
    }

    /// Copies bytes into the buffer, as far as it goes.
    #[inline]
    pub fn store_bytes(&self, bytes: &[u8]) {
        if let [piece] = self.pieces[..] {
            let len = (piece.len as usize).min(bytes.len());
            let to = std::ptr::with_exposed_provenance_mut::<u8>(piece.addr as usize);
            // SAFETY: as in `store`; it is as long as the piece at most.
            let to = unsafe { std::slice::from_raw_parts_mut(to, len) };
            return to.copy_from_slice(&bytes[..len]);
        }
        self.store_in_pieces(bytes);
    }

    fn store_in_pieces(&self, bytes: &[u8]) {
        let mut rest = bytes;
        for piece in self.part(0, bytes.len() as u64) {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(piece.addr as usize);
            // SAFETY: as in `store`.
            let to = unsafe { std::slice::from_raw_parts_mut(to, piece.len as usize) };
            let (now, later) = rest.split_at(to.len());
            to.copy_from_slice(now);
            rest = later;
        }
    }

    /// Copies the buffer into a region from `at` on.
    ///
    /// # Errors
    /// The region has not so many bytes.
    pub fn load(&self, to: &Region, mut at: usize) -> Result<(), RegionError> {
        for piece in &self.pieces {
            let from = std::ptr::with_exposed_provenance::<u8>(piece.addr as usize);
            // SAFETY: the maker of the buffer has promised that the piece is mapped and not written now.
            let from = unsafe { std::slice::from_raw_parts(from, piece.len as usize) };
            to.write(at, from)?;
            at += from.len();
        }
        Ok(())
    }

    /// Copies the first bytes of the buffer, as many as there is room for.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) {
        let mut rest = to;
        for piece in &self.pieces {
            let from = std::ptr::with_exposed_provenance::<u8>(piece.addr as usize);
            // SAFETY: as in `load`.
            let from = unsafe { std::slice::from_raw_parts(from, piece.len as usize) };
            let len = from.len().min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&from[..len]);
            rest = later;
        }
    }

    /// Shows the bytes, which are copied for that if they are in several pieces.
    #[inline]
    pub fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.pieces[..] {
            [] => look(&[]),
            [piece] => {
                let from = std::ptr::with_exposed_provenance::<u8>(piece.addr as usize);
                // SAFETY: as in `load`.
                look(unsafe { std::slice::from_raw_parts(from, piece.len as usize) })
            }
            _ => {
                let mut all: SmallVec<[u8; FRAME]> = SmallVec::from_elem(0, self.len as usize);
                self.copy_to(&mut all);
                look(&all)
            }
        }
    }

    /// Copies the bytes behind others.
    pub fn append_to(&self, all: &mut Vec<u8>) {
        all.reserve(self.len as usize);
        for piece in &self.pieces {
            let from = std::ptr::with_exposed_provenance::<u8>(piece.addr as usize);
            // SAFETY: as in `load`.
            all.extend_from_slice(unsafe { std::slice::from_raw_parts(from, piece.len as usize) });
        }
    }

    /// A copy of the bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        self.append_to(&mut all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(bytes: &mut [u8]) -> Segment {
        Segment {
            addr: bytes.as_mut_ptr().expose_provenance() as u64,
            len: bytes.len() as u64,
        }
    }

    #[test]
    fn bytes_go_in_and_out_of_pieces() {
        let (mut a, mut b) = ([1u8, 2, 3], [4u8, 5]);
        let pieces = [segment(&mut a), segment(&mut []), segment(&mut b)];
        // SAFETY: the arrays outlive the buffer, and nobody looks at them meanwhile.
        let buffer = unsafe { Buffer::new(pieces.into_iter()) }.unwrap();
        assert_eq!((buffer.len(), buffer.pieces()), (5, 2));
        assert_eq!(buffer.bytes(), [1, 2, 3, 4, 5]);
        let (mut all, mut some) = ([0; 6], [0; 4]);
        buffer.copy_to(&mut all);
        buffer.copy_to(&mut some);
        assert_eq!((all, some), ([1, 2, 3, 4, 5, 0], [1, 2, 3, 4]));
        let region = Region::new(4096).unwrap();
        buffer.load(&region, 2).unwrap();
        buffer.store(1, 9, &region, 2).unwrap();
        assert_eq!(buffer.bytes(), [1, 1, 2, 3, 4]);
        assert_eq!(buffer.sub(2, 2).bytes(), [2, 3]);
        assert_eq!(buffer.sub(4, 9).len(), 1);
        assert!(buffer.load(&region, 4094).is_err());
        buffer.store_bytes(&[9, 8, 7, 6]);
        assert_eq!((a, b), ([9, 8, 7], [6, 4]));
    }

    #[test]
    fn lengths_without_a_sum_are_refused() {
        let piece = Segment {
            addr: 8,
            len: u64::MAX,
        };
        // SAFETY: the memory of the buffer is not touched.
        assert!(unsafe { Buffer::new([piece, piece].into_iter()) }.is_none());
    }
}
