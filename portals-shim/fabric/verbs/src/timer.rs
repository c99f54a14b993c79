//! When words to a peer are said again, and when the peer is given up.
//!
//! A peer's time passes by repetitions, each of which counts for as long as it was to be awaited: a job that was stopped
//! meanwhile has not waited for anybody.

use std::time::{Duration, Instant};

/// Time to the first repetition of a datagram; doubled from one to the next.
const FIRST_REPEAT: Duration = Duration::from_millis(20);
const LAST_REPEAT: Duration = Duration::from_millis(500);

/// When to send a datagram again, and when to give up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    next: Instant,
    interval: Duration,
    /// What the peer has left of its time.
    left: Duration,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Repeat,
    GiveUp,
}

impl Timer {
    /// For words to a peer that has so much time to answer.
    pub(super) fn new(now: Instant, patience: Duration) -> Self {
        Self::once(now, FIRST_REPEAT, patience)
    }

    /// That ends after `interval`, before a peer is asked that has so much time to answer then.
    pub(super) fn once(now: Instant, interval: Duration, patience: Duration) -> Self {
        Self {
            next: now + interval,
            interval,
            left: patience,
        }
    }

    /// The same for a peer that has had a part of its time.
    pub(super) fn after(self, before: &Self) -> Self {
        let left = before.left;
        Self { left, ..self }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Waits as long as last time once more.
    pub(super) fn again(&mut self, now: Instant) {
        self.next = now + self.interval;
    }

    /// What has come at `now`; from then on the next repetition is awaited.
    pub(super) fn expire(&mut self, now: Instant) -> Due {
        if !self.is_due(now) {
            return Due::Nothing;
        }
        self.left = self.left.saturating_sub(self.interval);
        self.interval = (self.interval * 2).min(LAST_REPEAT);
        self.next = now + self.interval;
        if self.left.is_zero() {
            Due::GiveUp
        } else {
            Due::Repeat
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// How long after `start` a peer is given up that is looked after as late as this.
    fn given_up(timer: &mut Timer, start: Instant, late: Duration) -> Duration {
        loop {
            let now = timer.next() + late;
            if timer.expire(now) == Due::GiveUp {
                return now - start;
            }
        }
    }

    #[test]
    fn a_peer_that_says_nothing_is_given_up_when_its_time_is_over() {
        let start = Instant::now();
        let mut timer = Timer::new(start, PATIENCE);
        let before = timer.expire(start + FIRST_REPEAT / 2);
        assert_eq!(before, Due::Nothing);
        let after = given_up(&mut timer, start, Duration::ZERO);
        assert!((PATIENCE..PATIENCE + LAST_REPEAT).contains(&after));
    }

    #[test]
    fn repetitions_are_further_and_further_apart_up_to_a_limit() {
        let start = Instant::now();
        let mut timer = Timer::new(start, PATIENCE);
        let waits = [20, 40, 80, 160, 320, 500, 500].map(Duration::from_millis);
        let mut now = start;
        for wait in waits {
            assert_eq!(timer.next() - now, wait);
            now = timer.next();
            assert_eq!(timer.expire(now), Due::Repeat);
        }
        timer.again(now + FIRST_REPEAT);
        assert_eq!(timer.next(), now + FIRST_REPEAT + LAST_REPEAT);
    }

    #[test]
    fn a_first_wait_that_takes_all_the_time_is_the_last() {
        let start = Instant::now();
        let mut timer = Timer::once(start, PATIENCE, PATIENCE);
        assert_eq!(timer.expire(start + PATIENCE), Due::GiveUp);
    }

    /// The one that goes on first has to wait for the others' answers.
    #[test]
    fn the_time_in_which_the_job_was_stopped_is_none_of_its_peers() {
        let start = Instant::now();
        let mut timer = Timer::new(start, PATIENCE);
        let hour = Duration::from_secs(3600);
        assert_eq!(timer.expire(start + hour), Due::Repeat);
        let after = given_up(&mut timer, start + hour, Duration::ZERO);
        assert!(after + FIRST_REPEAT >= PATIENCE, "{after:?}");
    }

    #[test]
    fn what_a_peer_has_left_goes_with_it() {
        let start = Instant::now();
        let mut before = Timer::new(start, PATIENCE);
        while before.left > PATIENCE / 2 {
            before.expire(before.next());
        }
        let now = before.next();
        let mut timer = Timer::new(now, PATIENCE).after(&before);
        let after = given_up(&mut timer, now, Duration::ZERO);
        assert!(after < PATIENCE * 2 / 3, "{after:?}");
    }
}
