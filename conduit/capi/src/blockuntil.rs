// UNSAFETY: an entry that C calls.
#![expect(unsafe_code, reason = "C calls this entry")]
//! How `GASNET_BLOCKUNTIL` waits between two looks at its condition.
//!
//! GASNet may take it that only handlers change the condition, and programs have conditions that do more: they ask another
//! node, count, or look at the time. So a condition is looked at again after a while without an event, ever more seldom, and
//! each wait begins anew to do so. Virtual time passes as fast as it can while nothing happens, so there each look takes
//! real time too once many have found nothing. After some seconds of that the wait has no limit any more. If all ranks wait so,
//! the simulation says that the program cannot go on.

use conduit::ClockKind;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::ptr::State;
use crate::{coll, state};

/// Steps in a row that find nothing, after which a wait in virtual time goes on in real time too.
const FRUITLESS: u64 = 64;
/// How long in real time, nanoseconds, after which nothing is believed to come.
const HOPE: u64 = 5_000_000_000;
/// Between two looks of such a wait.
const PAUSE: Duration = Duration::from_millis(1);

/// What a wait has done so far: nothing at first. For C, two words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Steps {
    /// Steps in a row that found nothing.
    fruitless: u64,
    /// Since when it goes on in real time, nanoseconds; 0 if it does not.
    since: u64,
}

impl Steps {
    fn is_patient(self, clock: ClockKind) -> bool {
        clock == ClockKind::Virtual && self.fruitless >= FRUITLESS
    }

    /// How long the next step waits for an event, of the fabric's time. `now` is real time, or 0 if the wait is not patient.
    fn longest(self, now: u64) -> Option<Duration> {
        let hopeless = self.since > 0 && now.saturating_sub(self.since) > HOPE;
        (!hopeless).then(|| Duration::from_millis(1 << self.fruitless.min(6)))
    }

    /// After a step that found something, or nothing.
    fn after(self, found: bool, now: u64) -> Self {
        match (found, self.since) {
            (true, _) => Self::default(),
            (false, since) => Self {
                fruitless: self.fruitless.saturating_add(1),
                since: if since == 0 { now } else { since },
            },
        }
    }
}

/// One step of a `GASNET_BLOCKUNTIL`: something was handled, or it was not for a while, or where threads share the conduit a
/// turn is over.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_wait_step(steps: State<Steps>) {
    let before = steps.get();
    let after = state::attached("GASNET_BLOCKUNTIL", |conduit| {
        let now = match before.is_patient(conduit.clock()) {
            true => real_time(),
            false => 0,
        };
        // What sends may handle what the program waits for, and nothing else may come.
        let found = coll::progress(conduit) || conduit.service_within(before.longest(now));
        before.after(found, now)
    });
    if after.since > 0 {
        std::thread::sleep(PAUSE);
    }
    steps.set(after);
}

/// Nanoseconds of real time since some moment of this process, never 0.
fn real_time() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that finds nothing, each step of which takes `step` ns of real time.
    fn waited(clock: ClockKind, looks: u64, step: u64) -> (Steps, u64) {
        let (mut steps, mut time) = (Steps::default(), 1);
        for _ in 0..looks {
            let now = if steps.is_patient(clock) { time } else { 0 };
            assert!(steps.longest(now).is_some());
            steps = steps.after(false, now);
            time += step;
        }
        (steps, time)
    }

    #[test]
    fn looks_become_seldom_and_an_event_begins_anew() {
        let ms = |steps: Steps| steps.longest(0).map(|d| d.as_millis());
        for (looks, wait) in [(0, 1), (1, 2), (5, 32), (6, 64), (1000, 64)] {
            let (steps, _) = waited(ClockKind::Wall, looks, 1);
            assert_eq!(ms(steps), Some(wait), "after {looks}");
        }
        let (steps, now) = waited(ClockKind::Virtual, 100, 1);
        assert_eq!(steps.after(true, now), Steps::default());
    }

    #[test]
    fn real_time_never_ends_a_wait_by_itself() {
        let (steps, now) = waited(ClockKind::Wall, 10_000, HOPE);
        assert!(steps.since == 0 && steps.longest(now).is_some());
    }

    #[test]
    fn in_virtual_time_nothing_is_believed_to_come_after_five_seconds_of_real_time() {
        let (steps, _) = waited(ClockKind::Virtual, FRUITLESS, 1);
        assert_eq!(steps.since, 0, "no real time yet");
        let (steps, now) = waited(ClockKind::Virtual, FRUITLESS + 1, 1);
        assert_eq!(steps.since, now - 1);
        assert!(steps.longest(steps.since + HOPE).is_some());
        assert_eq!(steps.longest(steps.since + HOPE + 1), None);
    }
}
