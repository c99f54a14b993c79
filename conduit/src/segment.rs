//! Where the segments of all ranks are.

/// One rank's segment (`gasnet_seginfo_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegInfo {
    /// Address of the first byte, in that rank's address space.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
}

impl SegInfo {
    /// The offset of `len` bytes at `addr`, if all of them are within the segment.
    pub fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.addr)?;
        (offset.checked_add(len)? <= self.size).then_some(offset)
    }

    /// Whether bytes `offset .. offset + len` exist.
    pub(crate) fn contains(&self, offset: usize, len: usize) -> bool {
        offset
            .checked_add(len)
            .is_some_and(|end| end as u64 <= self.size)
    }

    pub(crate) fn encode(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.addr.to_le_bytes());
        b[8..].copy_from_slice(&self.size.to_le_bytes());
        b
    }

    pub(crate) fn decode(b: &[u8; 16]) -> Self {
        let half = |at: usize| {
            let mut h = [0; 8];
            h.copy_from_slice(&b[at..at + 8]);
            u64::from_le_bytes(h)
        };
        Self {
            addr: half(0),
            size: half(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_with_the_segment() {
        let s = SegInfo {
            addr: 0x1000,
            size: 0x100,
        };
        assert_eq!(s.offset_of(0x1000, 0x100), Some(0));
        assert_eq!(s.offset_of(0x1100, 0), Some(0x100));
        assert_eq!(s.offset_of(0x1100, 1), None);
        assert_eq!(s.offset_of(0xfff, 1), None);
        assert_eq!(s.offset_of(u64::MAX, 2), None);
        assert_eq!(s.offset_of(0x1001, u64::MAX), None);
        assert!(s.contains(0x100, 0) && !s.contains(usize::MAX, 1));
        assert_eq!(SegInfo::decode(&s.encode()), s);
    }
}
