//! Short frames that make no completion.

use super::raw::{Raw, close, connect_all, drained, raws, until};
use super::*;
use std::time::{Duration, Instant};

const LEN: usize = 4096;

/// Two ranks; the first has sent the second a few short messages, which have come, and has taken all completions.
fn talked() -> Option<Vec<Raw>> {
    let mut raws = raws(2, LEN)?;
    connect_all(&mut raws);
    drained(&mut raws, "the connections are made");
    messages(&mut raws, 5);
    Some(raws)
}

/// So many more messages, of which each comes.
fn messages(raws: &mut [Raw], count: usize) {
    let there = to(raws[1].id(), LOUD, 0);
    for _ in 0..count {
        let all = raws[1].seen(EventKind::PutEnd, LOUD).0 + 1;
        raws[0].put(there, 8, AckRequest::NoAck, 0);
        until(raws, "a message", |r| {
            r[1].seen(EventKind::PutEnd, LOUD) == (all, 0)
        });
    }
}

fn is_still(raw: &Raw) -> bool {
    let peer = raw.library.nal.peers.get(1);
    peer.is_some_and(|p| p.sq.is_still())
}

#[test]
fn device_what_makes_no_completion_ends_all_the_same() {
    let Some(mut raws) = talked() else { return };
    assert!(!is_still(&raws[0]), "frames make no completions");
    assert!(!raws[0].nal().is_drained());
    drained(&mut raws, "the messages end");
    // Many more than may be under way.
    messages(&mut raws, 300);
    close(raws);
}

#[test]
fn device_what_makes_no_completion_is_not_taken_for_forgotten() {
    let Some(mut raws) = talked() else { return };
    let mut now = Instant::now();
    for _ in 0..6 {
        now += Duration::from_secs(3);
        raws[0].nal().look_for_forgotten(now);
        assert!(!raws[0].nal().peer(1).unwrap().sq.is_broken());
        until(&mut raws, "a completion", |r| is_still(&r[0]));
    }
    messages(&mut raws, 5);
    assert_eq!(raws[1].seen(EventKind::PutEnd, LOUD), (10, 0));
    close(raws);
}

/// Each connection breaks with frames of which nobody knows by completions whether they have come.
#[test]
fn device_frames_without_completions_come_once_over_connections_that_break() {
    let Some(mut raws) = talked() else { return };
    let there = to(raws[1].id(), LOUD, 0);
    for round in 0..10 {
        for _ in 0..7 {
            raws[0].put(there, 8, AckRequest::NoAck, 0);
        }
        let qp = raws[0].nal().peer(1).and_then(|p| p.sq.qp().cloned());
        qp.expect("a connection").to_error().unwrap();
        let all = 5 + 8 * (round + 1);
        raws[0].put(there, 8, AckRequest::NoAck, 0);
        until(&mut raws, "all messages", |r| {
            r[1].seen(EventKind::PutEnd, LOUD).0 >= all
        });
    }
    drained(&mut raws, "all is sent");
    assert_eq!(raws[1].seen(EventKind::PutEnd, LOUD), (85, 0));
    close(raws);
}
