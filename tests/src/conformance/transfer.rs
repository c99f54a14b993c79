//! Puts: order, sizes, reuse of buffers.

use super::case::{Case, case};
use super::rank::*;
use portals_shim::{MdMemory, Target, Unlink};

pub(super) const CASES: &[Case] = &[
    case(
        "matching keeps the order of the puts",
        "48, rules 24, 29",
        order,
    ),
    case("every size arrives exactly", "49, rule 28", sizes),
    case("every size arrives without a queue", "49, 41", quiet_sizes).served(12),
    case(
        "a source may be overwritten after SEND_END",
        "50, rule 28",
        reuse,
    ),
    case(
        "a source of equal puts may be overwritten after their SEND_ENDs",
        "50, rules 27, 28",
        reuse_of_equals,
    ),
    case(
        "initiators know nothing of each other's order",
        "48, rules 24, 25",
        initiators,
    )
    .ranks(3),
    case(
        "STARTs keep the order, ENDs need not",
        "48, 78, rules 26, 27, 29",
        mixed,
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
            let received = || r.ni.status().expect("a status").recv_length;
            let before = received();
            r.barrier();
            if loud {
                r.take(eq, &[PutStart, PutEnd]);
                assert_eq!(received(), before + len as u64);
            }
            r.barrier();
            assert!(buf.read() == Buf::pattern(len, seed), "{len} bytes differ");
            buf.check_guards();
            r.ni.me_unlink(me).expect("not in use");
        } else {
            buf.write(0, &Buf::pattern(len, seed));
            let md = r.ni.md_bind(spec, Unlink::Retain).expect("a descriptor");
            r.barrier();
            r.settle();
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

/// Acks that say the same, and come while a later put of the same bytes is under way.
fn reuse_of_equals(r: &Rank) {
    const PUTS: u64 = 6;
    for len in [100, 3000, 12_000, 100_000] {
        if r.is_target() {
            let entries = (0..PUTS).map(|n| r.ni.me_attach(PORTAL, entry(n), After));
            let posted: Vec<_> = entries
                .map(|me| {
                    let me = me.expect("an entry");
                    r.give(me, len, Unlink::Retain, |d| d.options |= NO_START)
                })
                .collect();
            r.barrier();
            for (n, t) in posted.iter().enumerate() {
                r.take(t.eq, &[PutEnd]);
                let arrived = t.buf.read() == Buf::pattern(len, 0);
                assert!(arrived, "put {n} of {len} bytes differs");
                r.ni.me_unlink(t.me).expect("not in use");
            }
        } else {
            let s = r.source(len, |d| d.options |= NO_START);
            r.barrier();
            for n in 0..PUTS {
                let to = Target {
                    match_bits: n,
                    ..r.to()
                };
                r.ni.put(s.md, Ack, to, 0).expect("the put starts");
            }
            let (mut ended, mut acked) = (0, 0);
            while acked < PUTS {
                match r.next(s.eq).kind {
                    SendEnd => ended += 1,
                    kind => {
                        assert_eq!(kind, ACKED);
                        acked += 1;
                    }
                }
                if ended == PUTS {
                    s.buf.fill(0);
                }
                assert!(acked <= ended, "ack {acked}, but {ended} have ended");
            }
        }
        r.barrier();
    }
}

/// Each initiator's messages keep their order; how the two streams mix is nobody's promise.
fn initiators(r: &Rank) {
    let count = r.many(2000, 60);
    const BATCH: u64 = 20;
    if !r.is_target() {
        for first in (0..count).step_by(BATCH as usize) {
            r.barrier();
            for i in first..first + BATCH {
                r.knock(r.to_rank(1), i);
            }
        }
        return;
    }
    let t = r.target(0, |d| {
        d.memory = MdMemory::Empty;
        d.options = PUT | REMOTE | NO_END;
    });
    let mut next = [0; 3];
    for _ in 0..count / BATCH {
        r.barrier();
        for _ in 0..2 * BATCH {
            let e = r.take(t.eq, &[PutStart])[0];
            let from = r.peers.iter().position(|p| *p == e.initiator);
            let from = from.expect("a rank");
            assert_eq!(e.hdr_data, next[from]);
            next[from] += 1;
        }
    }
    assert_eq!(next, [count, 0, count]);
}

/// Long messages, which take their time, between short ones.
fn mixed(r: &Rank) {
    const COUNT: u64 = 12;
    let long = r.many(1 << 20, 40_000);
    if !r.is_target() {
        let s = r.source(long as usize, |d| d.eq = None);
        r.barrier();
        for i in 0..COUNT {
            let len = if i % 3 == 0 { long } else { i };
            r.ni.put_region(s.md, (0, len), NoAck, r.to(), i)
                .expect("the put starts");
        }
        return;
    }
    let t = r.target(long as usize, |d| d.options = PUT | REMOTE);
    r.barrier();
    let (mut started, mut open, mut ended) = (0, Vec::new(), Vec::new());
    for _ in 0..2 * COUNT {
        let e = r.next(t.eq);
        if e.kind == PutStart {
            assert_eq!(e.hdr_data, started);
            open.push(e.link);
            started += 1;
        } else {
            let at = open.iter().position(|l| *l == e.link);
            open.swap_remove(at.expect("START comes before END"));
            ended.push(e.hdr_data);
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..COUNT).collect::<Vec<_>>());
}
