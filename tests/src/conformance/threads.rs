//! Threads of one rank (rules 59 and 73): any of them may call anything.

use super::case::{Case, LOCAL, case};
use super::rank::*;
use portals_shim::{Interface, MdMemory, MdSpec, Target, Unlink, Wait};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const CASES: &[Case] = &[
    case("each event goes to one waiter", "88, rules 59, 73", waiters).not_served(LOCAL),
    case("any thread may call anything", "74, 88, rules 60, 73", all).not_served(LOCAL),
];

const WAITERS: u64 = 3;

fn waiters(r: &Rank) {
    let count = r.many(2000, 200);
    let eq = r.eq(2 * count);
    // Every rank sends to every other, and to itself.
    let mut quiet = md(MdMemory::Empty, PUT | REMOTE | NO_START);
    quiet.eq = Some(eq);
    let me =
        r.ni.me_attach(PORTAL, entry(BITS), After)
            .expect("an entry");
    r.ni.md_attach(me, quiet, Unlink::Retain)
        .expect("a descriptor");
    r.barrier();
    for i in 0..count {
        r.knock(r.to_rank(0), i);
        r.knock(r.to_rank(1), i);
    }
    let all = 2 * count;
    let (taken, seen) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let ni = &r.ni;
    std::thread::scope(|s| {
        for _ in 0..WAITERS {
            s.spawn(|| {
                let mut mine = Vec::new();
                // A waiter that finds nothing looks whether the others have found all.
                while taken.load(Ordering::Acquire) < all {
                    let polled = ni.eq_poll(&[eq], Wait::Nanos(1_000_000)).expect("a queue");
                    if let Some(p) = polled {
                        assert!(!p.dropped);
                        mine.push((p.event.initiator, p.event.hdr_data));
                        taken.fetch_add(1, Ordering::AcqRel);
                    }
                }
                seen.lock().expect("no thread failed").extend(mine);
            });
        }
    });
    let mut seen = seen.into_inner().expect("no thread failed");
    seen.sort_unstable();
    let mut expected: Vec<_> = r
        .peers
        .iter()
        .flat_map(|p| (0..count).map(|i| (*p, i)))
        .collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    r.barrier();
    r.none(eq);
}

/// What one thread does, in its own memory and with its own match bits: objects come and go,
/// messages of every kind reach the same thread's place at the peer.
fn work(ni: &Interface, to: Target, rounds: u64) {
    const LEN: usize = 24;
    let eq = ni.eq_alloc(32).expect("a queue");
    let next = || loop {
        let polled = ni.eq_poll(&[eq], Wait::Nanos(1_000_000)).expect("a queue");
        if let Some(p) = polled {
            assert!(!p.dropped);
            return p.event;
        }
    };
    let buf = Buf::new(LEN);
    for round in 0..rounds {
        let spec = MdSpec {
            eq: Some(eq),
            ..md(buf.memory(), NO_START)
        };
        let md = ni.md_bind(spec, Unlink::Retain).expect("a descriptor");
        let (data, kinds) = (Buf::pattern(LEN, round as u8), [SendEnd, ACKED]);
        buf.write(0, &data);
        ni.put(md, Ack, to, round).expect("the put starts");
        for kind in kinds {
            let e = next();
            assert_eq!(
                (e.kind, e.match_bits, e.md_handle),
                (kind, to.match_bits, md)
            );
        }
        buf.fill(0);
        ni.get(md, to).expect("the get starts");
        assert_eq!(next().kind, ReplyEnd);
        assert_eq!(buf.read(), data);
        ni.get_put(md, md, to, 0).expect("the getput starts");
        let mut two = [next().kind, next().kind];
        two.sort_by_key(|k| *k as u32);
        assert_eq!(two, [ReplyEnd, SendEnd]);
        assert_eq!(ni.md_unlink(md), Ok(()), "round {round}");
        let spare = ni
            .me_attach(PORTAL + 1, entry(to.match_bits), After)
            .expect("an entry");
        ni.me_unlink(spare).expect("not in use");
    }
    buf.check_guards();
    ni.eq_free(eq).expect("not in use");
}

fn all(r: &Rank) {
    const THREADS: u64 = 3;
    let rounds = r.rounds(2000, 15);
    for thread in 0..THREADS {
        let me =
            r.ni.me_attach(PORTAL, entry(BITS + thread), After)
                .expect("an entry");
        let place = md(Buf::new(24).memory(), PUT | GET | REMOTE);
        r.ni.md_attach(me, place, Unlink::Retain)
            .expect("a descriptor");
    }
    r.barrier();
    let (ni, to) = (&r.ni, r.to());
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let to = Target {
                match_bits: BITS + thread,
                ..to
            };
            s.spawn(move || work(ni, to, rounds));
        }
    });
    r.barrier();
}
