//! Handles, use while under way, the end of an interface.

use super::case::{Case, LOCAL, case};
use super::rank::*;
use portals_shim::{Error, MdMemory, MdOptions, MdSpec, NiFail, Target, Unlink, Wait};

pub(super) const CASES: &[Case] = &[
    case("freed handles stay invalid", "13", freed).not_served(LOCAL),
    case(
        "END, ACK and REPLY_END free the descriptor",
        "74, rule 60",
        free_at_end,
    )
    .served(30),
    case("a target under way is in use", "75, rules 62, 64, 66", busy),
    case(
        "an unlink that is repeated makes progress",
        "75, rules 62, 66",
        repeated,
    ),
    case("a queue is not freed under its users", "89", queues).not_served(LOCAL),
    case("an interface ends with traffic under way", "10", close).closes(),
    case(
        "what was done without an answer has not failed when the target leaves",
        "10, 39, 45, rules 9, 14",
        leave,
    )
    .closes(),
];

fn freed(r: &Rank) {
    let t = r.target_with(8, Unlink::Unlink, |_| ());
    let ni = &r.ni;
    ni.md_unlink(t.md).expect("not in use");
    ni.me_unlink(t.me).expect("not in use");
    ni.eq_free(t.eq).expect("not in use");
    for _ in 0..r.many(10_000, 600) {
        let n = r.target(0, |_| ());
        assert!(n.me != t.me && n.md != t.md && n.eq != t.eq);
        ni.md_unlink(n.md).expect("not in use");
        ni.me_unlink(n.me).expect("not in use");
        ni.eq_free(n.eq).expect("not in use");
    }
    // Others are in the places of the freed.
    for _ in 0..600 {
        ni.me_attach(PORTAL, entry(0), After).expect("an entry");
        let spec = md(MdMemory::Empty, NONE);
        ni.md_bind(spec, Unlink::Retain).expect("a descriptor");
        ni.eq_alloc(1).expect("a queue");
    }
    let spec = md(t.buf.memory(), NONE);
    assert_eq!(ni.me_unlink(t.me), Err(Error::MeInvalid));
    assert_eq!(ni.me_insert(t.me, entry(0), After), Err(Error::MeInvalid));
    assert_eq!(
        ni.md_attach(t.me, spec.clone(), Unlink::Retain),
        Err(Error::MeInvalid)
    );
    let (at, spare) = (entry(0), spec.clone());
    assert_eq!(
        ni.me_md_post(t.me, at, After, spare, Unlink::Retain, None),
        Err(Error::MeInvalid)
    );
    assert_eq!(ni.md_unlink(t.md), Err(Error::MdInvalid));
    assert_eq!(ni.md_query(t.md), Err(Error::MdInvalid));
    assert_eq!(
        ni.md_update(t.md, spec.clone(), None),
        Err(Error::MdInvalid)
    );
    assert_eq!(ni.put(t.md, Ack, r.to(), 0), Err(Error::MdInvalid));
    assert_eq!(ni.get(t.md, r.to()), Err(Error::MdInvalid));
    let live = ni
        .md_bind(spec.clone(), Unlink::Retain)
        .expect("a descriptor");
    for (get, put) in [(t.md, t.md), (t.md, live), (live, t.md)] {
        assert_eq!(ni.get_put(get, put, r.to(), 0), Err(Error::MdInvalid));
    }
    let dead = MdSpec {
        eq: Some(t.eq),
        ..spec
    };
    assert_eq!(
        ni.md_bind(dead.clone(), Unlink::Retain),
        Err(Error::EqInvalid)
    );
    assert_eq!(ni.md_update(live, dead, None), Err(Error::EqInvalid));
    assert_eq!(ni.eq_get(t.eq), Err(Error::EqInvalid));
    assert_eq!(ni.eq_peek(t.eq), Err(Error::EqInvalid));
    assert_eq!(ni.eq_free(t.eq), Err(Error::EqInvalid));
}

/// Rounds after which both ranks meet: on a busy machine all of them take longer than a rank waits for an event.
const ROUNDS_TOGETHER: u64 = 500;

fn free_at_end(r: &Rank) {
    let rounds = r.rounds(20_000, 60);
    let meets = |done: u64| done.is_multiple_of(ROUNDS_TOGETHER);
    if r.is_target() {
        r.target(64, |d| {
            d.options = PUT | GET | REMOTE;
            d.eq = None;
        });
        r.barrier();
        for _ in (1..=rounds).filter(|done| meets(*done)) {
            r.barrier();
        }
        r.barrier();
        return;
    }
    r.barrier();
    r.settle();
    let eq = r.eq(16);
    let buf = Buf::new(64);
    let spec = MdSpec {
        eq: Some(eq),
        ..md(buf.memory(), NO_START)
    };
    for i in 0..rounds {
        let md =
            r.ni.md_bind(spec.clone(), Unlink::Retain)
                .expect("a descriptor");
        match i % 3 {
            0 => {
                r.ni.put(md, NoAck, r.to(), 0).expect("the put starts");
                r.take(eq, &[SendEnd]);
            }
            1 => {
                r.ni.put(md, Ack, r.to(), 0).expect("the put starts");
                r.take(eq, &[SendEnd, ACKED]);
            }
            _ => {
                r.ni.get(md, r.to()).expect("the get starts");
                r.take(eq, &[ReplyEnd]);
            }
        }
        assert_eq!(r.ni.md_unlink(md), Ok(()), "round {i}");
        if meets(i + 1) {
            r.barrier();
        }
    }
    r.barrier();
}

fn busy(r: &Rank) {
    let len = r.many(4 << 20, 100_000) as usize;
    if !r.is_target() {
        let s = r.source(len, |_| ());
        r.barrier();
        r.put(&s, (0, len as u64), NoAck, r.to(), 0);
        r.barrier();
        return;
    }
    let t = r.target(len, |_| ());
    r.barrier();
    r.take(t.eq, &[PutStart]);
    // END may be there already; in use and no END, or END and free, never anything else.
    let ended = loop {
        match r.ni.md_unlink(t.md) {
            Err(Error::MdInUse) => {}
            other => {
                assert_eq!(other, Ok(()));
                break r.ni.eq_get(t.eq).expect("a queue");
            }
        }
        match r.ni.me_unlink(t.me) {
            Err(Error::MeInUse) => {}
            // Only if END came between the two calls.
            other => {
                assert_eq!(other, Ok(()));
                r.ni.md_unlink(t.md).expect("not in use");
                break r.ni.eq_get(t.eq).expect("a queue");
            }
        }
        if let Some(p) = r.ni.eq_get(t.eq).expect("a queue") {
            assert_eq!(r.ni.md_unlink(t.md), Ok(()));
            break Some(p);
        }
    };
    let end = ended
        .expect("END came before the descriptor was free")
        .event;
    assert_eq!((end.kind, end.mlength), (PutEnd, len as u64));
    assert!(t.buf.read() == Buf::pattern(len, 0));
    t.buf.fill(0);
    r.barrier();
    assert!(t.buf.read().iter().all(|b| *b == 0));
}

/// A program that only repeats the unlink, as many do, gets there.
fn repeated(r: &Rank) {
    let len = r.many(4 << 20, 100_000) as usize;
    if !r.is_target() {
        let s = r.source(len, |_| ());
        for _ in 0..2 {
            r.barrier();
            r.put(&s, (0, len as u64), NoAck, r.to(), 0);
            r.barrier();
        }
        return;
    }
    for by_entry in [false, true] {
        let t = r.target(len, |_| ());
        r.barrier();
        r.take(t.eq, &[PutStart]);
        loop {
            let unlinked = if by_entry {
                r.ni.me_unlink(t.me)
            } else {
                r.ni.md_unlink(t.md)
            };
            match unlinked {
                Err(Error::MdInUse | Error::MeInUse) => {}
                other => break assert_eq!(other, Ok(())),
            }
        }
        let end = r.ni.eq_get(t.eq).expect("a queue").expect("END").event;
        assert_eq!((end.kind, end.mlength), (PutEnd, len as u64));
        assert!(t.buf.read() == Buf::pattern(len, 0));
        if !by_entry {
            r.ni.me_unlink(t.me).expect("not in use");
        }
        r.barrier();
    }
}

fn queues(r: &Rank) {
    if !r.is_target() {
        r.barrier();
        r.knock(r.to(), 0);
        return;
    }
    let t = r.target(8, |_| ());
    assert_eq!(r.ni.eq_free(t.eq), Err(Error::EqInUse));
    r.barrier();
    r.take(t.eq, &[PutStart, PutEnd]);
    r.ni.md_unlink(t.md).expect("not in use");
    assert_eq!(r.ni.eq_free(t.eq), Ok(()));
}

fn close(r: &Rank) {
    let s = r.source(1000, |d| d.options = NO_START);
    let t = r.target(1 << 20, |_| ());
    r.barrier();
    if r.is_target() {
        r.take(t.eq, &[PutStart]);
        r.ni.close().expect("the interface closes");
        assert_eq!(r.ni.eq_get(t.eq), Err(Error::NiInvalid));
        assert_eq!(r.ni.md_unlink(t.md), Err(Error::NiInvalid));
        assert_eq!(r.ni.me_unlink(t.me), Err(Error::NiInvalid));
        let put = r.ni.put(s.md, NoAck, r.to(), 0);
        assert_eq!(put, Err(Error::NiInvalid));
        return;
    }
    // The peer may be gone at any of these; nothing worse than a failed or missing answer follows.
    let count = r.many(100, 30);
    for i in 0..count {
        r.ni.put(s.md, Ack, r.to(), i).expect("the put starts");
    }
    let mut ended = 0;
    while ended < count {
        let e = r.next(s.eq);
        assert!(matches!(e.kind, SendEnd | ACKED), "{e:?}");
        ended += u64::from(e.kind == SendEnd);
    }
}

/// The target leaves as soon as it has seen the last message: nothing of it is owed to the initiator.
fn leave(r: &Rank) {
    let sizes = [8, 5000, 100_000];
    let nowhere = Target {
        match_bits: BITS + 1,
        ..r.to()
    };
    if r.is_target() {
        // Puts are cut off, and not acknowledged.
        let t = r.target(4, |d| {
            d.options = PUT | REMOTE | TRUNCATE | NO_START | MdOptions::ACK_DISABLE;
        });
        r.barrier();
        for size in sizes {
            let e = r.take(t.eq, &[PutEnd]);
            assert_eq!((e[0].rlength, e[0].mlength), (size, 4));
        }
        // One put and one get for each size, whose bits nothing has.
        assert_eq!(r.drops(), 2 * sizes.len() as u64);
        r.ni.close().expect("the interface closes");
        return;
    }
    let s = r.source(100_000, |d| d.options = NO_START);
    let g = r.source(100_000, |d| d.options = NO_START);
    r.barrier();
    for size in sizes {
        r.ni.put_region(s.md, (0, size), Ack, nowhere, 0)
            .expect("the put starts");
        r.ni.get_region(g.md, (0, size), nowhere)
            .expect("the get starts");
        r.ni.put_region(s.md, (0, size), Ack, r.to(), 0)
            .expect("the put starts");
    }
    for _ in 0..2 * sizes.len() {
        let e = r.take(s.eq, &[SendEnd]);
        assert_eq!(e[0].ni_fail, NiFail::OK, "{:?}", e[0]);
    }
    // By then the target has left.
    for eq in [s.eq, g.eq] {
        let late = r.ni.eq_poll(&[eq], Wait::Nanos(300_000_000));
        assert_eq!(late.expect("the queue is one"), None);
    }
}
