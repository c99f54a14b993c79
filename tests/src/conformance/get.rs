//! Gets and getputs.

use super::case::{Case, EXCHANGE, case};
use super::rank::*;
use portals_shim::{Error, MdMemory, MdSpec, Target, Unlink};

pub(super) const CASES: &[Case] = &[
    case("a get of a region, every field", "51, rules 16, 30", fields),
    case(
        "a get nobody answers leaves its descriptor free",
        "52, rule 61",
        unanswered,
    )
    .not_served("what nothing admits goes to the target's library"),
    case("a late reply touches nothing", "53, rules 18, 66, 71", late)
        .not_served("the unlink waits for the adapter; see the memory of a get that is given up"),
    case("the reply is a get's one count", "54, rule 39", threshold).served(1),
    case("a get longer than the target", "55, rules 8, 9", longer),
    case("a getput exchanges both memories", "56, rules 6, 21", swap).not_served(EXCHANGE),
    case(
        "a getput costs both descriptors one count",
        "56, rules 40, 41",
        counts,
    )
    .not_served(EXCHANGE),
    case("a getput has a longest length", "57", longest).not_served(EXCHANGE),
    case("getputs make a lock", "58, rule 21", lock)
        .ranks(8)
        .not_served(EXCHANGE),
    case(
        "getputs of every length lose nothing",
        "56, rules 21, 28",
        conserved,
    )
    .ranks(3)
    .not_served(EXCHANGE),
    case("a long reply is cut", "59, rule 18", cut).not_served(EXCHANGE),
    case("gets of every size", "49, rule 28", sizes).served(9),
    case(
        "gets of what is taken back end well",
        "51, rules 62, 64, 65",
        taken_back,
    )
    .served(20),
];

fn fields(r: &Rank) {
    if r.is_target() {
        let t = r.target(128, |d| d.options = GET | REMOTE);
        t.buf.write(0, &Buf::pattern(128, 9));
        r.barrier();
        let e = r.take(t.eq, &[GetStart, GetEnd]);
        for g in &e {
            assert_eq!(
                (g.initiator, g.uid, g.jid),
                (r.peer(), r.ni.uid(), r.ni.jid())
            );
            assert_eq!((g.rlength, g.mlength, g.offset), (32, 32, 64));
            assert_eq!((g.pt_index, g.match_bits, g.hdr_data), (PORTAL, BITS, 0));
        }
        assert_eq!(e[0].link, e[1].link);
        r.barrier();
        return;
    }
    let d = r.source(64, |_| ());
    r.barrier();
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
    }
    let mut expected = Buf::pattern(64, 0);
    expected[24..56].copy_from_slice(&Buf::pattern(128, 9)[64..96]);
    assert_eq!(d.buf.read(), expected);
    d.buf.check_guards();
    r.barrier();
    r.none(d.eq);
}

fn unanswered(r: &Rank) {
    if r.is_target() {
        let t = r.target(8, |_| ());
        r.barrier();
        r.barrier();
        r.none(t.eq);
        let s = r.ni.status().expect("a status");
        assert_eq!((s.drop_count, s.drop_length), (1, 8));
        return;
    }
    let d = r.source(8, |_| ());
    r.barrier();
    r.ni.get(d.md, r.to()).expect("the get starts");
    r.barrier();
    r.none(d.eq);
    assert_eq!(r.ni.md_unlink(d.md), Ok(()));
}

fn late(r: &Rank) {
    const LEN: usize = 100;
    if r.is_target() {
        let t = r.target(LEN, |d| d.options = GET | REMOTE);
        r.barrier();
        // Every get has come with the second barrier, and its reply is before the third.
        r.barrier();
        r.barrier();
        r.take(t.eq, &[GetStart, GetEnd]);
        return;
    }
    r.barrier();
    // While a fabric makes a connection, a thread of it makes progress, and may take a reply between two calls: then it
    // was not late.
    let unlinked = (0..20).find_map(|_| {
        let d = r.source(LEN, |_| ());
        r.ni.get(d.md, r.to()).expect("the get starts");
        r.ni.md_unlink(d.md)
            .expect("waiting for a reply is not use");
        if r.ni.eq_get(d.eq).expect("the queue is one").is_none() {
            return Some(d);
        }
        r.take(d.eq, &[ReplyEnd]);
        None
    });
    let d = unlinked.expect("a reply that is late");
    let spec = MdSpec {
        eq: Some(d.eq),
        ..md(d.buf.memory(), NONE)
    };
    // One of them has its place in the table.
    for _ in 0..600 {
        let md = r.ni.md_bind(spec.clone(), Unlink::Retain);
        md.expect("a descriptor");
    }
    r.barrier();
    r.barrier();
    r.none(d.eq);
    assert_eq!(d.buf.read(), Buf::pattern(LEN, 0));
    assert_eq!(r.drops(), 1);
}

fn threshold(r: &Rank) {
    for loud in [true, false] {
        if r.is_target() {
            let t = r.target(8, |d| {
                d.options = GET | REMOTE;
                d.eq = d.eq.filter(|_| loud);
            });
            r.barrier();
            r.barrier();
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            let d = r.source_with(8, Unlink::Unlink, |d| d.threshold = 1);
            r.barrier();
            r.settle();
            r.ni.get(d.md, r.to()).expect("the get starts");
            let e = r.take(d.eq, &[ReplyStart, ReplyEnd, UNLINKED]);
            assert_eq!(e[2].link, e[1].sequence);
            assert_eq!(r.ni.get(d.md, r.to()), Err(Error::MdInvalid));
            r.barrier();
        }
    }
}

fn longer(r: &Rank) {
    if r.is_target() {
        let t = r.target(5, |d| d.options = GET | TRUNCATE);
        r.barrier();
        assert_eq!(r.take(t.eq, &[GetStart, GetEnd])[1].mlength, 5);
        let mut strict = md(t.buf.memory(), GET);
        strict.eq = Some(t.eq);
        r.ni.md_update(t.md, strict, None).expect("unconditional");
        r.barrier();
        r.barrier();
        r.none(t.eq);
        assert_eq!(r.drops(), 1);
        return;
    }
    let d = r.source(8, |_| ());
    r.barrier();
    r.ni.get(d.md, r.to()).expect("the get starts");
    let e = r.take(d.eq, &[ReplyStart, ReplyEnd])[1];
    assert_eq!((e.rlength, e.mlength), (8, 5));
    let mut expected = vec![FILL; 5];
    expected.extend(&Buf::pattern(8, 0)[5..]);
    assert_eq!(d.buf.read(), expected);
    r.barrier();
    r.ni.get(d.md, r.to()).expect("the get starts");
    r.barrier();
    r.none(d.eq);
}

fn swap(r: &Rank) {
    swap_once(r);
    r.barrier();
    swap_lengths(r);
}

/// Of both memories every byte is exchanged, and none beside them.
fn swap_lengths(r: &Rank) {
    for len in [1, 7, 8, 9, 15, 16, 17, 24, 25, 47, 48, 49, 56, 63, 64] {
        let (there, here) = (Buf::pattern(len, 50), Buf::pattern(len, 0xa7));
        if r.is_target() {
            let t = r.target(len, |d| d.options = PUT | GET | REMOTE);
            t.buf.write(0, &there);
            r.barrier();
            let e = r.take(t.eq, &[GetPutStart, GetPutEnd]);
            assert_eq!((e[1].rlength, e[1].mlength), (len as u64, len as u64));
            assert_eq!(t.buf.read(), here, "{len} bytes");
            t.buf.check_guards();
            r.barrier();
            r.ni.me_unlink(t.me).expect("not in use");
        } else {
            let (get, put) = (r.source(len, |_| ()), r.source(len, |_| ()));
            put.buf.write(0, &here);
            r.barrier();
            r.ni.get_put(get.md, put.md, r.to(), 0)
                .expect("the getput starts");
            r.take(put.eq, &[SendStart, SendEnd]);
            r.take(get.eq, &[ReplyStart, ReplyEnd]);
            assert_eq!(get.buf.read(), there, "{len} bytes");
            assert_eq!(put.buf.read(), here, "{len} bytes");
            get.buf.check_guards();
            r.barrier();
        }
        r.barrier();
    }
}

fn swap_once(r: &Rank) {
    if r.is_target() {
        let t = r.target(8, |d| d.options = PUT | GET);
        t.buf.write(0, &Buf::pattern(8, 50));
        r.barrier();
        let e = r.take(t.eq, &[GetPutStart, GetPutEnd]);
        assert!(e.iter().all(|e| e.hdr_data == 0xabcd));
        assert_eq!(t.buf.read(), Buf::pattern(8, 0));
        for only in [PUT, GET] {
            let mut half = md(t.buf.memory(), only);
            half.eq = Some(t.eq);
            r.ni.md_update(t.md, half, None).expect("unconditional");
            r.barrier();
            r.barrier();
        }
        r.none(t.eq);
        assert_eq!(r.drops(), 2);
        return;
    }
    let (get, put) = (r.source(8, |d| d.threshold = 3), r.source(8, |_| ()));
    r.barrier();
    let exchange = || r.ni.get_put(get.md, put.md, r.to(), 0xabcd);
    exchange().expect("the getput starts");
    r.take(put.eq, &[SendStart, SendEnd]);
    let e = r.take(get.eq, &[ReplyStart, ReplyEnd]);
    assert_eq!((e[0].md.threshold, e[1].md.threshold), (2, 2));
    assert_eq!(e[1].mlength, 8);
    assert_eq!(get.buf.read(), Buf::pattern(8, 50));
    for _ in 0..2 {
        r.barrier();
        exchange().expect("the getput starts");
        r.take(put.eq, &[SendStart, SendEnd]);
        r.barrier();
    }
    r.none(get.eq);
    r.none(put.eq);
}

fn longest(r: &Rank) {
    let most = 64;
    assert_eq!(r.ni.limits().max_getput_md, 64);
    if r.is_target() {
        let t = r.target(most + 1, |d| d.options = PUT | GET);
        r.barrier();
        r.take(t.eq, &[GetPutStart, GetPutEnd]);
        let mut expected = Buf::pattern(most, 0xa7);
        expected.push(FILL);
        assert_eq!(t.buf.read(), expected);
        r.barrier();
        return;
    }
    let (fits, more) = (r.source(most, |_| ()), r.source(most + 1, |_| ()));
    fits.buf.write(0, &Buf::pattern(most, 0xa7));
    r.barrier();
    let too_long = r.ni.get_put(more.md, more.md, r.to(), 0);
    assert_eq!(too_long, Err(Error::MdIllegal));
    // A handle that names nothing is said before a length.
    let gone = r.source(most + 1, |_| ());
    r.ni.md_unlink(gone.md).expect("not in use");
    for (get, put) in [(gone.md, more.md), (more.md, gone.md)] {
        let begun = r.ni.get_put_region(get, put, (60, 60, 6), r.to(), 0);
        assert_eq!(begun, Err(Error::MdInvalid));
    }
    r.none(more.eq);
    r.ni.get_put(more.md, fits.md, r.to(), 0)
        .expect("the getput starts");
    r.take(fits.eq, &[SendStart, SendEnd]);
    let e = r.take(more.eq, &[ReplyStart, ReplyEnd]);
    assert_eq!(e[1].mlength, 64);
    let mut expected = vec![FILL; most];
    expected.push(Buf::pattern(most + 1, 0)[most]);
    assert_eq!(more.buf.read(), expected);
    r.barrier();
}

/// Rounds after which the ranks meet: on a busy machine, the first to have done all of its own would wait for the others for
/// longer than a rank waits for an event.
const ROUNDS_TOGETHER: u64 = 20;

/// Every rank, the owner of the lock too, takes it and increments what it guards.
fn lock(r: &Rank) {
    let rounds = r.many(1000, 10);
    const COUNTER: u64 = BITS + 1;
    let (lock, counter) = (Buf::new(8), Buf::new(8));
    if r.is_target() {
        for (buf, bits) in [(&lock, BITS), (&counter, COUNTER)] {
            buf.fill(0);
            let me =
                r.ni.me_attach(PORTAL, entry(bits), After)
                    .expect("an entry");
            let spec = md(buf.memory(), PUT | GET | REMOTE);
            r.ni.md_attach(me, spec, Unlink::Retain)
                .expect("a descriptor");
        }
    }
    let s = r.source(8, |d| d.options = NO_START);
    let d = r.source(8, |d| d.options = NO_START);
    let lock_at = r.to_rank(1);
    let counter_at = Target {
        match_bits: COUNTER,
        ..lock_at
    };
    r.barrier();
    let exchange = |value: u64| {
        s.buf.write(0, &value.to_le_bytes());
        r.ni.get_put(d.md, s.md, lock_at, 0)
            .expect("the getput starts");
        r.take(s.eq, &[SendEnd]);
        r.take(d.eq, &[ReplyEnd]);
        d.buf.read()
    };
    for done in 1..=rounds {
        while exchange(1) != [0; 8] {}
        r.ni.get(d.md, counter_at).expect("the get starts");
        r.take(d.eq, &[ReplyEnd]);
        let old = d.buf.read().try_into().map(u64::from_le_bytes);
        let new = old.expect("8 bytes") + 1;
        s.buf.write(0, &new.to_le_bytes());
        r.ni.put(s.md, Ack, counter_at, 0).expect("the put starts");
        r.take(s.eq, &[SendEnd, ACKED]);
        assert_eq!(exchange(0), 1u64.to_le_bytes());
        if done.is_multiple_of(ROUNDS_TOGETHER) {
            r.barrier();
        }
    }
    r.barrier();
    if r.is_target() {
        let total = rounds * r.peers.len() as u64;
        assert_eq!(counter.read(), total.to_le_bytes());
    }
}

/// Two ranks exchange what they have with one place of a third: in the end everything is somewhere, once.
fn conserved(r: &Rank) {
    const LISTS: u64 = BITS + 1;
    let (lengths, rounds) = ([8, 16, 17, 24, 48, 49, 63, 64], r.many(200, 40));
    let kept = rounds as usize * 8;
    // A value that nobody else has, and behind it bytes that differ from those of the exchanges before and after.
    let value = |who: u32, n: u64, len: usize| {
        let mut all = (u64::from(who) << 32 | n).to_le_bytes().to_vec();
        all.extend((8..len as u64).map(|i| (n * 37 + u64::from(who) * 101 + i * 7) as u8));
        all
    };
    let whole = |seen: &[u8]| {
        let unit = u64::from_le_bytes(seen[..8].try_into().expect("8 bytes"));
        let (who, n) = ((unit >> 32) as u32, unit & 0xffff_ffff);
        assert_eq!(seen, value(who, n, seen.len()), "of one exchange");
    };
    for len in lengths {
        if r.rank == 0 {
            let t = r.target(len, |d| {
                (d.options, d.eq) = (PUT | GET | REMOTE, None);
            });
            t.buf.write(0, &value(0, 0, len));
            let me = r.ni.me_attach(PORTAL, entry(LISTS), After);
            let lists = Buf::new(2 * kept);
            let spec = md(lists.memory(), PUT | REMOTE);
            r.ni.md_attach(me.expect("an entry"), spec, Unlink::Retain)
                .expect("a descriptor");
            r.barrier();
            r.barrier();
            let mut all: Vec<Vec<u8>> = lists.read().chunks(8).map(<[u8]>::to_vec).collect();
            let last = t.buf.read();
            whole(&last);
            t.buf.check_guards();
            all.push(last[..8].to_vec());
            let mut begun: Vec<_> = [1, 2]
                .iter()
                .flat_map(|who| (0..rounds).map(move |n| value(*who, n, 8)))
                .collect();
            begun.push(value(0, 0, 8));
            all.sort_unstable();
            begun.sort_unstable();
            assert_eq!(all, begun, "{len} bytes");
            for gone in [t.me, me.expect("an entry")] {
                r.ni.me_unlink(gone).expect("not in use");
            }
            r.barrier();
            continue;
        }
        let (put, get) = (
            r.source(len, |d| d.options = NO_START),
            r.source(len, |d| d.options = NO_START),
        );
        let list = r.source(kept, |_| ());
        r.barrier();
        for n in 0..rounds {
            put.buf.write(0, &value(r.rank, n, len));
            r.ni.get_put(get.md, put.md, r.to_rank(0), 0)
                .expect("the getput starts");
            r.take(put.eq, &[SendEnd]);
            r.take(get.eq, &[ReplyEnd]);
            let seen = get.buf.read();
            whole(&seen);
            list.buf.write(n as usize * 8, &seen[..8]);
        }
        let to = Target {
            match_bits: LISTS,
            remote_offset: u64::from(r.rank - 1) * kept as u64,
            ..r.to_rank(0)
        };
        r.ni.put(list.md, Ack, to, 0).expect("the put starts");
        r.take(list.eq, &[SendStart, SendEnd, ACKED]);
        r.barrier();
        r.barrier();
    }
}

fn cut(r: &Rank) {
    if r.is_target() {
        r.target(16, |d| d.options = PUT | GET);
        r.barrier();
        return;
    }
    let (get, put) = (r.source(5, |_| ()), r.source(16, |_| ()));
    r.barrier();
    r.ni.get_put(get.md, put.md, r.to(), 0)
        .expect("the getput starts");
    let e = r.take(get.eq, &[ReplyStart, ReplyEnd])[1];
    assert_eq!((e.rlength, e.mlength), (16, 5));
    assert_eq!(get.buf.read(), [FILL; 5]);
    get.buf.check_guards();
}

fn sizes(r: &Rank) {
    let large = r.many((1 << 20) + 3, 200_003) as usize;
    for loud in [true, false] {
        for len in [0, 1, 12, 13, 64, 65, 4097, 8193, 65_537, large] {
            if r.is_target() {
                let t = r.target(len, |d| {
                    d.options = GET | REMOTE;
                    d.eq = d.eq.filter(|_| loud);
                });
                t.buf.write(0, &Buf::pattern(len, 3));
                r.barrier();
                r.barrier();
                r.ni.me_unlink(t.me).expect("not in use");
                r.ni.md_unlink(t.md).expect("not in use");
            } else {
                let d = r.source(len, |_| ());
                r.barrier();
                r.settle();
                r.ni.get(d.md, r.to()).expect("the get starts");
                assert_eq!(r.take(d.eq, &[ReplyStart, ReplyEnd])[1].mlength, len as u64);
                assert!(d.buf.read() == Buf::pattern(len, 3), "{len} bytes differ");
                d.buf.check_guards();
                r.barrier();
            }
            r.barrier();
        }
    }
}

/// The put descriptor's at the call, the get descriptor's at the reply, the target's one; and what
/// is dropped costs the target nothing.
fn counts(r: &Rank) {
    if r.is_target() {
        let t = r.target(8, |d| {
            d.options = PUT | GET | REMOTE;
            d.threshold = 9;
        });
        r.barrier();
        let e = r.take(t.eq, &[GetPutStart, GetPutEnd, PutStart, PutEnd]);
        assert_eq!((e[0].md.threshold, e[3].md.threshold), (8, 7));
        let e = r.take(t.eq, &[GetStart, GetEnd]);
        assert_eq!(e[1].md.threshold, 6);
        r.barrier();
        r.none(t.eq);
        assert_eq!(r.drops(), 1);
        assert_eq!(r.ni.md_query(t.md).expect("alive").threshold, 6);
        return;
    }
    let (get, put) = (
        r.source_with(8, Unlink::Unlink, |d| d.threshold = 1),
        r.source_with(8, Unlink::Unlink, |d| d.threshold = 1),
    );
    let s = r.source(8, |_| ());
    r.barrier();
    r.ni.get_put(get.md, put.md, r.to(), 0)
        .expect("the getput starts");
    let e = r.take(put.eq, &[SendStart, SendEnd, UNLINKED]);
    assert_eq!(e[0].md.threshold, 0);
    let e = r.take(get.eq, &[ReplyStart, ReplyEnd, UNLINKED]);
    assert_eq!(e[0].md.threshold, 0);
    // The ack costs the target nothing.
    r.put_acked(&s, r.to(), 0);
    r.ni.get(s.md, r.to()).expect("the get starts");
    r.take(s.eq, &[ReplyStart, ReplyEnd]);
    r.put(&s, (0, 8), NoAck, r.at(1), 0);
    r.barrier();
}

/// A descriptor comes and goes in front of another with the same bytes: each get finds one of them.
fn taken_back(r: &Rank) {
    const LEN: usize = 10_000;
    let bytes = Buf::pattern(LEN, 3);
    if !r.is_target() {
        let d = r.source(LEN, |_| ());
        r.barrier();
        r.settle();
        for n in 0..r.many(400, 40) {
            // At first nothing comes or goes.
            if n == 20 {
                r.barrier();
            }
            d.buf.fill(0);
            let len = [8, 192, 1000, LEN][n as usize % 4];
            let from = r.at((LEN - len) as u64);
            r.ni.get_region(d.md, (0, len as u64), from)
                .expect("the get starts");
            r.take_well(d.eq, &[ReplyStart, ReplyEnd]);
            assert!(d.buf.read()[..len] == bytes[LEN - len..], "get {n}");
        }
        r.knock(r.to(), 0);
        return r.barrier();
    }
    let quiet = |d: &mut MdSpec| {
        d.options = GET | REMOTE;
        d.eq = None;
    };
    let behind = r.target(LEN, quiet);
    let front = Buf::new(LEN);
    for buf in [&behind.buf, &front] {
        buf.write(0, &bytes);
    }
    let over = r.target(0, |d| d.memory = MdMemory::Empty);
    r.barrier();
    r.barrier();
    while r.ni.eq_get(over.eq).expect("a queue").is_none() {
        let me = r.ni.me_insert(behind.me, entry(BITS), Before);
        let me = me.expect("an entry");
        let mut spec = md(front.memory(), NONE);
        quiet(&mut spec);
        let md = r.ni.md_attach(me, spec, Unlink::Retain);
        loop {
            match r.ni.me_unlink(me) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, Error::MeInUse),
            }
        }
        r.ni.md_unlink(md.expect("a descriptor"))
            .expect("not in use");
    }
    r.barrier();
}
