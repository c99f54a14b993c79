//! Gets and getputs.

use super::world::*;
use crate::{Ack, Body, DropReason, Header, Incoming, NiConfig, NiFail, Unlink};

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
    let ack = answer(Body::Ack(Ack {
        md: src.md,
        offset: 0,
        rlength: 8,
        mlength: 8,
    }));
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
