//! Events and queues.

use super::world::*;
use crate::{Error, EventKind, MdDesc, MdOptions, Unlink};
use alloc::vec::Vec;

/// Scenario 77; rules 27 and 31: what each operation posts under each pair of options.
#[test]
fn start_and_end_are_disabled_separately_and_ack_never() {
    for (options, start, end) in [
        (NONE, true, true),
        (NO_START, false, true),
        (NO_END, true, false),
        (NO_START | NO_END, false, false),
    ] {
        let mut w = World::new();
        let src = w.source_with(8, |d| d.options = options, Unlink::Retain);
        let t = w.target(64, PUT | GET | REMOTE | options);
        let seen = |all: &[(EventKind, bool)]| -> Vec<EventKind> {
            all.iter().filter(|k| k.1).map(|k| k.0).collect()
        };
        w.put(0, src.md, None, Ack, to(1), 0).unwrap();
        w.run();
        assert_eq!(
            w[0].kinds(src.eq),
            seen(&[(SendStart, start), (SendEnd, end), (ACKED, true)])
        );
        assert_eq!(w[1].kinds(t.eq), seen(&[(PutStart, start), (PutEnd, end)]));
        w.get(0, src.md, None, to(1)).unwrap();
        w.run();
        assert_eq!(
            w[0].kinds(src.eq),
            seen(&[(ReplyStart, start), (ReplyEnd, end)])
        );
        assert_eq!(w[1].kinds(t.eq), seen(&[(GetStart, start), (GetEnd, end)]));
        w.get_put(0, src.md, src.md, to(1), 0).unwrap();
        w.run();
        assert_eq!(
            w[0].kinds(src.eq),
            seen(&[
                (SendStart, start),
                (SendEnd, end),
                (ReplyStart, start),
                (ReplyEnd, end)
            ])
        );
        assert_eq!(
            w[1].kinds(t.eq),
            seen(&[(GetPutStart, start), (GetPutEnd, end)])
        );
    }
}

/// Scenario 78; rules 32 and 33.
#[test]
fn link_joins_the_events_of_one_operation() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target_with(64, |d| d.threshold = 2, Unlink::Unlink);
    for _ in 0..2 {
        w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    }
    let first = w.arrive().unwrap();
    let second = w.arrive().unwrap();
    w.complete(second.0, second.1, &second.2);
    w.complete(first.0, first.1, &first.2);
    let e = w[1].events(t.eq);
    let kinds: Vec<_> = e.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [PutStart, PutStart, PutEnd, PutEnd, UNLINKED]);
    assert_eq!((e[0].link, e[1].link), (e[0].sequence, e[1].sequence));
    assert_eq!((e[2].link, e[3].link), (e[1].link, e[0].link));
    assert_eq!(e[4].link, e[3].sequence);

    let quiet = w.target_with(
        64,
        |d| {
            d.options = PUT | NO_START;
            d.threshold = 1;
        },
        Unlink::Unlink,
    );
    w.knock(to(1));
    let e = w[1].events(quiet.eq);
    assert_eq!((e[0].kind, e[0].link), (PutEnd, e[0].sequence));
    assert_eq!((e[1].kind, e[1].link), (UNLINKED, e[0].sequence));
}

/// Scenario 79.
#[test]
fn sequence_numbers_go_up_by_one_through_the_wrap() {
    let mut w = World::new();
    let t = w.target(64, PUT);
    let mut last: Option<u32> = None;
    let mut wrapped = false;
    for _ in 0..80 {
        w.knock(to(1));
        for e in w[1].events(t.eq) {
            if let Some(last) = last {
                assert_eq!(e.sequence, last.wrapping_add(1));
                wrapped |= e.sequence < last;
            }
            last = Some(e.sequence);
        }
    }
    assert!(wrapped, "the numbers start near their end");
}

/// Scenario 80; rules 13 and 54.
#[test]
fn an_overflow_loses_the_oldest_events_and_says_so_once() {
    let mut w = World::new();
    let eq = w[1].eq(4);
    let t = w.target_with(
        64,
        |d| {
            d.eq = Some(eq);
            d.options = PUT | NO_START;
        },
        Unlink::Retain,
    );
    let src = w.source(1);
    for i in 0..6 {
        w.put(0, src.md, None, NoAck, to(1), i).unwrap();
    }
    w.run();
    assert_eq!(w[1].ni.status().recv_count, 6);
    let mut seen = Vec::new();
    while let Some((e, lost)) = w[1].ni.eq_get(eq).unwrap() {
        assert_eq!(e.md_handle, t.md);
        seen.push((e.hdr_data, lost));
    }
    assert_eq!(seen, [(2, true), (3, false), (4, false), (5, false)]);
    w.put(0, src.md, None, NoAck, to(1), 6).unwrap();
    w.run();
    let (e, lost) = w[1].ni.eq_get(eq).unwrap().unwrap();
    assert_eq!((e.hdr_data, lost), (6, false));
}

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

/// Scenarios 81, 82 and 83; rule 53.
#[test]
fn a_queue_holds_what_was_asked_and_at_least_one() {
    for count in [0, 1, 2, 3, 5] {
        let mut w = World::new();
        let eq = w[1].eq(count);
        assert_eq!(w[1].ni.eq_get(eq), Ok(None));
        assert_eq!(w[1].ni.eq_peek(eq), Ok(None));
        w.target_with(
            64,
            |d| {
                d.eq = Some(eq);
                d.options = PUT | NO_START;
            },
            Unlink::Retain,
        );
        for _ in 0..count.max(1) {
            w.knock(to(1));
        }
        let seen = w[1].events(eq);
        assert_eq!(seen.len() as u64, count.max(1));
    }
    let mut w = World::new();
    assert_eq!(w[0].ni.eq_alloc(1 << 32), Err(Error::NoSpace));
    assert_eq!(w[0].ni.eq_alloc(u64::MAX), Err(Error::NoSpace));
}

/// A look at the oldest event leaves it.
#[test]
fn peek_does_not_take() {
    let mut w = World::new();
    let t = w.target(8, PUT);
    w.knock(to(1));
    let seen = w[1].ni.eq_peek(t.eq).unwrap();
    assert_eq!(seen, w[1].ni.eq_peek(t.eq).unwrap());
    assert_eq!(w[1].ni.eq_get(t.eq).unwrap(), seen);
    assert_eq!(w[1].kinds(t.eq), [PutEnd]);
}

/// Scenario 90; rules 43 and 69.
#[test]
fn events_show_the_descriptor_as_given_and_its_remaining_threshold() {
    let mut w = World::new();
    let d = |d: &mut MdDesc| {
        d.threshold = 3;
        d.user_ptr = u64::MAX - 1;
        d.max_size = 12;
        d.options = PUT | MdOptions::from_bits_retain(1 << 30);
    };
    let t = w.target_with(64, d, Unlink::Retain);
    w.knock(to(1));
    w.knock(to(1));
    let e = w[1].events(t.eq);
    let left: Vec<_> = e.iter().map(|e| e.md.threshold).collect();
    assert_eq!(left, [2, 2, 1, 1]);
    for e in &e {
        assert_eq!((e.md.start, e.md.length), (t.memory.addr, 64));
        assert_eq!((e.md.user_ptr, e.md.max_size), (u64::MAX - 1, 12));
        assert_eq!(e.md.options.bits(), 0x4000_0001);
        assert_eq!(e.md.eq, Some(t.eq));
    }
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

/// Rule 57.
#[test]
fn what_is_no_queue_is_refused_whichever_queue_has_an_event() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target(8, PUT);
    let freed = w[1].eq(4);
    w[1].ni.eq_free(freed).unwrap();
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    for (list, at) in [
        ([t.eq, t.eq, freed], 2),
        ([t.eq, freed, freed], 1),
        ([freed, t.eq, t.eq], 0),
    ] {
        let refused = w[1].ni.eq_first(&list).err();
        assert_eq!(refused, Some((at, crate::Error::EqInvalid)));
    }
    // No event has gone.
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    assert!(!w[1].ni.has_events());
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
