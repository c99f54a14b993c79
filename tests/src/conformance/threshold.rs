//! Thresholds, max_size, automatic unlinking.

use super::case::{COUNTS, Case, LOCAL, case};
use super::rank::*;
use portals_shim::{Error, MdOptions, MdSpec, MeSpec, THRESHOLD_INFINITE, Target, Unlink, Wait};

pub(super) const CASES: &[Case] = &[
    case(
        "a source good for one loses its ack",
        "60, rules 17, 38, 44",
        one,
    ),
    case("a put with ack costs two counts", "61, rule 38", two).served(1),
    case(
        "a put and a get share one threshold",
        "62, rule 42",
        rendezvous,
    ),
    case(
        "a retained target rests and is revived",
        "63, rules 10, 41, 49",
        revive,
    )
    .not_served(COUNTS),
    case(
        "a threshold of nothing is inactive",
        "64, 65, 66, rules 44, 45",
        zero,
    )
    .not_served(COUNTS),
    case(
        "an infinite threshold never changes",
        "67, rule 37",
        infinite,
    ),
    case("max_size retires a buffer", "68, 69, 70, rule 10", max_size).not_served(COUNTS),
    case("UNLINK waits for all operations", "71", last)
        .ranks(3)
        .not_served(COUNTS),
    case("an entry follows its descriptor", "72, 73", entries).not_served(COUNTS),
    case("of two unlinks one wins", "60, 72, 73, rule 63", one_wins).not_served(COUNTS),
    case("an unlink is told to who asks", "73, row 10", told).not_served(LOCAL),
    case(
        "UNLINK is told when START and END are not",
        "76, rule 31",
        silent,
    ),
];

fn one(r: &Rank) {
    if r.is_target() {
        let t = r.target(8, |_| ());
        r.barrier();
        r.take(t.eq, &[PutStart, PutEnd]);
        r.barrier();
        return;
    }
    let s = r.source_with(8, Unlink::Unlink, |d| d.threshold = 1);
    r.barrier();
    r.ni.put(s.md, Ack, r.to(), 0).expect("the put starts");
    r.take(s.eq, &[SendStart, SendEnd, UNLINKED]);
    assert_eq!(r.ni.put(s.md, Ack, r.to(), 0), Err(Error::MdInvalid));
    r.barrier();
    r.none(s.eq);
    assert_eq!(r.drops(), 1);
}

fn two(r: &Rank) {
    for loud in [true, false] {
        if r.is_target() {
            let t = r.target(8, |d| {
                d.options = PUT | REMOTE;
                d.eq = d.eq.filter(|_| loud);
            });
            r.barrier();
            r.barrier();
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            let s = r.source_with(8, Unlink::Unlink, |d| d.threshold = 2);
            r.barrier();
            r.settle();
            r.ni.put(s.md, Ack, r.to(), 0).expect("the put starts");
            r.take(s.eq, &[SendStart, SendEnd, ACKED, UNLINKED]);
            assert_eq!(r.ni.md_query(s.md), Err(Error::MdInvalid));
            r.barrier();
        }
    }
}

/// A long message whose receiver has no room, and comes for the data.
fn rendezvous(r: &Rank) {
    const LEN: usize = 50_000;
    const COOKIE: u64 = 0x77;
    if r.is_target() {
        let t = r.target(0, |d| {
            d.options = PUT | TRUNCATE | MdOptions::ACK_DISABLE;
        });
        r.barrier();
        let e = r.take(t.eq, &[PutStart, PutEnd])[1];
        assert_eq!((e.rlength, e.mlength), (LEN as u64, 0));
        let d = r.source(LEN, |_| ());
        d.buf.fill(0);
        let from = Target {
            process: e.initiator,
            match_bits: e.hdr_data,
            ..r.to()
        };
        r.ni.get(d.md, from).expect("the get starts");
        r.take(d.eq, &[ReplyStart, ReplyEnd]);
        assert!(d.buf.read() == Buf::pattern(LEN, 0));
        return;
    }
    let me =
        r.ni.me_attach(PORTAL, entry(COOKIE), After)
            .expect("an entry");
    let s = r.give(me, LEN, Unlink::Unlink, |d| {
        d.options = GET | NO_START;
        d.threshold = 2;
    });
    s.buf.write(0, &Buf::pattern(LEN, 0));
    r.barrier();
    r.ni.put(s.md, Ack, r.to(), COOKIE).expect("the put starts");
    r.take(s.eq, &[SendEnd, GetEnd, UNLINKED]);
}

fn revive(r: &Rank) {
    if !r.is_target() {
        let s = r.source(8, |_| ());
        r.barrier();
        r.put(&s, (0, 8), NoAck, r.to(), 0);
        r.put(&s, (0, 8), NoAck, r.to(), 0);
        r.barrier();
        r.put(&s, (0, 8), NoAck, r.to(), 0);
        return;
    }
    let first = r.target(8, |d| d.threshold = 1);
    let second = r.target(64, |_| ());
    r.barrier();
    r.take(first.eq, &[PutStart, PutEnd]);
    r.take(second.eq, &[PutStart, PutEnd]);
    r.none(first.eq);
    let again = MdSpec {
        threshold: 1,
        eq: Some(first.eq),
        ..md(first.buf.memory(), PUT)
    };
    r.ni.md_update(first.md, again, None)
        .expect("unconditional");
    r.barrier();
    assert_eq!(r.take(first.eq, &[PutStart, PutEnd])[1].offset, 0);
}

fn zero(r: &Rank) {
    if !r.is_target() {
        nothing_begins(r);
    }
    for threshold in [0, -2, i32::MIN] {
        if !r.is_target() {
            for _ in 0..4 {
                r.barrier();
                r.knock(r.to(), 0);
                r.barrier();
            }
            continue;
        }
        let before = r.drops();
        let t = r.target_with(8, Unlink::Unlink, |d| d.threshold = threshold);
        let with = |threshold| MdSpec {
            threshold,
            eq: Some(t.eq),
            ..md(t.buf.memory(), PUT)
        };
        let update = |threshold| {
            r.ni.md_update(t.md, with(threshold), None)
                .expect("unconditional");
        };
        let knocked = || {
            r.barrier();
            r.barrier();
        };
        knocked();
        assert_eq!(r.ni.md_query(t.md).expect("alive").threshold, 0);
        update(5);
        knocked();
        update(threshold);
        knocked();
        assert_eq!(r.drops(), before + 2);
        update(1);
        knocked();
        r.take(t.eq, &[PutStart, PutEnd, PutStart, PutEnd, UNLINKED]);
        r.ni.me_unlink(t.me).expect("not in use");
    }
}

/// An operation on an inactive descriptor is refused.
fn nothing_begins(r: &Rank) {
    let (rests, live) = (r.source(8, |d| d.threshold = 0), r.source(8, |_| ()));
    let refused = Err(Error::MdInvalid);
    assert_eq!(r.ni.put(rests.md, Ack, r.to(), 0), refused);
    assert_eq!(r.ni.get(rests.md, r.to()), refused);
    for (get, put) in [(rests.md, live.md), (live.md, rests.md)] {
        assert_eq!(r.ni.get_put(get, put, r.to(), 0), refused);
    }
    r.none(live.eq);
}

fn infinite(r: &Rank) {
    let rounds = r.many(1000, 5);
    if r.is_target() {
        let t = r.target(8, |d| d.options = PUT | REMOTE | NO_START);
        for _ in 0..rounds {
            r.barrier();
            for _ in 0..100 {
                let e = r.take(t.eq, &[PutEnd])[0];
                assert_eq!(e.md.threshold, THRESHOLD_INFINITE);
            }
        }
        return;
    }
    for _ in 0..rounds {
        r.barrier();
        for _ in 0..100 {
            r.knock(r.to(), 0);
        }
    }
}

fn max_size(r: &Rank) {
    // Length of each put, and what becomes of the buffer.
    if !r.is_target() {
        let s = r.source(60, |_| ());
        r.barrier();
        for len in [60, 50, 51, 50, 60, 60, 1] {
            r.put(&s, (0, len), NoAck, r.to(), 0);
        }
        r.barrier();
        return;
    }
    let sized = |options| {
        move |d: &mut MdSpec| {
            d.max_size = 50;
            d.options = PUT | options;
        }
    };
    let size = MdOptions::MAX_SIZE;
    let first = r.target_with(100, Unlink::Unlink, sized(size));
    let second = r.target_with(100, Unlink::Unlink, sized(size));
    let unsized_ = r.target_with(111, Unlink::Unlink, sized(NONE));
    let kept = r.target_with(100, Unlink::Retain, sized(size));
    r.barrier();
    r.take(first.eq, &[PutStart, PutEnd, UNLINKED]);
    assert_eq!(first.buf.read()[..60], Buf::pattern(60, 0));
    let put = [PutStart, PutEnd];
    r.take(second.eq, &put);
    // 51 bytes do not fit the second; the option is not set in the third.
    r.take(unsized_.eq, &put);
    r.take(second.eq, &[PutStart, PutEnd, UNLINKED]);
    assert_eq!(r.take(unsized_.eq, &put)[1].offset, 51);
    // 60 more fit neither; the fourth becomes inactive, and stays.
    r.take(kept.eq, &put);
    r.barrier();
    for t in [&first, &second, &unsized_, &kept] {
        r.none(t.eq);
    }
    assert_eq!(r.drops(), 1);
    assert!(r.ni.md_query(kept.md).is_ok());
}

/// Two ranks send a long message each.
fn last(r: &Rank) {
    let len = r.many(1 << 20, 60_000) as usize;
    if !r.is_target() {
        let s = r.source(len, |_| ());
        r.barrier();
        r.ni.put(s.md, NoAck, r.to_rank(1), 0)
            .expect("the put starts");
        r.take(s.eq, &[SendStart, SendEnd]);
        return;
    }
    let t = r.target_with(2 * len, Unlink::Unlink, |d| d.threshold = 2);
    r.barrier();
    let mut kinds: Vec<_> = (0..4).map(|_| r.next(t.eq).kind).collect();
    r.take(t.eq, &[UNLINKED]);
    kinds.sort_by_key(|k| *k as u32);
    assert_eq!(kinds, [PutStart, PutStart, PutEnd, PutEnd]);
    assert!(t.buf.read() == Buf::pattern(len, 0).repeat(2));
}

fn entries(r: &Rank) {
    let knocked = || {
        r.barrier();
        if !r.is_target() {
            r.knock(r.to(), 0);
        }
        r.barrier();
    };
    let kinds = [PutStart, PutEnd, UNLINKED];
    for (unlink, explicit) in [
        (Unlink::Unlink, false),
        (Unlink::Unlink, true),
        (Unlink::Retain, false),
        (Unlink::Retain, true),
    ] {
        if !r.is_target() {
            knocked();
            knocked();
            knocked();
            continue;
        }
        let before = r.drops();
        let spec = MeSpec {
            unlink,
            ..entry(BITS)
        };
        let me = r.ni.me_attach(PORTAL, spec, After).expect("an entry");
        // One that had no descriptor yet stays.
        knocked();
        assert_eq!(r.drops(), before + 1);
        let t = r.give(me, 8, Unlink::Unlink, |d| d.threshold = 1);
        if explicit {
            r.ni.md_unlink(t.md).expect("not in use");
            // An explicit unlink is silent.
            r.none(t.eq);
        } else {
            knocked();
            r.take(t.eq, &kinds);
        }
        let again = MdSpec {
            threshold: 1,
            eq: Some(t.eq),
            ..md(t.buf.memory(), PUT)
        };
        let again = r.ni.md_attach(me, again, Unlink::Unlink);
        if explicit {
            knocked();
        }
        knocked();
        match unlink {
            Unlink::Unlink => {
                assert_eq!(again, Err(Error::MeInvalid));
                assert_eq!(r.ni.me_unlink(me), Err(Error::MeInvalid));
                for position in [Before, After] {
                    let beside = r.ni.me_insert(me, entry(BITS), position);
                    assert_eq!(beside, Err(Error::MeInvalid));
                }
                r.none(t.eq);
            }
            Unlink::Retain => {
                again.expect("the entry stayed");
                r.take(t.eq, &kinds);
                r.ni.me_unlink(me).expect("not in use");
            }
        }
    }
}

fn silent(r: &Rank) {
    if !r.is_target() {
        r.barrier();
        r.knock(r.to(), 0);
        return;
    }
    let t = r.target_with(8, Unlink::Unlink, |d| {
        d.threshold = 1;
        d.options = PUT | NO_START | NO_END;
    });
    r.barrier();
    let e = r.take(t.eq, &[UNLINKED])[0];
    assert_eq!((e.link, e.md.threshold), (e.sequence, 0));
    assert_eq!((e.initiator, e.md_handle), (r.peer(), t.md));
    r.none(t.eq);
}

/// A message spends the descriptor while the program takes it away: one of them does it.
fn one_wins(r: &Rank) {
    let rounds = r.rounds(2000, 60);
    if !r.is_target() {
        for _ in 0..rounds {
            r.barrier();
            r.knock(r.to(), 0);
            r.barrier();
        }
        return;
    }
    let (mut program, mut message) = (0, 0);
    for round in 0..rounds {
        let before = r.drops();
        let t = r.target_with(8, Unlink::Unlink, |d| {
            d.threshold = 1;
            d.options = PUT | NO_START;
        });
        r.barrier();
        // Lets the message come a little, or all the way.
        let mut seen = Vec::new();
        let mut look = |wait| {
            let polled = r.ni.eq_poll(&[t.eq], wait).expect("a queue");
            seen.extend(polled.map(|p| p.event.kind));
        };
        match round % 3 {
            0 => {}
            1 => look(Wait::No),
            _ => look(Wait::Forever),
        }
        let unlinked = loop {
            match r.ni.md_unlink(t.md) {
                Err(Error::MdInUse) => {}
                other => break other,
            }
        };
        r.barrier();
        while let Some(p) = r.ni.eq_get(t.eq).expect("a queue") {
            seen.push(p.event.kind);
        }
        match unlinked {
            Ok(()) => {
                program += 1;
                assert_eq!(seen, [], "an unlink by the program is silent");
                assert_eq!(r.drops(), before + 1);
            }
            Err(e) => {
                message += 1;
                assert_eq!(e, Error::MdInvalid);
                assert_eq!(seen, [PutEnd, UNLINKED]);
            }
        }
        r.ni.me_unlink(t.me).expect("not in use");
        r.ni.eq_free(t.eq).expect("not in use");
    }
    assert!(program + message == rounds && message >= rounds / 3);
}

fn told(r: &Rank) {
    for by_entry in [false, true] {
        let t = r.target_with(8, Unlink::Unlink, |d| {
            d.options = PUT | MdOptions::EVENT_MANUAL_UNLINK_ENABLE;
        });
        if by_entry {
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            r.ni.md_unlink(t.md).expect("not in use");
        }
        let e = r.take(t.eq, &[UNLINKED])[0];
        assert_eq!((e.initiator, e.md_handle), (r.ni.id(), t.md));
        assert_eq!(e.link, e.sequence);
        r.none(t.eq);
        assert_eq!(r.ni.md_query(t.md), Err(Error::MdInvalid));
        assert_eq!(r.ni.eq_free(t.eq), Ok(()));
    }
}
