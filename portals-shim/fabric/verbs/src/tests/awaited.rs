//! Puts and gets whose caller waits for them at once.

use super::raw::{Raw, close, connect_all, get_first, raws, until};
use super::*;
use fabric_api::op::{Get, Posted, Put};

const LEN: usize = 4096;
/// More than anything takes that ends.
const ALL: u32 = u32::MAX;

const DONE: Posted = Posted::Done { events: false };

/// Rank 0 may reach rank 1's quiet memory, and its own is registered.
fn connected() -> Option<Vec<Raw>> {
    let mut raws = raws(2, LEN)?;
    connect_all(&mut raws);
    get_first(&mut raws, 4);
    Some(raws)
}

fn get(raw: &mut Raw, region: (u64, u64), there: Target, looks: u32) -> Posted {
    let got = raw.library.get_awaited(
        &Get::new(raw.source, there).region(region.0, region.1),
        looks,
    );
    got.unwrap()
}

fn put(raw: &mut Raw, region: (u64, u64), there: Target, looks: u32) -> Posted {
    let mut put = Put::new(raw.source, there)
        .region(region.0, region.1)
        .wait();
    raw.library.put_awaited(&mut put, looks).unwrap()
}

/// The data is where it belongs when the call returns, nobody at the target has helped, and no event comes of it.
#[test]
fn device_what_is_awaited_is_done_without_events() {
    let Some(mut raws) = connected() else { return };
    let before = raws[1].library.ni.status().recv_count;
    for len in [1, 8, 100] {
        let bytes = pattern(len, len);
        raws[0].work.write(0, &bytes).unwrap();
        let there = to(raws[1].id(), QUIET, 300);
        assert_eq!(put(&mut raws[0], (0, len as u64), there, ALL), DONE);
        let mut seen = vec![0; len];
        raws[1].quiet.read(300, &mut seen).unwrap();
        assert!(seen == bytes, "put of {len} bytes");
    }
    for len in [1, 8, 1000, 4000] {
        let bytes = pattern(len, len + 1);
        raws[1].quiet.write(5, &bytes).unwrap();
        let there = to(raws[1].id(), QUIET, 5);
        assert_eq!(get(&mut raws[0], (9, len as u64), there, ALL), DONE);
        let mut seen = vec![0; len];
        raws[0].work.read(9, &mut seen).unwrap();
        assert!(seen == bytes, "get of {len} bytes");
    }
    raws[0].step();
    assert!(raws[0].events.is_empty(), "{:?}", raws[0].events);
    assert_eq!(raws[1].library.ni.status().recv_count, before);
    close(raws);
}

/// To memory whose owner has events, and before anything is connected, they are as other operations.
#[test]
fn device_what_needs_the_target_is_begun() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), LOUD, 0);
    assert_ne!(put(&mut raws[0], (0, 8), there, 16), DONE);
    assert_eq!(get(&mut raws[0], (0, 8), there, 16), Posted::Begun);
    until(&mut raws, "both end", |r| {
        r[0].seen(EventKind::Ack, LOUD) == (1, 0) && r[0].seen(EventKind::ReplyEnd, LOUD) == (1, 0)
    });
    close(raws);
}

/// Without a look, the operation is under way when the call returns, and ends as any other.
#[test]
fn device_what_is_not_awaited_to_its_end_has_its_events() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 64);
    for number in 1..=20 {
        assert_eq!(put(&mut raws[0], (0, 8), there, 0), Posted::Taken);
        assert_eq!(get(&mut raws[0], (0, 8), there, 0), Posted::Begun);
        // One that is awaited behind them ends them too.
        if number % 2 == 0 {
            let got = get(&mut raws[0], (8, 8), there, ALL);
            assert_eq!(got, Posted::Done { events: true });
        }
        until(&mut raws, "both end", |r| {
            r[0].seen(EventKind::Ack, QUIET) == (number, 0)
                && r[0].seen(EventKind::ReplyEnd, QUIET) == (number, 0)
        });
    }
    close(raws);
}

/// A connection that breaks meanwhile: a get is made again or fails, a put is done or fails, and each says so once.
#[test]
fn device_what_is_awaited_over_a_broken_connection_ends_once() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 64);
    for round in 0..10 {
        raws[0].events.clear();
        let peer = raws[0].nal().peer(1).unwrap();
        peer.sq.qp().unwrap().to_error().unwrap();
        let (got, kind) = match round % 2 {
            0 => (get(&mut raws[0], (0, 8), there, 16), EventKind::ReplyEnd),
            _ => (put(&mut raws[0], (0, 8), there, 16), EventKind::Ack),
        };
        let expected = usize::from(!matches!(got, Posted::Done { .. }));
        until(&mut raws, "it ends", |r| {
            r[0].seen(kind, QUIET).0 == expected && r[0].library.nal.offloaded.of(1).is_empty()
        });
        // Until both know each other again.
        let mut number = 0;
        loop {
            number += 1;
            raws[0].get(there, 8);
            let before = raws[0].seen(EventKind::ReplyEnd, QUIET).0;
            until(&mut raws, "a get ends", |r| {
                r[0].seen(EventKind::ReplyEnd, QUIET).0 > before
            });
            if get(&mut raws[0], (0, 8), there, ALL) == DONE {
                break;
            }
            until(&mut raws, "the other get ends", |r| {
                r[0].seen(EventKind::ReplyEnd, QUIET).0 > before + 1
            });
            assert!(number < 1000, "never one-sided again");
        }
    }
    close(raws);
}

/// The device goes while one is awaited: it fails, with the events of a failure.
#[test]
fn device_gone_ends_what_is_awaited() {
    let Some(mut raws) = connected() else { return };
    let there = to(raws[1].id(), QUIET, 64);
    raws[0].get(there, 8);
    let Raw { library, .. } = &mut raws[0];
    library.nal.device_gone(&mut library.ni, &"a test says so");
    assert_eq!(get(&mut raws[0], (0, 8), there, 16), Posted::Begun);
    assert_ne!(put(&mut raws[0], (0, 8), there, 16), DONE);
    raws[0].step();
    assert_eq!(raws[0].seen(EventKind::ReplyEnd, QUIET), (2, 2));
    assert_eq!(raws[0].seen(EventKind::Ack, QUIET), (1, 1));
    close(raws);
}
