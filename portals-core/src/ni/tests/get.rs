//! Gets and getputs.

use super::world::*;
use crate::{
    Body, DropReason, Error, Header, Incoming, MdDesc, MdHandle, NiConfig, NiFail, Unlink,
};
use alloc::vec;
use alloc::vec::Vec;

/// Scenario 51; rules 16, 30 and row 5 of the differences.
#[test]
fn a_get_of_a_region_from_remotely_managed_memory() {
    let mut w = World::new();
    let dst = w.source(64);
    let t = w.target_with(128, |d| d.options = GET | REMOTE, Unlink::Retain);
    let data: Vec<u8> = (100..228).collect();
    w[1].write(t.memory, &data);
    let from = To {
        offset: 64,
        ..to(1)
    };
    w.get(0, dst.md, Some((24, 32)), from).unwrap();
    w.run();
    let mut expected: Vec<u8> = (1..65).collect();
    expected[24..56].copy_from_slice(&data[64..96]);
    assert_eq!(w[0].read(dst.memory), expected);

    let e = w[0].events(dst.eq);
    let kinds: Vec<_> = e.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [ReplyStart, ReplyEnd]);
    for r in &e {
        assert_eq!((r.initiator, r.uid, r.jid), (id(1), 1000, 5));
        assert_eq!((r.rlength, r.mlength, r.offset), (32, 32, 24));
        assert_eq!((r.pt_index, r.match_bits, r.hdr_data), (4, 0, 0));
    }
    let e = w[1].events(t.eq);
    let kinds: Vec<_> = e.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [GetStart, GetEnd]);
    for g in &e {
        assert_eq!((g.initiator, g.uid, g.jid), (id(0), 1000, 5));
        assert_eq!((g.rlength, g.mlength, g.offset), (32, 32, 64));
        assert_eq!((g.pt_index, g.match_bits, g.hdr_data), (4, 0, 0));
    }
}

/// Section 4.1 rows 5 and 6: with the Cray switch a get has SEND events and costs two counts.
#[test]
fn a_cray_get_posts_send_events_and_costs_two_counts() {
    let cray = NiConfig {
        get_send_events: true,
        ..config(0)
    };
    let mut w = World::of([cray, config(1)]);
    w.target(16, GET);
    let dst = w.source_with(8, |d| d.threshold = 2, Unlink::Unlink);
    w.get(0, dst.md, None, to(1)).unwrap();
    assert_eq!(w[0].kinds(dst.eq), [SendStart, SendEnd]);
    w.run();
    assert_eq!(w[0].kinds(dst.eq), [ReplyStart, ReplyEnd, UNLINKED]);
}

/// Scenario 52; rules 6 and 61.
#[test]
fn a_get_nobody_answers_leaves_its_descriptor_free() {
    let mut w = World::new();
    let dst = w.source(8);
    w.target(8, PUT);
    w.get(0, dst.md, None, to(1)).unwrap();
    w.run();
    let s = w[1].ni.status();
    assert_eq!((s.drop_count, s.drop_length), (1, 8));
    assert!(w[0].events(dst.eq).is_empty());
    assert_eq!(w[0].ni.md_unlink(dst.md), Ok(()));
}

/// Scenario 53; rules 18 and 66: neither a new descriptor nor the old memory sees a late reply.
#[test]
fn a_reply_after_the_unlink_touches_nothing() {
    let mut w = World::new();
    w.target(8, GET);
    let dst = w.source(8);
    let before = w[0].read(dst.memory);
    w.get(0, dst.md, None, to(1)).unwrap();
    w[0].ni.md_unlink(dst.md).unwrap();
    let d = MdDesc {
        eq: Some(dst.eq),
        ..desc(dst.memory, NONE)
    };
    // Long enough for every slot of a fresh table to have been taken again.
    for _ in 0..600 {
        let md = w[0].bind(d.clone());
        w[0].ni.md_unlink(md).unwrap();
    }
    w[0].bind(d);
    w.run();
    assert_eq!(w[0].read(dst.memory), before);
    assert!(w[0].events(dst.eq).is_empty());
    assert_eq!(w[0].drops(), 1);
}

/// Scenario 54; rule 39.
#[test]
fn the_reply_is_a_gets_one_count() {
    let mut w = World::new();
    w.target(8, GET);
    let dst = w.source_with(8, |d| d.threshold = 1, Unlink::Unlink);
    w.get(0, dst.md, None, to(1)).unwrap();
    assert_eq!(w[0].ni.md_query(dst.md).unwrap().threshold, 1);
    w.run();
    assert_eq!(w[0].kinds(dst.eq), [ReplyStart, ReplyEnd, UNLINKED]);
    assert_eq!(w.get(0, dst.md, None, to(1)), Err(Error::MdInvalid));
}

/// Scenario 55; rules 8 and 9.
#[test]
fn a_get_longer_than_the_target_is_cut_or_dropped() {
    let mut w = World::new();
    let t = w.target(5, GET | TRUNCATE);
    let dst = w.source(8);
    w.get(0, dst.md, None, to(1)).unwrap();
    w.run();
    let reply = w[0].events(dst.eq)[1];
    assert_eq!((reply.rlength, reply.mlength), (8, 5));
    let mut expected = vec![FILL; 5];
    expected.extend([6, 7, 8]);
    assert_eq!(w[0].read(dst.memory), expected);

    w[1].ni.md_update(t.md, desc(t.memory, GET), None).unwrap();
    w.get(0, dst.md, None, to(1)).unwrap();
    w.run();
    assert!(w[0].events(dst.eq).is_empty());
    assert_eq!(w[1].drops(), 1);
}

/// Scenario 56; rules 6, 21 and 40.
#[test]
fn a_getput_exchanges_both_memories() {
    let mut w = World::new();
    let put = w.source(8);
    let get = w.source_with(8, |d| d.threshold = 3, Unlink::Retain);
    let t = w.target(8, PUT | GET);
    w[1].write(t.memory, &[50, 51, 52, 53, 54, 55, 56, 57]);
    w.get_put(0, get.md, put.md, to(1), 0xabcd).unwrap();
    w.run();
    assert_eq!(w[1].read(t.memory), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(w[0].read(get.memory), [50, 51, 52, 53, 54, 55, 56, 57]);
    assert_eq!(w[0].kinds(put.eq), [SendStart, SendEnd]);
    let e = w[0].events(get.eq);
    let seen: Vec<_> = e.iter().map(|e| (e.kind, e.md.threshold)).collect();
    assert_eq!(seen, [(ReplyStart, 2), (ReplyEnd, 2)]);
    let e = w[1].events(t.eq);
    let seen: Vec<_> = e.iter().map(|e| (e.kind, e.hdr_data)).collect();
    assert_eq!(seen, [(GetPutStart, 0xabcd), (GetPutEnd, 0xabcd)]);

    for only in [PUT, GET] {
        w[1].ni.md_update(t.md, desc(t.memory, only), None).unwrap();
        w.get_put(0, get.md, put.md, to(1), 0).unwrap();
        w.run();
    }
    assert_eq!(w[1].drops(), 2);
}

/// Scenario 57.
#[test]
fn a_getput_has_a_longest_length() {
    let mut w = World::new();
    w.target(64, PUT | GET);
    let (most, more) = (w.source(64), w.source(65));
    assert_eq!(w.get_put(0, more.md, most.md, to(1), 0), Ok(()));
    assert_eq!(
        w.get_put(0, more.md, more.md, to(1), 0),
        Err(Error::MdIllegal)
    );
    // A handle that names nothing is said before a length.
    let gone = w.source(65);
    w[0].ni.md_unlink(gone.md).unwrap();
    for (get, put) in [(gone.md, more.md), (more.md, gone.md)] {
        let ni = &mut w[0].ni;
        let begun = ni.get_put(get, put, Some((60, 60, 6)), id(1), 4, 0, 0, 0, 0);
        assert_eq!(begun.map(|_| ()), Err(Error::MdInvalid));
    }
    assert!(w[0].events(more.eq).is_empty());
}

/// Scenario 59; row 27 of the differences.
#[test]
fn a_reply_longer_than_its_destination_is_cut() {
    let mut w = World::new();
    w.target(16, PUT | GET);
    let (put, get) = (w.source(16), w.source(5));
    w.get_put(0, get.md, put.md, to(1), 0).unwrap();
    w.run();
    let end = w[0].events(get.eq)[1];
    assert_eq!((end.kind, end.rlength, end.mlength), (ReplyEnd, 16, 5));
    assert_eq!(w[0].read(get.memory), [FILL; 5]);
    assert!(w[0].guards_intact(get.memory));
}

/// Scenario 8: the descriptors of a getput are of one interface; a handle that names
/// nothing is told apart from one of another interface.
#[test]
fn both_descriptors_of_a_getput_are_of_one_interface() {
    let other = NiConfig {
        interface: 1,
        ..config(0)
    };
    let mut w = World::of([config(0), other]);
    let src = w.source(8);
    let memory = w[1].memory(8);
    let foreign = w[1].bind(desc(memory, NONE));
    assert_eq!(
        w.get_put(0, foreign, src.md, to(1), 0),
        Err(Error::MdIllegal)
    );
    assert_eq!(
        w.get_put(0, src.md, foreign, to(1), 0),
        Err(Error::MdIllegal)
    );
    let none = MdHandle::from_raw(u32::MAX);
    assert_eq!(w.get_put(0, none, src.md, to(1), 0), Err(Error::MdInvalid));
    assert_eq!(w.get_put(0, src.md, none, to(1), 0), Err(Error::MdInvalid));
}

/// Rules 17 and 18 taken strictly: an answer that nothing asked for, or a second one, is dropped.
#[test]
fn answers_nobody_waits_for_are_dropped() {
    let mut w = World::new();
    w.target(64, PUT | GET);
    let src = w.source(8);
    let before = w[0].read(src.memory);
    let answer = |body| Header {
        target: id(0),
        source: id(1),
        uid: 1000,
        jid: 5,
        pt_index: 4,
        match_bits: 0,
        body,
    };
    let reply = answer(Body::Reply {
        md: src.md,
        local_offset: 0,
        rlength: 8,
        mlength: 8,
    });
    let ack = answer(Body::Ack {
        md: src.md,
        offset: 0,
        rlength: 8,
        mlength: 8,
    });
    let refused = |w: &mut World, h: &Header| {
        assert!(matches!(
            w[0].ni.handle_header(h),
            Incoming::Dropped(DropReason::Stale)
        ));
    };
    refused(&mut w, &reply);
    refused(&mut w, &ack);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    refused(&mut w, &ack);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    refused(&mut w, &ack);
    w.get(0, src.md, None, to(1)).unwrap();
    refused(&mut w, &ack);
    w.run();
    assert_eq!(w[0].drops(), 5);
    assert_ne!(w[0].kinds(src.eq).len(), 0);
    w[0].write(src.memory, &before);
    refused(&mut w, &reply);
    assert!(w[0].events(src.eq).is_empty());
    assert_eq!(w[0].read(src.memory), before);
}

/// Rule 18: a reply to a place outside the descriptor is refused.
#[test]
fn a_reply_past_the_end_is_dropped() {
    let mut w = World::new();
    w.target(8, GET);
    let dst = w.source(8);
    w.get(0, dst.md, None, to(1)).unwrap();
    let (node, incoming, data) = w.arrive().unwrap();
    w.complete(node, incoming, &data);
    let (mut header, _) = w.wire.pop_front().unwrap();
    if let Body::Reply { local_offset, .. } = &mut header.body {
        *local_offset = 9;
    }
    assert!(matches!(
        w[0].ni.handle_header(&header),
        Incoming::Dropped(DropReason::Stale)
    ));
    assert!(w[0].events(dst.eq).is_empty());
}

/// Rule 36 for replies and gets.
#[test]
fn failures_show_in_the_end_events() {
    let mut w = World::new();
    let t = w.target(8, GET);
    let dst = w.source(8);
    w.get(0, dst.md, None, to(1)).unwrap();
    let Some((_, Incoming::Reply(r), _)) = w.arrive() else {
        panic!("not accepted")
    };
    w[1].ni.reply_end(r.op, NiFail::FAIL);
    assert_eq!(w[1].events(t.eq)[1].ni_fail, NiFail::FAIL);
    let Incoming::Deposit(d) = w[0].ni.handle_header(&r.header) else {
        panic!("not accepted")
    };
    assert_eq!(w[0].ni.deposit_end(d.op, NiFail::FAIL), None);
    assert_eq!(w[0].events(dst.eq)[1].ni_fail, NiFail::FAIL);
}
