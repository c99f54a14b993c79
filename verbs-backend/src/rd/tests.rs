//! What peers and strangers may send. Each is dropped and counted, nothing is handed up, and memory stays bounded.

use super::wire::{self, EXTRA, HEAD, Head, Kind};
use super::{Config, Endpoint, Event, PeerId, Priority, Received, Stats};

const OWN: u64 = 11;
const OTHER: u64 = 22;

/// An end, and a peer that sends what it likes.
struct Liar {
    end: Endpoint<Vec<u8>>,
    peer: PeerId,
    /// Of the next segment in order, and of what the end has sent.
    next: u64,
    acked: u64,
    /// What it says that it takes.
    share: u16,
}

impl Liar {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            window: 64,
            checksum: true,
            hold: 10_000,
            reassembly: 100_000,
            longest: 60_000,
            ..Config::default()
        };
        change(&mut config);
        let mut end = Endpoint::new(config, 0, OWN);
        let peer = end.add_peer(1, OTHER);
        Self {
            end,
            peer,
            next: wire::first_seq(wire::pair_key(OTHER, OWN)),
            acked: wire::first_seq(wire::pair_key(OWN, OTHER)),
            share: 100,
        }
    }

    fn datagram(&self, seq: u64, ack: u64, kind: Kind, data: &[u8]) -> Vec<u8> {
        let start = kind.head();
        let mut bytes = vec![0; start + data.len()];
        bytes[start..].copy_from_slice(data);
        let head = Head {
            sender: 1,
            seq,
            ack,
            share: self.share,
            repeats: 0,
            again: false,
            kind,
        };
        let len = bytes.len();
        wire::write(&mut bytes, len, &head, wire::pair_key(OTHER, OWN), true);
        bytes
    }

    /// A segment `ahead` of the next one.
    fn segment(&self, ahead: u64, kind: Kind, data: &[u8]) -> Vec<u8> {
        self.datagram(self.next + ahead, self.acked, kind, data)
    }

    /// Whether something was handed up.
    fn give(&mut self, bytes: &[u8]) -> bool {
        let mut any = self.end.handle_datagram(1_000_000, bytes) != Received::Nothing;
        while let Some(event) = self.end.poll_event() {
            any |= !matches!(event, Event::Gone { .. });
        }
        any
    }

    fn stats(&self) -> Stats {
        *self.end.stats()
    }
}

#[test]
fn strangers_and_wrong_keys() {
    let mut liar = Liar::new(|_| {});
    let good = liar.segment(0, Kind::Fragment, b"hello");
    let mut stranger = good.clone();
    stranger[4..8].copy_from_slice(&77u32.to_le_bytes());
    assert!(!liar.give(&stranger));
    assert_eq!(liar.stats().unknown_sender, 1);
    stranger[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(!liar.give(&stranger));
    let mut forged = good.clone();
    let head = Head {
        sender: 1,
        seq: liar.next,
        ack: liar.acked,
        share: 1,
        repeats: 0,
        again: false,
        kind: Kind::Fragment,
    };
    wire::write(&mut forged, good.len(), &head, 12345, true);
    assert!(!liar.give(&forged));
    assert_eq!(liar.stats().bad_check, 1);
    assert!(liar.give(&good), "nothing of that has harmed the peer");
}

#[test]
fn short_truncated_corrupted_and_of_an_unknown_kind() {
    let mut liar = Liar::new(|_| {});
    let good = liar.segment(0, Kind::Fragment, b"hello");
    for len in 0..good.len() {
        assert!(!liar.give(&good[..len]));
    }
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!liar.give(&bad), "bit {bit}");
    }
    for kind in [0, 6, 0x7f] {
        let mut bad = good.clone();
        bad[14] = kind;
        assert!(!liar.give(&bad));
    }
    let stats = liar.stats();
    assert!(stats.short > 0 && stats.bad_check > 0 && stats.unknown_kind >= 3);
    assert_eq!(stats.dropped(), stats.receives);
    assert!(liar.give(&good));
}

#[test]
fn numbers_far_outside_the_window_and_repeated_ones() {
    let mut liar = Liar::new(|_| {});
    for ahead in [64, 65, 1000, 0x7000] {
        assert!(!liar.give(&liar.segment(ahead, Kind::Fragment, b"x")));
    }
    assert_eq!(liar.stats().window_high, 4);
    // A number of another turn of the 16 bits is not the one that it looks like.
    for turn in [0x1_0000, 0x2_0000] {
        assert!(!liar.give(&liar.segment(turn, Kind::Fragment, b"x")));
    }
    assert_eq!(liar.stats().bad_check, 2);
    let early = liar.segment(5, Kind::Fragment, b"x");
    assert!(!liar.give(&early));
    assert!(!liar.give(&early));
    assert_eq!(liar.stats().duplicates, 1);
    let first = liar.segment(0, Kind::Fragment, b"x");
    assert!(liar.give(&first));
    assert!(!liar.give(&first));
    assert_eq!(liar.stats().window_low, 1);
}

#[test]
fn very_late_ones_are_told_apart_after_the_numbers_have_come_round() {
    let mut liar = Liar::new(|_| {});
    let old: Vec<_> = (0..10)
        .map(|i| liar.segment(i, Kind::Fragment, b"old"))
        .collect();
    for _ in 0..0x1_0000 + 5 {
        let next = liar.segment(0, Kind::Fragment, b"new");
        assert!(liar.give(&next));
        liar.next += 1;
    }
    let before = liar.stats().bad_check;
    for datagram in &old {
        assert!(!liar.give(datagram));
    }
    assert_eq!(liar.stats().bad_check - before, 10);
}

#[test]
fn chunks_outside_or_at_odds_with_their_fragment() {
    let mut liar = Liar::new(|_| {});
    let chunk = |id, size, offset| Kind::Chunk { id, size, offset };
    let bad = [
        (chunk(1, 10, 8), 3),
        (chunk(1, 10, 11), 1),
        (chunk(1, 10, u32::MAX), 1),
        (chunk(1, 10, 0), 0),
        (chunk(1, 60_001, 0), 1),
        (chunk(1, u32::MAX, u32::MAX - 1), 1),
    ];
    for (kind, len) in bad {
        for ahead in [0, 1] {
            assert!(!liar.give(&liar.segment(ahead, kind, &vec![1; len])));
        }
    }
    assert_eq!(liar.stats().bad_chunk, 12);
    // Two chunks of one fragment that do not agree on its size, and more data than it has.
    assert!(!liar.give(&liar.segment(0, chunk(2, 10, 0), &[1; 6])));
    liar.next += 1;
    assert!(!liar.give(&liar.segment(0, chunk(2, 20, 6), &[1; 4])));
    assert!(!liar.give(&liar.segment(0, chunk(2, 10, 0), &[1; 6])));
    assert_eq!(liar.stats().bad_chunk, 14);
    assert!(liar.give(&liar.segment(0, chunk(2, 10, 6), &[1; 4])));
}

#[test]
fn fragments_that_are_never_finished_take_bounded_memory() {
    let mut liar = Liar::new(|config| config.window = 4096);
    // Each wants 50,000 bytes; two fit, and one more is always allowed to the next in order.
    for i in 1..500 {
        let kind = Kind::Chunk {
            id: i,
            size: 50_000,
            offset: 0,
        };
        assert!(!liar.give(&liar.segment(u64::from(i), kind, &[1; 100])));
    }
    assert_eq!(liar.stats().reassembly_refused, 497);
    assert!(liar.end.memory() < 600_000, "{}", liar.end.memory());
    // The peer goes, and all of it is given back.
    liar.end.remove(liar.peer);
    assert_eq!(liar.end.assembling, 0);
}

#[test]
fn segments_kept_for_their_turn_take_bounded_memory() {
    let mut liar = Liar::new(|config| config.window = 4096);
    for ahead in 1..4000 {
        assert!(!liar.give(&liar.segment(ahead, Kind::Fragment, &[1; 1000])));
    }
    assert_eq!(liar.stats().held, 10);
    assert_eq!(liar.stats().hold_refused, 3989);
    assert!(liar.end.memory() < 200_000, "{}", liar.end.memory());
    // The one that is missing comes, and with it all that was kept.
    assert!(liar.give(&liar.segment(0, Kind::Fragment, b"x")));
    assert_eq!(liar.stats().fragment_receives, 11);
}

#[test]
fn puts_kept_until_their_landing_opens_take_bounded_memory() {
    let mut liar = Liar::new(|config| config.window = 4096);
    for ahead in 1..4000 {
        let kind = Kind::Put {
            landing: 5,
            offset: ahead * 1000,
        };
        assert!(!liar.give(&liar.segment(ahead, kind, &[1; 1000])));
    }
    assert_eq!(liar.stats().held, 10);
    assert_eq!(liar.stats().hold_refused, 3989);
    assert!(liar.end.memory() < 200_000, "{}", liar.end.memory());
}

#[test]
fn puts_outside_their_landing_and_without_one() {
    let mut liar = Liar::new(|_| {});
    let put = |landing, offset| Kind::Put { landing, offset };
    // Nobody wants it: it takes its number, and nothing else.
    assert!(!liar.give(&liar.segment(0, put(9, 0), &[1; 10])));
    liar.next += 1;
    assert_eq!(liar.stats().unwanted_puts, 1);
    liar.end.open(liar.peer, 5, 100);
    for (offset, len) in [(91, 10), (101, 1), (u64::MAX, 1), (0, 0), (0, 101)] {
        assert!(!liar.give(&liar.segment(0, put(5, offset), &vec![1; len])));
    }
    assert_eq!(liar.stats().bad_put, 5);
    assert!(liar.give(&liar.segment(0, put(5, 90), &[1; 10])));
}

#[test]
fn acks_of_what_was_never_sent() {
    let mut liar = Liar::new(|_| {});
    liar.end
        .send(0, liar.peer, vec![1], 1, 7, Priority::InOrder)
        .unwrap();
    let mut buffer = [0; 4096];
    assert!(liar.end.poll_transmit(0, &mut buffer).is_some());
    for ahead in [2, 100, 0x7000] {
        let bytes = liar.datagram(liar.next, liar.acked + ahead, Kind::Ack, &[]);
        assert!(!liar.give(&bytes));
    }
    assert_eq!(liar.stats().bad_ack, 3);
    // Beyond the gap, of numbers that were not sent: nothing to be taken for arrived.
    let bytes = liar.datagram(liar.next, liar.acked, Kind::Ack, &[0xff; 64]);
    assert!(!liar.give(&bytes));
    assert!(!liar.end.is_idle());
    let bytes = liar.datagram(liar.next, liar.acked + 1, Kind::Ack, &[]);
    assert!(liar.give(&bytes));
    assert!(liar.end.next_timeout().is_none());
}

/// A peer that asks and does not ack is owed a bounded number of answers. It is told; once it acks, all that it asked for is taken.
#[test]
fn a_peer_that_asks_and_does_not_ack_is_owed_a_bounded_number_of_answers() {
    const OWED: u32 = 16;
    let mut liar = Liar::new(|config| config.owed = OWED);
    let mut buffer = [0; 4096];
    let mut said = 100;
    for asked in 0..1000 {
        if liar.give(&liar.segment(0, Kind::Fragment, b"ask")) {
            liar.next += 1;
            let (peer, answer) = (liar.peer, vec![7; 100]);
            let sent = liar.end.send(0, peer, answer, 100, 0, Priority::Urgent);
            assert!(sent.is_ok());
        }
        // One that is ahead is not kept either while nothing is taken.
        if asked > 500 {
            assert!(!liar.give(&liar.segment(1, Kind::Fragment, b"ask")));
        }
        while let Some(t) = liar.end.poll_transmit(0, &mut buffer) {
            liar.end.handle_sent(t.channel, 1);
            said = u16::from_le_bytes([buffer[12], buffer[13]]);
        }
    }
    // As many as may be under way at first have left, and wait to be acked.
    let (taken, left) = (liar.stats().fragment_receives, liar.stats().most_unacked);
    assert_eq!(taken, u64::from(OWED) + left);
    assert_eq!(liar.stats().owed_refused, 1000 - taken + 499);
    assert_eq!(liar.stats().most_owed, OWED.into());
    assert_eq!(liar.stats().held, 0);
    assert_eq!(said, 0, "it is told that nothing is taken");
    let memory = liar.end.memory();
    assert!(memory < 100_000, "{memory}");
    liar.acked += left;
    liar.give(&liar.datagram(liar.next, liar.acked, Kind::Ack, &[]));
    while let Some(t) = liar.end.poll_transmit(0, &mut buffer) {
        liar.end.handle_sent(t.channel, 1);
        said = u16::from_le_bytes([buffer[12], buffer[13]]);
    }
    assert!(said > 1, "it is told that all is taken: {said}");
    assert!(liar.give(&liar.segment(0, Kind::Fragment, b"ask")));
}

/// Whoever says that it takes nothing yet is there, and whoever says nothing is not.
#[test]
fn a_peer_that_takes_nothing_yet_is_not_given_up() {
    for (share, gone) in [(0, 0), (1, 1)] {
        let mut liar = Liar::new(|config| config.give_up = 10_000_000);
        liar.share = share;
        liar.end
            .send(0, liar.peer, vec![1], 1, 7, Priority::InOrder)
            .unwrap();
        let mut buffer = [0; 4096];
        for now in (0..100_000_000).step_by(1_000_000) {
            while let Some(t) = liar.end.poll_transmit(now, &mut buffer) {
                liar.end.handle_sent(t.channel, 1);
            }
            let ack = liar.datagram(liar.next, liar.acked, Kind::Ack, &[]);
            liar.end.handle_datagram(now, &ack);
            liar.end.handle_timeout(now);
        }
        assert_eq!(liar.stats().given_up, gone, "share {share}");
    }
}

#[test]
fn nothing_is_taken_from_a_peer_that_was_given_up() {
    let mut liar = Liar::new(|_| {});
    liar.end.remove(liar.peer);
    assert!(!liar.give(&liar.segment(0, Kind::Fragment, b"x")));
    assert_eq!(liar.stats().from_dead, 1);
    assert_eq!(HEAD + EXTRA, 28);
}
