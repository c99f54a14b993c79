//! What an initiator sees of a target that says nothing: the same whether the target's library or
//! the adapters alone served it.

use super::case::{Case, case};
use super::pieces::iovec;
use super::rank::*;
use portals_shim::{Error, MdOptions, MdSpec, NiFail, Unlink};

pub(super) const CASES: &[Case] = &[
    case(
        "a put to a quiet target, every field",
        "30, 41, 43, 44, rules 15, 28, 30, 34",
        put_fields,
    )
    .served(1),
    case(
        "a get from a quiet target, every field",
        "51, rules 16, 28, 30",
        get_fields,
    )
    .served(1),
    case(
        "regions of a quiet target end where it ends",
        "32, 35, 36, 38, rule 8",
        bounds,
    )
    .served(2),
    case(
        "a source is free after SEND_END to a quiet target",
        "50, rule 28",
        reuse,
    )
    .served(4),
    case(
        "options of a source are no permissions",
        "19, rule 19",
        permissions,
    )
    .served(8),
    case(
        "pieces of a source reach a quiet target",
        "99, 100, rules 11, 67",
        pieces,
    )
    .served(1),
    case(
        "thresholds at the initiator of quiet operations",
        "54, 60, 61, 67, rules 37, 38, 39, 44",
        thresholds,
    )
    .served(13),
    case(
        "events disabled at the initiator of quiet operations",
        "77, rules 27, 31",
        disabled,
    )
    .served(8),
    case(
        "links, sequence numbers and snapshots of quiet operations",
        "78, 79, 90, rules 32, 33, 43",
        numbers,
    )
    .served(40),
    case(
        "acks overflow the initiator's queue",
        "80, rules 13, 54, 55",
        overflow,
    )
    .served(3),
    case(
        "memory of a get that is given up",
        "53, rules 18, 61, 66",
        given_up,
    )
    .served(1),
    case(
        "max_size means nothing to a remotely managed target",
        "69, rule 12",
        max_size,
    )
    .served(3),
];

/// A target without a queue, remotely managed, for puts and gets.
fn quiet(r: &Rank, len: usize) -> Posted {
    r.target(len, |d| {
        d.options = PUT | GET | REMOTE;
        d.eq = None;
    })
}

/// The target's part of most cases: it is there, and its bytes are these afterwards.
fn serve(r: &Rank, len: usize, expected: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let t = quiet(r, len);
    r.barrier();
    r.barrier();
    assert!(t.buf.read() == expected(vec![FILL; len]));
    t.buf.check_guards();
}

fn put_fields(r: &Rank) {
    if r.is_target() {
        return serve(r, 64, |mut all| {
            all[16..56].copy_from_slice(&Buf::pattern(64, 0)[8..48]);
            all
        });
    }
    let s = r.source(64, |d| d.user_ptr = 77);
    r.barrier();
    r.settle();
    let hdr = 0xfedc_ba98_7654_3210;
    r.ni.put_region(s.md, (8, 40), Ack, r.at(16), hdr)
        .expect("the put starts");
    let e = r.take(s.eq, &[SendStart, SendEnd, ACKED]);
    for p in &e {
        assert_eq!((p.uid, p.jid), (r.ni.uid(), r.ni.jid()));
        assert_eq!((p.pt_index, p.match_bits), (PORTAL, BITS));
        assert_eq!((p.md_handle, p.md.user_ptr), (s.md, 77));
        assert_eq!((p.rlength, p.mlength, p.ni_fail), (40, 40, NiFail::OK));
    }
    for p in &e[..2] {
        assert_eq!((p.initiator, p.offset, p.hdr_data), (r.ni.id(), 8, hdr));
    }
    assert_eq!((e[2].initiator, e[2].offset), (r.peer(), 16));
    assert_eq!(e[0].link, e[1].link);
    r.barrier();
    r.none(s.eq);
}

fn get_fields(r: &Rank) {
    if r.is_target() {
        let t = quiet(r, 128);
        t.buf.write(0, &Buf::pattern(128, 9));
        r.barrier();
        r.barrier();
        assert_eq!(t.buf.read(), Buf::pattern(128, 9));
        return;
    }
    let d = r.source(64, |d| d.user_ptr = 78);
    r.barrier();
    r.settle();
    r.ni.get_region(d.md, (24, 32), r.at(64))
        .expect("the get starts");
    let e = r.take(d.eq, &[ReplyStart, ReplyEnd]);
    for g in &e {
        assert_eq!(
            (g.initiator, g.uid, g.jid),
            (r.peer(), r.ni.uid(), r.ni.jid())
        );
        assert_eq!((g.rlength, g.mlength, g.offset), (32, 32, 24));
        assert_eq!((g.pt_index, g.match_bits, g.hdr_data), (PORTAL, BITS, 0));
        assert_eq!((g.md_handle, g.md.user_ptr), (d.md, 78));
    }
    let mut expected = Buf::pattern(64, 0);
    expected[24..56].copy_from_slice(&Buf::pattern(128, 9)[64..96]);
    assert_eq!(d.buf.read(), expected);
    d.buf.check_guards();
    r.barrier();
    r.none(d.eq);
}

/// The last bytes and the first; then one byte too far, which nobody takes.
fn bounds(r: &Rank) {
    if r.is_target() {
        serve(r, 64, |mut all| {
            all[56..].copy_from_slice(&Buf::pattern(8, 0));
            all[..8].copy_from_slice(&Buf::pattern(8, 0));
            all
        });
        assert_eq!(r.drops(), 6);
        return;
    }
    let s = r.source(8, |_| ());
    r.barrier();
    for offset in [56, 0] {
        r.settle();
        assert_eq!(r.put_acked(&s, r.at(offset), 0).mlength, 8);
    }
    for offset in [57, 64, u64::MAX - 3] {
        r.settle();
        r.put(&s, (0, 8), Ack, r.at(offset), 0);
        r.settle();
        r.ni.get(s.md, r.at(offset)).expect("the get starts");
    }
    r.barrier();
    r.none(s.eq);
    let beyond = r.ni.put_region(s.md, (1, 8), NoAck, r.to(), 0);
    assert_eq!(beyond, Err(Error::MdIllegal));
}

fn reuse(r: &Rank) {
    for len in [8, 100, 5000, 100_000] {
        if r.is_target() {
            let t = quiet(r, len);
            r.barrier();
            r.barrier();
            assert!(t.buf.read() == Buf::pattern(len, 0), "{len} bytes differ");
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            let s = r.source(len, |_| ());
            r.barrier();
            r.settle();
            r.ni.put(s.md, Ack, r.to(), 0).expect("the put starts");
            r.take(s.eq, &[SendStart, SendEnd]);
            s.buf.fill(0);
            r.take(s.eq, &[ACKED]);
            r.barrier();
        }
        r.barrier();
    }
}

fn permissions(r: &Rank) {
    if r.is_target() {
        return serve(r, 8, |_| Buf::pattern(8, 4));
    }
    r.barrier();
    r.settle();
    for (seed, options) in (1..).zip([NONE, PUT, GET, PUT | GET]) {
        let s = r.source(8, |d| d.options = options);
        s.buf.write(0, &Buf::pattern(8, seed));
        r.put_acked(&s, r.to(), 0);
        s.buf.fill(0);
        r.ni.get(s.md, r.to()).expect("the get starts");
        r.take(s.eq, &[ReplyStart, ReplyEnd]);
        assert_eq!(s.buf.read(), Buf::pattern(8, seed));
    }
    r.barrier();
}

fn pieces(r: &Rank) {
    if r.is_target() {
        return serve(r, 20, |mut all| {
            all[4..19].copy_from_slice(&Buf::pattern(15, 0));
            all
        });
    }
    let data = Buf::pattern(15, 0);
    let parts = [3, 0, 7, 5].map(Buf::new);
    let mut from = 0;
    for (p, len) in parts.iter().zip([3, 0, 7, 5]) {
        p.write(0, &data[from..from + len]);
        from += len;
    }
    let s = r.source(0, |d| {
        d.memory = iovec(&parts.iter().collect::<Vec<_>>(), 0x40);
        d.options = MdOptions::IOVEC;
    });
    r.barrier();
    r.settle();
    let ack = r.put_acked(&s, r.at(4), 0);
    assert_eq!((ack.mlength, ack.md.start, ack.md.length), (15, 0x40, 4));
    parts.iter().for_each(|p| p.fill(0));
    r.settle();
    r.ni.get(s.md, r.at(4)).expect("the get starts");
    r.take(s.eq, &[ReplyStart, ReplyEnd]);
    let back: Vec<u8> = parts.iter().flat_map(Buf::read).collect();
    assert_eq!(back, data);
    parts.iter().for_each(Buf::check_guards);
    r.barrier();
}

fn thresholds(r: &Rank) {
    if r.is_target() {
        return serve(r, 8, |_| Buf::pattern(8, 0));
    }
    r.barrier();
    r.settle();
    let before = r.drops();
    let one = r.source_with(8, Unlink::Unlink, |d| d.threshold = 1);
    r.ni.put(one.md, Ack, r.to(), 0).expect("the put starts");
    let e = r.take(one.eq, &[SendStart, SendEnd, UNLINKED]);
    assert_eq!(e[0].md.threshold, 0);
    assert_eq!(r.ni.put(one.md, Ack, r.to(), 0), Err(Error::MdInvalid));
    let two = r.source_with(8, Unlink::Unlink, |d| d.threshold = 2);
    r.ni.put(two.md, Ack, r.to(), 0).expect("the put starts");
    r.take(two.eq, &[SendStart, SendEnd, ACKED, UNLINKED]);
    let got = r.source_with(8, Unlink::Unlink, |d| d.threshold = 1);
    r.ni.get(got.md, r.to()).expect("the get starts");
    r.take(got.eq, &[ReplyStart, ReplyEnd, UNLINKED]);
    let endless = r.source(8, |_| ());
    for _ in 0..10 {
        let ack = r.put_acked(&endless, r.to(), 0);
        assert_eq!(ack.md.threshold, -1);
    }
    r.one_more_drop(before, one.eq);
    r.barrier();
    assert_eq!(r.drops(), before + 1);
}

fn disabled(r: &Rank) {
    if r.is_target() {
        return serve(r, 8, |_| Buf::pattern(8, 0));
    }
    r.barrier();
    r.settle();
    for (options, start, end) in [
        (NONE, true, true),
        (NO_START, false, true),
        (NO_END, true, false),
        (NO_START | NO_END, false, false),
    ] {
        let s = r.source(8, |d| d.options = options);
        let seen = |starts, ends| {
            let kinds = [start.then_some(starts), end.then_some(ends)];
            kinds.into_iter().flatten().collect::<Vec<_>>()
        };
        r.ni.put(s.md, Ack, r.to(), 0).expect("the put starts");
        r.take(s.eq, &seen(SendStart, SendEnd));
        r.take(s.eq, &[ACKED]);
        r.ni.get(s.md, r.to()).expect("the get starts");
        r.take(s.eq, &seen(ReplyStart, ReplyEnd));
        // One that tells of its end, so that the silent get has had the time for events.
        let last = r.source(8, |_| ());
        r.ni.get(last.md, r.to()).expect("the get starts");
        r.take(last.eq, &[ReplyStart, ReplyEnd]);
        r.none(s.eq);
    }
    r.barrier();
}

fn numbers(r: &Rank) {
    if r.is_target() {
        return serve(r, 8, |_| Buf::pattern(8, 0));
    }
    let s = r.source(8, |d| {
        d.user_ptr = 5;
        d.max_size = 3;
    });
    r.barrier();
    r.settle();
    let (mut expected, mut wrapped) = (None, false);
    for hdr in 0..90 {
        r.ni.put(s.md, Ack, r.to(), hdr).expect("the put starts");
        let e = r.take(s.eq, &[SendStart, SendEnd, ACKED]);
        assert_eq!((e[0].link, e[1].link), (e[0].sequence, e[0].sequence));
        assert_eq!(e[2].link, e[2].sequence);
        for e in e {
            assert_eq!(expected.unwrap_or(e.sequence), e.sequence);
            expected = Some(e.sequence.wrapping_add(1));
            wrapped |= e.sequence == u32::MAX;
            let at = s.buf.segment();
            assert_eq!((e.md.start, e.md.length), (at.addr, at.len));
            assert_eq!((e.md.user_ptr, e.md.max_size), (5, 3));
            assert_eq!((e.md.threshold, e.md.eq), (-1, Some(s.eq)));
        }
    }
    // A queue of 256 begins 256 before the wrap.
    assert!(wrapped);
    r.barrier();
}

fn overflow(r: &Rank) {
    if r.is_target() {
        let t = quiet(r, 8);
        r.barrier();
        r.barrier();
        r.barrier();
        assert_eq!(t.buf.read(), Buf::pattern(8, 0));
        return;
    }
    let eq = r.eq(4);
    let s = r.source(8, |d| {
        d.eq = Some(eq);
        d.options = NO_START;
    });
    r.barrier();
    r.settle();
    for hdr in 0..3 {
        r.ni.put(s.md, Ack, r.to(), hdr).expect("the put starts");
    }
    // Acks of one target keep their order: after that of a later put the others are there.
    let later = r.eq(4);
    let watched = r.source(8, |d| {
        d.eq = Some(later);
        d.options = NO_START;
    });
    r.put_acked_quietly(&watched);
    r.barrier();
    r.settle();
    let mut seen = Vec::new();
    while let Some(p) = r.ni.eq_get(eq).expect("a queue") {
        seen.push((p.event.sequence, p.dropped));
    }
    let first = seen[0].0;
    let expected = [true, false, false, false];
    for (i, (sequence, dropped)) in (0..).zip(&seen) {
        assert_eq!(*sequence, first.wrapping_add(i));
        assert_eq!(*dropped, expected[i as usize]);
    }
    assert_eq!(seen.len(), 4);
    r.put_acked_quietly(&s);
    r.barrier();
}

/// Whether the reply came before or after the unlink: not later.
fn given_up(r: &Rank) {
    for len in [8, 60_000] {
        if r.is_target() {
            let t = quiet(r, len);
            t.buf.write(0, &Buf::pattern(len, 3));
            r.barrier();
            r.barrier();
            // In use until the initiator has said that it is done with the reply.
            loop {
                match r.ni.me_unlink(t.me) {
                    Err(Error::MeInUse) => {}
                    other => break assert_eq!(other, Ok(())),
                }
            }
        } else {
            let d = r.source(len, |_| ());
            r.barrier();
            r.settle();
            r.ni.get(d.md, r.to()).expect("the get starts");
            loop {
                match r.ni.md_unlink(d.md) {
                    Err(Error::MdInUse) => {}
                    other => break assert_eq!(other, Ok(())),
                }
            }
            let again = MdSpec {
                eq: Some(d.eq),
                ..md(d.buf.memory(), NONE)
            };
            r.ni.md_bind(again, Unlink::Retain).expect("a descriptor");
            d.buf.fill(0);
            r.barrier();
            r.settle();
            assert!(d.buf.read().iter().all(|b| *b == 0));
            d.buf.check_guards();
        }
        r.barrier();
    }
}

fn max_size(r: &Rank) {
    if r.is_target() {
        let t = r.target(100, |d| {
            d.options = PUT | REMOTE | MdOptions::MAX_SIZE;
            // More than there is.
            d.max_size = 101;
            d.eq = None;
        });
        r.barrier();
        r.barrier();
        assert!(r.ni.md_query(t.md).is_ok());
        assert_eq!(t.buf.read()[..40], Buf::pattern(40, 0));
        assert_eq!(r.drops(), 0);
        return;
    }
    let s = r.source(40, |_| ());
    r.barrier();
    r.settle();
    for _ in 0..3 {
        assert_eq!(r.put_acked(&s, r.to(), 0).mlength, 40);
    }
    r.barrier();
}

impl Rank {
    /// A put whose SEND_END and ACK are the next events, none before them lost.
    fn put_acked_quietly(&self, s: &Bound) {
        self.ni
            .put(s.md, Ack, self.to(), 0)
            .expect("the put starts");
        let eq = self.ni.md_query(s.md).expect("alive").eq;
        self.take(eq.expect("a queue"), &[SendEnd, ACKED]);
    }
}
