//! Puts.

use super::world::*;
use crate::{Error, Incoming, NiFail, Segment, Unlink};
use alloc::vec::Vec;

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
    for fail in [NiFail::FAIL, NiFail::SEGV] {
        let mut w = World::new();
        let src = w.source(4);
        let config = *w[0].ni.config();
        let target = crate::ProcessId::new(1, 9);
        let tx = w[0]
            .ni
            .put(src.md, None, Ack, target, 4, 0, 7, 0, 0)
            .unwrap();
        let header = tx.header;
        w[0].ni.send_end(tx.op.unwrap(), fail);
        let ends = w[0].events(src.eq);
        assert_eq!(ends.last().map(|event| event.ni_fail), Some(fail));
        w[0].ni.ack_lost(&header, fail);
        let events = w[0].events(src.eq);
        assert_eq!(events.len(), 1);
        assert_eq!(
            (events[0].kind, events[0].ni_fail, events[0].mlength),
            (crate::EventKind::Ack, fail, 0)
        );
        assert_eq!(events[0].initiator, header.target);
        assert_eq!(header.source, config.id);
        w[0].ni.ack_lost(&header, fail);
        assert!(w[0].events(src.eq).is_empty(), "no second ack is due");
    }
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
