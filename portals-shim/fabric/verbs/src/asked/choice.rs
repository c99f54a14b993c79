//! Which way short gets from a peer go: the one that has been quicker.
//!
//! ```text
//!   FIRST by the adapters ─► trial ─┬─ asking quicker ─► PERIOD asked for ─────┐
//!                             ▲     └─ not ─► SHORTEST, doubled each time ─────┤
//!                             └────────────────────────────────────────────────┘
//! ```
//!
//! A trial is made of blocks of gets, by the adapters and asked for in turn; of each the last few are timed. So a peer that
//! sleeps is awake when it counts, and machines that are quick and slow by turns are seen in both states. A peer that does
//! not answer in time ends a trial, and any other period sooner.

use std::time::Duration;

/// What users say of short gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The quicker way, as it was measured.
    Measured,
    ByAdapter,
    /// All that may be.
    Asked,
}

/// How a short get goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Adapter,
    Ask,
}

/// Gets from a peer before anything is tried: fewer are not worth it.
const FIRST: u32 = 64;
/// Gets of a block.
const BLOCK: u32 = 32;
/// Of which so many, the last ones, are timed.
const TIMED: u32 = 4;
/// Blocks of a trial.
const BLOCKS: u32 = 16;
/// Times of either way.
const TIMES: usize = (BLOCKS / 2 * TIMED) as usize;
/// Of those that are asked for in a block, so many may come too late.
const LATE_OF_BLOCK: u32 = 3;
/// Gets that are asked for between two trials.
const PERIOD: u32 = 1 << 16;
/// What one that comes too late takes off that.
const LATE: u32 = PERIOD / 64;
/// Gets by the adapters between two trials, at first and at last.
const SHORTEST: u32 = 1 << 12;
const LONGEST: u32 = 1 << 20;

#[derive(Clone, Debug)]
enum Phase {
    /// So many are left.
    ByAdapter(u32),
    Trial(Box<Trial>),
    Asked(u32),
}

#[derive(Clone, Debug, Default)]
struct Trial {
    /// Gets so far.
    gets: u32,
    by_adapter: Times,
    asked: Times,
    /// Too late in this block.
    late: u32,
}

/// Nanoseconds.
#[derive(Clone, Debug, Default)]
struct Times {
    all: [u32; TIMES],
    count: usize,
}

impl Times {
    fn add(&mut self, time: Duration) {
        if let Some(place) = self.all.get_mut(self.count) {
            *place = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
            self.count += 1;
        }
    }

    fn median(&mut self) -> Option<u32> {
        let all = self.all.get_mut(..self.count)?;
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }
}

impl Trial {
    /// The way of the next get, and whether it is timed; `None`: the trial is over.
    fn next(&mut self) -> Option<(Way, bool)> {
        let (block, at) = (self.gets / BLOCK, self.gets % BLOCK);
        if block == BLOCKS {
            return None;
        }
        if at == 0 {
            self.late = 0;
        }
        self.gets += 1;
        let way = match block % 2 {
            0 => Way::Adapter,
            _ => Way::Ask,
        };
        Some((way, at >= BLOCK - TIMED))
    }

    fn is_won_by_asking(&mut self) -> bool {
        match (self.by_adapter.median(), self.asked.median()) {
            // What is hardly quicker is not worth the peer's time.
            (Some(by_adapter), Some(asked)) => asked < by_adapter - by_adapter / 16,
            _ => false,
        }
    }
}

/// The choice for one peer.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    phase: Phase,
    /// Gets by the adapters after the next trial that asking loses.
    pause: u32,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            phase: Phase::ByAdapter(FIRST),
            pause: SHORTEST,
        }
    }
}

impl Choice {
    /// How the next get goes, and whether its time is to be taken.
    #[inline]
    pub(crate) fn next(&mut self) -> (Way, bool) {
        match &mut self.phase {
            Phase::ByAdapter(left) if *left > 0 => {
                *left -= 1;
                (Way::Adapter, false)
            }
            Phase::Asked(left) if *left > 0 => {
                *left -= 1;
                (Way::Ask, false)
            }
            _ => self.try_both(),
        }
    }

    /// Gets whose time was taken in the trial, if there is one: by the adapters, and asked for.
    #[cfg(test)]
    pub(crate) fn timed(&self) -> (usize, usize) {
        match &self.phase {
            Phase::Trial(trial) => (trial.by_adapter.count, trial.asked.count),
            _ => (0, 0),
        }
    }

    #[cold]
    fn try_both(&mut self) -> (Way, bool) {
        let Phase::Trial(trial) = &mut self.phase else {
            let mut trial = Box::new(Trial::default());
            let first = trial.next();
            self.phase = Phase::Trial(trial);
            return first.unwrap_or((Way::Adapter, false));
        };
        if let Some(next) = trial.next() {
            return next;
        }
        let asking = trial.is_won_by_asking();
        self.end_trial(asking);
        self.next()
    }

    fn end_trial(&mut self, asking: bool) {
        self.phase = if asking {
            self.pause = SHORTEST;
            Phase::Asked(PERIOD)
        } else {
            let pause = self.pause;
            self.pause = (pause * 2).min(LONGEST);
            Phase::ByAdapter(pause)
        };
    }

    /// The get that was timed, and went this way, took so long.
    pub(crate) fn took(&mut self, way: Way, time: Duration) {
        if let Phase::Trial(trial) = &mut self.phase {
            match way {
                Way::Adapter => trial.by_adapter.add(time),
                Way::Ask => trial.asked.add(time),
            }
        }
    }

    /// What was asked for was not answered in time, and is read by the adapters.
    pub(crate) fn late(&mut self) {
        match &mut self.phase {
            Phase::Asked(left) => *left = left.saturating_sub(LATE),
            Phase::Trial(trial) => {
                trial.late += 1;
                if trial.late > LATE_OF_BLOCK {
                    self.end_trial(false);
                }
            }
            Phase::ByAdapter(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(20);
    const SLOW: Duration = Duration::from_micros(30);

    /// Makes gets that take so long until the choice is made, or one that is asked for is never answered; how many of each.
    fn trial(choice: &mut Choice, by_adapter: Duration, asked: Option<Duration>) -> (u32, u32) {
        let (mut reads, mut asks) = (0, 0);
        while let Phase::Trial(trial) = &choice.phase {
            if trial.gets == BLOCK * BLOCKS {
                break;
            }
            let (way, timed) = choice.next();
            match (way, asked) {
                (Way::Adapter, _) => {
                    reads += 1;
                    if timed {
                        choice.took(way, by_adapter);
                    }
                }
                (Way::Ask, Some(time)) => {
                    asks += 1;
                    if timed {
                        choice.took(way, time);
                    }
                }
                (Way::Ask, None) => {
                    asks += 1;
                    choice.late();
                }
            }
        }
        (reads, asks)
    }

    /// Gets up to the next trial, all of one way.
    fn period(choice: &mut Choice) -> (Way, u32) {
        let (way, _) = choice.next();
        let mut count = 1;
        loop {
            let (next, _) = choice.next();
            if let Phase::Trial(trial) = &mut choice.phase {
                // The first of the trial, which is made anew.
                trial.gets = 0;
                return (way, count);
            }
            assert_eq!(next, way);
            count += 1;
        }
    }

    const EACH: u32 = BLOCK * BLOCKS / 2;

    #[test]
    fn the_quicker_way_is_taken_and_tried_again() {
        let mut choice = Choice::default();
        assert_eq!(period(&mut choice), (Way::Adapter, FIRST));
        assert_eq!(trial(&mut choice, SLOW, Some(QUICK)), (EACH, EACH));
        assert_eq!(period(&mut choice), (Way::Ask, PERIOD));
        for pause in [SHORTEST, 2 * SHORTEST, 4 * SHORTEST] {
            assert_eq!(trial(&mut choice, QUICK, Some(SLOW)), (EACH, EACH));
            assert_eq!(period(&mut choice), (Way::Adapter, pause));
        }
        trial(&mut choice, SLOW, Some(QUICK));
        assert_eq!(period(&mut choice), (Way::Ask, PERIOD));
        // Of two that are equal the adapters' needs nobody.
        trial(&mut choice, QUICK, Some(QUICK));
        assert_eq!(period(&mut choice), (Way::Adapter, SHORTEST));
    }

    #[test]
    fn a_peer_that_computes_is_hardly_ever_asked() {
        let mut choice = Choice::default();
        let (mut asks, mut gets) = (0, 0);
        while gets < 10_000_000 {
            gets += period(&mut choice).1;
            let (reads, asked) = trial(&mut choice, SLOW, None);
            assert_eq!(asked, LATE_OF_BLOCK + 1);
            (gets, asks) = (gets + reads + asked, asks + asked);
        }
        assert!(asks < 100, "{asks} of {gets}");
    }

    #[test]
    fn answers_that_come_late_end_the_period() {
        let mut choice = Choice::default();
        period(&mut choice);
        trial(&mut choice, SLOW, Some(QUICK));
        let mut asked = 0;
        while choice.next() == (Way::Ask, false) {
            asked += 1;
            choice.late();
        }
        assert_eq!(asked, 64);
    }

    /// One in a block is that of a peer that slept.
    #[test]
    fn some_slow_gets_of_a_trial_decide_nothing() {
        let mut choice = Choice::default();
        period(&mut choice);
        let mut blocks = 0;
        loop {
            let (way, timed) = choice.next();
            if !matches!(choice.phase, Phase::Trial(_)) {
                break;
            }
            blocks += u32::from(timed);
            match (way, timed) {
                (Way::Adapter, true) => choice.took(way, SLOW),
                (Way::Ask, true) if blocks.is_multiple_of(3) => choice.took(way, 100 * SLOW),
                (Way::Ask, true) => choice.took(way, QUICK),
                (Way::Ask, false) if choice.is_new_block() => choice.late(),
                _ => {}
            }
        }
        assert!(matches!(choice.phase, Phase::Asked(_)));
    }

    impl Choice {
        fn is_new_block(&self) -> bool {
            matches!(&self.phase, Phase::Trial(t) if t.gets % BLOCK == 1)
        }
    }
}
