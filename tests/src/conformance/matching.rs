//! Match lists.

use super::case::{Case, LOCAL, case};
use super::rank::*;
use portals_shim::{ANY, Error, MdSpec, MeSpec, ProcessId, Target, Unlink};

pub(super) const CASES: &[Case] = &[
    case("entries are searched in order", "14, rule 5", order),
    Case {
        ranks: 3,
        ..case("each half of a match id is a rule", "15, rule 5", match_id)
    },
    case("ignored bits are not compared", "16, rule 5", ignore_bits),
    case(
        "unfit entries pass the message on",
        "17-20, rules 5-8",
        unfit,
    ),
    case("entries and lists have limits", "21, 22, 24, 25", limits).not_served(LOCAL),
    case(
        "list changes lose no message",
        "14, rules 5, 65",
        changing_lists,
    ),
];

fn order(r: &Rank) {
    if !r.is_target() {
        for _ in 0..6 {
            r.barrier();
            r.knock(r.to(), 0);
        }
        return r.barrier();
    }
    let eq = r.eq(16);
    let a = r.listener(eq, Err((PORTAL, After)), entry(BITS), 0xa);
    let b = r.listener(eq, Err((PORTAL, After)), entry(BITS), 0xb);
    let c = r.listener(eq, Err((PORTAL, Before)), entry(BITS), 0xc);
    let d = r.listener(eq, Ok((b, Before)), entry(BITS), 0xd);
    let e = r.listener(eq, Ok((a, After)), entry(BITS), 0xe);
    for (name, me) in [(0xc, c), (0xa, a), (0xe, e), (0xd, d), (0xb, b)] {
        r.barrier();
        assert_eq!(r.take(eq, &[PutEnd])[0].md.user_ptr, name);
        r.ni.me_unlink(me).expect("not in use");
    }
    r.barrier();
    r.barrier();
    r.none(eq);
    assert_eq!(r.drops(), 1);
}

fn match_id(r: &Rank) {
    if !r.is_target() {
        let one = |turn| {
            r.barrier();
            if r.rank == turn {
                r.knock(r.to_rank(1), 0);
            }
        };
        one(0);
        one(2);
        one(0);
        one(2);
        return;
    }
    let eq = r.eq(16);
    let rule = |nid, pid| MeSpec {
        match_id: ProcessId::new(nid, pid),
        ..entry(BITS)
    };
    let (zero, two) = (r.peers[0], r.peers[2]);
    let at = Err((PORTAL, After));
    r.listener(eq, at, rule(two.nid, two.pid + 1), 1);
    let second = r.listener(eq, at, rule(two.nid, ANY), 2);
    r.listener(eq, at, rule(ANY, zero.pid + 1), 3);
    let fourth = r.listener(eq, at, rule(ANY, zero.pid), 4);
    let turn = |name| {
        r.barrier();
        assert_eq!(r.take(eq, &[PutEnd])[0].md.user_ptr, name);
    };
    turn(4);
    turn(2);
    r.ni.me_unlink(fourth).expect("not in use");
    r.listener(eq, at, rule(zero.nid, zero.pid), 5);
    turn(5);
    r.ni.me_unlink(second).expect("not in use");
    r.listener(eq, at, rule(ANY, ANY), 6);
    turn(6);
}

fn ignore_bits(r: &Rank) {
    let probes = [
        (PORTAL, 0xf0f0, Some(1)),
        (PORTAL, 0xf0f1, None),
        (PORTAL, 0x70, Some(2)),
        (PORTAL, 0x8000_0000_0000_0070, Some(2)),
        (PORTAL, 0x4000_0000_0000_0070, None),
        (PORTAL + 1, 0, Some(3)),
        (PORTAL + 1, u64::MAX, Some(3)),
    ];
    if !r.is_target() {
        for (pt_index, match_bits, _) in probes {
            r.barrier();
            let to = Target {
                pt_index,
                match_bits,
                ..r.to()
            };
            r.knock(to, 0);
            r.barrier();
        }
        return;
    }
    let eq = r.eq(16);
    let rule = |match_bits, ignore_bits| MeSpec {
        match_bits,
        ignore_bits,
        ..entry(0)
    };
    r.listener(eq, Err((PORTAL, After)), rule(0xf0f0, 0), 1);
    let one_bit = rule(0x8000_0000_0000_0070, 1 << 63);
    r.listener(eq, Err((PORTAL, After)), one_bit, 2);
    r.listener(eq, Err((PORTAL + 1, After)), rule(5, u64::MAX), 3);
    for (_, _, expected) in probes {
        r.barrier();
        if let Some(name) = expected {
            assert_eq!(r.take(eq, &[PutEnd])[0].md.user_ptr, name);
        }
        r.barrier();
        r.none(eq);
    }
    assert_eq!(r.drops(), 2);
}

fn unfit(r: &Rank) {
    if !r.is_target() {
        let s = r.source(20, |_| ());
        r.barrier();
        r.put(&s, (0, 20), NoAck, r.to(), 0);
        r.barrier();
        r.put(&s, (0, 20), NoAck, r.to(), 0);
        return;
    }
    r.ni.me_attach(PORTAL, entry(BITS), After)
        .expect("an entry without a descriptor");
    let inactive = r.target(20, |d| d.threshold = 0);
    let get_only = r.target(20, |d| d.options = GET);
    let small = r.target(10, |_| ());
    let last = r.target(20, |_| ());
    r.barrier();
    r.take(last.eq, &[PutStart, PutEnd]);
    for t in [&inactive, &get_only, &small] {
        r.none(t.eq);
    }
    let truncating = MdSpec {
        eq: Some(small.eq),
        ..md(small.buf.memory(), PUT | TRUNCATE)
    };
    r.ni.md_update(small.md, truncating, None)
        .expect("unconditional");
    r.barrier();
    assert_eq!(r.take(small.eq, &[PutStart, PutEnd])[1].mlength, 10);
    r.none(last.eq);
    small.buf.check_guards();
}

/// Local rules, which hold on every fabric.
fn limits(r: &Rank) {
    let ni = &r.ni;
    let t = r.target(8, |_| ());
    let again = ni.md_attach(t.me, md(t.buf.memory(), PUT), Unlink::Retain);
    assert_eq!(again, Err(Error::MeInUse));
    let last = ni.limits().max_pt_index as u32;
    assert_eq!(
        ni.me_attach(last + 1, entry(0), After),
        Err(Error::PtIndexInvalid)
    );
    let mut any = Vec::new();
    let full = loop {
        match ni.me_attach_any(entry(0)) {
            Ok(got) => any.push(got),
            Err(e) => break e,
        }
    };
    assert_eq!(full, Error::PtFull);
    // The lowest first; the cases' portal and the barrier's are taken.
    let portals: Vec<u32> = any.iter().map(|(pt_index, _)| *pt_index).collect();
    let free = |pt_index: &u32| ![PORTAL, BARRIER_PORTAL].contains(pt_index);
    assert_eq!(portals, (0..=last).filter(free).collect::<Vec<_>>());
    let (pt_index, me) = any[9];
    ni.me_unlink(me).expect("not in use");
    assert_eq!(ni.me_attach_any(entry(0)).expect("one is free").0, pt_index);
    assert_eq!(ni.me_insert(me, entry(0), After), Err(Error::MeInvalid));
    assert_eq!(ni.me_unlink(me), Err(Error::MeInvalid));
    // An entry frees an UNLINK descriptor and leaves a RETAIN one.
    ni.me_unlink(t.me).expect("not in use");
    r.barrier();
    r.knock(r.to(), 0);
    r.barrier();
    assert_eq!(r.drops(), 1);
    assert!(ni.md_query(t.md).is_ok());
    ni.md_unlink(t.md).expect("not in use");
    assert_eq!(ni.md_unlink(t.md), Err(Error::MdInvalid));
    r.none(t.eq);
    let u = r.target_with(8, Unlink::Unlink, |_| ());
    ni.me_unlink(u.me).expect("not in use");
    assert_eq!(ni.md_query(u.md), Err(Error::MdInvalid));
    r.none(u.eq);
}

/// Entries come and go in front of one that takes the rest, while messages arrive.
fn changing_lists(r: &Rank) {
    let count = r.rounds(5000, 200);
    const BATCH: u64 = 50;
    if !r.is_target() {
        for first in (0..count).step_by(BATCH as usize) {
            r.barrier();
            for i in first..count.min(first + BATCH) {
                r.knock(r.to(), i);
            }
        }
        return;
    }
    let eq = r.eq(4 * BATCH);
    let last = r.listener(eq, Err((PORTAL, After)), entry(BITS), 0);
    let mut taken = [0u64; 4];
    let mut next = 0;
    while next < count {
        let until = count.min(next + BATCH);
        // Two entries that admit everything, and one that admits nothing, at every place.
        let before_last = || r.listener(eq, Ok((last, Before)), entry(BITS), 1);
        // Surely there when the first message comes.
        let mut there = Some(before_last());
        r.barrier();
        while next < until {
            let a = there.take().unwrap_or_else(before_last);
            let b = r.listener(eq, Err((PORTAL, Before)), entry(BITS), 2);
            let c = r.listener(eq, Ok((b, After)), entry(BITS + 1), 3);
            r.ni.me_unlink(b).expect("not in use");
            while let Some(p) = r.ni.eq_get(eq).expect("a queue") {
                assert!(!p.dropped);
                assert_eq!((p.event.kind, p.event.hdr_data), (PutEnd, next));
                taken[p.event.md.user_ptr as usize] += 1;
                next += 1;
            }
            r.ni.me_unlink(a).expect("not in use");
            r.ni.me_unlink(c).expect("not in use");
        }
    }
    assert_eq!(taken.iter().sum::<u64>(), count);
    assert_eq!(taken[3], 0);
    assert!(taken[1] > 0);
    assert_eq!(r.drops(), 0);
}
