//! What is left of a time to wait on the clock of an interface.

use fabric_api::bridge::ClockKind;
use host::awake::STEP;
use std::time::Duration;

/// What is left of a time to wait. On the clock of the wall only the time counts in which this process runs: a rank that was
/// stopped with its job has waited for nobody.
#[derive(Clone, Copy, Debug)]
pub struct TimeLeft {
    left: Duration,
    /// When it was asked last, nanoseconds of the clock.
    looked: u64,
    /// The most that counts between two looks.
    step: Duration,
}

impl TimeLeft {
    /// All of it, at the time `now` of a clock.
    pub fn new(clock: ClockKind, now: u64, all: Duration) -> Self {
        let step = match clock {
            ClockKind::Wall => STEP,
            ClockKind::Virtual => Duration::MAX,
        };
        Self {
            left: all,
            looked: now,
            step,
        }
    }

    /// What is left at `now`.
    pub fn at(&mut self, now: u64) -> Duration {
        let passed = Duration::from_nanos(now.saturating_sub(self.looked));
        self.looked = now;
        self.left = self.left.saturating_sub(passed.min(self.step));
        self.left
    }

    /// How much of `time` to wait until it is asked again, at most.
    pub fn slice(&self, time: Duration) -> Duration {
        time.min(self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Duration = Duration::from_secs(1);

    /// How long a wait lasts whose looks are as far apart as it says, and which stands still for an hour at the third.
    fn lasted(clock: ClockKind) -> Duration {
        let start = 7_000;
        let mut now = start;
        let mut time = TimeLeft::new(clock, now, ALL);
        let mut looks = 0;
        loop {
            let left = time.at(now);
            if left.is_zero() {
                return Duration::from_nanos(now - start);
            }
            looks += 1;
            now += time.slice(left).as_nanos() as u64;
            if looks == 3 {
                now += Duration::from_secs(3600).as_nanos() as u64;
            }
        }
    }

    #[test]
    fn a_rank_that_stood_still_has_waited_for_nobody() {
        assert_eq!(lasted(ClockKind::Wall), ALL + Duration::from_secs(3600));
    }

    #[test]
    fn on_a_virtual_clock_a_wait_ends_with_its_time() {
        assert_eq!(lasted(ClockKind::Virtual), ALL);
        let mut time = TimeLeft::new(ClockKind::Virtual, 5, ALL);
        assert_eq!(time.at(5 + 999_999_999), Duration::from_nanos(1));
        assert_eq!(time.slice(ALL), ALL);
    }
}
