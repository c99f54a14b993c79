//! The time in which a job's ranks are stopped, as by Ctrl-Z: it counts for none of their limits.

use std::time::{Duration, Instant};

/// Whether ranks are stopped, and how long they were.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    since: Option<Instant>,
    /// Without the one that lasts.
    total: Duration,
}

impl Standstill {
    /// The ranks are stopped from `now` on, if they are not already.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// The ranks go on; how long they were stopped.
    pub(super) fn end(&mut self, now: Instant) -> Duration {
        let since = self.since.take().unwrap_or(now);
        let lasted = now.saturating_duration_since(since);
        self.total += lasted;
        lasted
    }

    /// Whether the ranks are stopped.
    pub(super) fn lasts(&self) -> bool {
        self.since.is_some()
    }

    /// How long the ranks were stopped, each time that has ended.
    pub(super) fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_standstill_counts_once_from_its_first_signal() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut standstill = Standstill::default();
        assert_eq!(standstill.end(at(1)), Duration::ZERO, "none has begun");
        standstill.begin(at(2));
        standstill.begin(at(4));
        assert!(standstill.lasts() && standstill.total() == Duration::ZERO);
        assert_eq!(standstill.end(at(7)), Duration::from_secs(5));
        assert_eq!(standstill.end(at(9)), Duration::ZERO, "it has ended");
        standstill.begin(at(10));
        assert_eq!(standstill.end(at(11)), Duration::from_secs(1));
        assert!(!standstill.lasts());
        assert_eq!(standstill.total(), Duration::from_secs(6));
    }
}
