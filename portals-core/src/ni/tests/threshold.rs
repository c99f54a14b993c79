//! Automatic unlinking, step by step.

use super::world::*;
use crate::{Error, Incoming, MdDesc, MdOptions, NiFail, Unlink};
use alloc::vec::Vec;

/// Scenarios 71 and 78; unlink rule 1, rules 32 and 33: whichever of two puts ends last, UNLINK comes after both, and each END
/// has the link of its own START.
#[test]
fn unlink_waits_for_every_operation_under_way() {
    for swap in [false, true] {
        let mut w = World::new();
        let src = w.source(8);
        let t = w.target_with(64, |d| d.threshold = 2, Unlink::Unlink);
        for _ in 0..2 {
            w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
        }
        let mut under_way: Vec<_> = (0..2).map(|_| w.arrive().unwrap()).collect();
        if swap {
            under_way.swap(0, 1);
        }
        let starts = w[1].events(t.eq);
        let kinds: Vec<_> = starts.iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [PutStart, PutStart]);
        let mut links: Vec<_> = starts.iter().map(|e| e.link).collect();
        assert_eq!(links, [starts[0].sequence, starts[1].sequence]);
        if swap {
            links.swap(0, 1);
        }
        assert_eq!(w[1].ni.md_unlink(t.md), Err(Error::MdInUse));
        let (node, incoming, data) = under_way.remove(0);
        w.complete(node, incoming, &data);
        let e = w[1].events(t.eq);
        let seen: Vec<_> = e.iter().map(|e| (e.kind, e.link)).collect();
        assert_eq!(seen, [(PutEnd, links[0])]);
        assert_eq!(w[1].ni.md_unlink(t.md), Err(Error::MdInUse));
        let (node, incoming, data) = under_way.remove(0);
        w.complete(node, incoming, &data);
        let e = w[1].events(t.eq);
        let seen: Vec<_> = e.iter().map(|e| e.kind).collect();
        assert_eq!(seen, [PutEnd, UNLINKED]);
        assert_eq!((e[0].link, e[1].link), (links[1], e[0].sequence));
        assert_eq!(w[1].ni.md_unlink(t.md), Err(Error::MdInvalid));
    }
}

/// An update during the last operation keeps a descriptor alive.
#[test]
fn a_descriptor_revived_in_its_last_operation_lives() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target_with(8, |d| d.threshold = 1, Unlink::Unlink);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let Some((_, Incoming::Deposit(d), _)) = w.arrive() else {
        panic!("not accepted")
    };
    let again = MdDesc {
        threshold: 1,
        eq: Some(t.eq),
        ..desc(t.memory, PUT)
    };
    w[1].ni.md_update(t.md, again, None).unwrap();
    w[1].ni.deposit_end(d.op, NiFail::OK);
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd, UNLINKED]);
}

/// Spent by a put in two steps, by a put in one, and, at the initiator, by an ack.
#[test]
fn a_descriptor_that_asks_for_it_goes_without_an_unlink_event() {
    let quiet = |d: &mut MdDesc| {
        d.threshold = 1;
        d.options |= MdOptions::EVENT_AUTO_UNLINK_DISABLE;
    };
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target_with(8, quiet, Unlink::Unlink);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    assert_eq!(w[1].ni.md_query(t.md), Err(Error::MdInvalid));
    assert_eq!(w[1].ni.eq_free(t.eq), Ok(()));

    let t = w.target_with(8, quiet, Unlink::Unlink);
    let at = to(1);
    let ni = &w[0].ni;
    let (pt, ac, bits) = (at.pt, at.ac, at.bits);
    let ready = ni.ready_put(src.md, None, NoAck, config(1).id, pt, ac, bits, 0, 0);
    let put = ready.unwrap().header;
    assert!(w[1].ni.deposit_put(&put, |_, _| NiFail::OK).is_some());
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    assert_eq!(w[1].ni.md_query(t.md), Err(Error::MdInvalid));

    w.target(8, PUT);
    let twice = |d: &mut MdDesc| {
        quiet(d);
        d.threshold = 2;
    };
    let src = w.source_with(8, twice, Unlink::Unlink);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd, ACKED]);
    assert_eq!(w[0].ni.md_query(src.md), Err(Error::MdInvalid));
}
