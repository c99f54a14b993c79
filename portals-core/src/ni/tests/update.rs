//! Conditional update and post.

use super::world::*;
use crate::{EqHandle, Error, Limits, MdDesc, Memory, NiConfig, Segment, Unlink};
use alloc::vec;
use alloc::vec::Vec;

/// Scenario 91 and 95; rules 46, 47 and 50.
#[test]
fn an_update_is_refused_while_the_test_queue_holds_an_event() {
    let mut w = World::new();
    let t = w.target_with(64, |d| d.threshold = 9, Unlink::Retain);
    w.knock(to(1));
    let new = MdDesc {
        threshold: 4,
        user_ptr: 8,
        eq: Some(t.eq),
        ..desc(t.memory, PUT)
    };
    let before = w[1].ni.md_query(t.md).unwrap();
    assert_eq!(
        w[1].ni.md_update(t.md, new.clone(), Some(t.eq)),
        Err(Error::MdNoUpdate)
    );
    assert_eq!(w[1].ni.md_query(t.md).unwrap(), before);
    w[1].events(t.eq);
    let old = w[1].ni.md_update(t.md, new.clone(), Some(t.eq)).unwrap();
    assert_eq!((old, old.threshold), (before, 8));
    let now = w[1].ni.md_query(t.md).unwrap();
    assert_eq!((now.threshold, now.user_ptr), (4, 8));
    w.knock(to(1));
    assert!(w[1].ni.md_update(t.md, new, None).is_ok());
}

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

/// Scenario 96; rule 50.
#[test]
fn a_query_tells_what_remains() {
    let mut w = World::new();
    let t = w.target_with(64, |d| d.threshold = 3, Unlink::Retain);
    w.knock(to(1));
    let s = w[1].ni.md_query(t.md).unwrap();
    assert_eq!((s.threshold, s.start, s.length), (2, t.memory.addr, 64));
}

/// Scenario 97; rule 49: nothing changes when any part of the new description is wrong.
#[test]
fn a_bad_update_changes_nothing() {
    let mut w = World::new();
    let t = w.target(64, PUT);
    let before = w[1].ni.md_query(t.md).unwrap();
    let d = desc(t.memory, PUT);
    let bad = EqHandle::from_raw(u32::MAX);
    let bad_eq = MdDesc {
        eq: Some(bad),
        ..d.clone()
    };
    let wraps = MdDesc {
        memory: Memory::contiguous(u64::MAX, 2),
        ..d.clone()
    };
    let ni = &mut w[1].ni;
    assert_eq!(ni.md_update(t.md, bad_eq, None), Err(Error::EqInvalid));
    assert_eq!(ni.md_update(t.md, wraps, None), Err(Error::MdIllegal));
    assert_eq!(ni.md_update(t.md, d, Some(bad)), Err(Error::EqInvalid));
    assert_eq!(ni.md_query(t.md).unwrap(), before);
    assert_eq!(ni.eq_free(t.eq), Err(Error::EqInUse));
}

/// Scenario 98; rule 49.
#[test]
fn an_update_replaces_the_memory() {
    let mut w = World::new();
    let src = w.source(6);
    let t = w.target(16, PUT);
    let (a, b) = (w[1].memory(4), w[1].memory(4));
    let pieces = MdDesc {
        memory: Memory::Iovec {
            start: 99,
            segments: vec![a, b],
        },
        ..desc(t.memory, PUT)
    };
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    w[1].ni.md_update(t.md, pieces, None).unwrap();
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].read(a), [1, 2, 3, 4]);
    assert_eq!(w[1].read(b), [5, 6, FILL, FILL]);
    assert_eq!(w[1].read(t.memory)[6..], [FILL; 10]);
    w[1].ni.md_update(t.md, desc(t.memory, PUT), None).unwrap();
    w[1].write(t.memory, &[0; 16]);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].read(t.memory)[..7], [1, 2, 3, 4, 5, 6, 0]);
    assert_eq!(w[1].read(b), [5, 6, FILL, FILL]);
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

/// Scenario 93 without threads: receives are posted against messages that slip in at any point of
/// the search; none is lost and none matched twice.
#[test]
fn search_and_post_loses_no_message() {
    for by_update in [true, false] {
        let mut w = World::new();
        let src = w.source(1);
        let early = w.target(60_000, PUT | NO_START);
        let eq = w[1].eq(4096);
        let mut sent = 0u64;
        let mut seen = Vec::new();
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..2000 {
            let memory = w[1].memory(1);
            let ready = MdDesc {
                threshold: 1,
                eq: Some(eq),
                ..desc(memory, PUT | NO_START)
            };
            let waiting = by_update.then(|| {
                let me = w[1].ni.me_insert(early.me, spec(0), Before).unwrap();
                let d = MdDesc {
                    threshold: 0,
                    ..ready.clone()
                };
                w[1].ni.md_attach(me, d, Unlink::Unlink).unwrap()
            });
            loop {
                for _ in 0..rng.u32(0..3) {
                    w.put(0, src.md, None, NoAck, to(1), sent).unwrap();
                    sent += 1;
                }
                if rng.bool() {
                    w.run();
                }
                seen.extend(w[1].events(early.eq).iter().map(|e| e.hdr_data));
                if rng.bool() {
                    w.run();
                }
                let ni = &mut w[1].ni;
                let test = Some(early.eq);
                let done = match waiting {
                    Some(md) => ni.md_update(md, ready.clone(), test).map(|_| ()),
                    None => ni
                        .me_md_post(
                            early.me,
                            spec(0),
                            Before,
                            ready.clone(),
                            Unlink::Unlink,
                            test,
                        )
                        .map(|_| ()),
                };
                match done {
                    Ok(()) => break,
                    Err(e) => assert_eq!(e, Error::MdNoUpdate, "round {round}"),
                }
            }
            w.run();
            w[0].events(src.eq);
            seen.extend(
                w[1].events(eq)
                    .iter()
                    .filter(|e| e.kind == PutEnd)
                    .map(|e| e.hdr_data),
            );
        }
        w.run();
        seen.extend(w[1].events(early.eq).iter().map(|e| e.hdr_data));
        seen.sort_unstable();
        assert_eq!(seen, (0..sent).collect::<Vec<_>>());
        assert_eq!(w[1].drops(), 0);
    }
}
