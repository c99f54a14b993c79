//! Memory as the state machine sees it: addresses and lengths, never dereferenced here.

use crate::error::Error;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A contiguous piece of the owner's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// Pieces in order; one for every contiguous MD.
pub type Segments = SmallVec<[Segment; 1]>;

/// The memory of an MD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// One region.
    Contiguous(Segment),
    /// Several regions, copied from the caller's array.
    Iovec {
        /// Address of the caller's array, shown in events.
        start: u64,
        /// The pieces.
        segments: Vec<Segment>,
    },
}

impl Memory {
    /// One region at `addr`.
    pub const fn contiguous(addr: u64, len: u64) -> Self {
        Self::Contiguous(Segment { addr, len })
    }

    /// Total bytes; [`Error::MdIllegal`] when a piece wraps, a non-empty piece is at address 0, or
    /// there are more than `max_iovecs` pieces.
    #[inline]
    pub(crate) fn checked_len(&self, max_iovecs: usize) -> Result<u64, Error> {
        let check = |s: &Segment| {
            if s.addr.checked_add(s.len).is_none() || (s.addr == 0 && s.len > 0) {
                Err(Error::MdIllegal)
            } else {
                Ok(s.len)
            }
        };
        match self {
            Self::Contiguous(s) => check(s),
            Self::Iovec { segments, .. } if segments.len() > max_iovecs => Err(Error::MdIllegal),
            Self::Iovec { segments, .. } => segments.iter().try_fold(0u64, |sum, s| {
                check(s).and_then(|l| sum.checked_add(l).ok_or(Error::MdIllegal))
            }),
        }
    }

    /// `start` as the user gave it.
    pub const fn start(&self) -> u64 {
        match self {
            Self::Contiguous(s) => s.addr,
            Self::Iovec { start, .. } => *start,
        }
    }

    /// `length` as the user gave it: bytes, or entries of an iovec.
    pub fn user_length(&self) -> u64 {
        match self {
            Self::Contiguous(s) => s.len,
            Self::Iovec { segments, .. } => segments.len() as u64,
        }
    }

    /// The pieces that hold bytes `offset .. offset + len`; the caller has checked the range.
    pub fn slice(&self, offset: u64, len: u64) -> Segments {
        match self {
            Self::Contiguous(s) => SmallVec::from([Segment {
                addr: s.addr + offset,
                len,
            }]),
            Self::Iovec { segments, .. } => cut(segments, offset, len),
        }
    }
}

/// The parts of `pieces` that hold bytes `offset .. offset + len`.
pub(crate) fn cut(pieces: &[Segment], offset: u64, len: u64) -> Segments {
    let mut out = Segments::new();
    let (mut skip, mut left) = (offset, len);
    for s in pieces {
        if skip >= s.len {
            skip -= s.len;
            continue;
        }
        if left == 0 {
            break;
        }
        let take = left.min(s.len - skip);
        out.push(Segment {
            addr: s.addr + skip,
            len: take,
        });
        left -= take;
        skip = 0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn slices_cross_iovec_borders_and_skip_empty_entries() {
        let m = Memory::Iovec {
            start: 1,
            segments: vec![
                Segment { addr: 100, len: 4 },
                Segment { addr: 0, len: 0 },
                Segment { addr: 200, len: 6 },
            ],
        };
        assert_eq!(m.checked_len(3), Ok(10));
        assert_eq!(m.checked_len(2), Err(Error::MdIllegal));
        assert_eq!(
            m.slice(3, 4).as_slice(),
            [Segment { addr: 103, len: 1 }, Segment { addr: 200, len: 3 }]
        );
        assert!(m.slice(10, 0).is_empty());
    }

    #[test]
    fn wrapping_and_null_regions_are_illegal() {
        assert_eq!(
            Memory::contiguous(u64::MAX - 3, 8).checked_len(1),
            Err(Error::MdIllegal)
        );
        assert_eq!(
            Memory::contiguous(0, 1).checked_len(1),
            Err(Error::MdIllegal)
        );
        assert_eq!(Memory::contiguous(0, 0).checked_len(1), Ok(0));
        let half = Segment {
            addr: 1,
            len: u64::MAX / 2 + 1,
        };
        let longer_than_any_number = Memory::Iovec {
            start: 0,
            segments: vec![half, half],
        };
        assert_eq!(longer_than_any_number.checked_len(2), Err(Error::MdIllegal));
    }
}
