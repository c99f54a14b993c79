//! Rings: short frames that are written where the peer looks.

use super::raw::{Raw, close, connect_all, drained, frame, raws};
use super::*;
use crate::frame::Kind;
use crate::peer;
use crate::proto::eager_ring::{self as ring, ACTIVE, Rings};
use fabric_api::nal::Nal;
use std::time::{Duration, Instant};
use verbs_backend::{Remote, SendFlags, SendOp};

mod sleep;

const LEN: usize = 1 << 16;

/// Connected ranks of which each may have so many rings.
fn connected(ranks: u32, rings: u32) -> Option<Vec<Raw>> {
    let mut raws = raws(ranks, LEN)?;
    connect_all(&mut raws);
    for raw in &mut raws {
        raw.nal().rings = Rings::new(rings);
    }
    Some(raws)
}

/// Makes progress until `done`, by ranks that do not sleep.
fn awake(raws: &mut [Raw], what: &str, so: impl Fn(&[Raw]) -> bool) {
    let end = Instant::now() + Duration::from_secs(40);
    while !so(raws) {
        assert!(Instant::now() < end, "did not come: {what}");
        for raw in &mut *raws {
            raw.look();
        }
        std::thread::yield_now();
    }
}

/// A message to `LOUD`, of which `seen` have come.
fn message(raws: &mut [Raw], from: usize, to_whom: usize, len: u64) {
    let there = to(raws[to_whom].id(), LOUD, 0);
    raws[from].put(there, len, AckRequest::NoAck, 0);
    let all = raws[to_whom].seen(EventKind::PutEnd, LOUD).0 + 1;
    awake(raws, "a message", |r| {
        r[to_whom].seen(EventKind::PutEnd, LOUD) == (all, 0)
    });
}

/// Messages until the receiver has a ring for the sender, and the sender knows it.
fn activate(raws: &mut [Raw], from: usize, to_whom: usize) {
    for _ in 0..3 * ACTIVE {
        message(raws, from, to_whom, 8);
        let peer = raws[from].nal().peer(to_whom);
        if peer.is_some_and(|p| p.sq.ring_at().is_some()) {
            return;
        }
    }
    panic!("no ring after {} messages", 3 * ACTIVE);
}

fn bad_frames(raw: &Raw) -> u64 {
    raw.library.nal.counters.bad_frames
}

fn taken(raw: &Raw) -> u64 {
    raw.library.nal.counters.ring_frames
}

#[test]
fn device_short_frames_of_an_active_peer_are_written() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    let many = u64::from(ACTIVE) + 300;
    for _ in 0..many {
        message(&mut raws, 0, 1, 8);
    }
    let written = taken(&raws[1]);
    assert!(
        (many - 40..=many - u64::from(ACTIVE)).contains(&written),
        "{written}"
    );
    // What does not fit goes as ever.
    for len in [192, 193, 240, 256, 300, 3000, 9000] {
        message(&mut raws, 0, 1, len);
    }
    assert!(taken(&raws[1]) <= written + 2);
    assert_eq!((bad_frames(&raws[0]), bad_frames(&raws[1])), (0, 0));
    close(raws);
}

/// What a wait does between its polls.
#[test]
fn device_a_likely_look_takes_what_is_written() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    activate(&mut raws, 0, 1);
    let many = 4 * usize::from(raws[1].nal().peer(0).map_or(0, |p| p.sq.slots()));
    let (seen, mut by_likely, mut looks) = (raws[1].seen(EventKind::PutEnd, LOUD).0, 0, 0u32);
    for number in 0..many as u64 {
        let there = to(raws[1].id(), LOUD, 0);
        raws[0].put(there, 8, AckRequest::NoAck, number);
    }
    let end = Instant::now() + Duration::from_secs(40);
    while raws[1].seen(EventKind::PutEnd, LOUD).0 < seen + many {
        assert!(Instant::now() < end, "a frame did not come");
        raws[0].look();
        let before = taken(&raws[1]);
        raws[1].progress_likely();
        by_likely += taken(&raws[1]) - before;
        looks += 1;
        // What is not in a ring, and what lets credits go back.
        if looks.is_multiple_of(4) {
            raws[1].look();
        }
        std::thread::yield_now();
    }
    assert!(by_likely > 0, "{many} frames in {looks} looks");
    close(raws);
}

/// After data that an adapter has written into a descriptor a message goes as one, whose completion the data comes before.
#[test]
fn device_a_message_after_written_data_is_sent() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    activate(&mut raws, 0, 1);
    for len in [8, 3000] {
        message(&mut raws, 0, 1, 8);
        // What rank 1 has done with it is known.
        let there = to(raws[1].id(), LOUD, 0);
        raws[0].events.clear();
        raws[0].put(there, 8, AckRequest::Ack, 0);
        awake(&mut raws, "an ack", |r| {
            r[0].seen(EventKind::Ack, LOUD) == (1, 0)
        });
        let (ways, before) = (
            raws[0].library.nal.counters.protocols.paths(),
            taken(&raws[1]),
        );
        let there = to(raws[1].id(), QUIET, 0);
        raws[0].put(there, len, AckRequest::NoAck, 0);
        assert_eq!(
            raws[0].library.nal.counters.protocols.paths().one_sided,
            ways.one_sided + 1
        );
        message(&mut raws, 0, 1, 8);
        assert_eq!(taken(&raws[1]), before);
        message(&mut raws, 0, 1, 8);
        assert_eq!(taken(&raws[1]), before + 1);
    }
    close(raws);
}

#[test]
fn device_without_rings_nothing_is_written() {
    let Some(mut raws) = connected(2, 0) else {
        return;
    };
    for _ in 0..4 * ACTIVE {
        message(&mut raws, 0, 1, 8);
    }
    assert_eq!(taken(&raws[1]), 0);
    assert_eq!(raws[1].nal().rings.counts(), (0, 0));
    close(raws);
}

/// More ranks than processors: none has rings, since nobody polls for long.
#[test]
fn device_a_crowd_has_no_rings() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let Some(mut raws) = raws(processors as u32 + 1, 64) else {
        return;
    };
    for raw in &mut raws {
        assert_eq!(raw.nal().rings.limit(), 0);
    }
    close(raws);
}

/// Messages of all sizes both ways, by ranks that poll, and sleep now and then: each once, in order.
fn exchange(raws: &mut [Raw], rng: &mut fastrand::Rng, sent: &mut [u64; 2], count: usize) {
    for _ in 0..count {
        let from = rng.usize(..2);
        let len = match rng.u8(..12) {
            0 => rng.u64(200..2000),
            1 => rng.u64(2048..8192),
            2 => rng.u64(8193..10_000),
            _ => rng.u64(..200),
        };
        let there = to(raws[1 - from].id(), LOUD, 0);
        raws[from].put(there, len, AckRequest::NoAck, sent[from]);
        sent[from] += 1;
        match rng.u8(..100) {
            0 => raws[rng.usize(..2)].step(),
            1..40 => raws[rng.usize(..2)].look(),
            _ => {}
        }
    }
}

/// All that was sent has come, in order; the events are forgotten.
fn arrives(raws: &mut [Raw], sent: &mut [u64; 2], seen: &mut [u64; 2]) {
    for to_whom in 0..2 {
        let from = 1 - to_whom;
        let all = (sent[from] - seen[to_whom]) as usize;
        awake(raws, "all arrives", |r| {
            r[to_whom].seen(EventKind::PutEnd, LOUD) == (all, 0)
                && r[from].seen(EventKind::SendEnd, LOUD).0 as u64 == sent[from] - seen[to_whom]
        });
    }
    for to_whom in 0..2 {
        let starts = raws[to_whom].events.iter();
        let starts = starts.filter(|e| e.kind == EventKind::PutStart && e.match_bits == LOUD);
        let numbers: Vec<u64> = starts.map(|e| e.hdr_data).collect();
        let expected: Vec<u64> = (seen[to_whom]..sent[1 - to_whom]).collect();
        assert!(numbers == expected, "in order, each once: {numbers:?}");
        seen[to_whom] = sent[1 - to_whom];
    }
    for raw in raws {
        raw.events.clear();
    }
}

#[test]
fn device_rings_and_messages_keep_the_order() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    let mut rng = fastrand::Rng::with_seed(17);
    let (mut sent, mut seen) = ([0; 2], [0; 2]);
    for _ in 0..60 {
        let count = rng.usize(1..150);
        exchange(&mut raws, &mut rng, &mut sent, count);
        arrives(&mut raws, &mut sent, &mut seen);
    }
    for raw in &raws {
        assert!(taken(raw) > 300, "{} of {sent:?} by rings", taken(raw));
        assert_eq!(bad_frames(raw), 0);
    }
    close(raws);
}

/// The connection breaks with frames in rings, here or there: each has its effect once, in order, and rings come again.
#[test]
fn device_rings_survive_a_broken_connection() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    let mut rng = fastrand::Rng::with_seed(23);
    let (mut sent, mut seen) = ([0; 2], [0; 2]);
    for round in 0..30 {
        activate(&mut raws, 0, 1);
        activate(&mut raws, 1, 0);
        for raw in &mut raws {
            raw.events.clear();
        }
        let (before, after) = (rng.usize(1..60), rng.usize(1..20));
        exchange(&mut raws, &mut rng, &mut sent, before);
        if round % 3 == 0 {
            // Written, and not looked at when the connection breaks.
            for from in 0..2 {
                let there = to(raws[1 - from].id(), LOUD, 0);
                raws[from].put(there, 9, AckRequest::NoAck, sent[from]);
                sent[from] += 1;
            }
        }
        let who = round % 2;
        let peer = raws[who].nal().peer(1 - who).unwrap();
        peer.sq.qp().unwrap().to_error().unwrap();
        if round % 4 < 2 {
            // What tells of the ring goes with its connection.
            raws[round % 4].nal().arm();
        }
        exchange(&mut raws, &mut rng, &mut sent, after);
        arrives(&mut raws, &mut sent, &mut seen);
    }
    assert!(taken(&raws[0]) > 200 && taken(&raws[1]) > 200);
    assert_eq!((bad_frames(&raws[0]), bad_frames(&raws[1])), (0, 0));
    close(raws);
}

/// Puts alike, whose header is not made again, are under way when the connection breaks: each has its effect once.
#[test]
fn device_puts_alike_survive_a_broken_connection() {
    for rings in [0, 8] {
        let Some(mut raws) = connected(2, rings) else {
            return;
        };
        let there = to(raws[1].id(), LOUD, 0);
        for round in 0..20 {
            if rings > 0 {
                activate(&mut raws, 0, 1);
            }
            for raw in &mut raws {
                raw.events.clear();
            }
            // Other ones in each round: what earlier ones left in a place does not help.
            let number = round as u64 + 1;
            raws[0].work.fill(0, 8, round as u8).unwrap();
            for n in 1..=3 {
                raws[0].put(there, 8, AckRequest::NoAck, number);
                awake(&mut raws, "a message", |r| {
                    r[1].seen(EventKind::PutEnd, LOUD) == (n, 0)
                });
            }
            for _ in 0..3 {
                raws[0].put(there, 8, AckRequest::NoAck, number);
            }
            let header = raws[0].header(there.process, LOUD, 8, number);
            // By the rules of iWARP every put goes with its own.
            let headless = raws[0].nal().witness.is_none();
            let peer = raws[0].nal().peer(1).unwrap();
            assert_eq!(peer.sq.remembers(&header), headless);
            let who = round % 2;
            let peer = raws[who].nal().peer(1 - who).unwrap();
            peer.sq.qp().unwrap().to_error().unwrap();
            for _ in 0..3 {
                raws[0].put(there, 8, AckRequest::NoAck, number);
            }
            awake(&mut raws, "all arrives", |r| {
                r[1].seen(EventKind::PutEnd, LOUD) == (9, 0)
                    && r[0].seen(EventKind::SendEnd, LOUD) == (9, 0)
            });
            let alike = |e: &portals_core::Event| {
                (e.rlength, e.mlength, e.offset, e.hdr_data) == (8, 8, 0, number)
            };
            let mut ends = raws[1].events.iter().filter(|e| e.match_bits == LOUD);
            assert!(ends.all(alike));
            let mut seen = [0xff; 8];
            raws[1].loud.read(0, &mut seen).unwrap();
            assert_eq!(seen, [round as u8; 8]);
        }
        assert_eq!((bad_frames(&raws[0]), bad_frames(&raws[1])), (0, 0));
        close(raws);
    }
}

/// Frames that a test makes are numbered as others: those that are written afterwards come.
#[test]
fn device_frames_made_by_hand_are_numbered() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    let there = raws[1].id();
    for number in 1..=2 * u64::from(ACTIVE) {
        let header = raws[0].header(there, LOUD, 8, number);
        let bytes = frame(Kind::Message, |w| {
            w.header(&header, 8);
            w.push(&[7; 8]);
        });
        raws[0].say(1, &bytes);
        awake(&mut raws, "one made by hand", |r| {
            r[1].seen(EventKind::PutEnd, LOUD) == (number as usize, 0)
        });
    }
    let known = |r: &[Raw]| r[0].library.nal.peers.get(1)?.sq.ring_at();
    awake(&mut raws, "a ring", |r| known(r).is_some());
    let before = taken(&raws[1]);
    for _ in 0..3 {
        message(&mut raws, 0, 1, 8);
    }
    assert_eq!(taken(&raws[1]), before + 3);
    assert_eq!((bad_frames(&raws[0]), bad_frames(&raws[1])), (0, 0));
    // They are requests that are done: the adapter may reach memory before the next one.
    raws[0].events.clear();
    raws[0].put(to(there, LOUD, 0), 8, AckRequest::Ack, 0);
    awake(&mut raws, "an ack", |r| {
        r[0].seen(EventKind::Ack, LOUD) == (1, 0)
    });
    let before = raws[0].library.nal.counters.protocols.paths().one_sided;
    raws[0].put(to(there, QUIET, 0), 8, AckRequest::NoAck, 0);
    assert_eq!(
        raws[0].library.nal.counters.protocols.paths().one_sided,
        before + 1
    );
    close(raws);
}

/// One ring for two peers: who is active first has it, until the rank has slept.
#[test]
fn device_there_are_no_more_rings_than_allowed() {
    let Some(mut raws) = connected(3, 1) else {
        return;
    };
    for (active, other) in [(1, 2), (2, 1), (1, 2)] {
        activate(&mut raws, active, 0);
        let before = taken(&raws[0]);
        for _ in 0..3 * ACTIVE {
            message(&mut raws, other, 0, 8);
        }
        assert_eq!(taken(&raws[0]), before, "of one that has no ring");
        message(&mut raws, active, 0, 8);
        assert_eq!(taken(&raws[0]), before + 1);
        assert_eq!(raws[0].nal().rings.counts(), (1, 0));
        assert!(raws[0].nal().arm().rings);
        awake(&mut raws, "it is left", |r| {
            r[0].library.nal.rings.counts() == (0, 1)
        });
    }
    close(raws);
}

/// A peer offers rings that cannot be, leaves what is not there, and writes rubbish into one: it is counted, hurts no
/// other, and nothing comes of it.
#[test]
fn device_rings_of_a_hostile_peer_are_refused() {
    let Some(mut raws) = connected(3, 8) else {
        return;
    };
    let offer = |slots, size, address| {
        frame(Kind::Ring, |w| {
            w.ring(slots, size, Remote { address, rkey: 1 });
        })
    };
    let good = offer(64, ring::SLOT, 4096);
    let mut expected = 0;
    for (what, bytes) in [
        ("too many slots", offer(65_535, ring::SLOT, 4096)),
        ("too few", offer(1, ring::SLOT, 4096)),
        ("long ones", offer(64, 1 << 20, 4096)),
        ("an odd place", offer(64, ring::SLOT, 4097)),
        ("one that wraps around", offer(64, ring::SLOT, u64::MAX - 7)),
        ("one cut short", good[..good.len() - 1].to_vec()),
        ("a ring that was not there", frame(Kind::RingLeft, |_| {})),
    ] {
        raws[0].say(1, &bytes);
        expected += 1;
        awake(&mut raws, what, |r| bad_frames(&r[1]) == expected);
        let peer = raws[1].nal().peer(0).unwrap();
        assert_eq!(peer.sq.ring_at(), None, "{what}");
    }
    // One who has a ring at the others.
    for target in [0, 1] {
        activate(&mut raws, 2, target);
    }
    let write = |raws: &mut [Raw], bytes: &[u8], slot: u64| {
        let peer = raws[2].nal().peer(1).unwrap();
        let mut at = peer.sq.ring_at().unwrap();
        at.address += (slot + 1) * ring::SLOT as u64 - bytes.len() as u64;
        let qp = peer.sq.qp().cloned().unwrap();
        qp.post_inline(peer::PLAIN, SendOp::Write(at), bytes, SendFlags::SIGNALLED)
            .unwrap();
    };
    let heard = raws[1].nal().peer(2).unwrap();
    let (number, slot) = (heard.received.frames(), heard.sq.slots());
    let next = raws[2].nal().peer(1).unwrap().sq.next_slot();
    // What has a right sum and is no frame counts as one that cannot be read.
    let mut rubbish = vec![200; 24 + ring::END];
    ring::end(&mut rubbish, 24, number, None);
    write(&mut raws, &rubbish, next);
    expected += 1;
    awake(&mut raws, "no frame", |r| bad_frames(&r[1]) == expected);
    // What has none stays, and is found when the ring is left.
    for k in 1..u64::from(slot) {
        write(&mut raws, &[0xa5; 256], (next + k) % u64::from(slot));
        raws[2].look();
    }
    for (from, to_whom) in [(0, 1), (1, 0), (2, 0), (0, 2), (1, 2)] {
        message(&mut raws, from, to_whom, 8);
    }
    assert_eq!(bad_frames(&raws[1]), expected);
    assert!(raws[1].nal().arm().rings);
    expected += 1;
    awake(&mut raws, "it is left", |r| bad_frames(&r[1]) == expected);
    assert_eq!((bad_frames(&raws[0]), bad_frames(&raws[2])), (0, 0));
    drained(&mut raws, "all is sent");
    close(raws);
}
