//! A get sees the put before it, however late the put's data is.

use super::raw::{Raw, close, connect_all, drained, raws, until};
use super::*;
use fabric_api::call::{Answer, Call};
use fabric_api::op::Get;
use std::time::{Duration, Instant};

const INITIATOR: usize = 0;
const TARGET: usize = 1;

/// Goes by rendezvous.
const LONG: usize = 65_536;
/// What the get reads is the end of the put, and lands behind its source.
const SHORT: usize = 8;

/// The initiator makes progress alone, until its requests have arrived and nobody has looked at them.
fn all_has_arrived(raw: &mut Raw) {
    drained(std::slice::from_mut(raw), "the requests leave");
}

/// The target finds the long put and the short get together, and the put's data cannot be read before the connection is
/// mended: the adapter that has it answers no more. An answer that does not wait is in the mended connection's first
/// frame, with the memory as it was.
#[test]
fn device_a_get_that_is_found_with_a_long_put_waits_for_its_data() {
    let Some(mut raws) = raws(2, LONG + SHORT) else {
        return;
    };
    connect_all(&mut raws);
    let target = raws[TARGET].id();
    for round in 0..2 {
        let sent = pattern(LONG, round);
        raws[INITIATOR].work.write(0, &sent).unwrap();
        let tail = to(target, LOUD, (LONG - SHORT) as u64);
        let source = raws[INITIATOR].source;
        raws[INITIATOR].put(to(target, LOUD, 0), LONG as u64, AckRequest::NoAck, 0);
        raws[INITIATOR]
            .library
            .get(&Get::new(source, tail).region(LONG as u64, SHORT as u64))
            .unwrap();
        all_has_arrived(&mut raws[INITIATOR]);
        assert_eq!(
            raws[TARGET].seen(EventKind::PutStart, LOUD).0,
            round,
            "nobody has looked at what came"
        );
        let link = raws[INITIATOR]
            .nal()
            .peer(TARGET)
            .and_then(|p| p.sq.qp().cloned());
        link.expect("a link").to_error().unwrap();
        until(&mut raws, "the get is answered and the put ends", |r| {
            r[INITIATOR].seen(EventKind::ReplyEnd, LOUD) == (round + 1, 0)
                && r[TARGET].seen(EventKind::PutEnd, LOUD) == (round + 1, 0)
        });
        let mut got = vec![0; SHORT];
        raws[INITIATOR].work.read(LONG, &mut got).unwrap();
        assert_eq!(got, &sent[LONG - SHORT..], "round {round}");
    }
    close(raws);
}

/// A rank that closes waits for those who have still to read its memory: for the data of a long put, and for that of a long
/// answer.
#[test]
fn device_nobody_closes_before_its_long_data_has_been_read() {
    let Some(mut raws) = raws(2, LONG) else {
        return;
    };
    connect_all(&mut raws);
    let there = to(raws[TARGET].id(), LOUD, 0);
    raws[INITIATOR].put(there, LONG as u64, AckRequest::NoAck, 0);
    all_has_arrived(&mut raws[INITIATOR]);
    assert!(!raws[INITIATOR].nal().is_drained(), "nobody has read it");
    until(&mut raws, "the put ends", |r| {
        r[TARGET].seen(EventKind::PutEnd, LOUD) == (1, 0)
            && r[INITIATOR].seen(EventKind::SendEnd, LOUD) == (1, 0)
    });
    assert!(raws[INITIATOR].nal().is_drained());

    raws[INITIATOR].get(there, LONG as u64);
    all_has_arrived(&mut raws[INITIATOR]);
    raws[TARGET].step();
    assert_eq!(raws[TARGET].seen(EventKind::GetStart, LOUD).0, 1);
    all_has_arrived(&mut raws[TARGET]);
    assert!(
        !raws[TARGET].nal().is_drained(),
        "nobody has read the answer"
    );
    until(&mut raws, "the get ends", |r| {
        r[INITIATOR].seen(EventKind::ReplyEnd, LOUD) == (1, 0)
            && r[TARGET].seen(EventKind::GetEnd, LOUD) == (1, 0)
    });
    assert!(raws[TARGET].nal().is_drained());

    raws[INITIATOR].put(there, LONG as u64, AckRequest::NoAck, 0);
    all_has_arrived(&mut raws[INITIATOR]);
    let [initiator, target] = raws.as_mut_slice() else {
        panic!("two ranks")
    };
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| initiator.library.execute(Call::Close));
        // Longer than one that waits for nothing takes.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(300) {
            assert!(!closing.is_finished(), "it has not been read");
            std::thread::yield_now();
        }
        while target.seen(EventKind::PutEnd, LOUD).0 < 2 {
            target.step();
        }
        assert_eq!(closing.join().unwrap(), Ok(Answer::Done));
    });
    assert_eq!(raws[TARGET].seen(EventKind::PutEnd, LOUD), (2, 0));
    close(raws.split_off(TARGET));
}
