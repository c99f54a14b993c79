//! Which protocol short gets from a peer go by: the one that has been quicker.
//!
//! ```text
//!   FIRST by RDMA READ ─► trial ─┬─ messages quicker ─► PERIOD by messages ──┐
//!                         ▲      └─ not ─► SHORTEST, doubled each time ──────┤
//!                         └──────────────────────────────────────────────────┘
//! ```
//!
//! A trial is made of blocks of gets, by RDMA READ and by messages in turn; of each the last few are timed. So a peer that
//! sleeps is awake when it counts, and machines that are quick and slow by turns are seen in both states. A peer that does
//! not answer in time ends a trial, and any other period sooner.

use std::time::Duration;

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
/// Of those by messages in a block, so many may come too late.
const LATE_OF_BLOCK: u32 = 3;
/// Gets by messages between two trials.
const PERIOD: u32 = 1 << 16;
/// What one that comes too late takes off that.
const LATE: u32 = PERIOD / 64;
/// Gets by RDMA READ between two trials, at first and at last.
const SHORTEST: u32 = 1 << 12;
const LONGEST: u32 = 1 << 20;

#[derive(Clone, Debug)]
enum Phase {
    /// So many are left.
    Rdma(u32),
    Trial(Box<Trial>),
    Messages(u32),
}

#[derive(Clone, Debug, Default)]
struct Trial {
    /// Gets so far.
    gets: u32,
    rdma: Times,
    messages: Times,
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

    fn median(&self) -> Option<u32> {
        let mut all = self.all;
        let all = all.get_mut(..self.count)?;
        all.sort_unstable();
        all.get(all.len() / 2).copied()
    }
}

impl Trial {
    fn is_over(&self) -> bool {
        self.gets == BLOCK * BLOCKS
    }

    /// Whether the next get goes by messages.
    fn is_by_am(&self) -> bool {
        !(self.gets / BLOCK).is_multiple_of(2)
    }

    /// The next get begins; whether it is timed.
    fn advance(&mut self) -> bool {
        let at = self.gets % BLOCK;
        if at == 0 {
            self.late = 0;
        }
        self.gets += 1;
        at >= BLOCK - TIMED
    }

    #[cold]
    fn is_won_by_messages(&self) -> bool {
        match (self.rdma.median(), self.messages.median()) {
            // What is hardly quicker is not worth the peer's time.
            (Some(rdma), Some(messages)) => messages < rdma - rdma / 16,
            _ => false,
        }
    }
}

/// The measurement for one peer.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    phase: Phase,
    /// Gets by RDMA READ after the next trial that messages lose.
    pause: u32,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            phase: Phase::Rdma(FIRST),
            pause: SHORTEST,
        }
    }
}

impl Measured {
    /// Whether the next get goes by messages.
    #[inline]
    pub(crate) fn is_by_am(&self) -> bool {
        match &self.phase {
            // A trial begins by RDMA READ.
            Phase::Rdma(_) | Phase::Messages(0) => false,
            Phase::Messages(_) => true,
            Phase::Trial(trial) if trial.is_over() => trial.is_won_by_messages(),
            Phase::Trial(trial) => trial.is_by_am(),
        }
    }

    /// The next get begins, and goes as [`Measured::is_by_am`] has said; whether its time is to be taken.
    #[inline]
    pub(crate) fn advance(&mut self) -> bool {
        match &mut self.phase {
            Phase::Rdma(left) | Phase::Messages(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => self.advance_trial(),
        }
    }

    /// Gets whose time was taken in the trial, if there is one: by RDMA READ, and by messages.
    #[cfg(test)]
    pub(crate) fn timed(&self) -> (usize, usize) {
        match &self.phase {
            Phase::Trial(trial) => (trial.rdma.count, trial.messages.count),
            _ => (0, 0),
        }
    }

    #[cold]
    fn advance_trial(&mut self) -> bool {
        let Phase::Trial(trial) = &mut self.phase else {
            let mut trial = Box::new(Trial::default());
            let timed = trial.advance();
            self.phase = Phase::Trial(trial);
            return timed;
        };
        if !trial.is_over() {
            return trial.advance();
        }
        let messages = trial.is_won_by_messages();
        self.end_trial(messages);
        self.advance()
    }

    fn end_trial(&mut self, messages: bool) {
        self.phase = if messages {
            self.pause = SHORTEST;
            Phase::Messages(PERIOD)
        } else {
            let pause = self.pause;
            self.pause = (pause * 2).min(LONGEST);
            Phase::Rdma(pause)
        };
    }

    /// The get that was timed took so long.
    pub(crate) fn took(&mut self, by_am: bool, time: Duration) {
        if let Phase::Trial(trial) = &mut self.phase {
            match by_am {
                true => trial.messages.add(time),
                false => trial.rdma.add(time),
            }
        }
    }

    /// A get by messages was not answered in time, and is read by the adapter.
    pub(crate) fn late(&mut self) {
        match &mut self.phase {
            Phase::Messages(left) => *left = left.saturating_sub(LATE),
            Phase::Trial(trial) => {
                trial.late += 1;
                if trial.late > LATE_OF_BLOCK {
                    self.end_trial(false);
                }
            }
            Phase::Rdma(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(20);
    const SLOW: Duration = Duration::from_micros(30);

    /// Begins a get: whether it goes by messages, and is timed.
    fn turn(measured: &mut Measured) -> (bool, bool) {
        (measured.is_by_am(), measured.advance())
    }

    /// Makes gets that take so long until the choice is made, or one by messages is never answered; how many of each.
    fn trial(measured: &mut Measured, rdma: Duration, messages: Option<Duration>) -> (u32, u32) {
        let (mut reads, mut asks) = (0, 0);
        while let Phase::Trial(trial) = &measured.phase {
            if trial.gets == BLOCK * BLOCKS {
                break;
            }
            let (by_am, timed) = turn(measured);
            match (by_am, messages) {
                (false, _) => {
                    reads += 1;
                    if timed {
                        measured.took(by_am, rdma);
                    }
                }
                (true, Some(time)) => {
                    asks += 1;
                    if timed {
                        measured.took(by_am, time);
                    }
                }
                (true, None) => {
                    asks += 1;
                    measured.late();
                }
            }
        }
        (reads, asks)
    }

    /// Gets up to the next trial, all by one protocol.
    fn period(measured: &mut Measured) -> (bool, u32) {
        let (by_am, _) = turn(measured);
        let mut count = 1;
        loop {
            let (next, _) = turn(measured);
            if let Phase::Trial(trial) = &mut measured.phase {
                // The first of the trial, which is made anew.
                trial.gets = 0;
                return (by_am, count);
            }
            assert_eq!(next, by_am);
            count += 1;
        }
    }

    const EACH: u32 = BLOCK * BLOCKS / 2;

    #[test]
    fn the_quicker_way_is_taken_and_tried_again() {
        let mut measured = Measured::default();
        assert_eq!(period(&mut measured), (false, FIRST));
        assert_eq!(trial(&mut measured, SLOW, Some(QUICK)), (EACH, EACH));
        assert_eq!(period(&mut measured), (true, PERIOD));
        for pause in [SHORTEST, 2 * SHORTEST, 4 * SHORTEST] {
            assert_eq!(trial(&mut measured, QUICK, Some(SLOW)), (EACH, EACH));
            assert_eq!(period(&mut measured), (false, pause));
        }
        trial(&mut measured, SLOW, Some(QUICK));
        assert_eq!(period(&mut measured), (true, PERIOD));
        // Of two that are equal the adapters' needs nobody.
        trial(&mut measured, QUICK, Some(QUICK));
        assert_eq!(period(&mut measured), (false, SHORTEST));
    }

    #[test]
    fn a_peer_that_computes_gets_few_requests() {
        let mut measured = Measured::default();
        let (mut asks, mut gets) = (0, 0);
        while gets < 10_000_000 {
            gets += period(&mut measured).1;
            let (reads, messages) = trial(&mut measured, SLOW, None);
            assert_eq!(messages, LATE_OF_BLOCK + 1);
            (gets, asks) = (gets + reads + messages, asks + messages);
        }
        assert!(asks < 100, "{asks} of {gets}");
    }

    #[test]
    fn answers_that_come_late_end_the_period() {
        let mut measured = Measured::default();
        period(&mut measured);
        trial(&mut measured, SLOW, Some(QUICK));
        let mut messages = 0;
        while turn(&mut measured) == (true, false) {
            messages += 1;
            measured.late();
        }
        assert_eq!(messages, 64);
    }

    /// The first gets of a block wake a peer that sleeps.
    #[test]
    fn the_last_gets_of_each_block_are_timed() {
        let mut measured = Measured::default();
        period(&mut measured);
        for get in 0..BLOCK * BLOCKS {
            let (_, timed) = turn(&mut measured);
            assert_eq!(timed, get % BLOCK >= BLOCK - TIMED, "{get}");
        }
    }

    #[test]
    fn messages_that_are_hardly_quicker_lose() {
        for (messages, won) in [(1501, false), (1500, false), (1499, true)] {
            let mut measured = Measured::default();
            period(&mut measured);
            let times = [1600, messages].map(Duration::from_nanos);
            trial(&mut measured, times[0], Some(times[1]));
            assert_eq!(turn(&mut measured).0, won, "{messages} of 1600 ns");
        }
    }

    #[test]
    fn a_peer_that_was_slower_often_is_tried_again_all_the_same() {
        let mut measured = Measured::default();
        period(&mut measured);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            trial(&mut measured, QUICK, Some(SLOW));
            pauses.push(period(&mut measured).1);
        }
        assert_eq!(pauses.iter().max(), Some(&LONGEST));
        assert_eq!(pauses.last(), Some(&LONGEST));
    }

    /// One in a block is that of a peer that slept.
    #[test]
    fn some_slow_gets_of_a_trial_decide_nothing() {
        let mut measured = Measured::default();
        period(&mut measured);
        let mut blocks = 0;
        loop {
            let (by_am, timed) = turn(&mut measured);
            if !matches!(measured.phase, Phase::Trial(_)) {
                break;
            }
            blocks += u32::from(timed);
            match (by_am, timed) {
                (false, true) => measured.took(by_am, SLOW),
                (true, true) if blocks.is_multiple_of(3) => measured.took(by_am, 100 * SLOW),
                (true, true) => measured.took(by_am, QUICK),
                (true, false) if measured.is_new_block() => measured.late(),
                _ => {}
            }
        }
        assert!(matches!(measured.phase, Phase::Messages(_)));
    }

    impl Measured {
        fn is_new_block(&self) -> bool {
            matches!(&self.phase, Phase::Trial(t) if t.gets % BLOCK == 1)
        }
    }
}
