//! Events and queues.

use super::world::*;
use crate::{MdDesc, MdOptions, Unlink};
use alloc::vec::Vec;

/// A descriptor of rank 1 whose puts make END events alone.
fn ends_only(w: &mut World, eq: crate::EqHandle) {
    w.target_with(
        64,
        |d| {
            d.eq = Some(eq);
            d.options = PUT | NO_START;
        },
        Unlink::Retain,
    );
}

/// Rule 54: a second gap before the first was told is told once more only if it is another gap.
#[test]
fn every_gap_is_told_once() {
    let mut w = World::new();
    let eq = w[1].eq(2);
    ends_only(&mut w, eq);
    for _ in 0..3 {
        w.knock(to(1));
    }
    assert!(w[1].ni.eq_peek(eq).unwrap().unwrap().1);
    assert!(w[1].ni.eq_get(eq).unwrap().unwrap().1);
    for _ in 0..2 {
        w.knock(to(1));
    }
    assert!(w[1].ni.eq_get(eq).unwrap().unwrap().1);
    assert!(!w[1].ni.eq_get(eq).unwrap().unwrap().1);
    assert_eq!(w[1].ni.eq_get(eq), Ok(None));
}

/// Events are taken where they lie, in order, as long as they are wanted, and none that comes after a loss.
#[test]
fn events_are_taken_while_they_are_wanted() {
    let mut w = World::new();
    let eq = w[1].eq(4);
    ends_only(&mut w, eq);
    let src = w.source(1);
    let send = |w: &mut World, numbers: core::ops::Range<u64>| {
        for i in numbers {
            w.put(0, src.md, None, NoAck, to(1), i).unwrap();
        }
        w.run();
    };
    let take = |w: &mut World, most: u64| {
        let mut seen = Vec::new();
        let taken = w[1].ni.eq_take_while(eq, &mut |e| {
            let wanted = e.hdr_data < most;
            seen.extend(wanted.then_some(e.hdr_data));
            wanted
        });
        assert_eq!(taken, Ok(seen.len()));
        seen
    };
    send(&mut w, 0..4);
    assert_eq!(take(&mut w, 2), [0, 1]);
    assert_eq!(w[1].ni.eq_get(eq).unwrap().unwrap().0.hdr_data, 2);
    send(&mut w, 4..7);
    assert_eq!(take(&mut w, 9), [3, 4, 5, 6]);
    assert_eq!(take(&mut w, 9), []);
    send(&mut w, 0..5);
    assert_eq!(take(&mut w, 9), []);
    assert!(w[1].ni.eq_get(eq).unwrap().unwrap().1);
    assert_eq!(take(&mut w, 9), [2, 3, 4]);
}

/// Rule 35: a START is followed by its END, whatever an update does to the options meanwhile.
#[test]
fn a_start_has_its_end_even_after_an_update() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target(8, PUT);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let (node, incoming, data) = w.arrive().unwrap();
    let changed = MdDesc {
        eq: Some(t.eq),
        ..desc(t.memory, PUT | NO_END)
    };
    w[1].ni.md_update(t.md, changed, None).unwrap();
    w.complete(node, incoming, &data);
    let e = w[1].events(t.eq);
    let kinds: Vec<_> = e.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [PutStart, PutEnd]);
    assert_eq!(e[0].link, e[1].link);
}

/// A descriptor that wants to hear of failures alone hears of those, and of processes that are given up.
#[test]
fn failures_alone_are_told() {
    let mut w = World::new();
    let only = NO_START | NO_END | MdOptions::EVENT_FAILURE_ENABLE;
    let src = w.source_with(8, |d| d.options = only, Unlink::Retain);
    let deaf = w.source_with(8, |d| d.options = NO_START | NO_END, Unlink::Retain);
    w.target(64, PUT | REMOTE);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), []);
    for (source, told) in [(&src, 1), (&deaf, 0)] {
        let target = crate::ProcessId::new(1, 9);
        let tx = w[0]
            .ni
            .put(source.md, None, NoAck, target, 4, 0, 7, 0, 0)
            .unwrap();
        w[0].ni.send_end(tx.op.unwrap(), crate::NiFail::FAIL);
        let events = w[0].events(source.eq);
        assert_eq!(events.len(), told);
        assert!(events.iter().all(|e| e.ni_fail == crate::NiFail::FAIL));
    }
    let gone = crate::ProcessId::new(7, 9);
    w[0].ni.lost(gone);
    let events = w[0].events(src.eq);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].kind, events[0].ni_fail, events[0].initiator),
        (SendEnd, crate::NiFail::FAIL, gone)
    );
    assert!(w[0].events(deaf.eq).is_empty());
    // Who listens is told by that event alone.
    assert_eq!(w[0].ni.take_lost(&[src.eq, deaf.eq]), None);
}

/// Of a process that is given up each queue says so once, in a wait, unless its events do.
#[test]
fn a_process_that_is_given_up_is_told_to_who_waits() {
    let mut w = World::new();
    let gone = crate::ProcessId::new(1, 9);
    let quiet = w.source_with(8, |_| (), Unlink::Retain);
    let [failing, read] = [(); 2].map(|()| w.source_with(8, |_| (), Unlink::Retain));
    let fail = |w: &mut World, md| {
        let tx = w[0].ni.put(md, None, NoAck, gone, 4, 0, 7, 0, 0).unwrap();
        w[0].ni.send_end(tx.op.unwrap(), crate::NiFail::FAIL);
    };
    fail(&mut w, read.md);
    w[0].ni.lost(gone);
    fail(&mut w, failing.md);
    let all = [failing.eq, read.eq, quiet.eq];
    assert_eq!(w[0].ni.take_lost(&all), Some(2));
    assert_eq!(w[0].ni.take_lost(&all), None);
    for eq in all {
        w[0].events(eq);
    }
    assert_eq!(w[0].ni.take_lost(&all), None);
    // What came before is taken first.
    w[0].ni.lost(gone);
    let tx = w[0].ni.put(quiet.md, None, NoAck, gone, 4, 0, 7, 0, 0);
    w[0].ni.send_end(tx.unwrap().op.unwrap(), crate::NiFail::OK);
    assert_eq!(w[0].ni.take_lost(&[quiet.eq]), None);
    assert!(!w[0].events(quiet.eq).is_empty());
    assert_eq!(w[0].ni.take_lost(&[quiet.eq, read.eq]), Some(0));
    assert_eq!(w[0].ni.take_lost(&[failing.eq]), Some(0));
}
