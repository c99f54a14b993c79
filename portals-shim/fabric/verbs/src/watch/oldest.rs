//! How long the oldest request of a connection has been it.

use std::time::{Duration, Instant};

/// Looks that find the same request before it counts as forgotten.
const LOOKS: u32 = 3;
/// Time for a request besides that for its data. An adapter repeats what is not acknowledged 6 times, after 67 ms or, as
/// the InfiniBand specification allows (section 9.7.6.1.3), up to four times that: within 2 s it has failed.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes a second that the data of a request moves at least.
const PACE: u64 = 1 << 20;

/// How long the oldest request of a connection has been it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Its number.
    oldest: u32,
    since: Instant,
    looks: u32,
}

impl Watch {
    /// Looks at a connection whose oldest request has the number `oldest` and moves `len` bytes; the request is
    /// forgotten if the second value says so.
    pub(crate) fn look(before: Option<Self>, oldest: u32, len: u64, now: Instant) -> (Self, bool) {
        let Some(mut watch) = before.filter(|w| w.oldest == oldest) else {
            let since = now;
            return (
                Self {
                    oldest,
                    since,
                    looks: 0,
                },
                false,
            );
        };
        watch.looks += 1;
        let time = GRACE + Duration::from_secs(len / PACE);
        let over = now.saturating_duration_since(watch.since) >= time;
        (watch, over && watch.looks >= LOOKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at the request `oldest` of `len` bytes at these seconds; whether the last look finds it forgotten.
    fn looks(oldest: &[u32], len: u64, seconds: &[u64]) -> bool {
        let start = Instant::now();
        let (mut watch, mut found) = (None, false);
        for (oldest, second) in oldest.iter().zip(seconds) {
            assert!(!found, "found before the last look");
            let now = start + Duration::from_secs(*second);
            let (next, forgotten) = Watch::look(watch, *oldest, len, now);
            (watch, found) = (Some(next), forgotten);
        }
        found
    }

    #[test]
    fn a_request_that_stays_the_oldest_is_forgotten_when_its_time_is_over() {
        assert!(!looks(&[7; 3], 8, &[0, 2, 4]));
        assert!(looks(&[7; 4], 8, &[0, 2, 4, 6]));
    }

    #[test]
    fn the_data_of_a_request_has_its_time() {
        assert!(!looks(&[7; 6], 5 << 20, &[0, 2, 4, 6, 8, 9]));
        assert!(looks(&[7; 6], 5 << 20, &[0, 2, 4, 6, 8, 10]));
    }

    #[test]
    fn a_connection_that_goes_on_has_forgotten_nothing() {
        assert!(!looks(&[7, 8, 9, 9, 9], 8, &[0, 20, 40, 42, 44]));
        // A number that comes again after another one is a new request.
        assert!(!looks(&[7, 7, 8, 7, 7], 8, &[0, 20, 40, 60, 80]));
    }

    #[test]
    fn a_process_that_was_away_judges_by_looks_and_not_by_time() {
        assert!(!looks(&[7; 3], 8, &[0, 1000, 1002]));
        assert!(looks(&[7; 4], 8, &[0, 1000, 1002, 1004]));
    }
}
