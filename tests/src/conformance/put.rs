//! Puts: matching, fields, acks.

use super::rank::*;
use super::{Case, case};
use portals_shim::{Error, MdMemory, MdOptions, NiFail, ProcessId, Target, Unlink};

pub(super) const CASES: &[Case] = &[
    case(
        "a put with ack, every field",
        "30, 42, 43, 44, rule 30",
        fields,
    ),
    case(
        "the target's offset moves",
        "31, 32, rules 7-9",
        local_offset,
    ),
    case(
        "a truncating target says what it took",
        "33, 34, 35, rule 8",
        truncate,
    ),
    case("offsets do not wrap", "36, rule 8", wrap),
    case("a put of nothing is a put", "37, rule 23", nothing),
    case("regions lie within descriptors", "38, rule 23", regions),
    case(
        "a target can refuse to acknowledge",
        "39, rule 14",
        ack_disable,
    ),
    case("no ack comes unasked", "40, rule 14", no_ack),
    case(
        "a target without a queue works",
        "41, rule 34",
        silent_target,
    ),
    case("a process that does not exist", "46", nobody),
    case("a put to the own process", "47, rules 22, 42", own),
];

fn fields(r: &Rank) {
    let hdr = 0xfedc_ba98_7654_3210;
    if r.is_target() {
        let t = r.target(64, |d| d.options = PUT | REMOTE);
        r.barrier();
        let e = r.take(t.eq, &[PutStart, PutEnd]);
        for p in &e {
            assert_eq!(p.initiator, r.peer());
            assert_eq!((p.uid, p.jid), (r.ni.uid(), r.ni.jid()));
            assert_eq!((p.rlength, p.mlength, p.offset), (40, 40, 16));
            assert_eq!((p.pt_index, p.match_bits), (PORTAL, BITS));
            assert_eq!((p.hdr_data, p.md_handle), (hdr, t.md));
        }
        assert_eq!(e[0].link, e[1].link);
        let mut expected = vec![FILL; 64];
        expected[16..56].copy_from_slice(&Buf::pattern(64, 0)[8..48]);
        assert_eq!(t.buf.read(), expected);
        t.buf.check_guards();
        return;
    }
    let s = r.source(64, |d| d.user_ptr = 77);
    r.barrier();
    r.ni.put_region(s.md, (8, 40), Ack, r.at(16), hdr)
        .expect("the put starts");
    let e = r.take(s.eq, &[SendStart, SendEnd, ACKED]);
    for p in &e[..2] {
        assert_eq!(p.initiator, r.ni.id());
        assert_eq!((p.rlength, p.mlength, p.offset), (40, 40, 8));
        assert_eq!(p.hdr_data, hdr);
    }
    for p in &e {
        assert_eq!((p.uid, p.jid), (r.ni.uid(), r.ni.jid()));
        assert_eq!((p.pt_index, p.match_bits), (PORTAL, BITS));
        assert_eq!((p.md_handle, p.md.user_ptr), (s.md, 77));
        assert_eq!(p.ni_fail, NiFail::OK);
    }
    let ack = e[2];
    assert_eq!(ack.initiator, r.peer());
    assert_eq!((ack.rlength, ack.mlength, ack.offset), (40, 40, 16));
}

fn local_offset(r: &Rank) {
    if r.is_target() {
        let t = r.target(100, |_| ());
        r.barrier();
        for i in 0..6 {
            let e = r.take(t.eq, &[PutStart, PutEnd]);
            assert_eq!((e[0].offset, e[1].offset), (16 * i, 16 * i));
        }
        r.barrier();
        r.none(t.eq);
        assert_eq!(r.drops(), 1);
        let mut expected = Buf::pattern(16, 0).repeat(6);
        expected.extend([FILL; 4]);
        assert_eq!(t.buf.read(), expected);
        return;
    }
    let s = r.source(16, |_| ());
    r.barrier();
    for i in 0..7 {
        r.put(&s, (0, 16), NoAck, r.at(91 * i), 0);
    }
    r.barrier();
}

fn truncate(r: &Rank) {
    if r.is_target() {
        let t = r.target(10, |d| d.options = PUT | REMOTE | TRUNCATE);
        r.barrier();
        let e = r.take(t.eq, &[PutStart, PutEnd, PutStart, PutEnd]);
        assert_eq!((e[1].rlength, e[1].mlength), (16, 10));
        assert_eq!((e[3].rlength, e[3].mlength, e[3].offset), (16, 0, 10));
        r.barrier();
        r.none(t.eq);
        assert_eq!(r.drops(), 1);
        assert_eq!(t.buf.read(), Buf::pattern(10, 0));
        t.buf.check_guards();
        return;
    }
    let s = r.source(16, |_| ());
    r.barrier();
    for (offset, took) in [(0, 10), (10, 0)] {
        let ack = r.put_acked(&s, r.at(offset), 0);
        assert_eq!((ack.rlength, ack.mlength), (16, took));
    }
    r.put(&s, (0, 16), Ack, r.at(11), 0);
    r.barrier();
    r.none(s.eq);
}

fn wrap(r: &Rank) {
    for eq in [true, false] {
        if r.is_target() {
            let t = r.target(64, |d| {
                d.options = PUT | GET | REMOTE;
                d.eq = d.eq.filter(|_| eq);
            });
            let before = r.drops();
            r.barrier();
            r.barrier();
            assert_eq!(r.drops(), before + 2);
            assert_eq!(t.buf.read(), [FILL; 64]);
            t.buf.check_guards();
            r.ni.md_unlink(t.md).expect("not in use");
        } else {
            let s = r.source(16, |_| ());
            r.barrier();
            r.put(&s, (0, 16), NoAck, r.at(u64::MAX - 7), 0);
            r.ni.get(s.md, r.at(u64::MAX - 7)).expect("the get starts");
            r.barrier();
            r.none(s.eq);
        }
    }
}

fn nothing(r: &Rank) {
    if r.is_target() {
        let t = r.target(0, |d| {
            d.memory = MdMemory::Empty;
            d.threshold = 5;
        });
        r.barrier();
        let e = r.take(t.eq, &[PutStart, PutEnd]);
        assert_eq!((e[1].mlength, e[1].md.threshold), (0, 4));
        assert_eq!(e[1].md.start, 0);
        return;
    }
    let s = r.source(0, |d| d.memory = MdMemory::Empty);
    r.barrier();
    let ack = r.put_acked(&s, r.to(), 0);
    assert_eq!((ack.rlength, ack.mlength), (0, 0));
}

fn regions(r: &Rank) {
    if r.is_target() {
        let t = r.target(10, |d| d.options = PUT | GET | REMOTE);
        r.barrier();
        let puts = [PutStart, PutEnd, GetStart, GetEnd].repeat(2);
        r.take(t.eq, &puts);
        return;
    }
    let s = r.source(10, |_| ());
    r.barrier();
    for (region, legal) in [
        ((10, 0), true),
        ((3, 7), true),
        ((11, 0), false),
        ((3, 8), false),
        ((u64::MAX, 2), false),
        ((2, u64::MAX), false),
    ] {
        let put = r.ni.put_region(s.md, region, NoAck, r.to(), 0);
        if legal {
            put.expect("the put starts");
            r.take(s.eq, &[SendStart, SendEnd]);
            r.ni.get_region(s.md, region, r.to())
                .expect("the get starts");
            r.take(s.eq, &[ReplyStart, ReplyEnd]);
        } else {
            assert_eq!(put, Err(Error::MdIllegal));
            let get = r.ni.get_region(s.md, region, r.to());
            assert_eq!(get, Err(Error::MdIllegal));
        }
    }
    r.none(s.eq);
}

fn ack_disable(r: &Rank) {
    // With a queue the target's library answers, without one its NIC may.
    for eq in [true, false] {
        if r.is_target() {
            let t = r.target(16, |d| {
                d.options = PUT | REMOTE | MdOptions::ACK_DISABLE;
                d.eq = d.eq.filter(|_| eq);
            });
            r.barrier();
            r.barrier();
            r.ni.me_unlink(t.me).expect("not in use");
            r.ni.md_unlink(t.md).expect("not in use");
        } else {
            let s = r.source_with(4, Unlink::Unlink, |d| d.threshold = 2);
            r.barrier();
            r.put(&s, (0, 4), Ack, r.to(), 0);
            r.barrier();
            r.none(s.eq);
            assert_eq!(r.ni.md_query(s.md).expect("alive").threshold, 1);
        }
    }
}

fn no_ack(r: &Rank) {
    let times = r.many(100, 10);
    // Each rank's own target, for the puts to the own process too.
    let t = r.target(8, |d| {
        d.options = PUT | REMOTE;
        d.eq = None;
    });
    r.barrier();
    if !r.is_target() {
        let s = r.source(1, |_| ());
        for rank in [1, 0] {
            let to = r.to_rank(rank);
            r.put_acked(&s, to, 0);
            for _ in 0..times {
                r.put(&s, (0, 1), NoAck, to, 0);
            }
            let last = r.put_acked(&s, to, 0);
            assert_eq!(last.initiator, r.peers[rank]);
        }
        r.barrier();
        r.none(s.eq);
    } else {
        r.barrier();
    }
    r.none(t.eq);
}

fn silent_target(r: &Rank) {
    if r.is_target() {
        let t = r.target(8, |d| d.eq = None);
        r.barrier();
        r.barrier();
        assert_eq!(t.buf.read(), Buf::pattern(4, 0).repeat(2));
        r.none(t.eq);
        return;
    }
    let s = r.source(4, |_| ());
    r.barrier();
    r.put_acked(&s, r.to(), 0);
    r.put_acked(&s, r.to(), 0);
    r.barrier();
}

fn nobody(r: &Rank) {
    if r.is_target() {
        return;
    }
    let s = r.source(8, |_| ());
    let peer = r.peer();
    for process in [
        ProcessId::new(peer.nid, peer.pid + 1),
        ProcessId::new(peer.nid + 1000, peer.pid),
        ProcessId::ANY,
    ] {
        let to = Target { process, ..r.to() };
        match r.ni.put(s.md, Ack, to, 0) {
            Ok(()) => {
                r.take(s.eq, &[SendStart, SendEnd]);
            }
            Err(e) => assert_eq!(e, Error::ProcessInvalid),
        }
    }
    r.none(s.eq);
}

fn own(r: &Rank) {
    let (eq, buf) = (r.eq(16), Buf::new(8));
    let me =
        r.ni.me_attach(PORTAL, entry(BITS), After)
            .expect("an entry");
    let mut spec = md(buf.memory(), PUT | GET);
    spec.eq = Some(eq);
    let both =
        r.ni.md_attach(me, spec, Unlink::Retain)
            .expect("a descriptor");
    let to = r.to_rank(r.rank as usize);
    r.ni.put(both, Ack, to, 5).expect("the put starts");
    let e = r.take(eq, &[SendStart, SendEnd, PutStart, PutEnd, ACKED]);
    assert!(e.iter().all(|e| e.initiator == r.ni.id()));
    assert_eq!(e[3].hdr_data, 5);
    r.ni.put(both, NoAck, to, 5).expect("the put starts");
    // The descriptor is full now.
    r.take(eq, &[SendStart, SendEnd]);
    r.barrier();
    r.none(eq);
    assert_eq!(r.drops(), 1);
}
