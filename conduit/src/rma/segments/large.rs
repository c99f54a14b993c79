//! `GASNET_SEGMENT_LARGE`: a segment that may be larger than what can be pinned, of which units are pinned when they are used.

use super::{Kept, Mode, Pinned};
use crate::segment::SegInfo;

pub(super) struct Large;

impl Mode for Large {
    const PINNED: Pinned = Pinned::ByUnits;
    const HAS_SEGMENT: bool = true;
    const OPENED_ONLY: bool = false;

    fn named(segment: SegInfo) -> SegInfo {
        match segment.size {
            0 => SegInfo::default(),
            _ => segment,
        }
    }

    /// The segment stays mapped as long as the conduit; other memory goes whenever the program likes.
    fn kept(segment: SegInfo, promised: bool) -> Kept {
        if promised {
            Kept::All
        } else {
            Kept::Range(segment.addr, segment.size)
        }
    }
}
