//! One time of a process, which never goes back, over clocks that come and go.

const SECOND: i64 = 1_000_000_000;

/// Whose pace the time has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// That of the host.
    Host,
    /// That of the interfaces.
    Virtual,
}

/// The time: nanoseconds of the clock that it follows, and what it is ahead of that.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pace: Pace,
    ahead: i64,
    /// The last that was said.
    last: u64,
}

impl Timeline {
    /// Goes on from `last` at the pace of the host's clock, which shows `host`.
    pub(crate) const fn from(last: u64, host: u64) -> Self {
        Self {
            pace: Pace::Host,
            ahead: last.wrapping_sub(host).cast_signed(),
            last,
        }
    }

    /// The time when the clock that it follows shows `now`.
    fn at(&mut self, now: u64) -> u64 {
        let time = now.saturating_add_signed(self.ahead);
        self.last = self.last.max(time);
        self.last
    }

    /// Follows a clock that shows `now`, from the last time on or up to `step` later: by whole steps ahead of it.
    fn follow(&mut self, pace: Pace, now: u64, step: i64) -> u64 {
        if self.pace != pace {
            let gap = self.last.wrapping_sub(now).cast_signed();
            let over = gap.rem_euclid(step);
            self.ahead = if over == 0 { gap } else { gap - over + step };
            self.pace = pace;
        }
        self.at(now)
    }

    /// The time while interfaces are open, the latest of whose clocks shows `now`, and the host's `host`. It has the same fraction of a
    /// second as the virtual clock, so that who rounds rounds alike in every run.
    pub(crate) fn virtual_at(&mut self, now: u64, host: u64) -> u64 {
        if self.pace == Pace::Host {
            self.at(host);
        }
        self.follow(Pace::Virtual, now, SECOND)
    }

    /// The time while none is open: it goes on from the last at the host's pace.
    pub(crate) fn host_at(&mut self, host: u64) -> u64 {
        self.follow(Pace::Host, host, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_that_of_the_clock_that_is_followed() {
        let mut line = Timeline::from(0, 0);
        let first = line.virtual_at(500, 1_000_000);
        assert_eq!(first, 1_000_000_500);
        assert_eq!(line.virtual_at(720, 9_000_000) - first, 220);
    }

    #[test]
    fn it_goes_on_at_the_hosts_pace_and_with_the_next_interface() {
        let mut line = Timeline::from(0, 0);
        let first = line.virtual_at(500, 1_000_000);
        let ended = line.host_at(9_000_000);
        assert_eq!(ended, first);
        assert_eq!(line.host_at(9_000_300), ended + 300);
        // Another simulation, whose clock shows less.
        let again = line.virtual_at(7, 9_000_400);
        assert_eq!((ended + 400, again), (1_000_000_900, 2_000_000_007));
        assert_eq!(line.virtual_at(8, 9_900_000), again + 1);
    }

    #[test]
    fn a_child_goes_on_from_what_its_parent_has_read() {
        assert_eq!(Timeline::from(5_000, 80).host_at(90), 5_010);
    }

    #[test]
    fn it_never_goes_back() {
        let mut line = Timeline::from(0, 0);
        let later = line.virtual_at(900, 0);
        assert_eq!(line.virtual_at(300, 0), later);
        assert_eq!(line.virtual_at(901, 0), later + 1);
    }
}
