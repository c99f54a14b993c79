//! Puts: order, sizes, reuse of buffers.

use super::rank::*;
use super::{Case, case};
use portals_shim::Unlink;

pub(super) const CASES: &[Case] = &[
    case(
        "matching keeps the order of the puts",
        "48, rules 24, 29",
        order,
    ),
    case("every size arrives exactly", "49, rule 28", sizes),
    case("every size arrives without a queue", "49, 41", quiet_sizes),
    case(
        "a source may be overwritten after SEND_END",
        "50, rule 28",
        reuse,
    ),
];

fn order(r: &Rank) {
    let count = r.many(10_000, 300);
    // As many as the queue holds between two meetings.
    const BATCH: u64 = 100;
    if r.is_target() {
        let t = r.target(64, |d| d.options = PUT | REMOTE);
        let mut next = 0;
        while next < count {
            r.barrier();
            let mut ends = 0;
            while ends < BATCH {
                let e = r.next(t.eq);
                if e.kind == PutStart {
                    assert_eq!(e.hdr_data, next);
                    next += 1;
                } else {
                    ends += 1;
                }
            }
        }
        return;
    }
    let s = r.source(64, |d| d.eq = None);
    for first in (0..count).step_by(BATCH as usize) {
        r.barrier();
        for i in first..first + BATCH {
            // Short and long ones, which fabrics carry differently.
            let len = if i % 3 == 0 { 64 } else { i % 17 };
            r.ni.put_region(s.md, (0, len), NoAck, r.to(), i)
                .expect("the put starts");
        }
    }
}

fn every_size(r: &Rank, loud: bool) {
    let mut sizes = vec![
        (0, 0),
        (1, 0),
        (12, 0),
        (13, 3),
        (16, 0),
        (17, 1),
        (63, 0),
        (64, 0),
        (65, 7),
        (4096, 0),
        (4097, 1),
        (8193, 0),
        (65_537, 5),
        (r.many((1 << 20) + 3, 200_003) as usize, 0),
    ];
    if r.many(1, 0) == 1 {
        sizes.push((64 << 20, 0));
    }
    for (seed, (len, shift)) in (1..).zip(sizes) {
        let buf = Buf::at(len, shift);
        let eq = r.eq(8);
        let mut spec = md(buf.memory(), PUT | REMOTE);
        spec.eq = (loud || !r.is_target()).then_some(eq);
        if r.is_target() {
            let me =
                r.ni.me_attach(PORTAL, entry(BITS), After)
                    .expect("an entry");
            r.ni.md_attach(me, spec, Unlink::Unlink)
                .expect("a descriptor");
            r.barrier();
            if loud {
                r.take(eq, &[PutStart, PutEnd]);
            }
            r.barrier();
            assert!(buf.read() == Buf::pattern(len, seed), "{len} bytes differ");
            buf.check_guards();
            r.ni.me_unlink(me).expect("not in use");
        } else {
            buf.write(0, &Buf::pattern(len, seed));
            let md = r.ni.md_bind(spec, Unlink::Retain).expect("a descriptor");
            r.barrier();
            r.ni.put(md, Ack, r.to(), 0).expect("the put starts");
            let e = r.take(eq, &[SendStart, SendEnd, ACKED]);
            assert_eq!(e[2].mlength, len as u64);
            r.barrier();
            r.ni.md_unlink(md).expect("not in use");
        }
        r.barrier();
    }
}

fn sizes(r: &Rank) {
    every_size(r, true);
}

fn quiet_sizes(r: &Rank) {
    every_size(r, false);
}

fn reuse(r: &Rank) {
    const LENS: [usize; 4] = [8, 100, 5000, 100_000];
    for len in LENS {
        if r.is_target() {
            let t = r.target(len, |_| ());
            r.barrier();
            r.take(t.eq, &[PutStart, PutEnd]);
            assert!(t.buf.read() == Buf::pattern(len, 0), "{len} bytes differ");
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            let s = r.source(len, |_| ());
            r.barrier();
            r.put(&s, (0, len as u64), NoAck, r.to(), 0);
            s.buf.fill(0);
        }
        r.barrier();
    }
}
