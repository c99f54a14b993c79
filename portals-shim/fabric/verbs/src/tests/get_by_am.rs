//! Short gets that the peer's library answers.

use super::raw::{
    LOOKS, Raw, adverts, close, connect_all, frame, get_first, looking, raws_of, until,
};
use super::*;
use crate::connect;
use crate::frame::Kind;
use crate::proto::select::{SHORT_GET as MOST, ShortGets};
use crate::settings::Settings;
use fabric_api::call::{Answer, Call};
use fabric_api::nal::Nal;
use fabric_api::op::{Get, Posted, Put};
use verbs_backend::Remote;

const LEN: usize = 4096;
/// More than anything takes that ends.
const ALL: u32 = u32::MAX;

/// Two ranks that know each other, whose short gets go so.
fn connected_by(short_gets: ShortGets) -> Option<Vec<Raw>> {
    let device = device()?;
    let settings = Settings {
        short_gets,
        ..Settings::from_env().unwrap()
    };
    let mut raws = raws_of(connect::in_parts_by(2, &device, settings).unwrap(), LEN);
    connect_all(&mut raws);
    get_first(&mut raws, 2);
    Some(raws)
}

fn connected() -> Option<Vec<Raw>> {
    connected_by(ShortGets::GetByAm)
}

/// The events of gets that have ended well.
fn replies(raw: &Raw) -> usize {
    let (all, failed) = raw.seen(EventKind::ReplyEnd, QUIET);
    assert_eq!(failed, 0);
    all
}

fn get(raw: &mut Raw, at: u64, len: u64, there: Target) {
    let (library, source) = (&mut raw.library, raw.source);
    library
        .get(&Get::new(source, there).region(at, len))
        .unwrap();
}

fn by_am(raw: &Raw) -> u64 {
    raw.library.nal.counters.protocols.paths().get_by_am
}

fn read(region: &Region, at: usize, len: usize) -> Vec<u8> {
    let mut seen = vec![0; len];
    region.read(at, &mut seen).unwrap();
    seen
}

/// One looks, and does not sleep, until it has so many replies.
fn looks(raw: &mut Raw, ends: usize) {
    for _ in 0..LOOKS {
        if replies(raw) >= ends {
            return;
        }
        raw.look();
    }
    panic!("never {ends} replies");
}

#[test]
fn device_a_peer_that_looks_answers_gets_of_every_length() {
    let Some(mut raws) = connected() else { return };
    let bytes = pattern(LEN, 3);
    raws[1].quiet.write(0, &bytes).unwrap();
    let before = by_am(&raws[0]);
    // Long enough for rings in both directions.
    for len in (1..=MOST as usize).chain([MOST as usize + 1, 1000]) {
        raws[0].events.clear();
        let there = to(raws[1].id(), QUIET, len as u64);
        // It is answered in time, since each looks once in turn.
        get(&mut raws[0], 7, len as u64, there);
        looking(&mut raws, "it ends", |r| replies(&r[0]) == 1);
        assert!(
            read(&raws[0].work, 7, len) == bytes[len..2 * len],
            "{len} bytes"
        );
    }
    assert_eq!(by_am(&raws[0]) - before, MOST);
    assert_eq!(raws[1].events, []);
    assert_eq!(raws[0].library.nal.counters.bad_frames, 0);
    close(raws);
}

/// Without a word of the user's both ways are tried, and their times taken.
#[test]
fn device_both_ways_are_timed() {
    let Some(mut raws) = connected_by(ShortGets::Measured) else {
        return;
    };
    let there = to(raws[1].id(), QUIET, 0);
    let timed = |raw: &mut Raw| raw.nal().peer(1).unwrap().gets.timed();
    let mut most = (0, 0);
    // Long ones go by RDMA READ in any case, and count for nothing.
    for _ in 0..100 {
        raws[0].events.clear();
        get(&mut raws[0], 0, MOST + 1, there);
        looking(&mut raws, "it ends", |r| replies(&r[0]) == 1);
    }
    for made in 0..300 {
        raws[0].events.clear();
        get(&mut raws[0], 0, 8, there);
        looking(&mut raws, "it ends", |r| replies(&r[0]) == 1);
        if made < 30 {
            assert_eq!(timed(&mut raws[0]), (0, 0), "a trial of few gets");
        }
        most = most.max(timed(&mut raws[0]));
    }
    // A peer that looks in turn may be late, if its processor is taken away: then the trial ends.
    let (by_adapter, by_peer) = most;
    assert!(by_adapter >= 4 && by_peer >= 4, "{most:?}");
    assert!(by_am(&raws[0]) >= 32);
    close(raws);
}

/// One that begins while another is timed is neither timed nor answered by the peer's library.
#[test]
fn device_one_get_is_timed_at_a_time() {
    let Some(mut raws) = connected_by(ShortGets::Measured) else {
        return;
    };
    let there = to(raws[1].id(), QUIET, 0);
    let number = raws[0].nal().am_gets.number();
    let mut pairs = 0;
    // Up to the end of the first block of a trial, whose gets go by RDMA READ.
    for _ in 0..200 {
        raws[0].events.clear();
        get(&mut raws[0], 0, 8, there);
        let timing = raws[0].nal().am_gets.is_timing();
        if timing {
            get(&mut raws[0], 64, 8, there);
            pairs += 1;
        }
        let all = 1 + usize::from(timing);
        looking(&mut raws, "they end", |r| replies(&r[0]) == all);
        if pairs == 4 {
            break;
        }
    }
    let timed = raws[0].nal().peer(1).unwrap().gets.timed();
    assert_eq!((pairs, timed), (4, (4, 0)));
    assert_eq!(raws[0].nal().am_gets.number(), number);
    close(raws);
}

/// A trial with a peer that makes no calls ends soon, and what the adapter read is no time of the peer's.
#[test]
fn device_a_peer_that_computes_gets_few_requests() {
    let Some(mut raws) = connected_by(ShortGets::Measured) else {
        return;
    };
    let there = to(raws[1].id(), QUIET, 0);
    let number = raws[0].nal().am_gets.number();
    let (first, _) = raws.split_first_mut().unwrap();
    for _ in 0..400 {
        first.events.clear();
        get(first, 0, 8, there);
        looks(first, 1);
        assert_eq!(first.nal().peer(1).unwrap().gets.timed().1, 0);
    }
    let requests = raws[0].nal().am_gets.number().wrapping_sub(number);
    assert!((1..=4).contains(&requests), "{requests} of 400");
    close(raws);
}

/// A peer that makes no calls is read by the adapters. What it answers later changes nothing.
#[test]
fn device_a_peer_that_computes_is_read() {
    let Some(mut raws) = connected() else { return };
    let (there, before) = (to(raws[1].id(), QUIET, 16), by_am(&raws[0]));
    raws[1].quiet.write(16, b"the data").unwrap();
    for round in 0..40 {
        let (first, rest) = raws.split_first_mut().unwrap();
        first.events.clear();
        first.work.write(0, &[0; 8]).unwrap();
        if round % 2 == 0 {
            get(first, 0, 8, there);
            assert!(first.nal().am_gets.under_way());
            looks(first, 1);
        } else {
            let (source, number) = (first.source, first.nal().am_gets.number());
            let get = Get::new(source, there).region(0, 8);
            let got = first.library.get_awaited(&get, ALL);
            assert_eq!(got, Ok(Posted::Done { events: false }));
            assert_eq!(first.nal().am_gets.number(), number.wrapping_add(1));
        }
        assert_eq!(read(&first.work, 0, 8), b"the data");
        // Now it does.
        first.work.write(0, b"reused..").unwrap();
        for _ in 0..20 {
            rest[0].look();
            first.look();
        }
        assert_eq!(read(&first.work, 0, 8), b"reused..");
    }
    assert_eq!(by_am(&raws[0]), before);
    assert_eq!(raws[0].library.nal.counters.bad_frames, 0);
    close(raws);
}

/// What begins after a get has its effect after it, whether the peer looks or not.
#[test]
fn device_what_follows_a_get_does_not_overtake_it() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 32);
    for round in 0..60u8 {
        for raw in &mut raws {
            raw.events.clear();
        }
        raws[1].quiet.write(32, &[round; 8]).unwrap();
        raws[0].work.write(64, &[round + 100; 8]).unwrap();
        get(&mut raws[0], 0, 8, there);
        assert!(raws[0].nal().am_gets.under_way());
        // As far as the question has come by then.
        for _ in 0..round % 4 {
            raws[0].look();
        }
        let first = &mut raws[0];
        let source = first.source;
        let put = Put::new(source, there).region(64, 8);
        first.library.put(&mut put.ack(AckRequest::Ack)).unwrap();
        get(&mut raws[0], 128, 8, there);
        if round % 3 > 0 {
            looks(&mut raws[0], 1);
        }
        until(&mut raws, "all end", |r| {
            replies(&r[0]) == 2 && r[0].seen(EventKind::Ack, QUIET) == (1, 0)
        });
        assert_eq!(read(&raws[0].work, 0, 8), [round; 8]);
        assert_eq!(read(&raws[0].work, 128, 8), [round + 100; 8]);
    }
    close(raws);
}

/// Of two gets in a row the adapter reads what the first is for, and each ends once.
#[test]
fn device_a_get_behind_an_unanswered_one_leaves_that_to_the_adapter() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 32);
    raws[1].quiet.write(32, b"the data").unwrap();
    get(&mut raws[0], 0, 8, there);
    assert!(raws[0].nal().am_gets.under_way());
    get(&mut raws[0], 64, 8, there);
    until(&mut raws, "both end", |r| replies(&r[0]) == 2);
    for at in [0, 64] {
        assert_eq!(read(&raws[0].work, at, 8), b"the data");
    }
    close(raws);
}

/// A rank that sleeps, closes or unlinks where the get goes does not wait for the peer's calls.
#[test]
fn device_nobody_waits_for_an_answer() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 0);
    get(&mut raws[0], 0, 8, there);
    assert!(raws[0].nal().am_gets.under_way());
    assert!(raws[0].nal().arm().rings);
    assert!(!raws[0].nal().am_gets.under_way());
    looks(&mut raws[0], 1);
    // As a close does at first.
    get(&mut raws[0], 0, 8, there);
    assert!(raws[0].nal().am_gets.under_way());
    while !raws[0].nal().is_drained() {
        assert!(!raws[0].nal().am_gets.under_way());
        raws[0].look();
    }
    assert_eq!(replies(&raws[0]), 2);
    get(&mut raws[0], 0, 8, there);
    assert!(raws[0].nal().am_gets.under_way());
    let md = raws[0].source;
    // In use until the get has ended, which progress alone brings about.
    while raws[0].library.execute(Call::MdUnlink(md)) != Ok(Answer::Done) {
        raws[0].look();
    }
    raws[0].look();
    assert_eq!(replies(&raws[0]), 3);
    close(raws);
}

/// A peer takes a descriptor back while it is asked for its bytes: they are read before the peer is told that nobody reads
/// there any more.
#[test]
fn device_what_is_asked_for_is_read_before_a_withdrawal_is_confirmed() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 0);
    raws[1].quiet.write(0, b"the data").unwrap();
    get(&mut raws[0], 0, 8, there);
    assert!(raws[0].nal().am_gets.under_way());
    let none = frame(Kind::Advertise, |w| {
        w.token(1);
        w.adverts(4, &[]);
    });
    raws[1].say(0, &none);
    for _ in 0..LOOKS {
        raws[0].look();
        if adverts(&raws[0]).is_empty() {
            break;
        }
    }
    assert!(!raws[0].nal().am_gets.under_way());
    // The peer makes no call meanwhile.
    looks(&mut raws[0], 1);
    assert_eq!(read(&raws[0].work, 0, 8), b"the data");
    close(raws);
}

/// A question that a broken connection swallows, or an answer, is asked again or read; the get ends once.
#[test]
fn device_a_get_that_is_asked_for_over_a_broken_connection_ends_once() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 64);
    for round in 0..8 {
        raws[0].events.clear();
        raws[1].quiet.write(64, &[round; 8]).unwrap();
        get(&mut raws[0], 0, 8, there);
        assert!(raws[0].nal().am_gets.under_way());
        let breaks = usize::from(round % 2);
        let peer = raws[breaks].nal().peer(1 - breaks).unwrap();
        peer.sq.qp().unwrap().to_error().unwrap();
        until(&mut raws, "it ends", |r| replies(&r[0]) == 1);
        assert_eq!(read(&raws[0].work, 0, 8), [round; 8]);
        // Until both know each other again.
        let open = |raw: &Raw, of: usize| {
            let peer = raw.library.nal.peers.get(of);
            peer.is_some_and(|p| p.is_open() && !p.adverts.of(4).is_empty())
        };
        until(&mut raws, "mended", |r| open(&r[0], 1) && open(&r[1], 0));
        for _ in 0..50 {
            raws.iter_mut().for_each(Raw::step);
        }
        assert_eq!(replies(&raws[0]), 1);
    }
    close(raws);
}

/// A peer gets what its adapter would give it, and nothing else.
#[test]
fn device_nothing_is_answered_that_may_not_be_read() {
    let Some(mut raws) = connected() else { return };
    raws[1].quiet.write(0, b"readable").unwrap();
    let secret = Region::new(LEN).unwrap();
    secret.write(0, b"only put").unwrap();
    raws[1].attach_for(9, MdOptions::OP_PUT, &secret);
    until(&mut raws, "it is told", |r| adverts(&r[0]).len() == 2);
    let open = *adverts(&raws[0])
        .iter()
        .find(|a| a.match_bits == QUIET)
        .unwrap();
    let closed = *adverts(&raws[0])
        .iter()
        .find(|a| a.match_bits == 9)
        .unwrap();
    let Remote { address, rkey } = open.start;
    let end = address + open.length;
    let asks = [
        ("all of it", address, rkey, 8, true),
        ("the end", end - 8, rkey, 8, true),
        ("past the end", end - 7, rkey, 8, false),
        ("before it", address - 1, rkey, 8, false),
        ("around", u64::MAX - 3, rkey, 8, false),
        ("too long", address, rkey, MOST as u32 + 1, false),
        ("everything", address, rkey, u32::MAX, false),
        ("another key", address, rkey ^ 0x100, 8, false),
        (
            "what is for writers",
            closed.start.address,
            closed.start.rkey,
            8,
            false,
        ),
        ("nothing", address, rkey, 0, true),
    ];
    for (what, address, rkey, len, given) in asks {
        let at = Remote { address, rkey };
        // What it says of it, and that it says something.
        let found = raws[1].nal().readable(0, at, len);
        let expected = given.then_some((address, len.into()));
        assert_eq!(found.map(|m| (m.addr, m.len)), expected, "{what}");
        let bytes = frame(Kind::ReadRequest, |w| w.read_request(77, at, len));
        raws[0].say(1, &bytes);
        let frames = raws[1].library.nal.peers.get(0).unwrap().received.frames();
        until(&mut raws, what, |r| {
            r[1].library.nal.peers.get(0).unwrap().received.frames() > frames
        });
    }
    // Another user's or job's gets nothing.
    let start = open.start;
    raws[1].nal().peer(0).unwrap().session.who = Some((1 << 30, 1 << 30));
    assert_eq!(raws[1].nal().readable(0, start, 8), None);
    close(raws);
}

/// Answers to nothing are counted; one that is none, or has another length, leaves the get to the adapters.
#[test]
fn device_wrong_answers_are_no_answers() {
    let Some(mut raws) = connected() else { return };
    raws[1].quiet.write(0, b"the data").unwrap();
    let there = to(raws[1].id(), QUIET, 0);
    let answer = |number: u32, data: &[u8]| {
        frame(Kind::ReadResponse, |w| {
            w.token(number);
            w.push(data);
        })
    };
    let number = raws[0].library.nal.am_gets.number();
    raws[1].say(0, &answer(number.wrapping_add(1), b"not yet."));
    until(&mut raws, "counted", |r| {
        r[0].library.nal.counters.bad_frames == 1
    });
    raws[1].say(0, &answer(number, b"too late"));
    for (round, data) in (1..).zip([&b""[..], b"short", b"much too long for it"]) {
        get(&mut raws[0], 0, 8, there);
        let number = raws[0].library.nal.am_gets.number();
        raws[1].say(0, &answer(number, data));
        let (first, _) = raws.split_first_mut().unwrap();
        looks(first, round);
        assert_eq!(read(&first.work, 0, 8), b"the data");
        for _ in 0..50 {
            raws.iter_mut().for_each(Raw::step);
        }
    }
    assert_eq!(raws[0].library.nal.counters.bad_frames, 1);
    close(raws);
}
