//! `GASNET_SEGMENT_EVERYTHING`, and jobs whose ranks open memory: it is named by its address.

use super::{Kept, Mode, Pinned};
use crate::segment::SegInfo;

/// The lowest address that a transfer may name.
pub(crate) const LOWEST: u64 = 4096;
/// Addresses of user programs are below, on every 64-bit system that we know.
pub(crate) const HIGHEST: u64 = 1 << 47;

const ALL: SegInfo = SegInfo {
    addr: 0,
    size: HIGHEST,
};

/// All memory.
pub(super) struct Everything;

impl Mode for Everything {
    const PINNED: Pinned = Pinned::ByUnits;
    const HAS_SEGMENT: bool = false;
    const OPENED_ONLY: bool = false;

    fn named(_segment: SegInfo) -> SegInfo {
        ALL
    }

    /// Whoever attaches so promises to say what goes.
    fn kept(_segment: SegInfo, _promised: bool) -> Kept {
        Kept::All
    }
}

/// What ranks have opened: programs without unsafe code, which promise nothing of other memory.
pub(super) struct Opened;

impl Mode for Opened {
    const PINNED: Pinned = Pinned::ByUnits;
    const HAS_SEGMENT: bool = false;
    const OPENED_ONLY: bool = true;

    fn named(_segment: SegInfo) -> SegInfo {
        ALL
    }

    fn kept(_segment: SegInfo, _promised: bool) -> Kept {
        Kept::Nothing
    }
}
