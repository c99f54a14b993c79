//! Requests that an adapter forgets: neither completed nor failed, with nothing on the wire.
//!
//! A reliable connection promises an end to every request. SoftRoCE of Linux 6.1 breaks that promise now and then: a
//! READ whose answer a link that goes down swallows may be left without its timer, and then nothing ever happens on
//! that queue pair again. So connections are looked at every [`LOOK`], and one whose oldest request has been under way
//! for longer than a working adapter takes is broken like one whose request failed, and mended (`link.rs`).
//!
//! # Invariants
//!
//! * A connection is judged only when the completion queue has been empty since the last look: a program that makes no
//!   call for long has a full queue, not a forgetful adapter. Nothing is polled here, since without a progress thread
//!   only the program's calls make progress.
//! * A process that was stopped judges nothing by the time it was away: it takes [`LOOKS`] looks, not time alone.

use super::Verbs;
use super::handshake::Stage;
use std::time::{Duration, Instant};

/// How often connections are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// Looks that find the same request before it counts as forgotten.
const LOOKS: u32 = 3;
/// Time for a request besides that for its data. An adapter repeats what is not acknowledged 6 times, after 67 ms or, as
/// the InfiniBand specification allows (section 9.7.6.1.3), up to four times that: within 2 s it has failed.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes a second that the data of a request moves at least.
const PACE: u64 = 1 << 20;

/// How long the oldest request of a connection has been it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// Its number.
    oldest: u32,
    since: Instant,
    looks: u32,
}

impl Watch {
    /// Looks at a connection whose oldest request has the number `oldest` and moves `len` bytes; the request is
    /// forgotten if the second value says so.
    pub(super) fn look(before: Option<Self>, oldest: u32, len: u64, now: Instant) -> (Self, bool) {
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

impl Verbs {
    /// When connections are to be looked at next; never without any.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let any = self.met.iter().any(|r| self.peers[*r].is_some());
        any.then_some(self.looked.0 + LOOK)
    }

    /// Whether no completion lies in the queue that came before the last look.
    fn has_taken_all(&self) -> bool {
        let polled = self.empty_polls != self.looked.1;
        // Armed, then found empty: whatever came later has made an event.
        let rests = || {
            self.armed_at.is_some_and(|at| at != self.empty_polls)
                && self.cq.has_event().is_ok_and(|event| !event)
        };
        polled || rests()
    }

    /// Looks for forgotten requests, if it is time.
    pub(super) fn look_for_forgotten(&mut self, now: Instant) {
        if now < self.looked.0 + LOOK {
            return;
        }
        let sure = self.has_taken_all();
        self.looked = (now, self.empty_polls);
        if !sure {
            return;
        }
        for at in 0..self.met.len() {
            let rank = self.met[at];
            let Some(peer) = self.peer(rank) else {
                continue;
            };
            if !matches!(peer.stage, Stage::Up | Stage::Opening(_)) || peer.broken {
                continue;
            }
            if peer.has_forgotten(now) {
                tracing::warn!(
                    peer = rank,
                    "connection broken: the adapter neither completes nor fails a request"
                );
                peer.broken = true;
                self.pending += 1;
            }
        }
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
