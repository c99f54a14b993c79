//! A program that sleeps, and the attendant that looks after timers meanwhile.

use fabric_api::bell::Bell;
use fabric_api::nal::{Attendance, LOOKS};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use verbs_backend::rd::Time;

/// How long a thread that looks after timers leaves them to a program that polls.
const GRACE: Duration = Duration::from_millis(10);

/// What the program and its attendant know of each other.
#[derive(Debug)]
pub(super) struct Sleep {
    bell: Arc<Bell>,
    /// An attendant is wanted.
    thread: bool,
    /// There is no processor for this rank alone.
    crowded: bool,
    /// The program sleeps, so that timers are the attendant's.
    asleep: bool,
    /// When the attendant looks after timers again at the latest; `None` if nothing makes it.
    looks_at: Cell<Option<Time>>,
}

impl Sleep {
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new(thread: bool, crowded: bool) -> io::Result<Self> {
        Ok(Self {
            bell: Arc::new(Bell::new()?),
            thread,
            crowded,
            asleep: false,
            looks_at: Cell::new(None),
        })
    }

    /// What wakes the attendant.
    pub(super) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep
    }

    pub(super) fn set_asleep(&mut self, asleep: bool) {
        self.asleep = asleep;
    }

    /// Looks for arrivals between two looks at the rest.
    pub(super) fn looks(&self) -> u32 {
        if self.crowded { 1 } else { LOOKS }
    }

    /// When the attendant is to look after timers, of which the next ends at `next`. It does what it is told here.
    pub(super) fn attendant_due(&self, now: Time, next: Option<Time>) -> Option<Time> {
        let quiet = now + Time::try_from(GRACE.as_nanos()).unwrap_or(Time::MAX);
        let at = next.map(|at| if self.asleep { at } else { at.max(quiet) });
        self.looks_at.set(at);
        at
    }

    /// The program sleeps from here on. An attendant that looks in time is left alone: it costs a thread's wake-up.
    pub(super) fn begin(&mut self, next: Option<Time>) {
        let looks_at = self.looks_at.get();
        if next.is_some_and(|next| looks_at.is_none_or(|at| at > next)) {
            self.bell.ring();
        }
        self.asleep = true;
    }

    /// What an attendant sleeps on: descriptors of completions and of the device.
    pub(super) fn attendance(&self, completions: OwnedFd, device: OwnedFd) -> Attendance {
        Attendance {
            alarm: vec![completions],
            control: vec![device],
            bell: Arc::clone(&self.bell),
            thread: self.thread,
            longest: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What [`GRACE`] is as a time.
    const LATER: Time = 10_000_000;

    #[test]
    fn timers_of_a_program_that_polls_are_left_to_it_for_a_while() {
        let mut sleep = Sleep::new(true, false).unwrap();
        assert_eq!(sleep.attendant_due(5, None), None);
        assert_eq!(sleep.attendant_due(5, Some(7)), Some(5 + LATER));
        assert_eq!(sleep.attendant_due(5, Some(9 + LATER)), Some(9 + LATER));
        sleep.begin(Some(7));
        assert_eq!(sleep.attendant_due(5, Some(7)), Some(7));
        assert_eq!(Sleep::new(true, true).unwrap().looks(), 1);
        assert_eq!(sleep.looks(), LOOKS);
    }

    #[test]
    fn an_attendant_that_looks_in_time_is_not_woken() {
        let rung = |sleep: &Sleep| {
            let mut count = [0; 8];
            rustix::io::read(sleep.bell().descriptor(), &mut count).is_ok()
        };
        let mut sleep = Sleep::new(true, false).unwrap();
        sleep.begin(None);
        assert!(!rung(&sleep) && sleep.is_asleep(), "there is no timer");
        sleep.begin(Some(7));
        assert!(rung(&sleep), "nothing makes it look");
        sleep.attendant_due(5, Some(7));
        sleep.begin(Some(7));
        assert!(!rung(&sleep), "it looks then");
        sleep.begin(Some(6));
        assert!(rung(&sleep), "it looks too late");
    }
}
