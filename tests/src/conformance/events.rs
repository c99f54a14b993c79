//! Events and queues.

use super::case::{Case, LOCAL, case};
use super::rank::*;
use portals_shim::{
    ClockKind, EqHandle, Error, EventKind, MdOptions, MdSpec, PollError, Unlink, Wait,
};

pub(super) const CASES: &[Case] = &[
    case(
        "START and END are disabled separately",
        "77, rules 27, 31",
        disabled,
    ),
    case(
        "link joins the events of one operation",
        "78, rules 32, 33",
        links,
    ),
    case("sequence numbers go up by one", "79", sequence),
    case(
        "an END follows its START whatever becomes of the descriptor",
        "78, rules 35, 66",
        promised,
    ),
    case("an overflow is told once", "80, rules 13, 54, 55", overflow),
    case(
        "a queue holds what was asked",
        "81, 82, 83, rule 53",
        capacity,
    ),
    case("a wait ends in time", "84, rule 57", timeouts).not_served(LOCAL),
    case("a get from a queue moves data", "83, rule 56", driving),
    case("a wait wakes on a message", "85, 86, rule 57", wakes),
    case("events show the descriptor", "90, rules 43, 69", snapshot),
];

fn disabled(r: &Rank) {
    for (options, start, end) in [
        (NONE, true, true),
        (NO_START, false, true),
        (NO_END, true, false),
        (NO_START | NO_END, false, false),
    ] {
        let seen = |starts: EventKind, ends: EventKind, more: &[EventKind]| {
            let mut kinds = Vec::new();
            kinds.extend(start.then_some(starts));
            kinds.extend(end.then_some(ends));
            kinds.extend(more);
            kinds
        };
        if r.is_target() {
            let t = r.target(8, |d| d.options = PUT | GET | REMOTE | options);
            r.barrier();
            for (starts, ends) in [
                (PutStart, PutEnd),
                (GetStart, GetEnd),
                (GetPutStart, GetPutEnd),
                (GetPutStart, GetPutEnd),
            ] {
                r.take(t.eq, &seen(starts, ends, &[]));
                r.barrier();
                r.none(t.eq);
                r.barrier();
            }
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            let s = r.source(8, |d| d.options = options);
            // Ends the wait for operations that say nothing.
            let d = r.source(8, |_| ());
            r.barrier();
            r.ni.put(s.md, Ack, r.to(), 0).expect("the put starts");
            r.take(s.eq, &seen(SendStart, SendEnd, &[ACKED]));
            r.barrier();
            r.none(s.eq);
            r.barrier();
            r.ni.get(s.md, r.to()).expect("the get starts");
            r.take(s.eq, &seen(ReplyStart, ReplyEnd, &[]));
            r.barrier();
            r.barrier();
            r.ni.get_put(d.md, s.md, r.to(), 0)
                .expect("the getput starts");
            r.take(s.eq, &seen(SendStart, SendEnd, &[]));
            r.take(d.eq, &[ReplyStart, ReplyEnd]);
            r.barrier();
            r.none(s.eq);
            r.barrier();
            r.ni.get_put(s.md, d.md, r.to(), 0)
                .expect("the getput starts");
            r.take(d.eq, &[SendStart, SendEnd]);
            r.take(s.eq, &seen(ReplyStart, ReplyEnd, &[]));
            r.barrier();
            r.barrier();
            r.none(s.eq);
        }
        r.barrier();
    }
}

fn links(r: &Rank) {
    const COUNT: usize = 8;
    if !r.is_target() {
        let s = r.source(30_000, |_| ());
        r.barrier();
        for i in 0..COUNT as u64 {
            r.ni.put_region(s.md, (0, 1 + 3000 * (i % 3)), NoAck, r.to(), i)
                .expect("the put starts");
        }
        let mut open = Vec::new();
        for _ in 0..2 * COUNT {
            let e = r.next(s.eq);
            if e.kind == SendStart {
                assert_eq!(e.link, e.sequence);
                open.push((e.link, e.hdr_data));
            } else {
                let at = open.iter().position(|o| *o == (e.link, e.hdr_data));
                open.remove(at.expect("END has the link of its START"));
            }
        }
        r.barrier();
        r.put(&s, (0, 1), NoAck, r.to(), 0);
        return;
    }
    let t = r.target_with(100_000, Unlink::Unlink, |d| d.threshold = COUNT as i32);
    r.barrier();
    let mut open = Vec::new();
    let mut last = 0;
    for _ in 0..2 * COUNT {
        let e = r.next(t.eq);
        last = e.sequence;
        if e.kind == PutStart {
            assert_eq!(e.link, e.sequence);
            open.push((e.link, e.hdr_data));
        } else {
            let at = open.iter().position(|o| *o == (e.link, e.hdr_data));
            open.remove(at.expect("END has the link of its START"));
        }
    }
    assert_eq!(r.take(t.eq, &[UNLINKED])[0].link, last);
    let quiet = r.target_with(8, Unlink::Unlink, |d| {
        d.threshold = 1;
        d.options = PUT | NO_START;
    });
    r.barrier();
    let e = r.take(quiet.eq, &[PutEnd, UNLINKED]);
    assert_eq!(e[0].link, e[0].sequence);
    assert_eq!(e[1].link, e[0].sequence);
}

fn sequence(r: &Rank) {
    const COUNT: u32 = 300;
    if !r.is_target() {
        for _ in 0..COUNT / 100 {
            r.barrier();
            for _ in 0..100 {
                r.knock(r.to(), 0);
            }
        }
        return;
    }
    let t = r.target(8, |_| ());
    let mut wrapped = false;
    let mut expected: Option<u32> = None;
    for _ in 0..COUNT / 100 {
        r.barrier();
        for _ in 0..200 {
            let e = r.next(t.eq);
            if let Some(expected) = expected {
                assert_eq!(e.sequence, expected);
            }
            wrapped |= e.sequence == u32::MAX;
            expected = Some(e.sequence.wrapping_add(1));
        }
    }
    // A queue of 256 begins 256 before the wrap.
    assert!(wrapped);
}

/// A target that posts PUT_END alone to a queue of `count` events.
fn narrow(r: &Rank, count: u64) -> EqHandle {
    let eq = r.eq(count);
    r.target(8, |d| {
        d.eq = Some(eq);
        d.options = PUT | NO_START;
    });
    eq
}

fn overflow(r: &Rank) {
    if !r.is_target() {
        r.barrier();
        for i in 0..6 {
            r.knock(r.to(), i);
        }
        r.barrier();
        r.barrier();
        r.knock(r.to(), 6);
        return;
    }
    let eq = narrow(r, 4);
    let received = || r.ni.status().expect("a status").recv_count;
    let before = received();
    r.barrier();
    r.barrier();
    // Every message, and one of each barrier.
    assert_eq!(received(), before + 6 + 2);
    let mut seen = Vec::new();
    while let Some(p) = r.ni.eq_get(eq).expect("a queue") {
        seen.push((p.event.hdr_data, p.dropped));
    }
    assert_eq!(seen, [(2, true), (3, false), (4, false), (5, false)]);
    r.barrier();
    assert_eq!(r.next(eq).hdr_data, 6);
}

fn capacity(r: &Rank) {
    for count in [0, 1, 2, 3, 5] {
        if r.is_target() {
            let eq = r.eq(count);
            r.none(eq);
            assert_eq!(r.ni.eq_peek(eq), Ok(None));
            let t = r.target(8, |d| {
                d.eq = Some(eq);
                d.options = PUT | NO_START;
            });
            r.barrier();
            r.barrier();
            let first = r.ni.eq_peek(eq).expect("a queue").expect("an event");
            assert_eq!(first.event.hdr_data, 0);
            // A look leaves it.
            assert_eq!(r.ni.eq_peek(eq), Ok(Some(first)));
            for i in 0..count.max(1) {
                assert_eq!(r.take(eq, &[PutEnd])[0].hdr_data, i);
            }
            r.none(eq);
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            r.barrier();
            for i in 0..count.max(1) {
                r.knock(r.to(), i);
            }
            r.barrier();
        }
        r.barrier();
    }
    for count in [1 << 32, u64::MAX] {
        assert_eq!(r.ni.eq_alloc(count), Err(Error::NoSpace));
    }
}

fn timeouts(r: &Rank) {
    const MS: u64 = 1_000_000;
    let eq = r.eq(4);
    let timed = |wait| {
        let from = r.ni.now();
        assert_eq!(r.ni.eq_poll(&[eq], wait), Ok(None));
        r.ni.now() - from
    };
    assert!(timed(Wait::No) < 50 * MS);
    for ms in [1, 50] {
        let took = timed(Wait::Nanos(ms * MS));
        assert!(took >= ms * MS, "{took} ns");
        // On a virtual clock the end is not a matter of load.
        if r.ni.clock() == ClockKind::Virtual {
            assert!(took < (ms + 1) * MS, "{took} ns");
        }
    }
}

fn wakes(r: &Rank) {
    if !r.is_target() {
        for bits in [BITS, BITS + 2, BITS + 1] {
            r.barrier();
            let mut to = r.to();
            to.match_bits = bits;
            r.knock(to, bits);
        }
        r.barrier();
        for bits in [BITS + 2, BITS + 1, BITS] {
            let mut to = r.to();
            to.match_bits = bits;
            r.knock(to, bits);
        }
        r.barrier();
        return;
    }
    let eqs: Vec<_> = (0..3)
        .map(|i| {
            let eq = r.eq(4);
            r.listener(eq, Err((PORTAL, After)), entry(BITS + i), i);
            eq
        })
        .collect();
    r.barrier();
    let e = r.ni.eq_wait(eqs[0]).expect("an event");
    assert_eq!((e.event.hdr_data, e.which), (BITS, 0));
    for which in [2, 1] {
        r.barrier();
        let e = r.ni.eq_poll(&eqs, Wait::Forever).expect("queues");
        let e = e.expect("an event");
        assert_eq!((e.event.hdr_data, e.which), (BITS + which as u64, which));
    }
    r.barrier();
    r.barrier();
    let bad = EqHandle::from_raw(u32::MAX);
    let freed = r.eq(4);
    r.ni.eq_free(freed).expect("not in use");
    let refused = |which| {
        Err(PollError {
            error: Error::EqInvalid,
            which,
        })
    };
    // Whichever queue has an event, and no event goes.
    for (list, which) in [
        ([eqs[0], eqs[0], freed], 2),
        ([eqs[0], freed, freed], 1),
        ([freed, eqs[0], eqs[0]], 0),
    ] {
        assert_eq!(r.ni.eq_poll(&list, Wait::Forever), refused(which));
    }
    for which in 0..3 {
        let e = r.ni.eq_poll(&eqs, Wait::No).expect("queues");
        assert_eq!(e.expect("an event").which, which);
    }
    assert_eq!(r.ni.eq_poll(&[eqs[0], bad], Wait::Forever), refused(1));
    assert_eq!(r.ni.eq_poll(&[], Wait::No), refused(0));
}

fn snapshot(r: &Rank) {
    if !r.is_target() {
        r.barrier();
        r.knock(r.to(), 0);
        r.knock(r.to(), 0);
        return;
    }
    let options = PUT | MdOptions::from_bits_retain(1 << 30);
    let t = r.target(64, |d: &mut MdSpec| {
        d.threshold = 3;
        d.user_ptr = u64::MAX - 1;
        d.max_size = 12;
        d.options = options;
    });
    r.barrier();
    let e = r.take(t.eq, &[PutStart, PutEnd, PutStart, PutEnd]);
    let left: Vec<_> = e.iter().map(|e| e.md.threshold).collect();
    assert_eq!(left, [2, 2, 1, 1]);
    for e in &e {
        let at = t.buf.segment();
        assert_eq!((e.md.start, e.md.length), (at.addr, at.len));
        assert_eq!((e.md.user_ptr, e.md.max_size), (u64::MAX - 1, 12));
        assert_eq!((e.md.options, e.md.eq), (options, Some(t.eq)));
    }
    assert_eq!(r.ni.md_query(t.md).expect("alive").threshold, 1);
}

/// The queue and the options at the START are those of the END too.
fn promised(r: &Rank) {
    let len = r.many(1 << 20, 60_000) as usize;
    if !r.is_target() {
        let s = r.source(len, |_| ());
        r.barrier();
        r.put(&s, (0, len as u64), NoAck, r.to(), 9);
        r.barrier();
        r.knock(r.to(), 1);
        return;
    }
    let t = r.target(len, |_| ());
    let (other, small) = (r.eq(8), Buf::new(8));
    r.barrier();
    let start = r.take(t.eq, &[PutStart])[0];
    let silent = MdSpec {
        eq: Some(other),
        ..md(small.memory(), PUT | NO_END)
    };
    r.ni.md_update(t.md, silent, None).expect("unconditional");
    let end = r.take(t.eq, &[PutEnd])[0];
    assert_eq!((end.link, end.mlength), (start.link, len as u64));
    assert!(t.buf.read() == Buf::pattern(len, 0));
    assert_eq!(small.read(), [FILL; 8]);
    r.barrier();
    r.take(other, &[PutStart]);
    r.none(t.eq);
    r.none(other);
}

/// Both ranks call nothing but `eq_get`.
fn driving(r: &Rank) {
    let t = r.target(20_000, |d| d.options = PUT | GET | REMOTE);
    let s = r.source(20_000, |_| ());
    r.barrier();
    let spin = |eq, kind| loop {
        let polled = r.ni.eq_get(eq).expect("a queue");
        if polled.is_some_and(|p| p.event.kind == kind) {
            break;
        }
    };
    for len in [8, 20_000] {
        r.ni.put_region(s.md, (0, len), Ack, r.to(), 0)
            .expect("the put starts");
        spin(s.eq, ACKED);
        r.ni.get_region(s.md, (0, len), r.to())
            .expect("the get starts");
        spin(s.eq, ReplyEnd);
        spin(t.eq, GetEnd);
    }
}
