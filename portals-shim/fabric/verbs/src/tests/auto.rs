//! Pairs that move from datagrams to a connection while they talk.

use super::raw::{Raw, close, raws_of, until};
use super::*;
use crate::auto::{Auto, State, in_parts};
use crate::settings::Settings;
use fabric_api::call::{Answer, Call, Channels};
use portals_core::{Ack, Body, Header};
use std::time::{Duration, Instant};

const LEN: usize = 1 << 17;

/// Ranks to which so many requests in a row are many, and that have so many connections.
pub(super) fn autos(
    ranks: u32,
    chatty: u32,
    connections: u32,
    patience: Duration,
) -> Option<Vec<Raw<Auto>>> {
    let device = device()?;
    let settings = Settings {
        chatty,
        connections: Some(connections),
        patience,
        ..Settings::from_env().unwrap()
    };
    Some(raws_of(
        in_parts(ranks, Some(&device), &settings).unwrap(),
        LEN,
    ))
}

pub(super) const SECONDS: Duration = Duration::from_secs(10);

fn channels(raw: &mut Raw<Auto>) -> Channels {
    match raw.library.execute(Call::Paths) {
        Ok(Answer::Paths(paths)) => paths.channels,
        other => panic!("{other:?}"),
    }
}

fn one_sided(raw: &mut Raw<Auto>) -> u64 {
    match raw.library.execute(Call::Paths) {
        Ok(Answer::Paths(paths)) => paths.one_sided,
        other => panic!("{other:?}"),
    }
}

/// The numbers of a rank's puts in the order in which they matched; the data of long ones may be read later.
fn numbers(raw: &Raw<Auto>, from: ProcessId) -> Vec<u64> {
    let puts = raw.events.iter().filter(|e| e.kind == EventKind::PutStart);
    let its = puts.filter(|e| e.match_bits == LOUD && e.initiator == from);
    its.map(|e| e.hdr_data).collect()
}

/// Puts of all lengths and gets, with the next number each, from a rank to all others.
fn talk(raws: &mut [Raw<Auto>], from: usize, number: u64) {
    let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
    for to_whom in (0..raws.len()).filter(|t| *t != from) {
        let len = [0, 8, 900, 5000, 8192, 70_000][number as usize % 6];
        raws[from].put(to(ids[to_whom], LOUD, 0), len, AckRequest::Ack, number);
        if number % 4 == 1 {
            raws[from].get(to(ids[to_whom], LOUD, 0), len + 16);
        }
    }
}

/// Every pair talks in both directions while it moves: all puts arrive once and in order, all are answered, in order too,
/// and what peers' adapters can serve is served by them afterwards and not before.
#[test]
fn device_pairs_move_with_traffic_both_ways_and_keep_its_order() {
    const ROUNDS: u64 = 60;
    let Some(mut raws) = autos(3, 10, 2, SECONDS) else {
        return;
    };
    for number in 0..ROUNDS {
        for from in 0..3 {
            talk(&mut raws, from, number);
            // They move at different moments.
            if number % 3 == from as u64 {
                raws[from].step();
            }
        }
        if number < 9 {
            let moved = raws.iter_mut().map(channels);
            assert!(
                moved
                    .into_iter()
                    .all(|c| c.moves == 0 && c.on_connections == 0)
            );
            assert_eq!(raws.iter_mut().map(one_sided).sum::<u64>(), 0);
        }
    }
    let acks = 2 * ROUNDS as usize;
    let replies = 2 * ROUNDS as usize / 4;
    until(&mut raws, "all is answered", |r| {
        r.iter().all(|r| {
            r.seen(EventKind::Ack, LOUD) == (acks, 0)
                && r.seen(EventKind::ReplyEnd, LOUD) == (replies, 0)
        })
    });
    let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
    for at in 0..3 {
        for from in (0..3).filter(|f| *f != at) {
            let expected: Vec<u64> = (0..ROUNDS).collect();
            assert_eq!(numbers(&raws[at], ids[from]), expected, "{from} to {at}");
        }
        let counts = channels(&mut raws[at]);
        let expected = Channels {
            on_connections: 2,
            moves: 2,
            ..Channels::default()
        };
        assert_eq!(counts, expected);
        let before = one_sided(&mut raws[at]);
        let there = to(ids[(at + 1) % 3], QUIET, 0);
        until(&mut raws, "adapters serve puts", |_| true);
        raws[at].put(there, 64, AckRequest::Ack, 0);
        until(&mut raws, "the put ends", |r| {
            r[at].seen(EventKind::Ack, QUIET) == (1, 0)
        });
        assert_eq!(one_sided(&mut raws[at]), before + 1, "rank {at}");
    }
    close(raws);
}

/// Who has no connection left leaves a peer on datagrams, whoever asks; there everything works as before.
#[test]
fn device_a_pair_of_which_one_has_no_connection_left_stays_on_datagrams() {
    let Some(mut raws) = autos(3, 2, 1, SECONDS) else {
        return;
    };
    let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
    let exchange = |raws: &mut Vec<Raw<Auto>>, from: usize, to_whom: usize| {
        let done = raws[from].seen(EventKind::Ack, LOUD).0;
        for number in 0..8 {
            raws[from].put(to(ids[to_whom], LOUD, 0), 20_000, AckRequest::Ack, number);
        }
        until(raws, "all is acknowledged", |r| {
            r[from].seen(EventKind::Ack, LOUD) == (done + 8, 0)
        });
    };
    exchange(&mut raws, 0, 1);
    // Rank 2 has a connection to offer, which nobody takes; the others have none.
    exchange(&mut raws, 2, 0);
    exchange(&mut raws, 2, 1);
    exchange(&mut raws, 0, 2);
    exchange(&mut raws, 1, 2);
    let expected: Vec<u64> = (0..8).collect();
    assert_eq!(numbers(&raws[2], ids[0]), expected);
    assert_eq!(numbers(&raws[0], ids[2]), expected);
    let connected = Channels {
        on_datagrams: 1,
        on_connections: 1,
        moves: 1,
        stays: 1,
        declined: 1,
    };
    assert_eq!(channels(&mut raws[0]), connected);
    assert_eq!(channels(&mut raws[1]), connected);
    let alone = Channels {
        on_datagrams: 2,
        stays: 2,
        ..Channels::default()
    };
    assert_eq!(channels(&mut raws[2]), alone);
    close(raws);
}

/// Steps of one rank at a time until rank `who` is so far with the other one.
fn advance(raws: &mut [Raw<Auto>], who: usize, state: State) {
    let end = Instant::now() + SECONDS;
    for next in (0..raws.len()).cycle() {
        if raws[who].library.nal.state(1 - who) == state {
            return;
        }
        assert!(Instant::now() < end, "rank {who} does not become {state:?}");
        raws[next].step();
    }
}

/// A request that is made between the last by datagrams and the end of the move does not leave before that; then it goes
/// before what is made later.
#[test]
fn device_requests_made_in_a_move_wait_for_its_end() {
    const PUTS: usize = 3;
    for (who, state) in [
        (0, State::Leaving),
        (1, State::Agreed),
        (1, State::Finishing),
    ] {
        let Some(mut raws) = autos(2, 1, 1, SECONDS) else {
            return;
        };
        let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
        raws[0].put(to(ids[1], BELL, 0), 0, AckRequest::NoAck, 0);
        advance(&mut raws, who, state);
        let there = to(ids[1 - who], LOUD, 0);
        for number in 0..PUTS {
            raws[who].put(there, 8, AckRequest::Ack, number as u64);
            assert_eq!(raws[who].library.nal.waiting(1 - who), number + 1);
        }
        advance(&mut raws, who, State::Connected);
        for number in PUTS..2 * PUTS {
            raws[who].put(there, 8, AckRequest::Ack, number as u64);
        }
        until(&mut raws, "all is acknowledged", |r| {
            r[who].seen(EventKind::Ack, LOUD) == (2 * PUTS, 0)
        });
        let expected: Vec<u64> = (0..2 * PUTS as u64).collect();
        assert_eq!(numbers(&raws[1 - who], ids[who]), expected, "{state:?}");
        assert_eq!(raws[who].library.nal.waiting(1 - who), 0);
        close(raws);
    }
}

/// A peer that dies in the middle of a move: all that was asked of it, or waited, ends, with a failure unless it is known
/// to have happened.
#[test]
fn device_a_peer_that_dies_in_a_move_ends_what_waits() {
    const PUTS: usize = 3;
    for (survivor, state) in [
        (0, State::Offered),
        (0, State::Leaving),
        (1, State::Agreed),
        (1, State::Finishing),
        (0, State::Connected),
        (1, State::Connected),
    ] {
        let Some(mut raws) = autos(2, 1, 1, Duration::from_millis(600)) else {
            return;
        };
        let dead = 1 - survivor;
        let there = raws[dead].id();
        let first = to(raws[1].id(), LOUD, 0);
        raws[0].put(first, 8, AckRequest::NoAck, 0);
        advance(&mut raws, survivor, state);
        for number in 0..PUTS {
            raws[survivor].put(to(there, QUIET, 0), 8, AckRequest::Ack, number as u64);
        }
        drop(raws.remove(dead));
        until(&mut raws, "all ends", |r| {
            let ends = r[0].seen(EventKind::SendEnd, QUIET).0;
            (ends, r[0].seen(EventKind::Ack, QUIET)) == (PUTS, (PUTS, PUTS))
        });
        assert_eq!(raws[0].library.nal.state(dead), State::Gone, "{state:?}");
        // Nothing more is begun with it.
        raws[0].put(to(there, QUIET, 0), 8, AckRequest::Ack, 0);
        assert!(raws[0].library.nal.is_drained(), "{state:?}");
        close(raws);
    }
}

/// A call that waits for a connected peer, which computes, goes on to acknowledge datagrams: those that sent them do not
/// take its process for dead.
#[test]
fn device_a_wait_for_one_peer_is_no_silence_to_another() {
    let Some(mut raws) = autos(3, 4, 1, Duration::from_secs(1)) else {
        return;
    };
    // The first rank takes as many as there are, without an event of them.
    let (first, second) = (to(raws[0].id(), QUIET, 0), to(raws[1].id(), LOUD, 0));
    let entry = raws[0].attach(77, None, None);
    let quiet = raws[0].quiet.clone();
    raws[0].library.execute(Call::MdUnlink(entry)).unwrap();
    let advertised = raws[0].attach(78, Some(&quiet), None);
    for number in 0..8 {
        raws[0].put(second, 8, AckRequest::Ack, number);
        until(&mut raws, "it is acknowledged", |r| {
            r[0].seen(EventKind::Ack, LOUD).0 as u64 > number
        });
    }
    assert_eq!(channels(&mut raws[0]).on_connections, 1);
    let mut third = raws.pop().expect("three");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let _guard = EndOnPanic::guard();
        let talker = s.spawn(|| {
            let _guard = EndOnPanic::guard();
            let mut number = 0;
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                third.put(first, 8, AckRequest::Ack, number);
                number += 1;
                let end = Instant::now() + SECONDS;
                while third.seen(EventKind::Ack, QUIET).0 < number as usize {
                    assert!(Instant::now() < end, "an answer, or a failure");
                    third.step();
                }
            }
            assert_eq!(third.seen(EventKind::Ack, QUIET).1, 0, "none failed");
            number
        });
        // Rank 1 is not driven: it confirms nothing.
        let began = Instant::now();
        let refused = raws[0].library.execute(Call::MdUnlink(advertised));
        assert!(refused.is_err() && began.elapsed() > Duration::from_secs(2));
        // Acknowledged datagrams are one thing, answers another: those come when the call has ended.
        done.store(true, std::sync::atomic::Ordering::Release);
        while !talker.is_finished() {
            raws[0].step();
        }
        assert!(talker.join().unwrap() > 0);
    });
    raws.push(third);
    close(raws);
}

/// An ack of the target may overtake those of the datagrams, which alone say that the source is free; SEND_END comes first.
#[test]
fn device_an_ack_waits_for_the_end_of_its_put() {
    // More than a datagram holds, and not what moves the pair.
    const LEN: u64 = 8000;
    let Some(mut raws) = autos(2, u32::MAX, 1, SECONDS) else {
        return;
    };
    let [from, target] = [0, 1].map(|at| raws[at].id());
    let there = to(target, LOUD, 0);
    raws[0].put(there, 8, AckRequest::NoAck, 0);
    until(&mut raws, "they meet", |r| {
        r[1].seen(EventKind::PutEnd, LOUD) == (1, 0)
    });
    raws[0].events.clear();
    for number in 1..3 {
        raws[0].put(there, LEN, AckRequest::Ack, number);
    }
    // The target says that it has the second one before it has looked.
    let ack = Header {
        target: from,
        source: target,
        body: Body::Ack(Ack {
            md: raws[0].source,
            offset: 0,
            rlength: LEN,
            mlength: LEN,
        }),
        ..raws[1].header(from, LOUD, 0, 0)
    };
    raws[1].library.nal.datagrams().say_header(0, &ack, 2);
    let end = Instant::now() + SECONDS;
    while raws[0].library.nal.datagrams().acks_waiting() == 0 {
        assert!(Instant::now() < end, "the ack waits");
        raws[0].step();
        assert_eq!(raws[0].seen(EventKind::Ack, LOUD), (0, 0));
    }
    until(&mut raws, "both are acknowledged", |r| {
        r[0].seen(EventKind::Ack, LOUD) == (2, 0)
    });
    let kinds: Vec<EventKind> = raws[0].events.iter().map(|e| e.kind).collect();
    for at in 0..kinds.len() {
        let count = |kind| kinds[..=at].iter().filter(|k| **k == kind).count();
        assert!(
            count(EventKind::Ack) <= count(EventKind::SendEnd),
            "{kinds:?}"
        );
    }
    close(raws);
}
