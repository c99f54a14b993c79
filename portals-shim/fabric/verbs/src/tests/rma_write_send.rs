//! Puts to descriptors with events whose data the adapters place.

use super::raw::{Raw, close, connect_all, raws, settle, until};
use super::*;
use crate::Verbs;
use fabric_api::call::{Answer, Call};
use fabric_api::nal::{Nal, Outcome};
use fabric_api::op::{Posted, Put};
use std::cell::Cell;
use std::sync::Barrier;

const LEN: usize = 1 << 16;

fn connected() -> Option<Vec<Raw>> {
    let mut raws = raws(2, LEN)?;
    connect_all(&mut raws);
    let bytes = pattern(LEN, 3);
    raws[0].work.write(0, &bytes).unwrap();
    Some(raws)
}

/// A put from anywhere in a rank's memory.
fn put(raw: &mut Raw, from: usize, len: usize, there: Target, ack: AckRequest, number: u64) {
    let put = Put::new(raw.source, there).region(from as u64, len as u64);
    let posted = raw.library.put(&mut put.ack(ack).hdr_data(number));
    assert_eq!(posted, Ok(Posted::Begun));
}

fn notified(raw: &Raw) -> u64 {
    raw.library.nal.counters.protocols.paths().notified
}

/// Rank 1 advertises its descriptor with events for these bits to rank 0.
fn is_advertised(raw: &Raw, bits: u64) -> bool {
    let Some(peer) = raw.library.nal.peers.get(1) else {
        return false;
    };
    let mut adverts = peer.adverts.of(4).iter();
    peer.is_open() && adverts.any(|a| a.events.is_some() && a.match_bits == bits)
}

fn qpn(raw: &Raw, of: usize) -> Option<u32> {
    let peer = raw.library.nal.peers.get(of)?;
    Some(peer.sq.qp().filter(|_| peer.is_open())?.qpn())
}

/// What was put, as it must be seen by rank 1: the memory, and an event each, in order.
struct Expected {
    memory: Vec<u8>,
    puts: Vec<(u64, u64, u64)>,
}

impl Expected {
    fn new() -> Self {
        Self {
            memory: vec![0; LEN],
            puts: Vec::new(),
        }
    }

    fn put(&mut self, raws: &mut [Raw], from: usize, len: usize, at: usize, ack: AckRequest) {
        // The same for some in a row.
        let number = self.puts.len() as u64 / 3;
        let there = to(raws[1].id(), LOUD, at as u64);
        put(&mut raws[0], from, len, there, ack, number);
        let bytes = pattern(LEN, 3);
        self.memory[at..at + len].copy_from_slice(&bytes[from..from + len]);
        self.puts.push((len as u64, at as u64, number));
    }

    fn arrives(&self, raws: &mut [Raw]) {
        let all = self.puts.len();
        until(raws, "all arrives, and its memory is free", |r| {
            r[1].seen(EventKind::PutEnd, LOUD) == (all, 0)
                && r[0].seen(EventKind::SendEnd, LOUD) == (all, 0)
        });
        // Long ones end when they have been read, so that the starts are what is in order.
        let starts = raws[1].events.iter();
        let starts = starts.filter(|e| e.kind == EventKind::PutStart && e.match_bits == LOUD);
        let seen: Vec<_> = starts.map(|e| (e.mlength, e.offset, e.hdr_data)).collect();
        assert!(seen == self.puts, "in order, each once");
        let mut memory = vec![0; LEN];
        raws[1].loud.read(0, &mut memory).unwrap();
        assert!(memory == self.memory, "the last one's bytes everywhere");
    }
}

/// After some long puts in frames they are written, from where they are to where they go, in one request if the header
/// is that of the one before; those that are short or very long go as ever.
#[test]
fn device_long_puts_are_notified() {
    let Some(mut raws) = connected() else { return };
    let mut expected = Expected::new();
    for at in 0..40 {
        expected.put(&mut raws, at * 7, 4096, at * 3 / 4, AckRequest::Ack);
        expected.arrives(&mut raws);
        let acks = at + 1;
        until(&mut raws, "the ack", |r| {
            r[0].seen(EventKind::Ack, LOUD) == (acks, 0)
        });
    }
    assert_eq!(notified(&raws[0]), 36);
    for len in [0, 1, 256, 2047, 8193, 20_000] {
        expected.put(&mut raws, 5, len, 100, AckRequest::NoAck);
        expected.arrives(&mut raws);
    }
    assert_eq!(notified(&raws[0]), 36);
    for len in [2048, 2049, 5000, 8192] {
        expected.put(&mut raws, 5, len, 100, AckRequest::NoAck);
        expected.arrives(&mut raws);
    }
    assert_eq!(notified(&raws[0]), 40);
    close(raws);
}

/// A notified put leaves before it is begun, if its memory is registered, and ends as any other.
#[test]
fn device_a_notified_put_leaves_before_it_has_begun() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), LOUD, 64);
    let post = |raw: &mut Raw, len: u64| {
        let (library, source) = (&mut raw.library, raw.source);
        let region = Some((0, len));
        let ready = library.ni.ready_put(
            source,
            region,
            AckRequest::Ack,
            there.process,
            there.pt_index,
            there.ac_index,
            there.match_bits,
            there.remote_offset,
            3,
        );
        let ready = ready.unwrap();
        let mut put = Put::new(source, there);
        let outcome = library.nal.put(&mut library.ni, &ready, &mut put);
        match outcome {
            Outcome::Declined => {}
            Outcome::Taken => library.ni.pass_put(&ready, NiFail::OK, false),
            Outcome::Lent(number) => {
                let op = library.ni.begin_lent(&ready).unwrap();
                library.nal.begun(number, op);
            }
        }
        outcome
    };
    let mut expected = Expected::new();
    // Nothing is advertised to rank 0 yet: it goes in a frame.
    assert_eq!(post(&mut raws[0], 4096), Outcome::Taken);
    expected.memory[64..64 + 4096].copy_from_slice(&pattern(LEN, 3)[..4096]);
    expected.puts.push((4096, 64, 3));
    expected.arrives(&mut raws);
    while !is_advertised(&raws[0], LOUD) {
        expected.put(&mut raws, 0, 4096, 64, AckRequest::Ack);
        expected.arrives(&mut raws);
    }
    settle(&mut raws);
    // The first one registers the memory that it comes from, the second finds it so.
    for _ in 0..2 {
        expected.put(&mut raws, 0, 4096, 64, AckRequest::Ack);
        expected.arrives(&mut raws);
    }
    // Those that are too short go in frames, those that are too long are not sent at once.
    assert_eq!(post(&mut raws[0], 8193), Outcome::Declined);
    assert_eq!(post(&mut raws[0], 2047), Outcome::Taken);
    expected.puts.push((2047, 64, 3));
    expected.arrives(&mut raws);
    settle(&mut raws);
    let before = (notified(&raws[0]), expected.puts.len());
    for _ in 0..2 {
        let outcome = post(&mut raws[0], 4096);
        assert!(matches!(outcome, Outcome::Lent(_)), "{outcome:?}");
    }
    until(&mut raws, "both have ended, with their events", |r| {
        let all = (before.1 + 2, 0);
        r[1].seen(EventKind::PutEnd, LOUD) == all
            && r[0].seen(EventKind::SendEnd, LOUD) == all
            && r[0].seen(EventKind::Ack, LOUD) == all
    });
    assert_eq!(notified(&raws[0]), before.0 + 2);
    close(raws);
}

/// Puts of all sizes in any order, with and without polls between them: the memory is as the last of them left it, and
/// the events come in order.
#[test]
fn device_notified_puts_keep_the_order() {
    let Some(mut raws) = connected() else { return };
    let mut rng = fastrand::Rng::with_seed(5);
    let mut expected = Expected::new();
    for round in 0..30 {
        let mixed = round % 3 == 0;
        if !mixed {
            expected.arrives(&mut raws);
            settle(&mut raws);
        }
        for _ in 0..rng.usize(1..120) {
            let len = match rng.u8(..8) + 3 * u8::from(!mixed) {
                0 => rng.usize(..300),
                1 => rng.usize(8193..12_000),
                2 => rng.usize(1900..2048),
                _ => rng.usize(2048..8193),
            };
            let (from, at) = (rng.usize(..LEN - len), rng.usize(..20_000));
            let ack = [AckRequest::NoAck, AckRequest::Ack][rng.usize(..2)];
            expected.put(&mut raws, from, len, at, ack);
            for raw in raws.iter_mut().filter(|_| rng.u8(..4) == 0) {
                raw.step();
            }
        }
    }
    expected.arrives(&mut raws);
    let ways = raws[0].library.nal.counters.protocols.paths();
    assert!(ways.notified > 200 && ways.two_sided > 200, "{ways:?}");
    close(raws);
}

/// The connection breaks with such puts under way: each is there once, in order, and its memory is free.
#[test]
fn device_notified_puts_survive_a_broken_connection() {
    let Some(mut raws) = connected() else { return };
    let mut rng = fastrand::Rng::with_seed(9);
    let mut expected = Expected::new();
    let mut before = 0;
    for round in 0..20 {
        // Told again of what it may write.
        while !is_advertised(&raws[0], LOUD) {
            expected.put(&mut raws, 0, 3000, 0, AckRequest::NoAck);
            expected.arrives(&mut raws);
        }
        settle(&mut raws);
        for _ in 0..rng.usize(1..12) {
            let (len, from, at) = (rng.usize(2048..8193), rng.usize(..9000), rng.usize(..9000));
            expected.put(&mut raws, from, len, at, AckRequest::NoAck);
            if rng.bool() {
                let who = rng.usize(..2);
                raws[who].step();
            }
        }
        assert!(notified(&raws[0]) > before);
        before = notified(&raws[0]);
        let who = round % 2;
        let links = [0, 1].map(|rank| qpn(&raws[rank], 1 - rank));
        let peer = raws[who].nal().peer(1 - who).unwrap();
        peer.sq.qp().unwrap().to_error().unwrap();
        for _ in 0..rng.usize(1..4) {
            expected.put(&mut raws, 9, 4000, 77, AckRequest::NoAck);
        }
        expected.arrives(&mut raws);
        until(&mut raws, "it is mended", |r| {
            [0, 1].into_iter().all(|rank| {
                let now = qpn(&r[rank], 1 - rank);
                now.is_some() && now != links[rank]
            })
        });
    }
    close(raws);
}

/// Rank 1 makes a call that takes something back, while rank 0 does what it likes.
fn meanwhile(raws: &mut [Raw], call: Call, mut others: impl FnMut(&mut Raw)) -> Answer {
    let [zero, one] = raws else {
        panic!("two ranks")
    };
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| one.library.execute(call));
        while !calls.is_finished() {
            others(zero);
            zero.step();
        }
        calls.join().unwrap().unwrap()
    })
}

/// While it is being taken back long puts come in frames, of which every fourth has the list shown: without it.
#[test]
fn device_what_is_being_taken_back_is_not_shown_again() {
    let Some(mut raws) = connected() else { return };
    let id = raws[1].id();
    let memory = Region::new(LEN).unwrap();
    let eq = raws[1].eq;
    let md = raws[1].attach(100, Some(&memory), Some(eq));
    for sent in 1.. {
        put(&mut raws[0], 0, 4096, to(id, 100, 0), AckRequest::NoAck, 0);
        until(&mut raws, "it arrives", |r| {
            r[1].seen(EventKind::PutEnd, 100).0 == sent
        });
        if is_advertised(&raws[0], 100) {
            break;
        }
    }
    settle(&mut raws);
    // Behind a message whose effect nobody has seen all others are messages.
    let before = raws[0].library.nal.counters.protocols.paths().two_sided;
    for len in [8, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096] {
        put(&mut raws[0], 0, len, to(id, LOUD, 0), AckRequest::NoAck, 0);
    }
    let after = raws[0].library.nal.counters.protocols.paths().two_sided;
    assert_eq!(after - before, 9);
    let [zero, one] = raws.as_mut_slice() else {
        panic!("two ranks")
    };
    let (puts, shown) = std::thread::scope(|scope| {
        let taken = scope.spawn(|| {
            let (ni, nal) = (&mut one.library.ni, &mut one.library.nal);
            let puts = |nal: &Verbs| nal.peers.get(0).unwrap().received.long_puts();
            let before = puts(nal);
            nal.withdraw(ni, md).unwrap();
            (puts(nal) - before, nal.published.holds(md))
        });
        while !taken.is_finished() {
            zero.step();
        }
        taken.join().unwrap()
    });
    assert_eq!((puts, shown), (8, None));
    close(raws);
}

/// The descriptor goes, or another entry comes before it, while long puts are under way: what was written has its event,
/// and once the call has returned nothing is written any more. The connection stays.
#[test]
fn device_a_descriptor_with_events_is_taken_back() {
    let Some(mut raws) = connected() else { return };
    let id = raws[1].id();
    let first = qpn(&raws[0], 1);
    let [memory, front] = [0; 2].map(|_| Region::new(LEN).unwrap());
    for round in 0..30 {
        let bits = 100 + round;
        let there = to(id, bits, 0);
        let eq = raws[1].eq;
        let md = raws[1].attach(bits, Some(&memory), Some(eq));
        let sent = Cell::new(0);
        let send = |r: &mut Raw| {
            put(r, 0, 4096, there, AckRequest::NoAck, sent.get());
            sent.set(sent.get() + 1);
        };
        // Long puts are counted over all rounds, so that fewer than four of this one may do.
        while sent.get() < 4 || !is_advertised(&raws[0], bits) {
            send(&mut raws[0]);
            let all = sent.get() as usize;
            until(&mut raws, "it arrives", |r| {
                r[1].seen(EventKind::PutEnd, bits).0 == all
            });
        }
        settle(&mut raws);
        for _ in 0..round % 7 {
            send(&mut raws[0]);
        }
        let before = match round % 2 {
            0 => {
                meanwhile(&mut raws, Call::MdUnlink(md), send);
                None
            }
            _ => {
                let call = Call::MeAttach {
                    pt_index: 4,
                    spec: entry(bits),
                    position: InsertPosition::Before,
                };
                let Answer::Me(me) = meanwhile(&mut raws, call, send) else {
                    panic!("no entry");
                };
                raws[1].fill(me, Some(&front), None);
                Some(me)
            }
        };
        memory.fill(0, LEN, 0xEE).unwrap();
        raws[1].step();
        let (ends, failed) = raws[1].seen(EventKind::PutEnd, bits);
        assert!(
            failed == 0 && ends > 3,
            "{ends} arrived, {failed} failed, {} sent, round {round}",
            sent.get()
        );
        for _ in 0..20 {
            send(&mut raws[0]);
        }
        raws[0].put(to(id, BELL, 0), 0, AckRequest::NoAck, 0);
        let rung = 2 * round as usize + 2;
        until(&mut raws, "all arrives", |r| {
            r[1].seen(EventKind::PutEnd, BELL) == (rung, 0)
                && r[0].seen(EventKind::SendEnd, bits) == (sent.get() as usize, 0)
        });
        let numbers = raws[1].events.iter();
        let numbers = numbers.filter(|e| e.kind == EventKind::PutEnd && e.match_bits == bits);
        assert!(numbers.map(|e| e.hdr_data).eq(0..ends as u64));
        let mut seen = vec![0; LEN];
        memory.read(0, &mut seen).unwrap();
        assert!(
            seen.iter().all(|b| *b == 0xEE),
            "written although taken back"
        );
        assert_eq!(qpn(&raws[0], 1), first, "the connection broke");
        if let Some(me) = before {
            meanwhile(&mut raws, Call::MeUnlink(me), |_| {});
            meanwhile(&mut raws, Call::MdUnlink(md), |_| {});
        }
    }
    assert!(notified(&raws[0]) > 100);
    close(raws);
}

/// A peer that computes confirms all the same: its attendant looks when it is asked to.
#[test]
fn device_a_computing_peer_confirms() {
    let (computes, taken_back) = (Barrier::new(2), Barrier::new(2));
    ranks(2, LEN, |rank, o, s| {
        let ni = &o.interface;
        let peer = o.peers[1 - rank as usize];
        if rank == 0 {
            // It is told of a descriptor by being connected, and makes no call from then on.
            let there = to(peer, LOUD, 0);
            let put = ni.put_region(s.source, (0, 8), AckRequest::Ack, there, 0);
            put.unwrap();
            wait(o, s.eq, EventKind::Ack, LOUD);
            computes.wait();
            taken_back.wait();
            return;
        }
        wait(o, s.eq, EventKind::PutEnd, LOUD);
        computes.wait();
        let taken = ni.md_unlink(s.quiet_md);
        taken_back.wait();
        assert_eq!(taken, Ok(()));
    });
}
