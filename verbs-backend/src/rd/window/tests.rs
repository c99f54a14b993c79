//! Each rule of the window, without an endpoint.

use super::*;

const FIRST: u64 = 1000;

/// A window with all that belongs to it.
struct World {
    window: SendWindow,
    unacked: Unacked,
    segments: Segments,
}

impl World {
    /// So many segments are numbered and under way, each sent a nanosecond after the one before.
    fn new(count: u64) -> Self {
        let mut world = Self {
            window: SendWindow::new(FIRST),
            unacked: Unacked::default(),
            segments: Segments::new(),
        };
        for n in 0..count {
            let piece = Piece {
                fragment: 9,
                offset: n,
                len: 1,
                kind: Kind::Fragment,
            };
            let (unacked, segments) = (&mut world.unacked, &mut world.segments);
            let at = world.window.number(unacked, segments, 3, piece);
            assert_eq!(world.segments[at as usize].piece(), piece);
            world.send(at, n);
        }
        world
    }

    fn send(&mut self, at: u32, now: Time) {
        self.window.transmit(now, &mut self.segments[at as usize]);
        self.check();
    }

    /// The segment that is so many after the oldest.
    fn at(&self, place: usize) -> u32 {
        self.unacked.get(place).unwrap()
    }

    fn arrive(&mut self, place: usize) -> bool {
        let at = self.at(place) as usize;
        let news = self.window.arrive(&mut self.segments[at]);
        self.check();
        news
    }

    /// Acks the oldest; whether that is news.
    fn ack(&mut self) -> bool {
        let at = self.window.ack_first(&mut self.unacked).unwrap();
        let news = self.window.acknowledge(&self.segments[at as usize]);
        self.segments.remove(at as usize);
        self.check();
        news
    }

    /// The numbers of those that `limit` later transmissions have overtaken.
    fn find_lost(&mut self, limit: u64) -> Vec<u64> {
        let mut lost = Vec::new();
        let (unacked, segments) = (&mut self.unacked, &mut self.segments);
        self.window
            .find_lost(unacked, segments, limit, |at| lost.push(at));
        self.check();
        let seq = |at: u32| self.segments[at as usize].seq() - FIRST;
        lost.into_iter().map(seq).collect()
    }

    fn expire(&mut self, place: usize) -> Expiry {
        let at = self.at(place) as usize;
        let unacked = Some(&mut self.unacked);
        let expiry = self.window.expire(unacked, &mut self.segments[at]);
        self.check();
        expiry
    }

    /// The next lost number, which is sent again.
    fn resend(&mut self, now: Time) -> Option<u64> {
        let at = self.unacked.pop_lost(&self.window, &self.segments)?;
        self.send(at, now);
        Some(self.segments[at as usize].seq() - FIRST)
    }

    /// What the types promise.
    fn check(&self) {
        let w = &self.window;
        assert_eq!(w.next - w.acked, self.unacked.len() as u64);
        let all = || self.unacked.sent.iter();
        let state = |at: &&u32| self.segments[**at as usize].state;
        let under_way = all().filter(|at| state(at) == State::UnderWay).count();
        assert_eq!(w.under_way as usize, under_way);
        for (place, at) in (0u64..).zip(all()) {
            let segment = &self.segments[*at as usize];
            assert_eq!(segment.seq, w.acked + place);
            let listed = self.unacked.lost.contains(&segment.seq);
            let lost = segment.state == State::Lost && segment.sends > 0;
            assert!(!lost || listed, "{segment:?} is lost and not listed");
        }
        assert!(self.unacked.lost.iter().is_sorted());
        assert!(w.newest <= w.order && w.expired_until <= w.order);
    }
}

#[test]
fn an_ack_number_is_wrong_old_or_news() {
    let mut world = World::new(3);
    world.ack();
    let judged = [0, 1, 2, 3, 4].map(|n| world.window.judge(FIRST + n));
    let (old, news, wrong) = (AckNumber::Old, AckNumber::News, AckNumber::Wrong);
    assert_eq!(judged, [old, news(0), news(1), news(2), wrong]);
}

#[test]
fn the_window_is_open_for_so_many_numbers() {
    let mut world = World::new(4);
    assert!(world.window.is_open(5) && !world.window.is_open(4));
    world.arrive(1);
    assert!(!world.window.is_open(4), "a gap keeps it closed");
    world.ack();
    assert!(world.window.is_open(4));
    assert!(!world.window.is_empty());
    for _ in 0..3 {
        world.ack();
    }
    assert!(world.window.is_empty() && world.unacked.is_empty());
}

#[test]
fn what_arrives_is_news_once() {
    let mut world = World::new(3);
    assert!(world.arrive(1) && !world.arrive(1));
    assert_eq!(world.window.under_way(), 2);
    assert!(world.ack());
    assert!(!world.ack(), "that it arrived was known");
    assert!(world.ack());
    assert_eq!(world.window.under_way(), 0);
}

#[test]
fn a_segment_is_lost_when_enough_later_ones_have_arrived() {
    let mut world = World::new(6);
    world.arrive(2);
    assert_eq!(world.find_lost(3), [0u64; 0]);
    world.arrive(4);
    assert_eq!(world.find_lost(3), [0, 1]);
    assert_eq!(world.find_lost(3), [0u64; 0], "each is lost once");
    assert_eq!(world.window.under_way(), 2);
    // Transmissions count, not numbers: the repeated one is the seventh.
    assert_eq!(world.resend(10), Some(0));
    assert_eq!(world.find_lost(3), [0u64; 0]);
    assert!(world.ack());
    assert_eq!(world.find_lost(3), [3]);
    assert_eq!([world.resend(11), world.resend(12)], [Some(1), Some(3)]);
    assert_eq!(world.resend(13), None);
}

#[test]
fn one_that_was_repeated_does_not_hide_those_behind_it() {
    let mut world = World::new(6);
    world.expire(0);
    assert_eq!(world.resend(10), Some(0));
    world.arrive(4);
    assert_eq!(world.find_lost(3), [1]);
}

#[test]
fn the_earliest_lost_one_goes_first_and_one_that_arrived_not_at_all() {
    let mut world = World::new(4);
    for place in [3, 1, 0, 2] {
        assert_ne!(world.expire(place), Expiry::None);
    }
    assert!(world.unacked.has_lost());
    assert!(world.arrive(1), "it was not lost after all");
    assert!(world.ack(), "and neither was the oldest");
    assert_eq!([9, 10].map(|now| world.resend(now)), [Some(2), Some(3)]);
    assert_eq!(world.resend(11), None);
}

#[test]
fn nothing_is_lost_once_all_is_acked() {
    let mut world = World::new(2);
    world.expire(1);
    world.ack();
    world.ack();
    assert!(!world.unacked.has_lost());
}

#[test]
fn timers_that_run_out_together_are_one_event() {
    let mut world = World::new(3);
    let expiries = [0, 1, 1].map(|place| world.expire(place));
    assert_eq!(expiries, [Expiry::First, Expiry::Same, Expiry::None]);
    assert_eq!(world.resend(10), Some(0));
    assert_eq!(world.expire(2), Expiry::Same);
    assert_eq!(
        world.expire(0),
        Expiry::First,
        "it was sent after that event"
    );
}

#[test]
fn only_a_segment_that_was_sent_once_tells_the_round_trip() {
    let mut world = World::new(2);
    let trip = |world: &World, place| world.segments[world.at(place) as usize].round_trip(100);
    assert_eq!([0, 1].map(|p| trip(&world, p)), [Some(100), Some(99)]);
    world.expire(0);
    assert_eq!(trip(&world, 0), None);
    world.resend(50);
    assert_eq!(trip(&world, 0), None);
    assert!(world.segments[world.at(0) as usize].is_repeated());
    world.arrive(1);
    assert_eq!(trip(&world, 1), None, "the ack is not that of its arrival");
}

#[test]
fn a_timer_is_renewed_while_the_adapter_has_the_segment() {
    let mut world = World::new(1);
    let at = world.at(0) as usize;
    let renewed = [0; 5].map(|_| world.segments[at].renew());
    assert_eq!(renewed, [true, true, true, false, false]);
    world.expire(0);
    world.resend(5);
    assert!(world.segments[at].renew(), "it is with the adapter again");
    world.segments[at].left();
    assert!(!world.segments[at].renew());
}

#[test]
fn a_segment_is_found_by_its_number() {
    let mut world = World::new(3);
    world.ack();
    let found = [0, 1, 2, 3].map(|n| world.unacked.find(&world.window, FIRST + n));
    assert_eq!(found, [None, Some(world.at(0)), Some(world.at(1)), None]);
    world.window.end();
    assert_eq!(world.unacked.drain().count(), 2);
    assert!(world.window.is_empty());
    world.check();
}
