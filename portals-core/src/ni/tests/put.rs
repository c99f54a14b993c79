//! Puts.

use super::world::*;
use crate::{DropReason, Error, Incoming, MdDesc, MdOptions, NiFail, Segment, Unlink};
use alloc::vec;
use alloc::vec::Vec;

/// Scenarios 30, 42, 43 and 44; rules 7, 15, 30 and 33.
#[test]
fn a_put_with_ack_into_remotely_managed_memory() {
    let mut w = World::new();
    let src = w.source_with(64, |d| d.user_ptr = 77, Unlink::Retain);
    let t = w.target_with(64, |d| d.options = PUT | REMOTE, Unlink::Retain);
    let hdr = 0xfedc_ba98_7654_3210;
    let dest = To {
        offset: 16,
        bits: 0,
        ..to(1)
    };
    w.put(0, src.md, Some((8, 40)), Ack, dest, hdr).unwrap();
    w.run();

    let got = w[1].read(t.memory);
    let mut expected = vec![FILL; 64];
    expected[16..56].copy_from_slice(&(9..49).collect::<Vec<u8>>());
    assert_eq!(got, expected);
    assert!(w[1].guards_intact(t.memory));

    let e = w[0].events(src.eq);
    let kinds: Vec<_> = e.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [SendStart, SendEnd, ACKED]);
    for s in &e[..2] {
        assert_eq!((s.initiator, s.uid, s.jid), (id(0), 1000, 5));
        assert_eq!((s.rlength, s.mlength, s.offset), (40, 40, 8));
        assert_eq!((s.pt_index, s.match_bits, s.hdr_data), (4, 0, hdr));
        assert_eq!((s.md_handle, s.md.user_ptr), (src.md, 77));
    }
    let a = &e[2];
    assert_eq!((a.initiator, a.uid, a.jid), (id(1), 1000, 5));
    assert_eq!((a.rlength, a.mlength, a.offset), (40, 40, 16));
    assert_eq!((a.pt_index, a.match_bits, a.hdr_data), (4, 0, 0));
    assert_eq!((a.md_handle, a.md.user_ptr), (src.md, 77));
    assert_eq!(a.ni_fail, NiFail::OK);

    let e = w[1].events(t.eq);
    let kinds: Vec<_> = e.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [PutStart, PutEnd]);
    for p in &e {
        assert_eq!((p.initiator, p.uid, p.jid), (id(0), 1000, 5));
        assert_eq!((p.rlength, p.mlength, p.offset), (40, 40, 16));
        assert_eq!((p.pt_index, p.match_bits, p.hdr_data), (4, 0, hdr));
        assert_eq!(p.md_handle, t.md);
    }
}

/// Scenarios 31 and 32; rules 7-9.
#[test]
fn a_locally_managed_descriptor_fills_from_its_own_offset() {
    let mut w = World::new();
    let src = w.source(16);
    let t = w.target(100, PUT);
    for i in 0..7u64 {
        let dest = To {
            offset: 91 * i,
            ..to(1)
        };
        w.put(0, src.md, None, NoAck, dest, 0).unwrap();
        w.run();
    }
    let ends: Vec<u64> = w[1]
        .events(t.eq)
        .iter()
        .filter(|e| e.kind == PutEnd)
        .map(|e| e.offset)
        .collect();
    assert_eq!(ends, [0, 16, 32, 48, 64, 80]);
    assert_eq!(w[1].drops(), 1);
    assert_eq!(&w[1].read(t.memory)[94..], [15, 16, FILL, FILL, FILL, FILL]);
}

/// Scenario 33; rule 8.
#[test]
fn a_truncating_descriptor_takes_what_fits_and_says_so() {
    let mut w = World::new();
    let src = w.source(16);
    let t = w.target(10, PUT | TRUNCATE);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    let ack = w[0].events(src.eq)[2];
    assert_eq!((ack.rlength, ack.mlength), (16, 10));
    let end = w[1].events(t.eq)[1];
    assert_eq!((end.rlength, end.mlength), (16, 10));
    assert_eq!(w[1].read(t.memory), (1..=10).collect::<Vec<u8>>());
    assert!(w[1].guards_intact(t.memory));
}

/// Scenarios 34 and 35; rule 8: the end is a place, one past it is none.
#[test]
fn truncation_reaches_the_end_and_not_past_it() {
    let mut w = World::new();
    let src = w.source(16);
    let t = w.target(10, PUT | REMOTE | TRUNCATE);
    let at = |offset| To { offset, ..to(1) };
    w.put(0, src.md, None, Ack, at(10), 0).unwrap();
    w.run();
    let ack = w[0].events(src.eq)[2];
    assert_eq!((ack.kind, ack.mlength, ack.rlength), (ACKED, 0, 16));
    assert_eq!(w[1].events(t.eq)[1].offset, 10);
    w.put(0, src.md, None, Ack, at(11), 0).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd]);
    assert_eq!(w[1].drops(), 1);
}

/// Scenario 36; rule 8.
#[test]
fn an_offset_near_the_end_of_the_numbers_does_not_wrap() {
    let mut w = World::new();
    let src = w.source(16);
    w.target(64, PUT | REMOTE);
    let dest = To {
        offset: u64::MAX - 7,
        ..to(1)
    };
    w.put(0, src.md, None, NoAck, dest, 0).unwrap();
    assert!(matches!(
        w.arrive(),
        Some((1, Incoming::Dropped(DropReason::NoMatch), _))
    ));
}

/// Scenario 37; rule 23.
#[test]
fn a_put_of_nothing_is_a_put() {
    let mut w = World::new();
    let nothing = Segment { addr: 0, len: 0 };
    let src = w.source_with(
        0,
        |d| {
            *d = MdDesc {
                eq: d.eq,
                ..desc(nothing, NONE)
            }
        },
        Unlink::Retain,
    );
    let t = w.target_with(
        0,
        |d| {
            d.memory = crate::Memory::Contiguous(nothing);
            d.threshold = 5;
        },
        Unlink::Retain,
    );
    w.put(0, src.md, None, Ack, to(1), 1).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd, ACKED]);
    let e = w[1].events(t.eq);
    assert_eq!((e[0].kind, e[1].kind), (PutStart, PutEnd));
    assert_eq!((e[1].md.threshold, e[1].mlength), (4, 0));
}

/// Scenario 38; rule 23.
#[test]
fn a_region_lies_within_its_descriptor() {
    let mut w = World::new();
    let src = w.source(10);
    w.target(10, PUT | GET | REMOTE);
    for (region, result) in [
        ((10, 0), Ok(())),
        ((3, 7), Ok(())),
        ((11, 0), Err(Error::MdIllegal)),
        ((3, 8), Err(Error::MdIllegal)),
        ((u64::MAX, 2), Err(Error::MdIllegal)),
        ((2, u64::MAX), Err(Error::MdIllegal)),
    ] {
        assert_eq!(w.put(0, src.md, Some(region), NoAck, to(1), 0), result);
        assert_eq!(w.get(0, src.md, Some(region), to(1)), result);
    }
    w.run();
    // A refused call changed nothing: two puts and two gets were made.
    assert_eq!(w[0].events(src.eq).len(), 8);
}

/// Scenario 39; rule 14.
#[test]
fn a_target_can_refuse_to_acknowledge() {
    let mut w = World::new();
    let src = w.source_with(4, |d| d.threshold = 2, Unlink::Unlink);
    w.target(16, PUT | MdOptions::ACK_DISABLE);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd]);
    assert_eq!(w[0].ni.md_query(src.md).unwrap().threshold, 1);
}

/// Scenario 40; rule 14: remote and to the own process, after puts that were acknowledged.
#[test]
fn no_ack_comes_unasked() {
    let mut w = World::new();
    w.target(4096, PUT);
    let src = w.source(1);
    let me = w[0].me(4, 0);
    let memory = w[0].memory(4096);
    w[0].attach(me, desc(memory, PUT));
    for node in [1, 0] {
        w.put(0, src.md, None, Ack, to(node), 0).unwrap();
        w.run();
        assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd, ACKED]);
        for _ in 0..100 {
            w.put(0, src.md, None, NoAck, to(node), 0).unwrap();
            w.run();
            assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd]);
        }
    }
}

/// Rule 14: an ack nobody could see is not asked for, and costs no threshold.
#[test]
fn a_source_without_a_queue_asks_for_no_ack() {
    let mut w = World::new();
    w.target(16, PUT);
    let src = w.source_with(
        4,
        |d| {
            d.eq = None;
            d.threshold = 2;
        },
        Unlink::Retain,
    );
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[0].ni.md_query(src.md).unwrap().threshold, 1);
    assert_eq!(w[0].drops(), 0);
}

/// Scenario 41; rule 34.
#[test]
fn a_target_without_a_queue_takes_data_and_acknowledges() {
    let mut w = World::new();
    let src = w.source(4);
    let t = w.target_with(4, |d| d.eq = None, Unlink::Retain);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd, ACKED]);
    assert_eq!(w[1].read(t.memory), [1, 2, 3, 4]);
    assert!(w[1].events(t.eq).is_empty());
}

/// Scenario 45; rules 2 and 9.
#[test]
fn a_put_nobody_takes_is_counted_there_and_silent_here() {
    let mut w = World::new();
    let src = w.source(5);
    w.put(0, src.md, None, Ack, To { bits: 9, ..to(1) }, 0)
        .unwrap();
    w.put(0, src.md, None, Ack, To { pt: 64, ..to(1) }, 0)
        .unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd, SendStart, SendEnd]);
    let s = w[1].ni.status();
    assert_eq!((s.drop_count, s.drop_length), (2, 10));
    assert_eq!((s.recv_count, s.recv_length), (0, 0));
    let s = w[0].ni.status();
    assert_eq!((s.send_count, s.send_length), (2, 10));
}

/// Scenario 47; rules 22 and 42.
#[test]
fn one_descriptor_can_be_source_and_target_of_a_put() {
    let mut w = World::new();
    let eq = w[0].eq(8);
    let memory = w[0].counting(8, 1);
    let me = w[0].me(4, 0);
    let d = MdDesc {
        eq: Some(eq),
        threshold: 9,
        ..desc(memory, PUT)
    };
    let md = w[0].attach(me, d);
    w.put(0, md, None, Ack, to(0), 0).unwrap();
    w.run();
    let e = w[0].events(eq);
    let seen: Vec<_> = e.iter().map(|e| (e.kind, e.md.threshold)).collect();
    assert_eq!(
        seen,
        [
            (SendStart, 8),
            (SendEnd, 8),
            (PutStart, 7),
            (PutEnd, 7),
            (ACKED, 6)
        ]
    );
}

/// Scenario 48; rules 24 and 29.
#[test]
fn put_start_events_keep_the_order_of_the_puts() {
    let mut w = World::new();
    let src = w.source_with(1, |d| d.eq = None, Unlink::Retain);
    let t = w.target(64, PUT | REMOTE | NO_END);
    for first in (0..10_000u64).step_by(50) {
        for i in first..first + 50 {
            w.put(0, src.md, None, NoAck, to(1), i).unwrap();
        }
        w.run();
        let seen: Vec<u64> = w[1].events(t.eq).iter().map(|e| e.hdr_data).collect();
        assert_eq!(seen, (first..first + 50).collect::<Vec<_>>());
    }
}

/// Scenario 49: every byte once, none beside.
#[test]
fn sizes_around_borders_arrive_exactly() {
    for len in [0, 1, 63, 64, 65, 4096, 4097, (1 << 20) + 3] {
        let mut w = World::new();
        let src = w.source(len);
        let t = w.target(len, PUT);
        w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
        w.run();
        assert_eq!(w[1].read(t.memory), w[0].read(src.memory));
        assert!(w[1].guards_intact(t.memory));
        assert_eq!(w[1].ni.status().recv_length, len);
    }
}

/// Rule 36: a failed operation says so in its END, keeps its threshold count, and is not
/// acknowledged.
#[test]
fn a_failed_put_ends_without_an_ack() {
    let mut w = World::new();
    let src = w.source(4);
    let t = w.target_with(4, |d| d.threshold = 1, Unlink::Retain);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    let Some((_, Incoming::Deposit(d), _)) = w.arrive() else {
        panic!("not accepted")
    };
    assert_eq!(w[1].ni.deposit_end(d.op, NiFail::FAIL), None);
    let e = w[1].events(t.eq);
    assert_eq!((e[0].ni_fail, e[1].ni_fail), (NiFail::OK, NiFail::FAIL));
    assert_eq!(w[1].ni.md_query(t.md).unwrap().threshold, 0);
}

/// An ack that a fabric knows will never come is an event all the same, once.
#[test]
fn an_ack_that_will_not_come_is_an_event_with_a_failure() {
    let mut w = World::new();
    let src = w.source(4);
    let config = *w[0].ni.config();
    let target = crate::ProcessId::new(1, 9);
    let tx = w[0]
        .ni
        .put(src.md, None, Ack, target, 4, 0, 7, 0, 0)
        .unwrap();
    let header = tx.header;
    w[0].ni.send_end(tx.op.unwrap(), NiFail::FAIL);
    w[0].events(src.eq);
    w[0].ni.ack_lost(&header);
    let events = w[0].events(src.eq);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].kind, events[0].ni_fail, events[0].mlength),
        (crate::EventKind::Ack, NiFail::FAIL, 0)
    );
    assert_eq!(events[0].initiator, header.target);
    assert_eq!(header.source, config.id);
    w[0].ni.ack_lost(&header);
    assert!(w[0].events(src.eq).is_empty(), "no second ack is due");
}

/// A message longer than any header can say is refused before anything happens.
#[test]
fn a_message_has_a_longest_length() {
    let mut w = World::new();
    let huge = Segment {
        addr: 0x1000,
        len: crate::MAX_MESSAGE + 1,
    };
    let md = w[0].bind(desc(huge, NONE));
    assert_eq!(w.put(0, md, None, NoAck, to(1), 0), Err(Error::MdIllegal));
    assert_eq!(w.get(0, md, None, to(1)), Err(Error::MdIllegal));
    assert_eq!(w[0].ni.status().send_count, 0);
}

/// A silent put is accounted like any other and posts everything but its own SEND events.
#[test]
fn a_silent_put_posts_no_send_events() {
    let mut w = World::new();
    let src = w.source_with(8, |d| d.threshold = 2, Unlink::Unlink);
    for _ in 0..2 {
        let ni = &mut w[0].ni;
        let ready = ni.ready_put(src.md, None, NoAck, id(1), 4, 0, 0, 0, 9);
        ni.pass_put(&ready.unwrap(), NiFail::OK, true);
    }
    let events = w[0].events(src.eq);
    let kinds: Vec<_> = events.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [UNLINKED]);
    let status = w[0].ni.status();
    assert_eq!((status.send_count, status.send_length), (2, 16));
    assert_eq!(w[0].ni.usage().messages.made, 2);
    let ready = w[0].ni.ready_put(src.md, None, NoAck, id(1), 4, 0, 0, 0, 9);
    assert_eq!(ready.map(|_| ()), Err(Error::MdInvalid));
}
