//! Memory in pieces.

use super::case::{Case, EXCHANGE, LOCAL, case};
use super::pieces::iovec;
use super::rank::*;
use portals_shim::{Error, MdOptions, NiFail, Target, Unlink};

pub(super) const CASES: &[Case] = &[
    case(
        "bytes keep their order across pieces",
        "99, 100, 90, rules 11, 67, 70",
        across,
    ),
    case("gets and getputs cross pieces", "99", both_ways).not_served(EXCHANGE),
    case("long messages cross pieces", "99", long),
    case(
        "long messages of single pieces go side by side",
        "99",
        beside,
    ),
    case("pieces are limited", "101, rule 67", limited).not_served(LOCAL),
];

const PIECES: MdOptions = MdOptions::IOVEC;

fn bufs(lens: &[usize]) -> Vec<Buf> {
    lens.iter().map(|len| Buf::new(*len)).collect()
}

fn all(bufs: &[Buf]) -> Vec<u8> {
    bufs.iter().flat_map(Buf::read).collect()
}

/// Writes one pattern over all pieces.
fn spread(bufs: &[Buf], lens: &[usize], seed: u8) -> Vec<u8> {
    let data = Buf::pattern(lens.iter().sum(), seed);
    let mut from = 0;
    for (b, len) in bufs.iter().zip(lens) {
        b.write(0, &data[from..from + len]);
        from += len;
    }
    data
}

fn across(r: &Rank) {
    if r.is_target() {
        let into = bufs(&[6, 12]);
        let t = r.target(0, |d| {
            d.memory = iovec(&[&into[0], &into[1]], 0xabc0);
            d.options = PUT | PIECES;
        });
        r.barrier();
        let e = r.take(t.eq, &[PutStart, PutEnd, PutStart, PutEnd]);
        let at: Vec<_> = e.iter().map(|e| (e.offset, e.mlength)).collect();
        assert_eq!(at, [(0, 15), (0, 15), (15, 3), (15, 3)]);
        assert_eq!((e[0].md.start, e[0].md.length), (0xabc0, 2));
        let mut expected = Buf::pattern(15, 0);
        expected.extend_from_within(2..5);
        assert_eq!(all(&into), expected);
        into.iter().for_each(Buf::check_guards);
        // All 18 bytes are taken.
        r.barrier();
        r.none(t.eq);
        assert_eq!(r.drops(), 1);
        return;
    }
    let lens = [3, 0, 7, 5];
    let from = bufs(&lens);
    spread(&from, &lens, 0);
    let mut list: Vec<_> = from.iter().collect();
    let s = r.source(0, |d| {
        d.memory = iovec(&list, 0);
        d.options = PIECES;
    });
    // The caller's list is the caller's again.
    list.clear();
    r.barrier();
    r.put(&s, (0, 15), NoAck, r.to(), 0);
    r.put(&s, (2, 3), NoAck, r.to(), 0);
    r.put(&s, (0, 1), NoAck, r.to(), 0);
    r.barrier();
}

fn both_ways(r: &Rank) {
    let (mine, theirs) = ([5, 4], [2, 7]);
    if r.is_target() {
        let pieces = bufs(&theirs);
        spread(&pieces, &theirs, 40);
        let t = r.target(0, |d| {
            d.memory = iovec(&[&pieces[0], &pieces[1]], 0);
            d.options = PUT | GET | REMOTE | PIECES;
        });
        r.barrier();
        r.take(t.eq, &[GetPutStart, GetPutEnd]);
        assert_eq!(all(&pieces), Buf::pattern(9, 0));
        r.take(t.eq, &[GetStart, GetEnd]);
        return;
    }
    let pieces = bufs(&mine);
    spread(&pieces, &mine, 0);
    let s = r.source(0, |d| {
        d.memory = iovec(&[&pieces[0], &pieces[1]], 0);
        d.options = PIECES | NO_START;
    });
    r.barrier();
    r.ni.get_put(s.md, s.md, r.to(), 0)
        .expect("the getput starts");
    r.take(s.eq, &[SendEnd, ReplyEnd]);
    let mut expected = Buf::pattern(9, 40);
    assert_eq!(all(&pieces), expected);
    r.ni.get_region(s.md, (4, 2), r.at(1))
        .expect("the get starts");
    r.take(s.eq, &[ReplyEnd]);
    expected[4..6].copy_from_slice(&Buf::pattern(9, 0)[1..3]);
    assert_eq!(all(&pieces), expected);
}

/// Puts from single pieces of one descriptor, and gets from them, several under way at a time.
fn beside(r: &Rank) {
    const LEN: u64 = 30_000;
    let rounds = r.many(50, 6);
    let lens = [LEN as usize; 3];
    let pieces = bufs(&lens);
    let list: Vec<_> = pieces.iter().collect();
    let data = spread(&pieces, &lens, r.rank as u8);
    if r.is_target() {
        let t = r.target(data.len(), |d| d.options = PUT | REMOTE | NO_START);
        let me = r.ni.me_attach(PORTAL, entry(1), After).expect("an entry");
        let from = r.give(me, 0, Unlink::Retain, |d| {
            d.memory = iovec(&list, 0);
            d.options = GET | REMOTE | PIECES | NO_START;
        });
        r.barrier();
        for _ in 0..rounds {
            for (eq, kind) in [(t.eq, PutEnd), (from.eq, GetEnd)] {
                for e in r.take(eq, &[kind; 3]) {
                    assert_eq!(e.ni_fail, NiFail::OK, "{e:?}");
                }
            }
        }
        assert!(t.buf.read() == Buf::pattern(data.len(), 0));
        return r.barrier();
    }
    let s = r.source(0, |d| {
        d.memory = iovec(&list, 0);
        d.options = PIECES | NO_START;
    });
    let into = r.source(data.len(), |d| d.options = NO_START);
    r.barrier();
    for _ in 0..rounds {
        into.buf.fill(0);
        for n in 0..3 {
            let part = (n * LEN, LEN);
            r.ni.put_region(s.md, part, Ack, r.at(n * LEN), n)
                .expect("the put starts");
            let from = Target {
                match_bits: 1,
                ..r.at(n * LEN)
            };
            r.ni.get_region(into.md, part, from)
                .expect("the get starts");
        }
        for (eq, count) in [(s.eq, 6), (into.eq, 3)] {
            for _ in 0..count {
                let e = r.next(eq);
                assert_eq!(e.ni_fail, NiFail::OK, "{e:?}");
            }
        }
        assert!(into.buf.read() == Buf::pattern(data.len(), 1));
    }
    r.barrier();
}

fn long(r: &Rank) {
    let lens = [5000, 1, 9000, 33, 6000];
    let total: usize = lens.iter().sum();
    let pieces = bufs(&lens);
    let list: Vec<_> = pieces.iter().collect();
    if r.is_target() {
        let t = r.target(0, |d| {
            d.memory = iovec(&list, 0);
            d.options = PUT | GET | REMOTE | PIECES;
        });
        r.barrier();
        r.take(t.eq, &[PutStart, PutEnd]);
        assert!(all(&pieces)[7..] == Buf::pattern(total, 5)[..total - 7]);
        r.take(t.eq, &[GetStart, GetEnd]);
        pieces.iter().for_each(Buf::check_guards);
        return;
    }
    spread(&pieces, &lens, 5);
    let s = r.source(0, |d| {
        d.memory = iovec(&list, 0);
        d.options = PIECES;
    });
    r.barrier();
    let most = total as u64 - 7;
    r.put(&s, (0, most), NoAck, r.at(7), 0);
    pieces.iter().for_each(|p| p.fill(0));
    r.ni.get_region(s.md, (3, most), r.at(7))
        .expect("the get starts");
    r.take(s.eq, &[ReplyStart, ReplyEnd]);
    assert!(all(&pieces)[3..total - 4] == Buf::pattern(total, 5)[..total - 7]);
    pieces.iter().for_each(Buf::check_guards);
}

fn limited(r: &Rank) {
    let most = 64;
    assert_eq!(r.ni.limits().max_md_iovecs, most as i32);
    let piece = Buf::new(1);
    let bind = |n: usize| {
        let list = vec![&piece; n];
        r.ni.md_bind(md(iovec(&list, 0), PIECES), Unlink::Retain)
            .map(drop)
    };
    assert_eq!(bind(most), Ok(()));
    assert_eq!(bind(most + 1), Err(Error::MdIllegal));
}
