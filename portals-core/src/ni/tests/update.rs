//! Conditional update and post.

use super::world::*;
use crate::{Error, Limits, MdDesc, Memory, NiConfig, Segment, Unlink};

/// Scenario 92; rules 47 and 48: an END outstanding on the test queue, from any descriptor, and an
/// operation on the descriptor itself, are reasons; without a test there is none.
#[test]
fn an_update_is_refused_while_an_end_is_promised() {
    let mut w = World::new();
    let src = w.source(4);
    let t = w.target(64, PUT);
    let other = w.target(64, PUT);
    let empty = w[1].eq(1);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let (node, incoming, data) = w.arrive().unwrap();
    w[1].events(t.eq);
    let new = |eq| MdDesc {
        eq: Some(eq),
        ..desc(t.memory, PUT)
    };
    let ni = &mut w[1].ni;
    let refused = Err(Error::MdNoUpdate);
    assert_eq!(ni.md_update(t.md, new(t.eq), Some(t.eq)), refused);
    assert_eq!(ni.md_update(other.md, new(other.eq), Some(t.eq)), refused);
    assert_eq!(ni.md_update(t.md, new(t.eq), Some(empty)), refused);
    assert!(ni.md_update(other.md, new(other.eq), Some(empty)).is_ok());
    assert!(ni.md_update(t.md, new(t.eq), None).is_ok());
    w.complete(node, incoming, &data);
    w[1].events(t.eq);
    assert!(w[1].ni.md_update(t.md, new(t.eq), Some(t.eq)).is_ok());
}

/// Scenario 94; row 15 of the differences.
#[test]
fn a_refused_post_leaves_neither_entry_nor_descriptor() {
    let limits = Limits {
        max_mes: 2,
        max_mds: 2,
        ..Limits::LIBRARY
    };
    let mut w = World::of([
        config(0),
        NiConfig {
            limits,
            ..config(1)
        },
    ]);
    let t = w.target(64, PUT);
    w.knock(to(1));
    let memory = w[1].memory(8);
    let d = desc(memory, PUT);
    let post = |w: &mut World, d: MdDesc, test| {
        w[1].ni
            .me_md_post(t.me, spec(0), Before, d, Unlink::Unlink, test)
    };
    assert_eq!(post(&mut w, d.clone(), Some(t.eq)), Err(Error::MdNoUpdate));
    let illegal = MdDesc {
        memory: Memory::contiguous(0, 1),
        ..d.clone()
    };
    assert_eq!(post(&mut w, illegal.clone(), None), Err(Error::MdIllegal));
    // An entry that is gone is said first: of a queue that is not quiet the caller would try again.
    let gone = w[1]
        .ni
        .me_attach(9, spec(0), After)
        .expect("room for an entry");
    w[1].ni.me_unlink(gone).expect("it is not in use");
    let beside = |w: &mut World, d: MdDesc, test| {
        w[1].ni
            .me_md_post(gone, spec(0), Before, d, Unlink::Unlink, test)
    };
    assert_eq!(beside(&mut w, illegal, None), Err(Error::MeInvalid));
    assert_eq!(beside(&mut w, d.clone(), Some(t.eq)), Err(Error::MeInvalid));
    // The descriptor is the second object: with no room for it, the entry goes again.
    let filler = w[1].bind(desc(Segment { addr: 0, len: 0 }, NONE));
    assert_eq!(post(&mut w, d.clone(), None), Err(Error::NoSpace));
    w[1].ni.md_unlink(filler).unwrap();
    assert_eq!(w[1].events(t.eq).len(), 2);
    // The one entry and the one descriptor that the limits still allow.
    let (me, md) = post(&mut w, d.clone(), Some(t.eq)).unwrap();
    assert_eq!(w[1].ni.me_md(me), Some(md));
    assert_eq!(post(&mut w, d, None), Err(Error::NoSpace));
    w.knock(to(1));
    assert!(w[1].events(t.eq).is_empty(), "the new entry stands before");
}
