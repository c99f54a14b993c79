//! Handles, use while under way, the end of an interface.

use super::world::*;
use crate::{EqHandle, Error, Incoming, MdHandle, MeHandle, NiFail, OpId, Segment, Unlink};

/// Scenario 13: a freed handle is told from every later one.
#[test]
fn freed_handles_stay_invalid_through_ten_thousand_new_objects() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target_with(8, |d| d.eq = None, Unlink::Unlink);
    let (me, md, eq) = (t.me, t.md, t.eq);
    let n = &mut w[1];
    n.ni.md_unlink(md).unwrap();
    n.ni.me_unlink(me).unwrap();
    n.ni.eq_free(eq).unwrap();
    let nothing = Segment { addr: 0, len: 0 };
    for _ in 0..10_000 {
        let (m, e) = (n.me(4, 0), n.eq(1));
        let d = n.attach(m, desc(nothing, NONE));
        assert!(m != me && d != md && e != eq);
        n.ni.md_unlink(d).unwrap();
        n.ni.me_unlink(m).unwrap();
        n.ni.eq_free(e).unwrap();
    }
    let d = desc(nothing, NONE);
    let ni = &mut n.ni;
    assert_eq!(ni.me_unlink(me), Err(Error::MeInvalid));
    assert_eq!(ni.me_insert(me, spec(0), After), Err(Error::MeInvalid));
    assert_eq!(
        ni.md_attach(me, d.clone(), Unlink::Retain),
        Err(Error::MeInvalid)
    );
    assert_eq!(
        ni.me_md_post(me, spec(0), After, d.clone(), Unlink::Retain, None),
        Err(Error::MeInvalid)
    );
    assert_eq!(ni.me_md(me), None);
    assert_eq!(ni.md_unlink(md), Err(Error::MdInvalid));
    assert_eq!(ni.md_query(md), Err(Error::MdInvalid));
    assert_eq!(ni.md_update(md, d.clone(), None), Err(Error::MdInvalid));
    let dead = crate::MdDesc { eq: Some(eq), ..d };
    assert_eq!(
        ni.md_bind(dead.clone(), Unlink::Retain),
        Err(Error::EqInvalid)
    );
    assert_eq!(ni.eq_get(eq), Err(Error::EqInvalid));
    assert_eq!(ni.eq_peek(eq), Err(Error::EqInvalid));
    assert_eq!(ni.eq_free(eq), Err(Error::EqInvalid));
    assert_eq!(w.put(1, md, None, Ack, to(0), 0), Err(Error::MdInvalid));
    assert_eq!(w.get(1, md, None, to(0)), Err(Error::MdInvalid));
    let live = w[1].bind(desc(nothing, NONE));
    assert_eq!(w.get_put(1, live, md, to(0), 0), Err(Error::MdInvalid));
    assert_eq!(w.get_put(1, md, live, to(0), 0), Err(Error::MdInvalid));
    assert_eq!(w[1].ni.md_update(live, dead, None), Err(Error::EqInvalid));
    assert!(w[0].ni.md_query(src.md).is_ok());
}

/// Section 1.3: the sentinels of the API and handles of another kind name nothing.
#[test]
fn values_that_are_no_handles_are_refused() {
    let mut w = World::new();
    let t = w.target(8, PUT);
    for raw in [
        u32::MAX,
        0x7fff_ffff,
        0xbfff_ffff,
        t.me.raw(),
        t.eq.raw(),
        w[1].ni.handle().0,
        0,
    ] {
        let md = MdHandle::from_raw(raw);
        assert_eq!(w[1].ni.md_unlink(md), Err(Error::MdInvalid));
    }
    for raw in [u32::MAX, 0x7fff_ffff, 0xbfff_ffff, t.md.raw(), 0] {
        assert_eq!(
            w[1].ni.me_unlink(MeHandle::from_raw(raw)),
            Err(Error::MeInvalid)
        );
        assert_eq!(
            w[1].ni.eq_get(EqHandle::from_raw(raw)),
            Err(Error::EqInvalid)
        );
    }
}

/// Scenario 8: an MD's queue is one of its own interface.
#[test]
fn a_queue_of_another_interface_is_told_from_a_bad_one() {
    let mut w = World::of([
        config(0),
        crate::NiConfig {
            interface: 3,
            ..config(1)
        },
    ]);
    let foreign = w[1].eq(4);
    let nothing = Segment { addr: 0, len: 0 };
    let with = |eq| crate::MdDesc {
        eq: Some(eq),
        ..desc(nothing, NONE)
    };
    let ni = &mut w[0].ni;
    assert_eq!(
        ni.md_bind(with(foreign), Unlink::Retain),
        Err(Error::MdIllegal)
    );
    let bad = EqHandle::from_raw(u32::MAX);
    assert_eq!(ni.md_bind(with(bad), Unlink::Retain), Err(Error::EqInvalid));
    assert_eq!(ni.eq_get(foreign), Err(Error::EqInvalid));
}

/// Scenario 75; rules 60, 62 and 64.
#[test]
fn a_target_under_way_is_in_use_until_its_end_can_be_read() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target(8, PUT);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let (node, incoming, data) = w.arrive().unwrap();
    assert_eq!(w[1].kinds(t.eq), [PutStart]);
    assert_eq!(w[1].ni.md_unlink(t.md), Err(Error::MdInUse));
    assert_eq!(w[1].ni.me_unlink(t.me), Err(Error::MeInUse));
    w.complete(node, incoming, &data);
    assert_eq!(w[1].kinds(t.eq), [PutEnd]);
    assert_eq!(w[1].ni.md_unlink(t.md), Ok(()));
    assert_eq!(w[1].ni.me_unlink(t.me), Ok(()));
}

/// Scenario 74 without threads; rules 60 and 61: END, ACK and REPLY_END free the descriptor, and
/// waiting for an ack or reply does not hold it.
#[test]
fn a_source_is_in_use_while_it_is_read_and_no_longer() {
    let mut w = World::new();
    w.target(64, PUT | GET);
    let src = w.source(8);
    let ni = &mut w[0].ni;
    let tx = ni.put(src.md, None, Ack, id(1), 4, 0, 0, 0, 0).unwrap();
    assert_eq!(ni.md_unlink(src.md), Err(Error::MdInUse));
    ni.send_end(tx.op.unwrap(), NiFail::OK);
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd]);
    assert_eq!(w[0].ni.md_unlink(src.md), Ok(()));

    let dst = w.source(8);
    w.get(0, dst.md, None, to(1)).unwrap();
    let (node, incoming, data) = w.arrive().unwrap();
    w.complete(node, incoming, &data);
    let (node, incoming, data) = w.arrive().unwrap();
    assert_eq!(w[0].ni.md_unlink(dst.md), Err(Error::MdInUse));
    w.complete(node, incoming, &data);
    assert_eq!(w[0].kinds(dst.eq), [ReplyStart, ReplyEnd]);
    assert_eq!(w[0].ni.md_unlink(dst.md), Ok(()));
}

/// Scenario 89; row 13 of the differences.
#[test]
fn a_queue_is_not_freed_under_its_descriptors_or_operations() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target(8, PUT);
    assert_eq!(w[1].ni.eq_free(t.eq), Err(Error::EqInUse));
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let (node, incoming, data) = w.arrive().unwrap();
    w[1].ni.md_update(t.md, desc(t.memory, PUT), None).unwrap();
    assert_eq!(w[1].ni.eq_free(t.eq), Err(Error::EqInUse));
    w.complete(node, incoming, &data);
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    assert_eq!(w[1].ni.eq_free(t.eq), Ok(()));

    let gone = w.target_with(8, |_| (), Unlink::Unlink);
    w[1].ni.md_unlink(gone.md).unwrap();
    assert_eq!(w[1].ni.eq_free(gone.eq), Ok(()));
}

/// Scenario 10: with operations under way and messages still to come.
#[test]
fn nothing_survives_the_end_of_an_interface() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target(64, PUT | GET);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.get(0, src.md, None, to(1)).unwrap();
    let Some((_, Incoming::Deposit(d), _)) = w.arrive() else {
        panic!("not accepted")
    };
    w[1].ni.close();
    assert_eq!(w[1].ni.deposit_end(d.op, NiFail::OK), None);
    w.run();
    let ni = &mut w[1].ni;
    assert_eq!(ni.status().drop_count, 1);
    assert_eq!(ni.eq_get(t.eq), Err(Error::EqInvalid));
    assert_eq!(ni.md_unlink(t.md), Err(Error::MdInvalid));
    assert_eq!(ni.me_unlink(t.me), Err(Error::MeInvalid));
    assert_eq!(w[0].kinds(src.eq), [SendStart, SendEnd]);
}

/// Completions that name nothing, or another kind of operation, change nothing.
#[test]
fn a_wrong_completion_is_ignored() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target(8, PUT);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let Some((_, Incoming::Deposit(d), _)) = w.arrive() else {
        panic!("not accepted")
    };
    let ni = &mut w[1].ni;
    ni.send_end(d.op, NiFail::OK);
    ni.reply_end(d.op, NiFail::OK);
    ni.swap_end(d.op, NiFail::OK);
    assert_eq!(ni.deposit_end(OpId(d.op.0 ^ 1), NiFail::OK), None);
    assert_eq!(ni.deposit_end(OpId(u32::MAX), NiFail::OK), None);
    assert_eq!(w[1].kinds(t.eq), [PutStart]);
    w[1].ni.deposit_end(d.op, NiFail::OK);
    w[1].ni.deposit_end(d.op, NiFail::OK);
    assert_eq!(w[1].kinds(t.eq), [PutEnd]);
}

/// Status registers 6 to 28.
#[test]
fn usage_counts_what_was_made_what_is_there_and_the_most_there_was() {
    let mut w = World::new();
    let n = &mut w[1];
    let eq = n.eq(8);
    let mes = [0, 1, 2].map(|i| n.me(i / 2, 0));
    let at = |start| {
        desc(
            Segment {
                addr: start,
                len: 4,
            },
            PUT,
        )
    };
    let a = n.attach(mes[0], at(0x1000));
    let b = n.attach(mes[1], at(0x1010));
    n.bind(at(0x1001));
    n.ni.md_unlink(a).unwrap();
    n.ni.me_unlink(mes[0]).unwrap();
    n.ni.me_unlink(mes[1]).unwrap();
    n.ni.eq_free(eq).unwrap();
    let u = n.ni.usage();
    let gauge = |g: crate::Gauge| (g.made, g.freed(), g.most, g.current);
    assert_eq!(gauge(u.portals), (2, 1, 2, 1));
    assert_eq!(gauge(u.mes), (3, 2, 3, 1));
    assert_eq!(gauge(u.mds), (3, 1, 3, 2));
    assert_eq!(gauge(u.eqs), (1, 1, 1, 0));
    assert_eq!(u.aligned, [1, 0, 0, 1, 0]);
    assert_eq!(n.ni.list_lengths(0), Some((0, 2)));
    assert_eq!(n.ni.list_lengths(1), Some((1, 1)));
    assert_eq!(n.ni.list_lengths(64), None);
    assert!(n.ni.md_query(b).is_ok());
}

/// Row 10 of the differences: the event that Cray's option asks for.
#[test]
fn a_program_may_ask_to_be_told_of_its_own_unlinks() {
    let mut w = World::new();
    let told = PUT | crate::MdOptions::EVENT_MANUAL_UNLINK_ENABLE;
    let n = &mut w[1];
    let eq = n.eq(8);
    for by_entry in [false, true] {
        let me = n.me(1, 0);
        let mut d = desc(n.memory(8), told);
        d.eq = Some(eq);
        let md = n.ni.md_attach(me, d, Unlink::Unlink).unwrap();
        if by_entry {
            n.ni.me_unlink(me).unwrap();
        } else {
            n.ni.md_unlink(md).unwrap();
        }
        let e = n.events(eq);
        assert_eq!(e.len(), 1);
        assert_eq!((e[0].kind, e[0].md_handle), (UNLINKED, md));
        assert_eq!(
            (e[0].initiator, e[0].link),
            (n.ni.config().id, e[0].sequence)
        );
        assert_eq!(n.ni.md_query(md), Err(Error::MdInvalid));
    }
    n.ni.eq_free(eq).unwrap();
}
