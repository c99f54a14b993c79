//! What senders may have under way to this process: the receiver's part of the congestion control.
//!
//! A process has a budget of segments that may be under way to it in all, at most those that it has receives for, and tells
//! each peer its share: the budget divided by the number of peers that send. So the receives are never overrun by many
//! senders for long, and each gets as much as the others.
//!
//! The budget follows what gets through. In each round of as many segments as the budget, a fraction was missing when
//! later ones arrived: the budget shrinks **by a quarter of that fraction**, by all of it if it is more than an eighth, and
//! grows by a segment for each sender. A wire that loses one packet in a hundred at random keeps some 400 segments of each
//! sender under way, where halving for each loss would leave 12; a queue that overflows loses a large fraction, and is
//! relieved at once. What arrives late, and is not a repetition, was not missing.

use super::config::{Config, Time};

/// Length of the epochs in which senders are counted, nanoseconds.
const EPOCH: Time = 2_000_000;
/// The budget's unit: 1/256 of a segment.
const UNIT: u32 = 256;
/// One missing of so many is heavy.
const HEAVY: u32 = 8;

/// The last epoch in which a peer sent something; each peer has one.
#[derive(Debug, Default)]
pub(super) struct Seen(u32);

/// Who sends, and what of it arrives.
///
/// # Invariants
///
/// * Whoever sends in an epoch is counted once in it.
/// * The budget is a segment for each sender at least, and beyond that no more than the receives.
#[derive(Debug)]
pub(super) struct Crowd {
    epoch: u32,
    ends: Time,
    /// Senders in this epoch, and in the one before.
    here: u32,
    before: u32,
    /// In [`UNIT`]s; 0 before anything has arrived.
    budget: u32,
    /// Of this round.
    arrived: u32,
    missing: u32,
}

impl Default for Crowd {
    fn default() -> Self {
        Self {
            // Peers that never sent are of epoch 0.
            epoch: 2,
            ends: 0,
            here: 0,
            before: 0,
            budget: 0,
            arrived: 0,
            missing: 0,
        }
    }
}

impl Crowd {
    pub(super) fn advance(&mut self, now: Time) {
        if now < self.ends {
            return;
        }
        let long = now >= self.ends + EPOCH;
        self.before = if long { 0 } else { self.here };
        self.here = 0;
        self.epoch = self.epoch.wrapping_add(1 + u32::from(long));
        self.ends = now + EPOCH;
    }

    /// A peer has sent a segment.
    #[inline]
    pub(super) const fn heard(&mut self, peer: &mut Seen) {
        if peer.0 != self.epoch {
            peer.0 = self.epoch;
            self.here += 1;
        }
    }

    fn senders(&self) -> u32 {
        self.here.max(self.before).max(1)
    }

    /// A segment has arrived for the first time, `missing` ones before it have not; or it is one of these, `late`.
    #[inline]
    pub(super) fn arrived(&mut self, config: &Config, missing: u32, late: bool) {
        self.arrived += 1;
        self.missing = (self.missing + missing).saturating_sub(u32::from(late));
        if (self.arrived + self.missing) * UNIT >= self.budget {
            self.round(config);
        }
    }

    fn round(&mut self, config: &Config) {
        let most = config.receives.clamp(1, 1 << 20) * UNIT;
        if self.budget == 0 {
            self.budget = most;
            return;
        }
        let total = u64::from(self.missing + self.arrived).max(1);
        let less = u64::from(self.budget) * u64::from(self.missing) / total;
        let light = self.missing * HEAVY < self.arrived;
        let less = if light { less / 4 } else { less };
        let less = u32::try_from(less).unwrap_or(u32::MAX);
        let more = self.senders() * UNIT;
        self.budget = (self.budget.saturating_sub(less) + more)
            .clamp(self.senders() * UNIT, most.max(self.senders() * UNIT));
        (self.arrived, self.missing) = (0, 0);
    }

    /// What one sender may have under way to this process.
    #[inline]
    pub(super) fn share(&self, config: &Config) -> u16 {
        let budget = if self.budget == 0 {
            config.receives
        } else {
            self.budget / UNIT
        };
        let share = (budget / self.senders()).max(1);
        share.min(u32::from(config.window)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            receives: 1024,
            ..Config::default()
        }
    }

    #[test]
    fn senders_share_what_there_is_and_those_who_stop_do_not_count() {
        let config = config();
        let mut crowd = Crowd::default();
        let mut peers: [Seen; 16] = Default::default();
        let mut now = 0;
        crowd.advance(now);
        for peer in &mut peers {
            crowd.heard(peer);
            crowd.heard(peer);
        }
        assert_eq!(crowd.share(&config), 1024 / 16);
        for _ in 0..2 {
            now += EPOCH;
            crowd.advance(now);
            crowd.heard(&mut peers[0]);
        }
        assert_eq!(crowd.share(&config), 1024);
        crowd.advance(now + 10 * EPOCH);
        assert_eq!(crowd.share(&config), 1024);
    }

    /// The share of one sender of whose segments one in `every` is missing.
    fn after(every: u32) -> u16 {
        let config = config();
        let mut crowd = Crowd::default();
        for i in 0..200_000 {
            crowd.arrived(&config, u32::from(i % every == every - 1), false);
        }
        crowd.share(&config)
    }

    #[test]
    fn the_budget_follows_what_is_missing() {
        assert_eq!(after(u32::MAX), 1024);
        assert!((300..800).contains(&after(100)), "{}", after(100));
        assert!(after(4) < 20, "{}", after(4));
    }

    #[test]
    fn late_is_not_missing() {
        let config = config();
        let mut crowd = Crowd::default();
        for i in 0..100_000u32 {
            crowd.arrived(&config, u32::from(i % 4 == 0), i % 4 == 1);
        }
        // One that is late at the end of a round counts as missing in that round.
        assert!(crowd.share(&config) > 800);
    }
}
