//! A peer that does not keep to the protocol: what it says is counted and dropped, and hurts nobody else.

use super::raw::{Raw, close, connect_all, frame, raws, until};
use super::*;
use crate::frame::{EAGER, Kind, PREFIX, RemoteMd};
use portals_core::{Body, Header, MdHandle};
use verbs_backend::Remote;

/// The hostile one, its target, and one that has to do with neither.
const EVIL: usize = 0;
const TARGET: usize = 1;
const OTHER: usize = 2;

pub(super) fn bad_frames(raw: &Raw) -> u64 {
    raw.library.nal.counters.bad_frames
}

/// Messages go between all that are asked, both the library's way and the adapter's.
pub(super) fn all_is_well(raws: &mut [Raw], pairs: &[(usize, usize)]) {
    let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
    for (from, to_whom) in pairs.iter().copied() {
        for raw in &mut *raws {
            raw.events.clear();
        }
        for bits in [LOUD, QUIET] {
            raws[from].put(to(ids[to_whom], bits, 0), 64, AckRequest::Ack, 5);
        }
        until(raws, "messages go", |r| {
            r[from].seen(EventKind::Ack, LOUD).0 == 1
                && r[from].seen(EventKind::Ack, QUIET).0 == 1
                && r[to_whom].seen(EventKind::PutEnd, LOUD).0 == 1
        });
        for raw in &mut *raws {
            assert!(raw.events.iter().all(|e| e.ni_fail == NiFail::OK));
        }
    }
}

/// Frames that cannot be read, and that claim what is not so. (Who sends is no part of a frame: a connection says it.)
#[test]
fn device_frames_of_a_hostile_peer_are_counted_and_dropped() {
    let Some(mut raws) = raws(3, 4096) else {
        return;
    };
    connect_all(&mut raws);
    let target = raws[TARGET].id();
    let good = raws[EVIL].header(target, LOUD, 8, 1);
    let advert = RemoteMd {
        match_id: ProcessId::ANY,
        match_bits: QUIET,
        ignore_bits: 0,
        start: Remote {
            address: u64::MAX - 7,
            rkey: 1,
        },
        length: u64::MAX,
        ac_mask: u32::MAX,
        put: true,
        get: true,
        ack: true,
        events: None,
    };
    let changed = |bytes: &[u8], at: usize, value: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let plain = frame(Kind::Message, |w| {
        w.header(&good, 8);
        w.push(&[7; 8]);
    });
    let advertise = |portal, list: &[RemoteMd]| {
        frame(Kind::Advertise, |w| {
            w.token(1);
            w.adverts(portal, list);
        })
    };
    let token = |kind, token| frame(kind, |w| w.token(token));
    let loud = raws[TARGET].loud_md;
    let written = |md, len| {
        frame(Kind::Notice, |w| {
            w.notice(len, md);
            w.header(&good, len.into());
        })
    };
    let nowhere = frame(Kind::ReadyToSend, |w| {
        w.token(3);
        w.push(&[0; 8]);
    });
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        ("a byte", vec![0]),
        ("a prefix cut short", plain[..PREFIX - 1].to_vec()),
        ("an unknown kind", changed(&plain, 0, &[200])),
        ("no header", plain[..PREFIX].to_vec()),
        ("an unknown operation", changed(&plain, PREFIX, &[99])),
        ("an ack of nothing", changed(&plain, PREFIX, &[3])),
        (
            "a get with no place for the reply",
            changed(&plain, PREFIX, &[1]),
        ),
        (
            "fields that are not there",
            frame(Kind::Message, |w| w.push(&[0, 0xff, 0, 0, 1, 2, 3])),
        ),
        ("an RTS cut short", nowhere),
        ("no token", frame(Kind::AckToSend, |w| w.push(&[1, 2, 3]))),
        ("a token of nothing", token(Kind::AckToSend, 77)),
        ("a token far away", token(Kind::AckToSend, u32::MAX)),
        ("a question cut short", token(Kind::ReadRequest, 1)),
        (
            "an answer cut short",
            frame(Kind::ReadResponse, |w| w.push(&[1])),
        ),
        ("an answer to nothing", token(Kind::ReadResponse, 77)),
        ("no portal", token(Kind::Advertise, 1)),
        ("a portal that is none", advertise(1 << 20, &[])),
        ("memory that wraps around", advertise(4, &[advert])),
        ("a put written nowhere", written(MdHandle::from_raw(77), 8)),
        ("a put written where it may not be", written(loud, 8)),
        (
            "no header of what is written",
            frame(Kind::Notice, |w| w.notice(8, loud)),
        ),
    ];
    let mut expected = 0;
    for (what, bytes) in &hostile {
        raws[EVIL].say(TARGET, bytes);
        expected += 1;
        until(&mut raws, what, |r| bad_frames(&r[TARGET]) == expected);
    }
    // No put has come that this one could be another of.
    if let Some(peer) = raws[TARGET].nal().peer(EVIL) {
        peer.received.forget_header();
    }
    raws[EVIL].say_headless(TARGET, &[7; 8]);
    expected += 1;
    until(&mut raws, "no header", |r| {
        bad_frames(&r[TARGET]) == expected
    });
    raws[EVIL].say_write_immediate(TARGET);
    expected += 1;
    until(&mut raws, "no descriptor", |r| {
        bad_frames(&r[TARGET]) == expected
    });
    // Confirmations of what was not asked, and credits that were not taken, are without effect.
    raws[EVIL].say(TARGET, &token(Kind::Withdrawn, 12345));
    let lie = changed(&frame(Kind::Credit, |_| {}), 2, &[0xff; 6]);
    raws[EVIL].say(TARGET, &lie);
    for raw in &raws {
        let messages = raw.events.iter().filter(|e| e.kind == EventKind::PutEnd);
        assert_eq!(messages.count(), 0, "nothing was delivered");
    }
    all_is_well(
        &mut raws,
        &[
            (EVIL, TARGET),
            (TARGET, EVIL),
            (OTHER, TARGET),
            (TARGET, OTHER),
        ],
    );
    assert_eq!(bad_frames(&raws[TARGET]), expected);
    assert_eq!(bad_frames(&raws[OTHER]), 0);
    close(raws);
}

/// A peer that may write a descriptor with events tells of more than that: no event comes of it.
#[test]
fn device_a_peer_tells_of_what_it_may_not_write() {
    let Some(mut raws) = raws(3, 65_536) else {
        return;
    };
    connect_all(&mut raws);
    let target = raws[TARGET].id();
    let told = |r: &Raw| {
        let peer = r.library.nal.peers.get(TARGET);
        peer.is_some_and(|p| p.adverts.of(4).iter().any(|a| a.events.is_some()))
    };
    for number in 1.. {
        raws[EVIL].put(to(target, LOUD, 0), 4096, AckRequest::NoAck, 0);
        until(&mut raws, "it arrives", |r| {
            r[TARGET].seen(EventKind::PutEnd, LOUD).0 == number
        });
        if told(&raws[EVIL]) {
            break;
        }
    }
    raws[TARGET].events.clear();
    let loud = raws[TARGET].loud_md;
    let eq = raws[TARGET].eq;
    let memory = Region::new(4096).unwrap();
    let closed = raws[TARGET].attach(60, Some(&memory), Some(eq));
    let header = |bits, len, at| {
        let mut header = raws[EVIL].header(target, bits, len, 1);
        if let Body::Put { remote_offset, .. } = &mut header.body {
            *remote_offset = at;
        }
        header
    };
    let other_portal = Header {
        pt_index: 5,
        ..header(LOUD, 4096, 0)
    };
    let other_index = {
        let mut header = header(LOUD, 4096, 0);
        if let Body::Put { ac_index, .. } = &mut header.body {
            *ac_index = 77;
        }
        header
    };
    let a_get = Header {
        body: Body::Get {
            length: 4096,
            remote_offset: 0,
            ac_index: 0,
            reply_md: loud,
            reply_offset: 0,
        },
        ..header(LOUD, 4096, 0)
    };
    let lies = [
        ("other bits", loud, header(60, 4096, 0)),
        ("another descriptor", closed, header(60, 4096, 0)),
        ("beyond its end", loud, header(LOUD, 4096, 65_000)),
        ("around the end", loud, header(LOUD, 4096, u64::MAX - 5)),
        ("too long", loud, header(LOUD, 65_537, 0)),
        ("another portal", loud, other_portal),
        ("an index that lets nobody in", loud, other_index),
        ("a get", loud, a_get),
    ];
    for (n, (what, md, header)) in (1..).zip(lies) {
        let bytes = frame(Kind::Notice, |w| {
            w.notice(header.payload_len() as u32, md);
            w.header(&header, header.payload_len());
        });
        raws[EVIL].say(TARGET, &bytes);
        until(&mut raws, what, |r| bad_frames(&r[TARGET]) == n);
    }
    // One that is not told of the descriptor.
    let honest = raws[OTHER].header(target, LOUD, 4096, 1);
    let bytes = frame(Kind::Notice, |w| {
        w.notice(4096, loud);
        w.header(&honest, 4096);
    });
    raws[OTHER].say(TARGET, &bytes);
    until(&mut raws, "not told", |r| bad_frames(&r[TARGET]) == 9);
    assert_eq!(raws[TARGET].events, []);
    all_is_well(
        &mut raws,
        &[(EVIL, TARGET), (TARGET, EVIL), (OTHER, TARGET)],
    );
    close(raws);
}

/// An RTS of data that is not there, or whose length wraps around: the message ends with a failure at its target, the
/// connection is mended, and the others do not notice.
#[test]
fn device_a_rendezvous_whose_data_is_not_there_fails_alone() {
    let Some(mut raws) = raws(3, 65_536) else {
        return;
    };
    connect_all(&mut raws);
    let target = raws[TARGET].id();
    let places = [
        (20_000, 0x1000, 0xdead_beef),
        (20_000, u64::MAX - 100, 1),
        (65_536, u64::MAX - 65_535, 0),
    ];
    for (n, (length, address, rkey)) in (0..).zip(places) {
        let header = raws[EVIL].header(target, LOUD, length, n);
        let bytes = frame(Kind::ReadyToSend, |w| {
            w.token(3);
            w.place(Remote { address, rkey });
            w.header(&header, 0);
        });
        for raw in &mut raws {
            raw.events.clear();
        }
        raws[EVIL].say(TARGET, &bytes);
        until(&mut raws, "the message ends", |r| {
            r[TARGET].seen(EventKind::PutEnd, LOUD) == (1, 1)
        });
        // Others go on while the connection is mended, and it is mended.
        all_is_well(
            &mut raws,
            &[(OTHER, TARGET), (TARGET, OTHER), (TARGET, EVIL)],
        );
    }
    // More than there is memory for, in one piece or wrapping, matches nothing.
    let dropped = raws[TARGET].library.ni.status().drop_count;
    for length in [1 << 40, u64::MAX] {
        let header = raws[EVIL].header(target, LOUD, length, 9);
        let bytes = frame(Kind::ReadyToSend, |w| {
            w.token(4);
            w.place(Remote {
                address: u64::MAX - 5,
                rkey: 0,
            });
            w.header(&header, 0);
        });
        raws[EVIL].say(TARGET, &bytes);
    }
    until(&mut raws, "they are dropped", |r| {
        let bad = bad_frames(&r[TARGET]);
        r[TARGET].library.ni.status().drop_count + bad >= dropped + 2
    });
    all_is_well(&mut raws, &[(OTHER, TARGET), (TARGET, EVIL)]);
    close(raws);
}

/// Where the device counts receivers that were not ready.
fn not_ready() -> u64 {
    let device = device().unwrap();
    let folder = format!("/sys/class/infiniband/{device}/ports/1/hw_counters");
    let count = |name: &str| {
        let text = std::fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
        text.trim().parse::<u64>().unwrap_or(0)
    };
    count("rcvd_rnr_err") + count("send_rnr_err")
}

/// Two peers send all that their queues hold without a credit, and nobody takes anything meanwhile: receivers are not
/// ready, which is survived, and no completion queue overruns.
#[test]
fn device_messages_without_credit_wait_and_overrun_nothing() {
    let Some(mut raws) = raws(2, 8192) else {
        return;
    };
    connect_all(&mut raws);
    let before = not_ready();
    let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
    let depth = u64::from(raws[EVIL].library.nal.conn.plan.depth);
    let slots = u64::from(raws[EVIL].library.nal.conn.plan.slots);
    assert!(depth > slots, "more can be sent than received");
    for n in 0..depth {
        for (from, to_whom) in [(0, 1), (1, 0)] {
            let header = raws[from].header(ids[to_whom], LOUD, 8, n);
            let bytes = frame(Kind::Message, |w| {
                w.header(&header, 8);
                w.push(&n.to_le_bytes());
            });
            raws[from].say(to_whom, &bytes);
        }
    }
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while not_ready() == before {
        assert!(
            std::time::Instant::now() < end,
            "no receiver was ever not ready"
        );
        std::thread::yield_now();
    }
    until(&mut raws, "all arrive", |r| {
        let all = |raw: &Raw| raw.seen(EventKind::PutEnd, LOUD).0 == depth as usize;
        r.iter().all(all)
    });
    for raw in &raws {
        let ends = raw.events.iter().filter(|e| e.kind == EventKind::PutEnd);
        let numbers: Vec<u64> = ends.map(|e| e.hdr_data).collect();
        assert_eq!(numbers, Vec::from_iter(0..depth), "once each and in order");
        assert!(!raw.library.nal.gone);
    }
    println!("receivers were not ready {} times", not_ready() - before);
    all_is_well(&mut raws, &[(0, 1), (1, 0)]);
    close(raws);
}

/// More than a frame holds, and all that the eager limit allows.
#[test]
fn device_a_message_longer_than_its_header_says_is_cut() {
    let Some(mut raws) = raws(2, 16_384) else {
        return;
    };
    connect_all(&mut raws);
    let target = raws[TARGET].id();
    for (said, sent, fails) in [(8, EAGER, false), (EAGER as u64, 8, true)] {
        raws[TARGET].events.clear();
        let header = raws[EVIL].header(target, LOUD, said, 0);
        let bytes = frame(Kind::Message, |w| {
            w.header(&header, sent as u64);
            w.push(&vec![9; sent]);
        });
        raws[EVIL].say(TARGET, &bytes);
        until(&mut raws, "it ends", |r| {
            r[TARGET].seen(EventKind::PutEnd, LOUD) == (1, usize::from(fails))
        });
        let mut seen = vec![0; 16_384];
        raws[TARGET].loud.read(0, &mut seen).unwrap();
        assert!(
            seen[said as usize..].iter().all(|b| *b == 0),
            "not past its length"
        );
    }
    all_is_well(&mut raws, &[(EVIL, TARGET)]);
    close(raws);
}

/// The device is said to be gone in the middle of operations of every kind: each ends once, with a failure, and so does
/// every later one; the peer gives it up after its patience and not before everything of its own has ended.
#[test]
fn device_gone_ends_every_operation_once() {
    let Some(mut raws) = raws(2, 1 << 20) else {
        return;
    };
    connect_all(&mut raws);
    let target = raws[TARGET].id();
    const EACH: usize = 3;
    for _ in 0..EACH {
        raws[EVIL].put(to(target, LOUD, 0), 1 << 20, AckRequest::Ack, 0);
        raws[EVIL].put(to(target, QUIET, 0), 1 << 20, AckRequest::Ack, 0);
        raws[EVIL].get(to(target, QUIET, 0), 1 << 20);
    }
    let ended = |raw: &Raw| {
        let of = |kind, bits| raw.seen(kind, bits);
        [
            of(EventKind::SendEnd, LOUD),
            of(EventKind::Ack, LOUD),
            of(EventKind::SendEnd, QUIET),
            of(EventKind::Ack, QUIET),
            of(EventKind::ReplyEnd, QUIET),
        ]
    };
    let Raw { library, .. } = &mut raws[EVIL];
    library.nal.device_gone(&mut library.ni, &"a test says so");
    raws[EVIL].step();
    for (count, failed) in ended(&raws[EVIL]) {
        assert_eq!(count, EACH, "{:?}", raws[EVIL].events);
        // What the target has acknowledged at once may be done.
        assert!(failed > 0);
    }
    assert!(raws[EVIL].library.nal.gone);
    raws[EVIL].put(to(target, LOUD, 0), 8, AckRequest::Ack, 0);
    raws[EVIL].get(to(target, LOUD, 0), 8);
    raws[EVIL].step();
    assert_eq!(raws[EVIL].seen(EventKind::Ack, LOUD).0, EACH + 1);
    assert_eq!(raws[EVIL].seen(EventKind::ReplyEnd, LOUD), (1, 1));
    // The peer ends what it had begun: messages whose data cannot be had any more.
    let evil = raws[EVIL].id();
    raws[TARGET].put(to(evil, LOUD, 0), 1 << 20, AckRequest::Ack, 0);
    until(&mut raws, "the peer gives it up", |r| {
        r[TARGET].seen(EventKind::Ack, LOUD) == (1, 1)
    });
    close(raws);
}

/// Gets and short puts that need nobody at the target end once each when the device goes, with a failure.
#[test]
fn device_gone_ends_what_adapters_do_alone() {
    let Some(mut raws) = raws(2, 4096) else {
        return;
    };
    connect_all(&mut raws);
    let target = raws[TARGET].id();
    // After the first few nothing is under way, and the memory is known to be registered.
    const FIRST: usize = 4;
    for number in 1..=FIRST {
        raws[EVIL].get(to(target, QUIET, 0), 8);
        until(&mut raws, "a get ends", |r| {
            r[EVIL].seen(EventKind::ReplyEnd, QUIET) == (number, 0)
        });
    }
    const EACH: usize = 3;
    for _ in 0..EACH {
        raws[EVIL].get(to(target, QUIET, 0), 8);
        raws[EVIL].put(to(target, QUIET, 0), 8, AckRequest::Ack, 0);
    }
    assert_eq!(raws[EVIL].nal().offloaded.of(TARGET).len(), 2 * EACH);
    let Raw { library, .. } = &mut raws[EVIL];
    library.nal.device_gone(&mut library.ni, &"a test says so");
    raws[EVIL].step();
    assert_eq!(
        raws[EVIL].seen(EventKind::ReplyEnd, QUIET),
        (FIRST + EACH, EACH)
    );
    assert_eq!(raws[EVIL].seen(EventKind::Ack, QUIET), (EACH, EACH));
    assert!(raws[EVIL].nal().offloaded.of(TARGET).is_empty());
    close(raws);
}

/// Puts whose header goes only once are delivered as if it went each time: with any length, between others, with acks, and
/// behind puts that had to wait for credit.
#[test]
fn device_puts_of_one_header_are_delivered_each() {
    let Some(mut raws) = raws(2, 4096) else {
        return;
    };
    connect_all(&mut raws);
    let id = raws[1].id();
    let sent: Vec<(u64, u64, AckRequest)> = (0..60)
        .map(|i| {
            let ack = if i % 7 < 3 {
                AckRequest::Ack
            } else {
                AckRequest::NoAck
            };
            (i % 5 * 100, 40 + i / 4 % 3, ack)
        })
        .collect();
    for raw in &mut raws {
        raw.events.clear();
    }
    for (length, number, ack) in sent.iter().copied() {
        raws[0].put(to(id, LOUD, 0), length, ack, number);
        raws[0].step();
    }
    let acks = sent.iter().filter(|s| s.2 == AckRequest::Ack).count();
    until(&mut raws, "all puts come", |r| {
        r[1].seen(EventKind::PutEnd, LOUD).0 == sent.len()
            && r[0].seen(EventKind::Ack, LOUD).0 == acks
    });
    let arrived = raws[1]
        .events
        .iter()
        .filter(|e| e.kind == EventKind::PutEnd);
    let arrived: Vec<_> = arrived
        .map(|e| (e.rlength, e.mlength, e.hdr_data))
        .collect();
    let expected: Vec<_> = sent.iter().map(|s| (s.0, s.0, s.1)).collect();
    assert_eq!(arrived, expected);
    raws[1].events.clear();
    // More than a peer has slots: the last ones are posted later, with a header that the others do not have.
    for number in std::iter::repeat_n(50, 90).chain(std::iter::repeat_n(51, 10)) {
        raws[0].put(to(id, LOUD, 0), 8, AckRequest::NoAck, number);
    }
    until(&mut raws, "all puts come", |r| {
        r[1].seen(EventKind::PutEnd, LOUD).0 == 100
    });
    raws[0].put(to(id, LOUD, 0), 8, AckRequest::NoAck, 50);
    until(&mut raws, "the last put comes", |r| {
        r[1].seen(EventKind::PutEnd, LOUD).0 == 101
    });
    let arrived = raws[1]
        .events
        .iter()
        .filter(|e| e.kind == EventKind::PutEnd);
    let numbers: Vec<u64> = arrived.map(|e| e.hdr_data).collect();
    let expected = [vec![50; 90], vec![51; 10], vec![50]].concat();
    assert_eq!(numbers, expected);
    assert_eq!(bad_frames(&raws[1]), 0);
    close(raws);
}
