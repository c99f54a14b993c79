//! Thresholds, max_size and automatic unlinking.

use super::world::*;
use crate::{Error, Incoming, MdDesc, MdOptions, MeSpec, NiFail, THRESHOLD_INFINITE, Unlink};
use alloc::vec::Vec;

/// Scenario 60; rules 38, 44 and unlink rule 1.
#[test]
fn a_source_good_for_one_dies_of_its_put_and_the_ack_is_dropped() {
    let mut w = World::new();
    w.target(8, PUT);
    let src = w.source_with(8, |d| d.threshold = 1, Unlink::Unlink);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd, UNLINKED]);
    assert_eq!(w[0].drops(), 1);
    assert_eq!(w.put(0, src.md, None, Ack, to(1), 0), Err(Error::MdInvalid));
}

/// Scenario 61; rule 38.
#[test]
fn a_put_with_ack_costs_two_counts() {
    let mut w = World::new();
    w.target(8, PUT);
    let src = w.source_with(8, |d| d.threshold = 2, Unlink::Unlink);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd, ACKED, UNLINKED]);
    assert_eq!(w[0].ni.md_query(src.md), Err(Error::MdInvalid));
}

/// Scenario 62; rule 42: a long message whose receiver comes for the data.
#[test]
fn a_put_and_a_get_share_one_threshold() {
    let mut w = World::new();
    let catch = w.target(0, PUT | TRUNCATE | MdOptions::ACK_DISABLE);
    let eq = w[0].eq(16);
    let memory = w[0].counting(32, 1);
    let me = w[0].me(5, 3);
    let d = MdDesc {
        threshold: 2,
        eq: Some(eq),
        ..desc(memory, GET | NO_START)
    };
    let md = w[0].ni.md_attach(me, d, Unlink::Unlink).unwrap();
    w.put(0, md, None, Ack, to(1), 3).unwrap();
    w.run();
    let bits = w[1].events(catch.eq)[1].hdr_data;
    let into = w[1].memory(32);
    let dst = w[1].bind(desc(into, NONE));
    let back = To {
        pt: 5,
        bits,
        ..to(0)
    };
    w.get(1, dst, None, back).unwrap();
    w.run();
    assert_eq!(w[0].kinds(eq), [SendEnd, GetEnd, UNLINKED]);
    assert_eq!(w[1].read(into), w[0].read(memory));
}

/// Scenario 63; unlink rule 2, rule 49.
#[test]
fn a_retained_target_rests_until_it_is_revived() {
    let mut w = World::new();
    let src = w.source(8);
    let first = w.target_with(8, |d| d.threshold = 1, Unlink::Retain);
    let second = w.target(64, PUT);
    for _ in 0..2 {
        w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    }
    w.run();
    assert_eq!(w[1].kinds(first.eq), [PutStart, PutEnd]);
    assert_eq!(w[1].kinds(second.eq), [PutStart, PutEnd]);
    let revive = MdDesc {
        threshold: 1,
        eq: Some(first.eq),
        ..desc(first.memory, PUT)
    };
    w[1].ni.md_update(first.md, revive, None).unwrap();
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    let e = w[1].events(first.eq);
    assert_eq!((e[1].kind, e[1].offset), (PutEnd, 0));
}

/// Scenarios 64, 65 and 66; unlink rule 3, rule 45.
#[test]
fn a_threshold_of_nothing_is_inactive_and_never_unlinks() {
    for threshold in [0, -2, i32::MIN] {
        let mut w = World::new();
        let t = w.target_with(8, |d| d.threshold = threshold, Unlink::Unlink);
        w.knock(to(1));
        assert_eq!(w[1].drops(), 1);
        assert_eq!(w[1].ni.md_query(t.md).unwrap().threshold, 0);
        let with = |threshold| MdDesc {
            threshold,
            eq: Some(t.eq),
            ..desc(t.memory, PUT)
        };
        w[1].ni.md_update(t.md, with(5), None).unwrap();
        w.knock(to(1));
        w[1].ni.md_update(t.md, with(threshold), None).unwrap();
        w.knock(to(1));
        assert_eq!(w[1].drops(), 2);
        assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
        w[1].ni.md_update(t.md, with(1), None).unwrap();
        w.knock(to(1));
        assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd, UNLINKED]);
    }
}

/// Rule 44: nothing can be started on an inactive descriptor.
#[test]
fn an_inactive_source_is_refused() {
    let mut w = World::new();
    let src = w.source_with(8, |d| d.threshold = 0, Unlink::Retain);
    let live = w.source(8);
    assert_eq!(w.put(0, src.md, None, Ack, to(1), 0), Err(Error::MdInvalid));
    assert_eq!(w.get(0, src.md, None, to(1)), Err(Error::MdInvalid));
    assert_eq!(
        w.get_put(0, src.md, live.md, to(1), 0),
        Err(Error::MdInvalid)
    );
    assert_eq!(
        w.get_put(0, live.md, src.md, to(1), 0),
        Err(Error::MdInvalid)
    );
    assert!(w[0].events(live.eq).is_empty());
}

/// Scenario 67; rule 37.
#[test]
fn an_infinite_threshold_never_changes() {
    let mut w = World::new();
    let t = w.target(8, PUT | REMOTE);
    let src = w.source_with(1, |d| d.eq = None, Unlink::Retain);
    for _ in 0..100_000 {
        w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
        w.run();
        assert!(w[1].ni.eq_get(t.eq).unwrap().is_some());
        let (end, _) = w[1].ni.eq_get(t.eq).unwrap().unwrap();
        assert_eq!(end.md.threshold, THRESHOLD_INFINITE);
    }
}

fn sized(max_size: u64, options: MdOptions) -> impl FnOnce(&mut MdDesc) {
    move |d| {
        d.max_size = max_size;
        d.options = PUT | options;
    }
}

/// Scenario 68; unlink rule 8.
#[test]
fn max_size_retires_a_buffer_that_could_not_hold_another_message() {
    let sizes = MdOptions::MAX_SIZE;
    let mut w = World::new();
    let src = w.source(60);
    let t = w.target_with(100, sized(50, sizes), Unlink::Unlink);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd, UNLINKED]);
    assert_eq!(w[1].read(t.memory)[..60], w[0].read(src.memory));

    let mut w = World::new();
    let src = w.source(60);
    let t = w.target_with(100, sized(50, sizes), Unlink::Unlink);
    let next = w.target(100, PUT);
    w.put(0, src.md, Some((0, 50)), NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    w.put(0, src.md, Some((0, 51)), NoAck, to(1), 0).unwrap();
    w.run();
    assert!(w[1].events(t.eq).is_empty());
    assert_eq!(w[1].kinds(next.eq), [PutStart, PutEnd]);
    w.put(0, src.md, Some((0, 50)), NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd, UNLINKED]);
}

/// Scenario 69, and rule 12: the size counts with its option alone, and with a local offset.
#[test]
fn max_size_is_ignored_where_it_means_nothing() {
    for (size, options) in [
        (50, NONE),
        (50, MdOptions::MAX_SIZE | REMOTE),
        (101, MdOptions::MAX_SIZE | REMOTE),
    ] {
        let mut w = World::new();
        let src = w.source(60);
        let t = w.target_with(100, sized(size, options), Unlink::Unlink);
        w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
        w.put(0, src.md, Some((0, 40)), NoAck, to(1), 0).unwrap();
        w.run();
        assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd, PutStart, PutEnd]);
    }
}

/// Scenario 70.
#[test]
fn max_size_leaves_a_retained_descriptor_in_place() {
    let mut w = World::new();
    let src = w.source(60);
    let t = w.target_with(100, sized(50, MdOptions::MAX_SIZE), Unlink::Retain);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.put(0, src.md, Some((0, 1)), NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    assert_eq!(w[1].drops(), 1);
    assert_eq!(w[1].ni.me_md(t.me), Some(t.md));
}

/// Scenario 71; unlink rule 1: whichever of two puts ends last, UNLINK comes after both.
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
        assert_eq!(w[1].kinds(t.eq), [PutStart, PutStart]);
        assert_eq!(w[1].ni.md_unlink(t.md), Err(Error::MdInUse));
        let (node, incoming, data) = under_way.remove(0);
        w.complete(node, incoming, &data);
        assert_eq!(w[1].kinds(t.eq), [PutEnd]);
        assert_eq!(w[1].ni.md_unlink(t.md), Err(Error::MdInUse));
        let (node, incoming, data) = under_way.remove(0);
        w.complete(node, incoming, &data);
        let e = w[1].events(t.eq);
        let seen: Vec<_> = e.iter().map(|e| e.kind).collect();
        assert_eq!(seen, [PutEnd, UNLINKED]);
        assert_eq!(e[1].link, e[0].sequence);
        assert_eq!(w[1].ni.md_unlink(t.md), Err(Error::MdInvalid));
    }
}

/// Scenario 72; unlink rule 5.
#[test]
fn an_entry_follows_its_descriptor_if_it_was_made_to() {
    for (unlink, explicit) in [
        (Unlink::Unlink, false),
        (Unlink::Unlink, true),
        (Unlink::Retain, false),
        (Unlink::Retain, true),
    ] {
        let mut w = World::new();
        let rule = MeSpec { unlink, ..spec(0) };
        let me = w[1].ni.me_attach(4, rule, After).unwrap();
        let memory = w[1].memory(8);
        let d = MdDesc {
            threshold: 1,
            ..desc(memory, PUT)
        };
        let md = w[1].ni.md_attach(me, d.clone(), Unlink::Unlink).unwrap();
        if explicit {
            w[1].ni.md_unlink(md).unwrap();
        } else {
            w.knock(to(1));
        }
        let again = w[1].ni.md_attach(me, d, Unlink::Unlink);
        if unlink == Unlink::Unlink {
            assert_eq!(again, Err(Error::MeInvalid));
            assert_eq!(w[1].ni.me_unlink(me), Err(Error::MeInvalid));
        } else {
            again.unwrap();
            let before = w[1].drops();
            w.knock(to(1));
            assert_eq!(w[1].drops(), before);
        }
    }
}

/// Unlink rule 5: an entry made to unlink, but never given a descriptor, stays.
#[test]
fn an_entry_without_a_descriptor_stays() {
    let mut w = World::new();
    let rule = MeSpec {
        unlink: Unlink::Unlink,
        ..spec(0)
    };
    let me = w[1].ni.me_attach(4, rule, After).unwrap();
    w.knock(to(1));
    assert_eq!(w[1].ni.me_unlink(me), Ok(()));
}

/// Scenario 73; unlink rule 4.
#[test]
fn an_explicit_unlink_is_silent() {
    let mut w = World::new();
    let t = w.target_with(8, |d| d.threshold = 1, Unlink::Unlink);
    w[1].ni.md_unlink(t.md).unwrap();
    assert!(w[1].events(t.eq).is_empty());
}

/// Scenario 76; rule 31.
#[test]
fn unlink_is_told_even_when_start_and_end_are_not() {
    let mut w = World::new();
    let t = w.target_with(
        8,
        |d| {
            d.threshold = 1;
            d.options = PUT | NO_START | NO_END;
        },
        Unlink::Unlink,
    );
    w.knock(to(1));
    let e = w[1].events(t.eq);
    assert_eq!(e.len(), 1);
    assert_eq!((e[0].kind, e[0].link), (UNLINKED, e[0].sequence));
    assert_eq!((e[0].initiator, e[0].md.threshold), (id(0), 0));
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
