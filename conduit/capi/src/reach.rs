//! Segment modes: what calls do otherwise by the memory that a program was compiled to reach.
//!
//! | mode | `gasnet_attach` makes | peers are shown | what is taken away is looked at |
//! |---|---|---|---|
//! | `GASNET_SEGMENT_FAST` | a segment, pinned as a whole | the segment | where own memory outside of it stays pinned |
//! | `GASNET_SEGMENT_LARGE` | a segment, pinned where it is used | the segment | always |
//! | `GASNET_SEGMENT_EVERYTHING` | none | all memory | always |

use conduit::{Conduit, SegInfo};

/// `GASNET_PAGESIZE`, bytes.
const PAGE: u64 = 4096;

/// Which memory of a rank the others reach: what a program was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reach {
    /// `GASNET_SEGMENT_FAST`: a segment, pinned as a whole.
    Fast,
    /// `GASNET_SEGMENT_LARGE`: a segment, pinned where it is used.
    Large,
    /// `GASNET_SEGMENT_EVERYTHING`: all memory, pinned where it is used.
    Everything,
}

impl Reach {
    /// The mode with this number; fast for any other.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            1 => Self::Large,
            2 => Self::Everything,
            _ => Self::Fast,
        }
    }

    /// Whether a rank has a segment.
    pub(crate) fn has_segment(self) -> bool {
        self != Self::Everything
    }

    /// What is wrong with a segment of `size` bytes where `largest` may be asked for.
    pub(crate) fn refusal(self, size: u64, largest: u64) -> Option<&'static str> {
        if !self.has_segment() {
            None
        } else if !size.is_multiple_of(PAGE) {
            Some("the segment is not a multiple of GASNET_PAGESIZE")
        } else if size > largest {
            Some("the segment is larger than gasnet_getMaxLocalSegmentSize()")
        } else {
            None
        }
    }

    /// The largest segment that `gasnet_attach` makes, bytes. The limit is that of the environment, or else `defined`, the
    /// program's, if that is not 0, or else [`Conduit::segment_room`]. Not more than can be pinned, unless the environment
    /// asks for it.
    pub(crate) fn largest_segment(self, conduit: &Conduit, defined: u64) -> u64 {
        if !self.has_segment() {
            return u64::MAX;
        }
        let as_a_whole = self == Self::Fast;
        let wanted = conduit.max_segment();
        let defined = Some(defined).filter(|m| *m > 0);
        let whole = wanted
            .or(defined)
            .unwrap_or_else(|| conduit.segment_room(as_a_whole));
        let pinned = conduit
            .pinned_segment()
            .filter(|_| as_a_whole && wanted.is_none());
        let whole = pinned.map_or(whole, |most| most.min(whole));
        (whole / PAGE).max(1) * PAGE
    }

    /// Whether calls that take memory away are looked at. `keeps`: own memory outside of segments can stay pinned; `in_front`: the
    /// calls pass here.
    pub(crate) fn is_watched(self, keeps: bool, in_front: bool) -> bool {
        self != Self::Fast || keeps && in_front
    }

    /// Whether memory that goes unseen stays pinned.
    pub(crate) fn needs_watch(self, keeps: bool) -> bool {
        keeps && !self.has_segment()
    }

    /// The size of a rank's segment as the specification has it.
    pub(crate) fn shown_size(self, segment: SegInfo) -> usize {
        if self.has_segment() {
            segment.size as usize
        } else {
            usize::MAX
        }
    }

    /// Where in the own segment `len` bytes at `addr` are, offset and length; `None` for no bytes, and where all memory is alike.
    pub(crate) fn offset_in(self, own: SegInfo, addr: u64, len: usize) -> Option<(usize, usize)> {
        if !self.has_segment() || len == 0 {
            return None;
        }
        let offset = own.offset_of(addr, len as u64)?;
        Some((usize::try_from(offset).ok()?, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Reach; 3] = [Reach::Fast, Reach::Large, Reach::Everything];
    const OWN: SegInfo = SegInfo {
        addr: 0x10_000,
        size: 0x2000,
    };

    #[test]
    fn modes_have_numbers() {
        assert_eq!([0, 1, 2].map(Reach::of), ALL);
        assert_eq!(ALL.map(|reach| Reach::of(reach as u8)), ALL);
        assert_eq!(Reach::of(3), Reach::Fast);
    }

    #[test]
    fn segments_are_whole_pages_up_to_a_limit() {
        let pages = Some("the segment is not a multiple of GASNET_PAGESIZE");
        let larger = Some("the segment is larger than gasnet_getMaxLocalSegmentSize()");
        for reach in [Reach::Fast, Reach::Large] {
            assert_eq!(reach.refusal(8192, 8192), None);
            assert_eq!(reach.refusal(4097, 8192), pages);
            assert_eq!(reach.refusal(12288, 8192), larger);
        }
        assert_eq!(Reach::Everything.refusal(4097, 0), None);
    }

    #[test]
    fn memory_that_goes_is_looked_at_where_it_may_be_pinned() {
        for (keeps, in_front) in [(false, false), (false, true), (true, false), (true, true)] {
            let watched = ALL.map(|reach| reach.is_watched(keeps, in_front));
            assert_eq!(watched, [keeps && in_front, true, true]);
        }
        assert_eq!(
            ALL.map(|reach| reach.needs_watch(true)),
            [false, false, true]
        );
        assert!(!Reach::Everything.needs_watch(false));
    }

    #[test]
    fn payloads_of_the_segment_are_named_by_offset() {
        let at = |addr, len| ALL.map(|reach| reach.offset_in(OWN, addr, len));
        let found = Some((0x1000, 0x1000));
        assert_eq!(at(0x11_000, 0x1000), [found, found, None]);
        assert_eq!(at(0x11_000, 0x1001), [None; 3]);
        assert_eq!(at(0x11_000, 0), [None; 3]);
        assert_eq!(
            ALL.map(|reach| reach.shown_size(OWN)),
            [0x2000, 0x2000, usize::MAX]
        );
    }
}
