//! Match lists: order, criteria, who takes a message.

use super::world::*;
use crate::{Error, Limits, MdDesc, MeSpec, NiConfig, ProcessId, Segment, Unlink};
use alloc::vec::Vec;

/// Who (by `user_ptr`) took the messages since the last look.
fn taken(w: &mut World, eq: crate::EqHandle) -> Vec<u64> {
    w[1].events(eq).iter().map(|e| e.md.user_ptr).collect()
}

/// Scenario 14; rule 5.
#[test]
fn entries_are_searched_in_the_order_their_insertions_say() {
    let mut w = World::new();
    let eq = w[1].eq(16);
    let n = &mut w[1];
    let a = listener(n, eq, Err((4, After)), spec(0), 0xa);
    let b = listener(n, eq, Err((4, After)), spec(0), 0xb);
    let c = listener(n, eq, Err((4, Before)), spec(0), 0xc);
    let d = listener(n, eq, Ok((b, Before)), spec(0), 0xd);
    let e = listener(n, eq, Ok((a, After)), spec(0), 0xe);
    for (name, me) in [(0xc, c), (0xa, a), (0xe, e), (0xd, d), (0xb, b)] {
        w.knock(to(1));
        assert_eq!(taken(&mut w, eq), [name]);
        let md = w[1].ni.me_md(me).unwrap();
        w[1].ni.me_unlink(me).unwrap();
        w[1].ni.md_unlink(md).unwrap();
    }
    w.knock(to(1));
    assert_eq!(w[1].drops(), 1);
}

/// Scenario 15; rule 5: each half of the process id is compared on its own.
#[test]
fn each_half_of_the_match_id_is_a_rule_of_its_own() {
    let mut w = World::new();
    let eq = w[1].eq(16);
    let rules = [
        (ProcessId::new(0, 9), 1),
        (ProcessId::new(3, 7), 2),
        (ProcessId::new(0, crate::ANY), 3),
        (ProcessId::new(crate::ANY, 7), 4),
        (ProcessId::new(0, 7), 5),
    ];
    let entries: Vec<_> = rules
        .iter()
        .map(|(match_id, name)| {
            let rule = MeSpec {
                match_id: *match_id,
                ..spec(0)
            };
            listener(&mut w[1], eq, Err((4, After)), rule, *name)
        })
        .collect();
    for (name, entry) in [(3, entries[2]), (4, entries[3]), (5, entries[4])] {
        w.knock(to(1));
        assert_eq!(taken(&mut w, eq), [name]);
        w[1].ni.me_unlink(entry).unwrap();
    }
    // The two rules left name other processes.
    w.knock(to(1));
    assert_eq!((taken(&mut w, eq).len(), w[1].drops()), (0, 1));
}

/// Scenario 16; rule 5.
#[test]
fn ignored_bits_are_not_compared_and_all_others_are() {
    let mut w = World::new();
    let eq = w[1].eq(16);
    let rule = |match_bits, ignore_bits| MeSpec {
        match_bits,
        ignore_bits,
        ..spec(0)
    };
    let n = &mut w[1];
    listener(n, eq, Err((4, After)), rule(0xf0f0, 0), 1);
    listener(
        n,
        eq,
        Err((4, After)),
        rule(0x8000_0000_0000_00f0, 1 << 63),
        2,
    );
    listener(n, eq, Err((5, After)), rule(0x1234, u64::MAX), 3);
    let mut probe = |pt, bits| {
        w.knock(To { pt, bits, ..to(1) });
        taken(&mut w, eq).first().copied()
    };
    assert_eq!(probe(4, 0xf0f0), Some(1));
    assert_eq!(probe(4, 0xf0f1), None);
    assert_eq!(probe(4, 0xf0), Some(2));
    assert_eq!(probe(4, 0x8000_0000_0000_00f0), Some(2));
    assert_eq!(probe(4, 0x4000_0000_0000_00f0), None);
    assert_eq!(probe(5, 0), Some(3));
    assert_eq!(probe(5, u64::MAX), Some(3));
}

/// Scenarios 17, 18 and 19; rules 5 and 6: each entry before the last is passed over for another
/// reason.
#[test]
fn an_entry_that_cannot_serve_leaves_the_message_to_the_next() {
    let mut w = World::new();
    let eq = w[1].eq(16);
    let n = &mut w[1];
    n.me(4, 0);
    let inactive = n.me(4, 0);
    let memory = n.memory(16);
    n.attach(
        inactive,
        MdDesc {
            threshold: 0,
            ..desc(memory, PUT)
        },
    );
    let get_only = n.me(4, 0);
    n.attach(get_only, desc(memory, GET));
    listener(n, eq, Err((4, After)), spec(0), 9);
    w.knock(to(1));
    assert_eq!(taken(&mut w, eq), [9]);
}

/// Scenario 20; rule 8.
#[test]
fn a_short_descriptor_passes_the_message_on_unless_it_truncates() {
    let mut w = World::new();
    let src = w.source(20);
    let small = w.target(10, PUT);
    let large = w.target(20, PUT);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert!(w[1].events(small.eq).is_empty());
    assert_eq!(w[1].kinds(large.eq), [PutStart, PutEnd]);

    let d = MdDesc {
        eq: Some(small.eq),
        ..desc(small.memory, PUT | TRUNCATE)
    };
    w[1].ni.md_update(small.md, d, None).unwrap();
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    w.run();
    assert_eq!(w[1].events(small.eq)[1].mlength, 10);
    assert!(w[1].events(large.eq).is_empty());
    assert!(w[1].guards_intact(small.memory));
}

/// Scenario 21.
#[test]
fn an_entry_takes_one_descriptor() {
    let mut w = World::new();
    let t = w.target(8, PUT);
    let d = desc(t.memory, PUT);
    assert_eq!(
        w[1].ni.md_attach(t.me, d, Unlink::Retain),
        Err(Error::MeInUse)
    );
}

/// Scenario 22.
#[test]
fn attach_any_takes_the_lowest_portal_without_entries() {
    let mut w = World::new();
    let ni = &mut w[1].ni;
    ni.me_attach(2, spec(0), After).unwrap();
    let mut at = Vec::new();
    let full = loop {
        match ni.me_attach_any(spec(0)) {
            Ok(got) => at.push(got),
            Err(e) => break e,
        }
    };
    assert_eq!(full, Error::PtFull);
    let portals: Vec<u32> = at.iter().map(|(pt, _)| *pt).collect();
    assert_eq!(portals, (0..64).filter(|p| *p != 2).collect::<Vec<_>>());
    let (pt, me) = at[17];
    ni.me_unlink(me).unwrap();
    assert_eq!(ni.me_attach_any(spec(0)).unwrap().0, pt);
}

fn limited(limits: Limits) -> World {
    let c = NiConfig {
        limits,
        ..config(1)
    };
    World::of([config(0), c])
}

/// Scenario 23.
#[test]
fn a_list_has_a_longest_length() {
    let mut w = limited(Limits {
        max_me_list: 2,
        ..Limits::LIBRARY
    });
    let eq = w[1].eq(8);
    let a = listener(&mut w[1], eq, Err((4, After)), spec(0), 1);
    listener(&mut w[1], eq, Err((4, After)), spec(0), 2);
    let ni = &mut w[1].ni;
    assert_eq!(ni.me_attach(4, spec(0), Before), Err(Error::MeListTooLong));
    assert_eq!(ni.me_insert(a, spec(0), Before), Err(Error::MeListTooLong));
    assert!(ni.me_attach(5, spec(0), Before).is_ok());
    w.knock(to(1));
    assert_eq!(taken(&mut w, eq), [1]);
}

/// Scenario 5: a wish lowers the limits, never raises them.
#[test]
fn granted_limits_are_the_smaller_of_wish_and_library() {
    let mut w = limited(Limits {
        max_pt_index: 3,
        max_mes: i32::MAX,
        max_mds: 1,
        max_eqs: 1,
        ..Limits::LIBRARY
    });
    let ni = &mut w[1].ni;
    assert_eq!(ni.config().limits.max_mes, Limits::LIBRARY.max_mes);
    assert_eq!(ni.me_attach(4, spec(0), After), Err(Error::PtIndexInvalid));
    assert!(ni.me_attach(3, spec(0), After).is_ok());
    let d = desc(Segment { addr: 0, len: 0 }, NONE);
    assert!(ni.md_bind(d.clone(), Unlink::Retain).is_ok());
    assert_eq!(ni.md_bind(d, Unlink::Retain), Err(Error::NoSpace));
    assert!(ni.eq_alloc(1).is_ok());
    assert_eq!(ni.eq_alloc(1), Err(Error::NoSpace));
}

/// Scenario 24.
#[test]
fn an_entry_that_unlinked_itself_is_no_base() {
    let mut w = World::new();
    let rule = MeSpec {
        unlink: Unlink::Unlink,
        ..spec(0)
    };
    let me = w[1].ni.me_attach(4, rule, After).unwrap();
    let memory = w[1].memory(8);
    let d = MdDesc {
        threshold: 1,
        ..desc(memory, PUT)
    };
    w[1].ni.md_attach(me, d, Unlink::Unlink).unwrap();
    w.knock(to(1));
    for position in [Before, After] {
        assert_eq!(
            w[1].ni.me_insert(me, spec(0), position),
            Err(Error::MeInvalid)
        );
    }
}

/// Scenario 25; unlink rule 6.
#[test]
fn unlinking_an_entry_frees_an_unlink_descriptor_and_sets_a_retained_one_afloat() {
    let mut w = World::new();
    let gone = w.target_with(8, |_| (), Unlink::Unlink);
    w[1].ni.me_unlink(gone.me).unwrap();
    assert_eq!(w[1].ni.md_unlink(gone.md), Err(Error::MdInvalid));
    assert!(w[1].events(gone.eq).is_empty());

    let kept = w.target(8, PUT);
    w[1].ni.me_unlink(kept.me).unwrap();
    assert_eq!(w[1].ni.me_unlink(kept.me), Err(Error::MeInvalid));
    w.knock(to(1));
    assert_eq!(w[1].drops(), 1);
    assert!(w[1].ni.md_query(kept.md).is_ok());
    w[1].ni.md_unlink(kept.md).unwrap();
    assert_eq!(w[1].ni.md_unlink(kept.md), Err(Error::MdInvalid));
}

/// The cost of a match that the owner may account: entries looked at.
#[test]
fn the_search_is_counted() {
    let mut w = World::new();
    for bits in 1..=3 {
        w[1].me(4, bits);
    }
    w.target(8, PUT);
    let src = w.source(0);
    w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
    let Some((_, crate::Incoming::Deposit(d), _)) = w.arrive() else {
        panic!("not accepted")
    };
    assert_eq!(d.searched, 4);
}

/// A long list has an index after a long search, unless the owner wants what a walk costs.
#[test]
fn the_search_of_a_long_list_is_short_or_a_walk() {
    for walks in [false, true] {
        let mut w = World::new();
        if walks {
            w[1].ni.walk_lists();
        }
        let first: Vec<_> = (1..=999).map(|bits| w[1].me(4, bits)).collect();
        for me in &first[..100] {
            w[1].ni.me_unlink(*me).unwrap();
        }
        w.target(8, PUT);
        let src = w.source(0);
        for searched in [900, if walks { 900 } else { 1 }] {
            w.put(0, src.md, None, NoAck, to(1), 0).unwrap();
            let Some((_, crate::Incoming::Deposit(d), _)) = w.arrive() else {
                panic!("not accepted")
            };
            assert_eq!(d.searched, searched);
        }
        // One that finds nothing is long too.
        w.knock(To {
            bits: 5000,
            ..to(1)
        });
        assert_eq!(w[1].drops(), 1);
    }
}
