use super::*;
use nic_model::Machine;
use std::collections::BTreeSet;

fn owner(n: u16) -> Owner {
    Owner::Pending {
        process: 0,
        pending: n,
        interrupt: false,
    }
}

fn number(owner: &Owner) -> u16 {
    let Owner::Pending { pending, .. } = owner;
    *pending
}

fn body() -> Body {
    Body {
        header: Packet::Host {
            address: 0,
            length: 1,
        },
        segments: Vec::new(),
    }
}

fn limits() -> ProtocolParams {
    Machine::named("xt4").unwrap().protocol
}

#[test]
fn sources_run_out_but_known_ones_stay() {
    let mut sources = Sources::new(2);
    sources.entry(NodeId(7)).unwrap().rx_next = 5;
    assert!(sources.entry(NodeId(8)).is_some());
    assert!(sources.entry(NodeId(9)).is_none());
    assert!(sources.known(NodeId(9)).is_none());
    assert_eq!(sources.entry(NodeId(7)).unwrap().rx_next, 5);
    assert_eq!(sources.free(), 0);
}

fn send(source: &mut Source) -> u16 {
    match source.next(SimTime(0)) {
        Next::Message { sequence, .. } => {
            source.sent(SimTime(0), sequence, false, true);
            sequence
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_sends_everything_behind_it_again_after_a_pause() {
    let limits = limits();
    let mut source = Source {
        tx_next: u16::MAX,
        ..Source::default()
    };
    for n in 0..4 {
        source.push(SimTime(0), owner(n), body(), true);
    }
    assert_eq!([(); 3].map(|()| send(&mut source)), [u16::MAX, 0, 1]);
    let answered = source.nack(SimTime(5), 0, reason::RX_PENDING, &limits);
    assert_eq!(answered.done, [owner(0)]);
    assert_eq!(answered.queued, 2);
    assert_eq!(answered.wait, Some(limits.backoff_min));
    assert!(matches!(source.next(SimTime(6)), Next::Nothing));
    assert_eq!(source.unblock(SimTime(6), &limits).queued, 3);
    // One is tried, the others wait for it.
    assert_eq!(send(&mut source), 0);
    assert!(matches!(source.next(SimTime(6)), Next::Nothing));
    let answered = source.nack(SimTime(7), 0, reason::RX_PENDING, &limits);
    assert_eq!(answered.wait, Some(limits.backoff_min * 2));
    source.unblock(SimTime(8), &limits);
    assert_eq!(send(&mut source), 0);
    let answered = source.ack(SimTime(8), 1);
    assert_eq!((answered.done, answered.queued), (vec![owner(1)], 2));
    assert_eq!([(); 2].map(|()| send(&mut source)), [1, 2]);
    let answered = source.ack(SimTime(9), 3);
    assert_eq!(answered.done, [owner(2), owner(3)]);
    assert_eq!(source.in_flight(), 0);
}

#[test]
fn a_message_at_the_engine_is_refused_when_it_comes_back() {
    let limits = limits();
    let mut source = Source::default();
    source.push(SimTime(0), owner(0), body(), true);
    assert!(matches!(source.next(SimTime(0)), Next::Message { .. }));
    assert_eq!(
        source.nack(SimTime(1), 0, reason::SEQUENCE, &limits).queued,
        0
    );
    assert_eq!(source.sent(SimTime(2), 0, false, true).queued, 1);
    // An acknowledgement may come before the engine has done with the payload.
    assert!(matches!(
        source.next(SimTime(3)),
        Next::Message { again: true, .. }
    ));
    assert_eq!(source.ack(SimTime(4), 1).done, []);
    assert_eq!(source.sent(SimTime(5), 0, false, true).done, [owner(0)]);
}

#[test]
fn a_message_without_memory_is_skipped() {
    let mut source = Source::default();
    source.push(SimTime(0), owner(0), body(), true);
    assert!(matches!(source.next(SimTime(0)), Next::Message { .. }));
    let sent = source.sent(SimTime(0), 0, true, false);
    assert_eq!((sent.failed, sent.queued), (Some(owner(0)), 1));
    assert!(matches!(
        source.next(SimTime(0)),
        Next::Control(control::SKIP, 0)
    ));
    assert_eq!(source.ack(SimTime(1), 1).done, []);
    assert_eq!(source.in_flight(), 0);
}

#[test]
fn a_peer_that_has_booted_is_told_where_to_start() {
    let limits = limits();
    let mut source = Source {
        tx_next: 500,
        ..Source::default()
    };
    source.push(SimTime(0), owner(0), body(), true);
    send(&mut source);
    let answered = source.nack(SimTime(1), 0, reason::SEQUENCE, &limits);
    assert_eq!((answered.queued, answered.wait), (1, None));
    assert!(matches!(
        source.next(SimTime(1)),
        Next::Control(control::SYNC, 500)
    ));
    assert_eq!(send(&mut source), 500);
}

#[test]
fn silence_is_probed_and_then_given_up() {
    let limits = limits();
    let mut source = Source::default();
    assert_eq!(source.watch(SimTime(0), &limits), (None, false));
    source.push(SimTime(0), owner(3), body(), true);
    send(&mut source);
    assert_eq!(source.watch(SimTime(1), &limits), (None, false));
    let late = SimTime(0) + limits.probe_after;
    assert_eq!(source.watch(late, &limits), (Some(1), false));
    let dead = SimTime(0) + limits.give_up;
    assert_eq!(source.watch(dead, &limits), (Some(1), true));
    assert_eq!(source.give_up(), [owner(3)]);
    source.push(dead, owner(4), body(), true);
    assert!(matches!(source.next(dead), Next::Control(control::SYNC, 1)));
}

/// A NACK that was said before the messages it is about were given up leads to a SYNC that is older than
/// what has been taken since.
#[test]
fn what_was_taken_after_a_give_up_is_not_taken_again() {
    let limits = limits();
    let (mut tx, mut rx) = (Source::default(), Source::default());
    tx.push(SimTime(0), owner(0), body(), true);
    send(&mut tx);
    assert_eq!(rx.arrival(0), Arrival::Next);
    rx.refused();
    let late = rx.expected();
    assert_eq!(tx.give_up(), [owner(0)]);
    tx.push(SimTime(1), owner(1), body(), true);
    let mut taken = 0;
    for _ in 0..2 {
        assert!(matches!(
            tx.next(SimTime(1)),
            Next::Control(control::SYNC, 1)
        ));
        rx.synchronise(1);
        assert_eq!(send(&mut tx), 1);
        tx.nack(SimTime(2), late, reason::SEQUENCE, &limits);
        if rx.arrival(1) == Arrival::Next {
            rx.taken();
            taken += 1;
        }
    }
    assert_eq!((taken, rx.expected()), (1, 2));
    assert_eq!(tx.ack(SimTime(3), rx.expected()).done, [owner(1)]);
}

/// A line that loses, and a receiver that refuses, for one run; whatever happens, every message is
/// taken once, in order, and ends once. With `gives_up` the sender gives its messages up at times; then
/// every message is taken at most once, in order, and ends once, well only if it was taken.
fn exchange(seed: u64, gives_up: bool) {
    let limits = limits();
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut tx, mut rx) = (Source::default(), Source::default());
    let start = rng.u16(..);
    tx.tx_next = start;
    rx.rx_next = start;
    let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
    let (mut pushed, mut taken, mut ended) = (0u16, Vec::new(), Vec::new());
    let mut given_up = Vec::new();
    let mut active = None;
    let mut now = SimTime(0);
    let total = 60;
    for step in 0.. {
        assert!(step < 200_000, "seed {seed} does not end");
        now += SimDuration::from_us(1);
        let lossy = step < 5_000;
        match rng.u32(0..if gives_up { 8 } else { 7 }) {
            0 if pushed < total => {
                tx.push(now, owner(pushed), body(), true);
                pushed += 1;
            }
            1 if active.is_none() => match tx.next(now) {
                Next::Message {
                    sequence, owner, ..
                } => {
                    active = Some(sequence);
                    let Some(Owner::Pending { pending, .. }) = owner else {
                        panic!("nobody waits")
                    };
                    if !lossy || rng.u32(0..4) > 0 {
                        there.push_back((0, sequence, pending));
                    }
                }
                Next::Control(what, n) => there.push_back((what, n, 0)),
                Next::Nothing => {}
            },
            2 => {
                if let Some(sequence) = active.take() {
                    let sent = tx.sent(now, sequence, false, true);
                    assert_eq!(sent.failed, None);
                    ended.extend(sent.done);
                }
            }
            3 => match there.pop_front() {
                Some((0, n, id)) => match rx.arrival(n) {
                    Arrival::Next if lossy && rng.bool() => {
                        rx.refused();
                        back.push_back((control::NACK, reason::RX_PENDING, rx.expected()));
                    }
                    Arrival::Next => {
                        rx.taken();
                        taken.push(id);
                        back.push_back((control::ACK, 0, rx.expected()));
                    }
                    Arrival::Again => back.push_back((control::ACK, 0, rx.expected())),
                    Arrival::Gap(true) => {
                        back.push_back((control::NACK, reason::SEQUENCE, rx.expected()));
                    }
                    Arrival::Gap(false) => {}
                },
                Some((control::PROBE, n, _)) => {
                    let what = rx.question(n);
                    back.push_back((what, reason::SEQUENCE, rx.expected()));
                }
                Some((control::SYNC, n, _)) => rx.synchronise(n),
                _ => {}
            },
            4 => {
                if let Some((what, why, n)) = back.pop_front()
                    && !(lossy && rng.u32(0..4) == 0)
                {
                    let answered = match what {
                        control::ACK => tx.ack(now, n),
                        _ => tx.nack(now, n, why, &limits),
                    };
                    ended.extend(answered.done);
                }
            }
            5 => {
                tx.unblock(SimTime(0), &limits);
            }
            7 => {
                if lossy && active.is_none() && rng.u32(0..8) == 0 {
                    given_up.extend(tx.give_up());
                }
            }
            _ => {
                let later = now + limits.probe_after;
                if let (Some(n), _) = tx.watch(later, &limits) {
                    there.push_back((control::PROBE, n, 0));
                }
            }
        }
        if ended.len() + given_up.len() == usize::from(total) {
            break;
        }
    }
    if gives_up {
        assert!(taken.is_sorted_by(|a, b| a < b), "seed {seed}: {taken:?}");
        let ends: BTreeSet<u16> = ended.iter().chain(&given_up).map(number).collect();
        assert_eq!(ends.len(), usize::from(total), "seed {seed}");
        let mut well = ended.iter().map(number);
        assert!(well.all(|n| taken.contains(&n)), "seed {seed}: {ended:?}");
        return;
    }
    assert_eq!(taken, (0..total).collect::<Vec<_>>(), "seed {seed}");
    assert_eq!(
        ended,
        (0..total).map(owner).collect::<Vec<_>>(),
        "seed {seed}"
    );
}

#[test]
fn whatever_is_lost_or_refused_everything_arrives_once_and_in_order_seed_0_to_999() {
    (0..1000).for_each(|seed| exchange(seed, false));
}

#[test]
fn whatever_is_given_up_nothing_is_taken_twice_seed_0_to_999() {
    (0..1000).for_each(|seed| exchange(seed, true));
}

/// Words of a peer that makes them up never take anything but a suffix of the window away.
#[test]
fn made_up_answers_do_no_harm_seed_0_to_99() {
    let limits = limits();
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut source = Source::default();
        let (mut pushed, mut ended) = (0u16, BTreeSet::new());
        for step in 0..2_000 {
            let now = SimTime(step * 1_000);
            match rng.u32(0..6) {
                0 => {
                    source.push(now, owner(pushed), body(), true);
                    pushed += 1;
                }
                1 => {
                    if let Next::Message { sequence, .. } = source.next(now) {
                        let sent = source.sent(now, sequence, rng.u32(0..9) == 0, rng.bool());
                        for Owner::Pending { pending, .. } in
                            sent.done.into_iter().chain(sent.failed)
                        {
                            assert!(ended.insert(pending), "seed {seed}: {pending} ended twice");
                        }
                    }
                }
                2 => {
                    source.unblock(now, &limits);
                }
                3 => {
                    source.sent(now, rng.u16(0..pushed + 3), rng.bool(), rng.bool());
                }
                _ => {
                    let n = if rng.bool() {
                        rng.u16(..)
                    } else {
                        rng.u16(0..pushed + 3)
                    };
                    let answered = if rng.bool() {
                        source.ack(now, n)
                    } else {
                        source.nack(now, n, rng.u8(..), &limits)
                    };
                    for Owner::Pending { pending, .. } in answered.done {
                        assert!(ended.insert(pending), "seed {seed}: {pending} ended twice");
                    }
                }
            }
            assert!(source.in_flight() <= usize::from(pushed));
        }
    }
}

/// A peer that refuses for too long is given up, also when each refusal finds the engine at work.
#[test]
fn a_peer_without_room_is_given_up() {
    let limits = limits();
    let mut source = Source::default();
    source.push(SimTime(0), owner(0), body(), true);
    let mut now = SimTime(0);
    for round in 0.. {
        assert!(round < 20_000, "it goes on for ever");
        assert!(matches!(source.next(now), Next::Message { .. }));
        let refused = source.nack(now, 0, reason::RX_PENDING, &limits);
        assert!(refused.wait.is_some() && refused.done.is_empty());
        let still = source.unblock(now, &limits);
        assert_eq!((still.wait, still.hopeless), (refused.wait, false));
        assert_eq!(source.sent(now, 0, false, true).queued, 1);
        now += refused.wait.unwrap();
        if source.unblock(now, &limits).hopeless {
            break;
        }
    }
    assert!(now >= SimTime(0) + limits.give_up);
    assert_eq!(source.give_up(), [owner(0)]);
}
