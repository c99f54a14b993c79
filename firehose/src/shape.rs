//! How addresses are cut into units.

use std::fmt;

/// What is pinned, counted and moved: a page, or a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(pub u64);

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {:#x}", self.0)
    }
}

/// Units that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The lowest.
    pub first: Unit,
    /// How many.
    pub count: u32,
    /// From one number to the next.
    pub stride: u32,
}

impl Span {
    /// One unit.
    pub const fn one(unit: Unit) -> Self {
        Self {
            first: unit,
            count: 1,
            stride: 1,
        }
    }

    /// Its units, from the lowest up.
    pub fn units(self) -> impl DoubleEndedIterator<Item = Unit> + Clone {
        let (first, stride) = (self.first.0, u64::from(self.stride));
        (0..u64::from(self.count))
            .map(move |i| Unit(first.saturating_add(i.saturating_mul(stride))))
    }

    /// Whether `unit` is one of them.
    pub const fn contains(self, unit: Unit) -> bool {
        let Some(behind) = unit.0.checked_sub(self.first.0) else {
            return false;
        };
        let stride = self.stride as u64;
        behind.is_multiple_of(stride) && behind / stride < self.count as u64
    }
}

/// Addresses of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
}

/// The two ways to cut.
///
/// ```text
///  Pages     |  0  |  1  |  2  |  3  |          a transfer takes every page it touches
///
///  Regions   |     0     |     2     |          each twice as long as its step and so in two courses,
///               |     1     |     3     |       like bricks: a transfer of a step's length, wherever
///                                               it begins, lies in one region
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Units of `1 << log2` bytes side by side.
    Pages {
        /// Binary logarithm of the bytes of a page.
        log2: u32,
    },
    /// Units of `2 << log2` bytes that begin every `1 << log2`.
    Regions {
        /// Binary logarithm of the step.
        log2: u32,
    },
}

/// Addresses of a process end here on every machine that we know.
const END: u64 = 1 << 63;

impl Shape {
    const fn log2(self) -> u32 {
        match self {
            Self::Pages { log2 } | Self::Regions { log2 } => log2,
        }
    }

    /// Between units that lie side by side.
    const fn stride(self) -> u32 {
        match self {
            Self::Pages { .. } => 1,
            Self::Regions { .. } => 2,
        }
    }

    /// Bytes of one unit.
    pub const fn unit_len(self) -> u64 {
        match self {
            Self::Pages { log2 } => 1 << log2,
            Self::Regions { log2 } => 2 << log2,
        }
    }

    /// Addresses of `unit`.
    pub const fn extent(self, unit: Unit) -> Extent {
        Extent {
            addr: unit.0 << self.log2(),
            len: self.unit_len(),
        }
    }

    /// How many of `len` bytes at `addr` the unit that serves `addr` holds, from `addr` on; the units of a
    /// transfer are found by going on behind them.
    pub const fn reach(self, addr: u64, len: u64) -> (Unit, u64) {
        let unit = Unit(addr >> self.log2());
        let e = self.extent(unit);
        // The end of the last unit is no address.
        let there = e.len - (addr - e.addr);
        (unit, if len < there { len } else { there })
    }

    /// The units that hold `len` bytes at `addr`; `None` for an empty range and one that wraps or needs more
    /// than `most` units.
    pub fn span(self, addr: u64, len: u64, most: u32) -> Option<Span> {
        let end = addr.checked_add(len).filter(|e| *e <= END && len > 0)?;
        let first = Unit(addr >> self.log2());
        let count = (end - self.extent(first).addr).div_ceil(self.unit_len());
        Some(Span {
            first,
            count: u32::try_from(count).ok().filter(|c| *c <= most)?,
            stride: self.stride(),
        })
    }

    /// The units that touch `len` bytes at `addr`, with their neighbours of the other course.
    pub fn touching(self, addr: u64, len: u64) -> (Unit, Unit) {
        let before = match self {
            Self::Pages { .. } => 0,
            Self::Regions { .. } => 1,
        };
        let last = addr.saturating_add(len.max(1) - 1) >> self.log2();
        (
            Unit((addr >> self.log2()).saturating_sub(before)),
            Unit(last),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_range() {
        let s = Shape::Pages { log2: 12 };
        let span = |a, l| s.span(a, l, 8).map(|s| (s.first.0, s.count));
        assert_eq!(span(0x1000, 1), Some((1, 1)));
        assert_eq!(span(0x1fff, 2), Some((1, 2)));
        assert_eq!(span(0x1000, 0x8000), Some((1, 8)));
        assert_eq!(span(0x1000, 0x8001), None);
        assert_eq!(span(0x1000, 0), None);
        assert_eq!(span(u64::MAX - 1, 4), None);
        assert_eq!(s.touching(0x1fff, 2), (Unit(1), Unit(2)));
    }

    #[test]
    fn a_step_from_anywhere_lies_in_one_region() {
        let s = Shape::Regions { log2: 16 };
        for addr in [0, 1, 0xffff, 0x1_0000, 0x1_8000, 0x7fff_ffff] {
            let span = s.span(addr, 0x1_0000, 1).unwrap();
            let e = s.extent(span.first);
            assert!(e.addr <= addr && addr + 0x1_0000 <= e.addr + e.len);
        }
        assert_eq!(s.reach(0x1_8000, 1 << 20), (Unit(1), 0x1_8000));
        assert_eq!(s.span(0x1_8000, 0x1_8001, 1), None);
        let two = s.span(0x1_8000, 0x1_8001, 2).unwrap();
        assert!(two.units().eq([Unit(1), Unit(3)]));
        assert!(two.contains(Unit(3)) && !two.contains(Unit(2)) && !two.contains(Unit(5)));
    }

    /// Whatever touches a byte is found, so that nothing stays pinned that was taken away.
    #[test]
    fn touching_finds_both_courses() {
        let s = Shape::Regions { log2: 16 };
        let (first, last) = s.touching(0x2_0000, 0x1_0000);
        assert_eq!((first, last), (Unit(1), Unit(2)));
        for unit in 0..8 {
            let e = s.extent(Unit(unit));
            let touches = e.addr < 0x3_0000 && 0x2_0000 < e.addr + e.len;
            assert_eq!(touches, (1..=2).contains(&unit), "{unit}");
        }
    }
}
