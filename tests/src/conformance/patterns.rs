//! How known clients use the interface (scenarios 108-110).

use super::case::{COUNTS, Case, case};
use super::rank::*;
use portals_shim::{MdMemory, MdOptions, MdSpec, MeHandle, MeSpec, Unlink};
use std::collections::BTreeMap;

pub(super) const CASES: &[Case] = &[
    case("request buffers and their catch-all", "108", buffers).not_served(COUNTS),
    case("a rejected message is sent again", "109", resend).not_served(COUNTS),
    case("a get sees the put before it", "110, rule 24", fence).served(4),
];

/// An entry before `last` that goes away with its descriptor.
fn before(r: &Rank, last: MeHandle) -> MeHandle {
    let spec = MeSpec {
        unlink: Unlink::Unlink,
        ..entry(BITS)
    };
    r.ni.me_insert(last, spec, Before).expect("an entry")
}

fn buffers(r: &Rank) {
    if !r.is_target() {
        let s = r.source(30, |_| ());
        r.barrier();
        for i in 0..6 {
            assert_eq!(r.put_acked(&s, r.to(), i).mlength, 30);
        }
        // The catch-all acknowledges nothing.
        r.put(&s, (0, 30), Ack, r.to(), 6);
        r.barrier();
        r.none(s.eq);
        r.put_acked(&s, r.to(), 7);
        return;
    }
    let eq = r.eq(64);
    let last = r.target(0, |d| {
        d.memory = MdMemory::Empty;
        d.options = PUT | TRUNCATE | MdOptions::ACK_DISABLE | NO_START;
        d.user_ptr = 9;
        d.eq = Some(eq);
    });
    let buffer = |name| {
        let memory = Buf::new(100).memory();
        let spec = MdSpec {
            eq: Some(eq),
            user_ptr: name,
            max_size: 30,
            ..md(memory, PUT | MdOptions::MAX_SIZE | NO_START)
        };
        r.ni.md_attach(before(r, last.me), spec, Unlink::Unlink)
            .expect("a descriptor");
    };
    buffer(1);
    buffer(2);
    r.barrier();
    let mut seen = Vec::new();
    for _ in 0..9 {
        let e = r.next(eq);
        seen.push((e.kind, e.md.user_ptr, e.mlength));
    }
    buffer(3);
    r.barrier();
    let e = r.next(eq);
    seen.push((e.kind, e.md.user_ptr, e.mlength));
    let put = |name, length| (PutEnd, name, length);
    assert_eq!(
        seen,
        [
            put(1, 30),
            put(1, 30),
            put(1, 30),
            (UNLINKED, 1, 30),
            put(2, 30),
            put(2, 30),
            put(2, 30),
            (UNLINKED, 2, 30),
            put(9, 0),
            put(3, 30)
        ]
    );
}

fn resend(r: &Rank) {
    const COUNT: u64 = 10;
    if !r.is_target() {
        let s = r.source(8, |d| d.options = NO_START | NO_END);
        r.barrier();
        let send = |hdr| {
            r.ni.put(s.md, Ack, r.to(), hdr).expect("the put starts");
            let ack = r.take(s.eq, &[ACKED])[0];
            assert_eq!(ack.rlength, 8);
            ack
        };
        // Nothing follows the first one, which is rejected, before the target has seen its event.
        assert_eq!(send(COUNT - 1).mlength, 0);
        r.barrier();
        let mut todo: Vec<u64> = (0..COUNT).collect();
        while let Some(hdr) = todo.pop() {
            let ack = send(hdr);
            if ack.mlength == 0 {
                todo.insert(0, hdr);
            } else {
                assert_eq!(ack.mlength, 8);
            }
        }
        return;
    }
    // The rejecting descriptor tells of the first message; its queue may overflow later.
    let told = r.eq(4);
    let reject = r.target(0, |d| {
        d.memory = MdMemory::Empty;
        d.options = PUT | TRUNCATE | NO_START;
        d.eq = Some(told);
    });
    let eq = r.eq(64);
    let mut delivered = BTreeMap::new();
    r.barrier();
    assert_eq!(r.take(told, &[PutEnd])[0].mlength, 0);
    r.barrier();
    while (delivered.len() as u64) < COUNT {
        // Room for one message; those that come too early are rejected.
        let spec = MdSpec {
            threshold: 1,
            eq: Some(eq),
            ..md(Buf::new(8).memory(), PUT | NO_START)
        };
        r.ni.md_attach(before(r, reject.me), spec, Unlink::Unlink)
            .expect("a descriptor");
        let e = r.take(eq, &[PutEnd, UNLINKED])[0];
        *delivered.entry(e.hdr_data).or_insert(0) += 1;
    }
    assert!(delivered.values().all(|times| *times == 1));
}

fn fence(r: &Rank) {
    for loud in [true, false] {
        for len in [8, 20_000, 300_000] {
            if r.is_target() {
                let t = r.target(len, |d| {
                    d.options = PUT | GET | REMOTE;
                    d.eq = d.eq.filter(|_| loud);
                });
                r.barrier();
                r.barrier();
                r.ni.me_unlink(t.me).expect("not in use");
                r.ni.md_unlink(t.md).expect("not in use");
            } else {
                let (s, d) = (r.source(len, |_| ()), r.source(len, |_| ()));
                d.buf.fill(0);
                r.barrier();
                r.settle();
                // With the ack awaited, and not.
                r.put_acked(&s, r.to(), 0);
                r.ni.get(d.md, r.to()).expect("the get starts");
                r.take_well(d.eq, &[ReplyStart, ReplyEnd]);
                assert!(d.buf.read() == s.buf.read());
                let second = Buf::pattern(len, 99);
                s.buf.write(0, &second);
                r.ni.put(s.md, NoAck, r.to(), 0).expect("the put starts");
                r.ni.get(d.md, r.to()).expect("the get starts");
                r.take_well(s.eq, &[SendStart, SendEnd]);
                r.take_well(d.eq, &[ReplyStart, ReplyEnd]);
                assert!(d.buf.read() == second);
                // A short one, of what comes last of the data.
                let third = Buf::pattern(len, 7);
                s.buf.write(0, &third);
                r.ni.put(s.md, NoAck, r.to(), 0).expect("the put starts");
                let end = len - 8;
                r.ni.get_region(d.md, (0, 8), r.at(end as u64))
                    .expect("the get starts");
                r.take_well(s.eq, &[SendStart, SendEnd]);
                r.take_well(d.eq, &[ReplyStart, ReplyEnd]);
                assert_eq!(d.buf.read()[..8], third[end..]);
                r.barrier();
            }
            r.barrier();
        }
    }
}
