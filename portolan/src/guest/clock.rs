// UNSAFETY: reads the processor's counter.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the intrinsic for RDTSC is an unsafe function")
)]
//! How fast this machine's counter runs, which is the emulated processors' counter too.
//!
//! A guest's kernel that is not told measures it against emulated timers, and where the machine is busy it takes a rate that is
//! several times too small: its clock is then as many times too fast, and so is every time limit in the guest.

use std::time::{Duration, Instant};

/// How long is measured.
const LENGTH: Duration = Duration::from_millis(20);
/// Readings of which the quickest counts, since a thread may be interrupted in one.
const READINGS: usize = 16;

/// Ticks of the counter in a millisecond.
pub(super) fn ticks_per_ms() -> u64 {
    let (from, first) = reading();
    std::thread::sleep(LENGTH);
    let (to, last) = reading();
    let ticks = u128::from(last.wrapping_sub(first));
    let nanos = to.duration_since(from).as_nanos().max(1);
    u64::try_from(ticks * 1_000_000 / nanos).unwrap_or(u64::MAX)
}

/// A time, and the counter then.
fn reading() -> (Instant, u64) {
    let readings = (0..READINGS).map(|_| {
        let before = Instant::now();
        let ticks = counter();
        (before.elapsed(), before, ticks)
    });
    let quickest = readings.min_by_key(|(took, ..)| *took);
    let (took, before, ticks) = quickest.unwrap_or_else(|| (Duration::ZERO, Instant::now(), 0));
    (before + took / 2, ticks)
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it (PR_SET_TSC, prctl(2)).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// There is no guest on such a machine.
#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_of_the_rate_agree() {
        let (one, other) = (ticks_per_ms(), ticks_per_ms());
        assert!(one > 100_000, "{one}");
        assert!(one.abs_diff(other) < one / 100, "{one} {other}");
    }

    /// A time and the counter, at most 50 µs apart, however often the thread is interrupted.
    fn near() -> (Instant, u64) {
        for _ in 0..100_000 {
            let before = Instant::now();
            let ticks = counter();
            if before.elapsed() < Duration::from_micros(50) {
                return (before, ticks);
            }
        }
        panic!("every look at the clock takes longer than 50 µs");
    }

    /// Against ticks that are counted here, over another length.
    #[test]
    fn the_rate_is_that_of_the_counter() {
        let (from, first) = near();
        std::thread::sleep(5 * LENGTH);
        let (to, last) = near();
        let nanos = u64::try_from(to.duration_since(from).as_nanos()).unwrap();
        let rate = (last - first) * 1_000_000 / nanos;
        let told = ticks_per_ms();
        assert!(told.abs_diff(rate) < rate / 50, "{told} of {rate}");
    }
}
