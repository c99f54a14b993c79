//! Segment modes: which memory of a rank its peers reach, and when that is pinned (`GASNET_SEGMENT_*` of the specification).
//!
//! | mode | peers reach | it is pinned | file |
//! |---|---|---|---|
//! | fast | a segment | as a whole, when the job attaches | `fast.rs` |
//! | large | a segment | by units, when it is used | `large.rs` |
//! | everything | all memory | by units, when it is used | `everything.rs` |
//! | opened | what the rank has opened ([`crate::Conduit::open`]) | by units, when it is used | `everything.rs` |
//!
//! A mode answers every question about it here, by a value. Who executes a put, a get or a Long asks [`Segments`] and matches
//! on the answer; nobody compares modes.

mod everything;
mod fast;
mod large;

pub(crate) use everything::{HIGHEST, LOWEST};

use crate::segment::SegInfo;
use everything::{Everything, Opened};
use fast::Fast;
use large::Large;

/// How a peer's memory is made reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pinned {
    /// All of it when the job attaches: a message needs its offset and nothing else.
    Whole,
    /// A unit of it when it is used: a message needs a firehose to the unit.
    ByUnits,
}

/// Own memory from which and to which own transfers go by units that stay pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    /// So many bytes from an address on, which stay mapped as long as the conduit.
    Range(u64, u64),
    /// Any: the program says what goes ([`crate::Conduit::promise_to_forget`]).
    All,
}

/// How a Long's payload reaches its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongForm {
    /// With the header or by a message of its own, whichever costs less.
    Cheaper,
    /// With the header, unless it has been put before.
    PackedOrPut,
}

/// What a mode decides.
trait Mode {
    const PINNED: Pinned;
    /// Own memory may be named by its offset in a segment.
    const HAS_SEGMENT: bool;
    /// Peers reach opened memory alone.
    const OPENED_ONLY: bool;

    /// What peers may name of a rank that has mapped `segment`.
    fn named(segment: SegInfo) -> SegInfo;

    /// What stays pinned for own transfers, where the environment lets memory stay so. `promised`: the program says what goes.
    fn kept(segment: SegInfo, promised: bool) -> Kept;
}

/// The segment mode of a job; fast before it attaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Segments {
    #[default]
    Fast,
    Large,
    Everything,
    Opened,
}

/// An item of the mode's strategy.
macro_rules! of {
    ($mode:expr, $($item:tt)*) => {
        match $mode {
            Segments::Fast => Fast::$($item)*,
            Segments::Large => Large::$($item)*,
            Segments::Everything => Everything::$($item)*,
            Segments::Opened => Opened::$($item)*,
        }
    };
}

impl Segments {
    /// How peers' memory is reached.
    #[inline(always)]
    pub(crate) fn pinned(self) -> Pinned {
        of!(self, PINNED)
    }

    /// Whether own memory may be named by its offset in a segment.
    #[inline]
    pub(crate) fn has_segment(self) -> bool {
        of!(self, HAS_SEGMENT)
    }

    /// Whether peers reach opened memory alone.
    pub(crate) fn opened_only(self) -> bool {
        of!(self, OPENED_ONLY)
    }

    /// What peers may name of a rank that has mapped `segment`.
    pub(crate) fn named(self, segment: SegInfo) -> SegInfo {
        of!(self, named(segment))
    }

    /// What stays pinned for own transfers. `local`: the environment lets own memory stay pinned; `promised`: the program says
    /// what goes.
    pub(crate) fn kept(self, segment: SegInfo, local: bool, promised: bool) -> Kept {
        if local {
            of!(self, kept(segment, promised))
        } else {
            Kept::Nothing
        }
    }

    /// How the payload of a Long request or reply travels. A handler cannot wait for memory to be pinned, so where that is
    /// done by units a reply's payload goes with its header.
    #[inline]
    pub(crate) fn long_form(self) -> LongForm {
        match self.pinned() {
            Pinned::Whole => LongForm::Cheaper,
            Pinned::ByUnits => LongForm::PackedOrPut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: SegInfo = SegInfo {
        addr: 0x1000,
        size: 0x2000,
    };
    const NONE: SegInfo = SegInfo { addr: 0, size: 0 };
    const ALL: SegInfo = SegInfo {
        addr: 0,
        size: 1 << 47,
    };

    #[test]
    fn a_mode_says_what_peers_may_name() {
        for mode in [Segments::Fast, Segments::Large] {
            assert_eq!(mode.named(SEGMENT), SEGMENT);
            assert!(mode.has_segment() && !mode.opened_only());
        }
        for mode in [Segments::Everything, Segments::Opened] {
            assert_eq!(mode.named(NONE), ALL);
            assert!(!mode.has_segment());
        }
        assert!(Segments::Opened.opened_only() && !Segments::Everything.opened_only());
    }

    #[test]
    fn an_empty_segment_is_pinned_nowhere() {
        let empty = SegInfo { size: 0, ..SEGMENT };
        assert_eq!(Segments::Large.named(empty), NONE);
        assert_eq!(Segments::Fast.named(empty), empty);
    }

    #[test]
    fn what_stays_pinned_depends_on_the_promise() {
        let all = [
            (Segments::Fast, [Kept::Nothing, Kept::All]),
            (Segments::Large, [Kept::Range(0x1000, 0x2000), Kept::All]),
            (Segments::Everything, [Kept::All, Kept::All]),
            (Segments::Opened, [Kept::Nothing, Kept::Nothing]),
        ];
        for (mode, [bare, promised]) in all {
            let kept = |local, promise| mode.kept(SEGMENT, local, promise);
            assert_eq!(
                (kept(true, false), kept(true, true)),
                (bare, promised),
                "{mode:?}"
            );
            assert_eq!(kept(false, true), Kept::Nothing, "{mode:?}");
        }
    }

    #[test]
    fn the_fast_mode_alone_pins_as_a_whole() {
        let by_units = [Segments::Large, Segments::Everything, Segments::Opened];
        for mode in by_units {
            assert_eq!(
                (mode.pinned(), mode.long_form()),
                (Pinned::ByUnits, LongForm::PackedOrPut)
            );
        }
        let fast = Segments::default();
        assert_eq!(
            (fast.pinned(), fast.long_form()),
            (Pinned::Whole, LongForm::Cheaper)
        );
    }
}
