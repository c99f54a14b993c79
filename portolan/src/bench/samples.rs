//! Times of repeated operations and what is reported of them.

use hdrhistogram::Histogram;

use super::name::Unit;

/// Digits the histogram keeps: times below 131 µs are exact to the nanosecond, longer ones to 10 ppm.
const DIGITS: u8 = 5;

/// Minimum, quartiles, 99th percentile and maximum, in the unit of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    /// First quartile: a quarter does not exceed it.
    pub(crate) q1: f64,
    pub(crate) median: f64,
    /// Third quartile.
    pub(crate) q3: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// What it takes to read the clock `now`, nanoseconds: the shortest of many tries, so that no operation is made to
/// look faster than it is. Of two readings around an operation this much is their own; in a guest without a clock
/// in user space it is more than a microsecond.
pub(crate) fn reading(now: impl Fn() -> u64) -> u64 {
    let once = || {
        let start = now();
        now().saturating_sub(start)
    };
    (0..256).map(|_| once()).min().unwrap_or(0)
}

/// How often an operation is repeated before its durations count.
pub(super) const WARM_UP: u64 = 2;

/// Durations of one point and what each of them covers.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) samples: Samples,
    /// Operations in one duration.
    pub(crate) operations: u64,
    /// Payload of one operation, bytes.
    pub(crate) bytes: u64,
    /// The part of the operations that found their memory pinned, where that is not all.
    pub(crate) found: Option<f64>,
}

/// Durations in nanoseconds of the fabric's clock, each of one operation or one window of them.
#[derive(Debug)]
pub(crate) struct Samples {
    /// None before the first: it has megabytes, and most ranks of a measurement take no time.
    times: Option<Histogram<u64>>,
    shortest: u64,
    longest: u64,
}

impl Samples {
    /// No samples.
    pub(crate) fn new() -> Self {
        Self {
            times: None,
            shortest: u64::MAX,
            longest: 0,
        }
    }

    /// Adds one duration, nanoseconds.
    pub(crate) fn add(&mut self, nanos: u64) {
        let times = self.times.get_or_insert_with(|| {
            Histogram::new(DIGITS).expect("5 digits are within the histogram's range of 0 to 5")
        });
        // The histogram grows with its values; one it cannot grow for (2^63 ns) counts as its longest.
        if times.record(nanos).is_err() {
            times.saturating_record(nanos);
        }
        self.shortest = self.shortest.min(nanos);
        self.longest = self.longest.max(nanos);
    }

    /// The number of durations.
    pub(crate) fn len(&self) -> u64 {
        self.times.as_ref().map_or(0, Histogram::len)
    }

    /// The duration that a part `q` of all durations does not exceed.
    fn at(&self, q: f64) -> u64 {
        // The lower end of its bucket, which round numbers are.
        let duration = self
            .times
            .as_ref()
            .map_or(0, |t| t.lowest_equivalent(t.value_at_quantile(q)));
        duration.clamp(self.shortest, self.longest)
    }

    /// What is reported; `None` without samples.
    ///
    /// A duration covers `bytes` of payload and `operations` operations. The percentiles of bandwidths
    /// and rates are those of the rates: 99 % of them do not exceed `p99`.
    pub(crate) fn summary(&self, unit: Unit, bytes: u64, operations: u64) -> Option<Summary> {
        if self.len() == 0 {
            return None;
        }
        let convert = |nanos: u64| round(unit.convert(nanos, bytes, operations));
        Some(match unit {
            Unit::Microseconds => Summary {
                min: convert(self.shortest),
                q1: convert(self.at(0.25)),
                median: convert(self.at(0.5)),
                q3: convert(self.at(0.75)),
                p99: convert(self.at(0.99)),
                max: convert(self.longest),
            },
            Unit::MegabytesPerSecond | Unit::OperationsPerSecond => Summary {
                min: convert(self.longest),
                q1: convert(self.at(0.75)),
                median: convert(self.at(0.5)),
                q3: convert(self.at(0.25)),
                p99: convert(self.at(0.01)),
                max: convert(self.shortest),
            },
        })
    }
}

/// Three decimals: a nanosecond in a time, a byte per millisecond in a bandwidth.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(times: impl IntoIterator<Item = u64>) -> Samples {
        let mut samples = Samples::new();
        times.into_iter().for_each(|t| samples.add(t));
        samples
    }

    #[test]
    fn latencies_are_microseconds_and_exact() {
        let s = samples((1..=100).map(|n| n * 1000 + 7))
            .summary(Unit::Microseconds, 8, 1)
            .unwrap();
        assert_eq!(
            s,
            Summary {
                min: 1.007,
                q1: 25.007,
                median: 50.007,
                q3: 75.007,
                p99: 99.007,
                max: 100.007
            }
        );
    }

    #[test]
    fn a_row_of_operations_counts_as_its_mean() {
        let s = samples([8000]).summary(Unit::Microseconds, 0, 16).unwrap();
        assert_eq!(s.median, 0.5);
    }

    #[test]
    fn bandwidths_are_payload_over_time() {
        // 1 MB in 500 µs is 2000 MB/s.
        let s = samples([500_000, 1_000_000])
            .summary(Unit::MegabytesPerSecond, 1_000_000, 16)
            .unwrap();
        assert_eq!(
            s,
            Summary {
                min: 1000.0,
                q1: 1000.0,
                median: 2000.0,
                q3: 2000.0,
                p99: 2000.0,
                max: 2000.0
            }
        );
    }

    #[test]
    fn rates_are_operations_over_time() {
        let s = samples([1000])
            .summary(Unit::OperationsPerSecond, 512, 64)
            .unwrap();
        assert_eq!(s.median, 64e6);
    }

    #[test]
    fn nothing_gives_nothing_and_zero_time_no_infinity() {
        assert_eq!(Samples::new().summary(Unit::Microseconds, 0, 1), None);
        let s = samples([0])
            .summary(Unit::MegabytesPerSecond, 8, 1)
            .unwrap();
        assert!(s.max.is_finite());
    }

    #[test]
    fn long_times_have_a_median_too() {
        let s = samples([1, 2, 3].map(|n| n * 1_000_000_000))
            .summary(Unit::Microseconds, 8, 1)
            .unwrap();
        assert!((s.median / 2e6 - 1.0).abs() < 1e-4, "{s:?}");
        assert_eq!((s.min, s.max), (1e6, 3e6));
    }

    #[test]
    fn minimum_and_maximum_are_not_rounded_by_the_histogram() {
        let s = samples([591_203, 60_000_000_001])
            .summary(Unit::Microseconds, 8, 1)
            .unwrap();
        assert_eq!((s.min, s.max), (591.203, 60_000_000.001));
    }
}
