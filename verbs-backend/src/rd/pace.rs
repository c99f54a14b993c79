//! How long to wait for an ack, and how much to have under way: what is learned of the way to a peer, and what it has said.
//!
//! * The **retransmission time** is RFC 6298's: a smoothed round trip and four times its variation, twice as long after each
//!   expiry. Segments that were sent more than once give no sample.
//! * A segment that enough others have overtaken is taken for lost. How many is learned: when the receiver says that a
//!   repeated segment had arrived already, more are allowed next time.
//! * The **window** grows by what is acked. It shrinks when a round loses more than a quarter, by half of what was lost, and
//!   begins anew when a timer runs out. Lighter losses are left to the **share** that the receiver gives (`share.rs`), which
//!   bounds the window as well and is the same for all senders.

use super::config::{Config, Congestion, Retransmit, Time};

/// The window's unit: 1/256 of a segment.
const UNIT: u32 = 256;
/// Lost 1/256 of a round above which the window shrinks.
const WEIGHT: u32 = 64;
/// The most by which segments may be overtaken.
const MOST_REORDER: u16 = 256;
/// The smallest window, segments.
const LEAST: u32 = 2;

/// What is known of the way to a peer.
///
/// # Invariants
///
/// * The window is no smaller than [`LEAST`] segments and no larger than that of the configuration.
/// * A round trip that is known is not 0; each expiry doubles the time until something is acked.
/// * `lost` and `acked` are segments of the round that ends when `round_end` is acked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Smoothed round trip and its variation, nanoseconds; 0 before the first sample.
    srtt: u32,
    var: u32,
    /// In [`UNIT`]s.
    window: u32,
    lost: u32,
    acked: u32,
    round_end: u64,
    /// When the peer last acked something new or said that it takes nothing yet, or something was first sent to it.
    heard: Time,
    /// How many transmissions may overtake a segment, in addition to what is configured.
    reorder: u16,
    /// What the peer wants to have under way to it.
    share: u16,
    /// Expiries without an ack in between.
    backoff: u8,
    /// Segments that the peer has said arrived twice, modulo 256.
    repeats: u8,
}

impl Pace {
    pub(super) fn new(congestion: Congestion, window: u16) -> Self {
        let initial = match congestion {
            Congestion::None => u32::from(window),
            Congestion::Adaptive { initial } => u32::from(initial),
        };
        Self {
            srtt: 0,
            var: 0,
            window: initial.max(LEAST) * UNIT,
            lost: 0,
            acked: 0,
            round_end: 0,
            heard: 0,
            reorder: 0,
            share: u16::MAX,
            backoff: 0,
            repeats: 0,
        }
    }

    /// Segments that may be under way, of all that bounds them the least.
    #[inline]
    pub(super) fn allowance(&self, config: &Config) -> u32 {
        let window = u32::from(config.window);
        match config.congestion {
            Congestion::None => window,
            Congestion::Adaptive { .. } => {
                let share = u32::from(self.share.max(1));
                self.window().min(share).min(window)
            }
        }
    }

    /// The peer gives this share; whether it is another one than before. One that takes nothing yet is there.
    #[inline]
    pub(super) fn take_share(&mut self, now: Time, share: u16) -> bool {
        if share == 0 {
            self.heard = now;
        }
        let other = self.share != share;
        self.share = share;
        other
    }

    /// The peer has been heard of, or is given time from now on.
    #[inline]
    pub(super) const fn hear(&mut self, now: Time) {
        self.heard = now;
    }

    /// For how long it has not been heard of.
    pub(super) const fn silence(&self, now: Time) -> Time {
        now.saturating_sub(self.heard)
    }

    /// The peer says that so many segments have arrived twice, modulo 256: what is new of these was sent again without need.
    #[inline]
    pub(super) fn take_repeats(&mut self, repeats: u8) {
        let needless = repeats.wrapping_sub(self.repeats);
        // An older datagram says less than is known.
        if needless < 128 && needless > 0 {
            self.repeats = repeats;
            self.needless(needless);
        }
    }

    /// Segments that may be under way.
    pub(super) fn window(&self) -> u32 {
        self.window / UNIT
    }

    /// Smoothed round trip, nanoseconds.
    pub(super) fn round_trip(&self) -> Time {
        Time::from(self.srtt)
    }

    pub(super) fn sample(&mut self, rtt: Time) {
        let rtt = u32::try_from(rtt)
            .unwrap_or(u32::MAX / 8)
            .clamp(1, u32::MAX / 8);
        if self.srtt == 0 {
            (self.srtt, self.var) = (rtt, rtt / 2);
        } else {
            self.var = self.var - self.var / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = self.srtt - self.srtt / 8 + rtt / 8;
        }
    }

    /// How long to wait for the ack of what is sent at this moment.
    pub(super) fn timeout(&self, policy: Retransmit) -> Time {
        match policy {
            Retransmit::Fixed(time) => time,
            Retransmit::Adaptive {
                initial,
                least,
                most,
            } => {
                let base = match self.srtt {
                    0 => initial,
                    // A round trip that hardly varies is longer all the same when the ack waits for others.
                    srtt => Time::from(srtt) + Time::from(self.var.saturating_mul(4).max(srtt / 2)),
                };
                (base.max(least) << self.backoff.min(20)).min(most)
            }
        }
    }

    /// `count` segments were acked, up to but not `ack`; `next` is the next number to be sent.
    pub(super) fn acked(&mut self, count: u32, ack: u64, next: u64, full: bool, most: u32) {
        self.backoff = 0;
        self.acked += count;
        if full {
            self.window += count * UNIT;
            self.window = self.window.min(most * UNIT);
        }
        if ack >= self.round_end {
            self.round(next);
        }
    }

    fn round(&mut self, next: u64) {
        self.round_end = next;
        let fraction = self.lost * UNIT / (self.lost + self.acked).max(1);
        if fraction > WEIGHT {
            self.window -= (self.window / (2 * UNIT)) * fraction;
            self.window = self.window.max(LEAST * UNIT);
        }
        (self.lost, self.acked) = (0, 0);
    }

    /// A segment is taken for lost.
    pub(super) fn lost(&mut self) {
        self.lost += 1;
    }

    /// How many transmissions may overtake a segment, if at least `least` may.
    pub(super) fn reorder(&self, least: u16) -> u64 {
        u64::from(least) + u64::from(self.reorder)
    }

    /// So many segments were sent again that had arrived.
    fn needless(&mut self, count: u8) {
        self.lost = self.lost.saturating_sub(u32::from(count));
        self.reorder = (self.reorder + u16::from(count)).min(MOST_REORDER);
    }

    /// A timer has run out, the first since something was acked or since the last time.
    pub(super) fn expired(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
        self.window = LEAST * UNIT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: Retransmit = Retransmit::Adaptive {
        initial: 1_000_000,
        least: 10_000,
        most: 8_000_000,
    };

    fn pace() -> Pace {
        Pace::new(Congestion::Adaptive { initial: 16 }, 4096)
    }

    #[test]
    fn the_timeout_follows_the_round_trip_and_backs_off() {
        let mut pace = pace();
        assert_eq!(pace.timeout(ADAPTIVE), 1_000_000);
        for _ in 0..100 {
            pace.sample(100_000);
        }
        let calm = pace.timeout(ADAPTIVE);
        assert!((140_000..160_000).contains(&calm), "{calm}");
        pace.sample(300_000);
        assert!(pace.timeout(ADAPTIVE) > 250_000);
        pace.expired();
        pace.expired();
        assert!(pace.timeout(ADAPTIVE) > 1_000_000);
        for _ in 0..10 {
            pace.expired();
        }
        assert_eq!(pace.timeout(ADAPTIVE), 8_000_000);
        pace.acked(1, 1, 1, false, 4096);
        assert!(pace.timeout(ADAPTIVE) < 1_000_000);
        assert_eq!(pace.timeout(Retransmit::Fixed(5)), 5);
    }

    /// Rounds of a full window, of which one segment in `every` is lost.
    fn rounds(pace: &mut Pace, count: u64, every: u32) {
        let mut carry = 0;
        for round in 1..=count {
            let window = pace.window();
            carry += window;
            for _ in 0..carry / every {
                pace.lost();
            }
            carry %= every;
            pace.acked(window, round * 10_000, (round + 1) * 10_000, true, 4096);
        }
    }

    #[test]
    fn patience_with_order_is_learned() {
        let mut pace = pace();
        assert_eq!(pace.reorder(3), 3);
        pace.needless(2);
        assert_eq!(pace.reorder(3), 5);
        for _ in 0..100 {
            pace.needless(200);
        }
        assert_eq!(pace.reorder(3), 3 + 256);
    }

    #[test]
    fn what_the_peer_says_twice_or_late_teaches_once() {
        let mut pace = pace();
        for said in [2, 2, 1, 250, 3] {
            pace.take_repeats(said);
        }
        assert_eq!(pace.reorder(3), 3 + 3);
        for said in [100, 200, 255, 0] {
            pace.take_repeats(said);
        }
        assert_eq!(pace.reorder(3), 3 + 256, "0 comes after 255");
    }

    #[test]
    fn what_may_be_under_way_is_bounded_by_all_who_bound_it() {
        let mut config = Config {
            congestion: Congestion::Adaptive { initial: 16 },
            window: 64,
            ..Config::default()
        };
        let mut pace = pace();
        assert_eq!(pace.allowance(&config), 16);
        for (share, allowed) in [(5, 5), (0, 1), (40, 16)] {
            assert!(pace.take_share(0, share));
            assert!(!pace.take_share(0, share), "it is known");
            assert_eq!(pace.allowance(&config), allowed);
        }
        pace.acked(100, 1, 2, true, 4096);
        assert_eq!(pace.allowance(&config), 40);
        pace.take_share(0, 4096);
        assert_eq!(pace.allowance(&config), 64);
        config.congestion = Congestion::None;
        pace.expired();
        assert_eq!(pace.allowance(&config), 64);
    }

    #[test]
    fn a_peer_that_takes_nothing_yet_is_there() {
        let mut pace = pace();
        pace.hear(10);
        assert_eq!((pace.silence(15), pace.silence(5)), (5, 0));
        pace.take_share(20, 3);
        assert_eq!(pace.silence(25), 15);
        pace.take_share(20, 0);
        assert_eq!(pace.silence(25), 5);
    }

    #[test]
    fn light_loss_costs_little_and_heavy_loss_much() {
        let mut light = pace();
        rounds(&mut light, 1000, 10);
        assert_eq!(light.window(), 4096);
        let mut heavy = pace();
        rounds(&mut heavy, 8, 1 << 30);
        let before = heavy.window();
        heavy.acked(1, 1 << 40, 1 << 41, false, 4096);
        for _ in 0..before {
            heavy.lost();
        }
        heavy.acked(1, 1 << 41, 1 << 42, false, 4096);
        assert!(heavy.window() <= before * 6 / 10, "{}", heavy.window());
        let mut none = pace();
        rounds(&mut none, 20, 1 << 30);
        assert_eq!(none.window(), 4096);
    }
}
