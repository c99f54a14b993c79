//! `GASNET_SEGMENT_FAST`: the segment is pinned as a whole when the job attaches.

use super::{Kept, Mode, Pinned};
use crate::segment::SegInfo;

pub(super) struct Fast;

impl Mode for Fast {
    const PINNED: Pinned = Pinned::Whole;
    const HAS_SEGMENT: bool = true;
    const OPENED_ONLY: bool = false;

    fn named(segment: SegInfo) -> SegInfo {
        segment
    }

    /// The segment needs no units. Memory beside it does, and goes whenever the program likes.
    fn kept(_segment: SegInfo, promised: bool) -> Kept {
        if promised { Kept::All } else { Kept::Nothing }
    }
}
