//! Puts: matching, fields, acks.

use super::case::{COUNTS, Case, LOCAL, case};
use super::rank::*;
use portals_shim::{
    ANY, AcEntry, Error, MdMemory, MdOptions, MdSpec, NiFail, ProcessId, Target, Unlink, Wait,
};
use std::collections::HashSet;

pub(super) const CASES: &[Case] = &[
    case(
        "a put with ack, every field",
        "30, 42, 43, 44, rules 15, 30",
        fields,
    ),
    case(
        "the target's offset moves",
        "31, 32, rules 7-9, 41",
        local_offset,
    )
    .not_served(COUNTS),
    case(
        "a truncating target says what it took",
        "33, 34, 35, rule 8",
        truncate,
    )
    .not_served("a descriptor that truncates is not advertised"),
    case(
        "acks of what is cut off follow SEND_END",
        "33, rules 8, 27",
        cut_off,
    )
    .not_served("a descriptor that truncates is not advertised"),
    case(
        "acks of long puts to a queue follow SEND_END",
        "33, rules 27, 60",
        written,
    )
    .not_served("its descriptor has a queue"),
    case("offsets do not wrap", "36, rule 8", wrap).served(0),
    case("a put of nothing is a put", "37, rule 23", nothing)
        .not_served("there is nothing for an adapter to move"),
    case("regions lie within descriptors", "38, rule 23", regions),
    case(
        "a target can refuse to acknowledge",
        "39, rule 14",
        ack_disable,
    )
    .served(1),
    case("no ack comes unasked", "40, rule 14", no_ack).served(11),
    case(
        "a target without a queue works",
        "41, rule 34",
        silent_target,
    )
    .not_served("the descriptor keeps its own offset"),
    case("a process that does not exist", "46, rules 1, 36", nobody)
        .not_served("nobody advertises anything"),
    case("a put to the own process", "47, rules 22, 42", own)
        .not_served("messages to the own process stay in its library"),
    case(
        "puts to the own process are delivered by looks that find events",
        "47, rules 22, 42",
        own_in_a_row,
    )
    .not_served("messages to the own process stay in its library"),
    case(
        "sends do not move the local offset",
        "31, rules 7, 20, 42",
        offsets,
    )
    .not_served(COUNTS),
    case(
        "drops are counted, of every kind",
        "45, 52, rules 9, 71",
        drops,
    )
    .not_served("what nothing admits goes to the target's library"),
    case(
        "an ack that nobody awaits is dropped",
        "60, rule 17",
        late_ack,
    )
    .served(3),
    case(
        "job and user are the process's own",
        "27, 44, rule 4",
        identity,
    )
    .not_served(LOCAL),
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
    assert_eq!(ack.hdr_data, 0);
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

fn cut_off(r: &Rank) {
    let sizes = [0, 90, 3000, 20_000, 90_198];
    let times = r.many(40, 8);
    if r.is_target() {
        let t = r.target(90, |d| d.options = PUT | REMOTE | TRUNCATE | NO_START);
        r.barrier();
        for size in sizes {
            for _ in 0..times {
                let e = r.take(t.eq, &[PutEnd]);
                assert_eq!((e[0].rlength, e[0].mlength), (size, size.min(90)));
            }
        }
        r.barrier();
        return;
    }
    let s = r.source(90_198, |d| d.options = NO_START);
    r.barrier();
    for size in sizes {
        for _ in 0..times {
            r.ni.put_region(s.md, (0, size), Ack, r.to(), 0)
                .expect("the put starts");
        }
        let (mut ends, mut acks) = (0, 0);
        while acks < times {
            let e = r.next(s.eq);
            assert_eq!((e.ni_fail, e.rlength), (NiFail::OK, size), "{e:?}");
            match e.kind {
                SendEnd => ends += 1,
                kind => {
                    assert_eq!(kind, ACKED);
                    acks += 1;
                }
            }
            assert!(ends >= acks, "{size} bytes: ack {acks} after {ends} ends");
        }
        assert_eq!(ends, times);
    }
    r.barrier();
}

/// Puts that adapters write where they go, with events of the target: its ack is a message, which may be here before the
/// adapter's own word that the data has left. Both ways at one time; an ack ends the use of its descriptor (rule 60).
fn written(r: &Rank) {
    const WINDOW: u64 = 24;
    let times = r.many(2000, 600);
    let size = |n: u64| 2048 + n * 709 % 4096;
    let (taking, eq) = (r.eq(times), r.eq(256));
    let t = r.target(8192, |d| {
        (d.options, d.eq) = (PUT | REMOTE | NO_START, Some(taking));
    });
    let memory = Buf::new(8192);
    r.barrier();
    let (mut begun, mut taken, mut acks) = (0, 0, 0);
    let mut ended = HashSet::new();
    while acks < times || taken < times {
        while begun < times && begun - acks < WINDOW {
            let spec = MdSpec {
                eq: Some(eq),
                options: NO_START,
                ..md(memory.memory(), NONE)
            };
            let md = r.ni.md_bind(spec, Unlink::Retain).expect("a descriptor");
            r.ni.put_region(md, (0, size(begun)), Ack, r.to(), begun)
                .expect("the put starts");
            begun += 1;
        }
        let polled = r.ni.eq_poll(&[taking, eq], Wait::Nanos(20_000_000_000));
        let e = polled
            .expect("the queues are some")
            .expect("an event")
            .event;
        assert_eq!(e.ni_fail, NiFail::OK, "{e:?}");
        match e.kind {
            PutEnd => {
                assert_eq!((e.hdr_data, e.mlength), (taken, size(taken)));
                taken += 1;
            }
            SendEnd => assert!(ended.insert(e.md_handle)),
            kind => {
                assert_eq!(kind, ACKED);
                assert!(ended.remove(&e.md_handle), "ack {acks} before its end");
                r.ni.md_unlink(e.md_handle).expect("not in use");
                acks += 1;
            }
        }
    }
    r.barrier();
    t.buf.check_guards();
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
            r.settle();
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
            r.settle();
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
        r.settle();
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
    let s = r.source(8, |d| d.threshold = 10);
    let peer = r.peer();
    let mut left = 10;
    for process in [
        ProcessId::new(peer.nid, peer.pid + 1),
        ProcessId::new(peer.nid + 1000, peer.pid),
        ProcessId::ANY,
    ] {
        let to = Target { process, ..r.to() };
        match r.ni.put(s.md, Ack, to, 0) {
            Ok(()) => {
                // The count is spent whether the fabric tells of the failure or not.
                let e = r.take(s.eq, &[SendStart, SendEnd]);
                left -= 1;
                assert_eq!(e[0].ni_fail, NiFail::OK);
                assert!([NiFail::OK, NiFail::FAIL].contains(&e[1].ni_fail));
                assert_eq!(e[1].md.threshold, left);
                // A fabric that has given the target up may say that no ack will come.
                while let Some(p) = r.ni.eq_get(s.eq).expect("a queue") {
                    left -= 1;
                    assert_eq!((p.event.kind, p.event.ni_fail), (ACKED, NiFail::FAIL));
                }
            }
            Err(e) => assert_eq!(e, Error::ProcessInvalid),
        }
    }
    r.none(s.eq);
    assert_eq!(r.ni.md_unlink(s.md), Ok(()));
}

fn own(r: &Rank) {
    let (eq, buf) = (r.eq(16), Buf::new(8));
    let me =
        r.ni.me_attach(PORTAL, entry(BITS), After)
            .expect("an entry");
    let spec = MdSpec {
        eq: Some(eq),
        threshold: 9,
        ..md(buf.memory(), PUT | GET)
    };
    let both =
        r.ni.md_attach(me, spec, Unlink::Retain)
            .expect("a descriptor");
    let to = r.to_rank(r.rank as usize);
    r.ni.put(both, Ack, to, 5).expect("the put starts");
    let e = r.take(eq, &[SendStart, SendEnd, PutStart, PutEnd, ACKED]);
    assert!(e.iter().all(|e| e.initiator == r.ni.id()));
    // Source, target and ack cost one each.
    let left: Vec<_> = e.iter().map(|e| e.md.threshold).collect();
    assert_eq!(left, [8, 8, 7, 7, 6]);
    assert_eq!(e[3].hdr_data, 5);
    r.ni.put(both, NoAck, to, 5).expect("the put starts");
    // The descriptor is full now.
    r.take(eq, &[SendStart, SendEnd]);
    r.barrier();
    r.none(eq);
    assert_eq!(r.drops(), 1);
}

/// A process that puts to itself, and takes the one event of each put as soon as it is there, gets what it has put.
fn own_in_a_row(r: &Rank) {
    let rounds = r.rounds(2000, 200);
    let s = r.source(8, |d| d.options |= NO_START);
    let taken = r.eq(rounds + 1);
    r.target(8, |d| {
        d.options = PUT | REMOTE | NO_START;
        d.eq = Some(taken);
    });
    let to = r.to_rank(r.rank as usize);
    let received = || r.ni.status().expect("a status").recv_count;
    let before = received();
    for round in 0..rounds {
        r.ni.put(s.md, NoAck, to, round).expect("the put starts");
        while r.ni.eq_get(s.eq).expect("a queue").is_none() {}
    }
    // No call has waited for them; over a network most may still be under way.
    let seen = received() - before;
    assert!(seen >= rounds / 8, "{seen} of {rounds}");
    for round in 0..rounds {
        assert_eq!(r.next(taken).hdr_data, round);
    }
}

/// One descriptor is the source of puts and gets, and the target of others.
fn offsets(r: &Rank) {
    if !r.is_target() {
        let s = r.source(8, |_| ());
        let sink = r.target(64, |d| d.options = PUT | GET | REMOTE);
        for hdr in 0..3 {
            r.barrier();
            r.take(sink.eq, &[PutStart, PutEnd, PutStart, PutEnd]);
            r.take(sink.eq, &[GetStart, GetEnd]);
            r.put_acked(&s, r.to(), hdr);
        }
        return;
    }
    let t = r.target(64, |_| ());
    for hdr in 0..3 {
        r.barrier();
        // The whole descriptor, then a part.
        r.ni.put(t.md, NoAck, r.to(), 0).expect("the put starts");
        let e = r.take(t.eq, &[SendStart, SendEnd]);
        assert_eq!((e[1].rlength, e[1].offset), (64, 0));
        r.ni.put_region(t.md, (40, 9), NoAck, r.to(), 0)
            .expect("the put starts");
        let e = r.take(t.eq, &[SendStart, SendEnd]);
        assert_eq!((e[1].rlength, e[1].offset), (9, 40));
        r.ni.get_region(t.md, (60, 4), r.to())
            .expect("the get starts");
        r.take(t.eq, &[ReplyStart, ReplyEnd]);
        let e = r.take(t.eq, &[PutStart, PutEnd])[1];
        assert_eq!((e.hdr_data, e.offset), (hdr, 8 * hdr));
    }
}

fn drops(r: &Rank) {
    if r.is_target() {
        // A put only, shorter than what comes.
        let t = r.target(4, |_| ());
        for lengths in [8, 16, 24] {
            r.barrier();
            r.barrier();
            let s = r.ni.status().expect("a status");
            assert_eq!((s.drop_count, s.drop_length), (lengths / 8, lengths));
            assert_eq!(s.recv_length, 0);
        }
        r.none(t.eq);
        return;
    }
    let (s, d) = (r.source(8, |_| ()), r.source(8, |_| ()));
    r.barrier();
    r.put(&s, (0, 8), Ack, r.to(), 0);
    r.barrier();
    r.barrier();
    r.ni.get(d.md, r.to()).expect("the get starts");
    r.barrier();
    r.barrier();
    r.ni.get_put(d.md, s.md, r.to(), 0)
        .expect("the getput starts");
    r.take(s.eq, &[SendStart, SendEnd]);
    r.barrier();
    r.none(s.eq);
    r.none(d.eq);
}

/// Acks whose descriptor has gone, has been made anew, or is inactive.
fn late_ack(r: &Rank) {
    if r.is_target() {
        r.target(8, |d| {
            d.options = PUT | REMOTE;
            d.eq = None;
        });
        r.barrier();
        r.barrier();
        return;
    }
    r.barrier();
    r.settle();
    for unlink in [Unlink::Unlink, Unlink::Retain, Unlink::Unlink] {
        let before = r.drops();
        let s = r.source_with(8, unlink, |d| d.threshold = 1);
        r.ni.put(s.md, Ack, r.to(), 0).expect("the put starts");
        r.take(s.eq, &[SendStart, SendEnd]);
        let again = MdSpec {
            eq: Some(s.eq),
            ..md(s.buf.memory(), NONE)
        };
        if unlink == Unlink::Unlink {
            r.take(s.eq, &[UNLINKED]);
            r.ni.md_bind(again, Unlink::Retain).expect("a descriptor");
        }
        // Something comes back after it.
        r.one_more_drop(before, s.eq);
    }
    r.barrier();
}

fn identity(r: &Rank) {
    let id = r.ni.id();
    assert_eq!(id, r.peers[r.rank as usize]);
    assert_eq!(r.ni.distance(id), Ok(0));
    assert_eq!(r.ni.distance(r.peer()), Ok(1));
    let nobody = ProcessId::new(id.nid + 1000, id.pid);
    assert_eq!(r.ni.distance(nobody), Err(Error::ProcessInvalid));
    if !r.is_target() {
        r.barrier();
        r.knock(r.to(), 0);
        return;
    }
    let t = r.target(0, |d| d.memory = MdMemory::Empty);
    let entry = AcEntry {
        match_id: r.peer(),
        uid: r.ni.uid(),
        jid: r.ni.jid(),
        pt_index: ANY,
    };
    r.ni.ac_entry(0, entry).expect("legal");
    r.barrier();
    let e = r.take(t.eq, &[PutStart, PutEnd])[1];
    assert_eq!((e.uid, e.jid), (entry.uid, entry.jid));
}
