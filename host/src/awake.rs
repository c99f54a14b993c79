//! Time that counts only while this process runs.
//!
//! A job that Ctrl-Z or a debugger has stopped for an hour has waited for nobody: its peers stood still too. Limits of
//! clocks on the wall would be over the moment it goes on.

use std::time::{Duration, Instant};

/// The most that counts between two looks: whoever looks rarely did not run.
const STEP: Duration = Duration::from_millis(100);

/// What is left of a time to wait.
#[derive(Debug)]
pub struct Awake {
    left: Duration,
    looked: Instant,
}

impl Awake {
    /// All of it.
    pub fn new(all: Duration) -> Self {
        Self {
            left: all,
            looked: Instant::now(),
        }
    }

    /// Whether it is over; to be asked at least ten times a second.
    pub fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let step = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.left = self.left.saturating_sub(step.min(STEP));
        self.left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_the_process_stood_still_does_not_count() {
        let mut awake = Awake::new(Duration::from_secs(5));
        let mut now = awake.looked;
        let mut after = |step: Duration| {
            now += step;
            awake.is_over_at(now)
        };
        let look = Duration::from_millis(10);
        for _ in 0..400 {
            assert!(!after(look));
        }
        assert!(!after(Duration::from_secs(3600)), "it was stopped");
        for _ in 0..89 {
            assert!(!after(look));
        }
        assert!(after(look));
    }
}
