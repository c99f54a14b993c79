//! Virtual time: integers of picoseconds, never a clock and never a float.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A point in virtual time, in picoseconds since the start of the world.
///
/// 64 bits of picoseconds last 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime(pub u64);

/// A span of virtual time, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimDuration(pub u64);

impl SimTime {
    /// The start of the world.
    pub const ZERO: Self = Self(0);
    /// Later than any event; what a rank that waits for ever waits for.
    pub const NEVER: Self = Self(u64::MAX);

    /// Picoseconds since the start of the world.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds since the start of the world, rounded down.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }

    /// The span from `earlier` to here; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> SimDuration {
        SimDuration(self.0.saturating_sub(earlier.0))
    }
}

impl SimDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// A span of nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// A span of microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// The span in picoseconds.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The span in whole nanoseconds, rounded down.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }
}

impl Add<SimDuration> for SimTime {
    type Output = Self;
    fn add(self, rhs: SimDuration) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign<SimDuration> for SimTime {
    fn add_assign(&mut self, rhs: SimDuration) {
        *self = *self + rhs;
    }
}

impl Sub<SimTime> for SimTime {
    type Output = SimDuration;
    fn sub(self, rhs: Self) -> SimDuration {
        self.since(rhs)
    }
}

impl Add for SimDuration {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for SimDuration {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Mul<u64> for SimDuration {
    type Output = Self;
    fn mul(self, rhs: u64) -> Self {
        Self(self.0.saturating_mul(rhs))
    }
}

/// Nanoseconds with three decimals.
fn nanoseconds(ps: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}.{:03} ns", ps / 1_000, ps % 1_000)
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        nanoseconds(self.0, f)
    }
}

impl fmt::Debug for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        nanoseconds(self.0, f)
    }
}

impl fmt::Display for SimDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        nanoseconds(self.0, f)
    }
}

impl fmt::Debug for SimDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        nanoseconds(self.0, f)
    }
}

/// A transfer rate in bytes per microsecond, which is the same number as MB/s (1e6 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `bytes_per_us`; zero is taken as one, so that a time always exists.
    #[must_use]
    pub const fn new(bytes_per_us: u64) -> Self {
        Self(if bytes_per_us == 0 { 1 } else { bytes_per_us })
    }

    /// Bytes per microsecond.
    #[must_use]
    pub const fn bytes_per_us(self) -> u64 {
        self.0
    }

    /// How long `bytes` take at this rate, rounded up to a picosecond.
    #[must_use]
    pub const fn time(self, bytes: u64) -> SimDuration {
        SimDuration(bytes.saturating_mul(1_000_000).div_ceil(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_round_up_and_never_divide_by_zero() {
        assert_eq!(Rate::new(2_000).time(64), SimDuration::from_ns(32));
        assert_eq!(Rate::new(3).time(1), SimDuration(333_334));
        assert_eq!(Rate::new(0).time(1), SimDuration::from_us(1));
    }

    #[test]
    fn spans_saturate() {
        assert_eq!(SimTime(5).since(SimTime(9)), SimDuration::ZERO);
        assert_eq!(SimTime::NEVER + SimDuration(1), SimTime::NEVER);
        assert_eq!(format!("{}", SimTime(1_234_567)), "1234.567 ns");
    }
}
