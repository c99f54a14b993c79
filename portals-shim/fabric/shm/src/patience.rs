//! How long a rank waits for a peer that says that it is copying.
//!
//! A peer that runs and goes on saying so has written what it cannot mean, and the job ends. A peer that a debugger or a
//! signal holds has not, however long that takes, and neither has one of which nobody knows whether it runs.

use host::held::is_held;
use std::time::{Duration, Instant};

/// Looks at the peer while all of the patience lasts.
const LOOKS: u32 = 16;
/// How often a peer is looked at, at the least.
const SLICE: Duration = Duration::from_millis(100);

/// Why a peer is waited for beyond all patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Stopped,
    Unknown,
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stopped => "is copying and stopped, by a debugger or a signal",
            Self::Unknown => {
                "has been copying for long, and the system does not say whether it runs"
            }
        })
    }
}

/// What there is to do about a peer that is copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Wait,
    /// To be said; once.
    Say(Held),
    GiveUp,
}

/// Of one wait for one peer.
#[derive(Debug)]
pub(super) struct Patience {
    /// Time that the peer may still run.
    left: Duration,
    /// Until somebody is told why it is waited for.
    silence: Duration,
    slice: Duration,
    looked: Instant,
}

impl Patience {
    pub(super) fn new(all: Duration) -> Self {
        Self {
            left: all,
            silence: all,
            slice: SLICE.min(all / LOOKS),
            looked: Instant::now(),
        }
    }

    /// To be asked often; `pid`: the peer's number here.
    pub(super) fn look(&mut self, pid: Option<i32>) -> Verdict {
        let elapsed = self.looked.elapsed();
        if elapsed < self.slice {
            return Verdict::Wait;
        }
        self.looked = Instant::now();
        self.judge(elapsed, pid.and_then(is_held))
    }

    /// After so much time; `held` as [`is_held`] says.
    fn judge(&mut self, elapsed: Duration, held: Option<bool>) -> Verdict {
        // This rank may have been stopped itself.
        let elapsed = elapsed.min(2 * self.slice);
        let why = match held {
            Some(false) => {
                self.left = self.left.saturating_sub(elapsed);
                return if self.left.is_zero() {
                    Verdict::GiveUp
                } else {
                    Verdict::Wait
                };
            }
            Some(true) => Held::Stopped,
            None => Held::Unknown,
        };
        let before = self.silence;
        self.silence = before.saturating_sub(elapsed);
        if self.silence.is_zero() && !before.is_zero() {
            Verdict::Say(why)
        } else {
            Verdict::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Duration = Duration::from_secs(1);

    /// What is said in so many slices.
    fn verdicts(patience: &mut Patience, slices: u32, held: Option<bool>) -> Vec<Verdict> {
        let slice = patience.slice;
        (0..slices)
            .map(|_| patience.judge(slice, held))
            .filter(|v| *v != Verdict::Wait)
            .collect()
    }

    #[test]
    fn only_a_peer_that_runs_is_given_up() {
        let mut patience = Patience::new(ALL);
        assert_eq!(verdicts(&mut patience, LOOKS - 1, Some(false)), []);
        assert_eq!(
            verdicts(&mut patience, 100 * LOOKS, Some(true)),
            [Verdict::Say(Held::Stopped)]
        );
        assert_eq!(verdicts(&mut patience, 100 * LOOKS, None), [], "once");
        let ends = verdicts(&mut patience, 1, Some(false));
        assert_eq!(ends, [Verdict::GiveUp]);
    }

    #[test]
    fn of_whom_nothing_is_known_is_waited_for() {
        let mut patience = Patience::new(ALL);
        assert_eq!(
            verdicts(&mut patience, 100 * LOOKS, None),
            [Verdict::Say(Held::Unknown)]
        );
    }

    /// Both were stopped for an hour, and the peer has not gone on yet when this rank looks.
    #[test]
    fn the_time_that_the_own_rank_stood_still_does_not_count() {
        let mut patience = Patience::new(ALL);
        let hour = Duration::from_secs(3600);
        assert_eq!(patience.judge(hour, Some(false)), Verdict::Wait);
    }
}
