//! The time that reliable datagrams are told, and how seldom the clock is read for it.

use host::awake::Clock;
use std::time::{Duration, Instant};
use verbs_backend::rd::Time;

/// Polls that find nothing between two looks at the clock.
const LOOK: u32 = 16;

/// The clock, and what it read last.
#[derive(Debug)]
pub(super) struct Timekeeper {
    clock: Clock,
    now: Time,
    /// Since the clock was read.
    polls: u32,
}

impl Timekeeper {
    pub(super) fn new() -> Self {
        Self {
            clock: Clock::default(),
            now: 1,
            polls: 0,
        }
    }

    /// Reads the clock. A job that stood still has not waited for its peers' acks: `due` is when the next timer ends.
    pub(super) fn read(&mut self, due: Option<Time>) {
        self.polls = 0;
        let now = self.clock.read(due.map(Duration::from_nanos));
        self.now = Time::try_from(now.as_nanos()).unwrap_or(Time::MAX);
    }

    /// The time of the last look.
    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Counts a poll that found nothing; whether there have been so many that timers need a look.
    pub(super) fn poll_was_idle(&mut self) -> bool {
        self.polls += 1;
        self.polls >= LOOK
    }

    /// Whether polls have found nothing since the last look.
    pub(super) fn is_stale(&self) -> bool {
        self.polls > 0
    }

    /// When a time is by the system's clock.
    pub(super) fn instant(&self, at: Time) -> Option<Instant> {
        self.clock.instant(Duration::from_nanos(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_in_one_of_sixteen_idle_polls() {
        let mut time = Timekeeper::new();
        assert!(!time.is_stale());
        let looks: Vec<bool> = (0..LOOK).map(|_| time.poll_was_idle()).collect();
        assert_eq!(looks.iter().filter(|look| **look).count(), 1);
        assert!(looks[LOOK as usize - 1] && time.is_stale());
        time.read(None);
        assert!(!time.is_stale() && !time.poll_was_idle());
    }
}
