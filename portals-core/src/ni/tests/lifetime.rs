//! Handles, use while under way, the end of an interface.

use super::world::*;
use crate::{EqHandle, Error, Incoming, MdHandle, MeHandle, NiFail, OpId, Segment};

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
fn a_queue_is_not_freed_under_operations_of_a_descriptor_that_has_another() {
    let mut w = World::new();
    let src = w.source(8);
    let t = w.target(8, PUT);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let (node, incoming, data) = w.arrive().unwrap();
    w[1].ni.md_update(t.md, desc(t.memory, PUT), None).unwrap();
    assert_eq!(w[1].ni.eq_free(t.eq), Err(Error::EqInUse));
    w.complete(node, incoming, &data);
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    assert_eq!(w[1].ni.eq_free(t.eq), Ok(()));
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
