//! Which quiet descriptor a message reaches, and when no message reaches it any more: the rules of
//! matching and unlinking where adapters serve messages by what the owner has told.

use super::case::{Case, case};
use super::rank::*;
use portals_shim::{AcEntry, Error, MdSpec, MeSpec, ProcessId, Target, Unlink};

pub(super) const CASES: &[Case] = &[
    case(
        "entries choose among quiet descriptors",
        "14-20, rules 5-7",
        choice,
    )
    .served(5),
    case(
        "access control holds for quiet descriptors",
        "26-28, rules 2-4",
        access,
    )
    .served(2),
    case(
        "an unlink takes quiet memory back",
        "72, 73, 75, rules 61, 62, 66",
        taken_back,
    )
    .served(1),
    case(
        "an update moves messages to the new memory",
        "63, 95, 98, rules 46, 49",
        moved,
    )
    .served(2),
    case(
        "an entry in front takes what comes after it",
        "14, 17, rules 5, 65",
        shadowed,
    )
    .served(2),
    case(
        "quiet and watched messages keep their order",
        "48, 110, rules 24, 25",
        ordered,
    )
    .served(3),
    case(
        "an interface of quiet descriptors ends with traffic under way",
        "10, rule 66",
        close,
    )
    .closes()
    .served(1),
];

fn quiet(r: &Rank, spec: MeSpec, options: portals_shim::MdOptions) -> Posted {
    let me = r.ni.me_attach(PORTAL, spec, After).expect("an entry");
    r.give(me, 16, Unlink::Retain, |d| {
        d.options = options | REMOTE;
        d.eq = None;
    })
}

fn with_bits(r: &Rank, match_bits: u64) -> Target {
    Target {
        match_bits,
        ..r.to()
    }
}

/// (bits of the message, name of the descriptor that takes it)
const CHOICES: [(u64, u8); 9] = [
    (0x10, 0),
    (0x2f, 1),
    (0x20, 1),
    (0x30, 2),
    (0x40, 4),
    (0x50, 6),
    (0x60, 8),
    (0x70, 10),
    (0x80, 11),
];

fn choice(r: &Rank) {
    if !r.is_target() {
        let s = r.source(4, |_| ());
        r.barrier();
        for (bits, name) in CHOICES {
            r.settle();
            s.buf.fill(name + 1);
            assert_eq!(r.put_acked(&s, with_bits(r, bits), 0).mlength, 4);
        }
        r.settle();
        r.put(&s, (0, 4), Ack, with_bits(r, 0x90), 0);
        r.barrier();
        r.none(s.eq);
        return;
    }
    let from = r.peer();
    let only = |match_bits, match_id| MeSpec {
        match_id,
        ..entry(match_bits)
    };
    let stranger = ProcessId::new(from.nid + 5, from.pid);
    let loose = MeSpec {
        ignore_bits: 0xf,
        ..entry(0x20)
    };
    let all = [
        quiet(r, entry(0x10), PUT),
        quiet(r, loose, PUT),
        quiet(r, only(0x30, from), PUT),
        // The initiator is another one.
        quiet(r, only(0x40, stranger), PUT),
        quiet(
            r,
            only(0x40, ProcessId::new(from.nid, portals_shim::ANY)),
            PUT,
        ),
        // For gets only.
        quiet(r, entry(0x50), GET),
        quiet(r, entry(0x50), PUT | GET),
        // Inactive.
        quiet(r, entry(0x60), PUT),
        quiet(r, entry(0x60), PUT),
        // Too short.
        quiet(r, entry(0x70), PUT),
        quiet(r, entry(0x70), PUT),
        // Behind an entry without a descriptor.
        {
            r.ni.me_attach(PORTAL, entry(0x80), After)
                .expect("an entry");
            quiet(r, entry(0x80), PUT)
        },
    ];
    let change = |t: &Posted, change: fn(&mut MdSpec)| {
        let mut spec = md(t.buf.memory(), PUT | REMOTE);
        change(&mut spec);
        r.ni.md_update(t.md, spec, None).expect("unconditional");
    };
    change(&all[7], |d| d.threshold = 0);
    change(&all[9], |d| d.memory = Buf::new(3).memory());
    r.barrier();
    r.barrier();
    for (name, t) in all.iter().enumerate() {
        let taken = CHOICES.iter().any(|(_, n)| usize::from(*n) == name);
        let value = if taken { name as u8 + 1 } else { FILL };
        let mut expected = [FILL; 16];
        expected[..4].fill(value);
        assert_eq!(t.buf.read(), expected, "descriptor {name}");
    }
    assert_eq!(r.drops(), 1);
}

fn access(r: &Rank) {
    let entries = r.ni.limits().max_ac_index as u32 + 1;
    // Open; closed by user, job, portal, node; past the table; open again.
    let indexes = [0, 1, 2, 3, 4, entries, u32::MAX, 5];
    if !r.is_target() {
        let s = r.source(4, |_| ());
        r.barrier();
        for (at, ac_index) in (0..).zip(indexes) {
            let to = Target {
                ac_index,
                remote_offset: at,
                ..r.to()
            };
            r.settle();
            s.buf.fill(ac_index as u8);
            r.put(&s, (0, 1), NoAck, to, 0);
        }
        r.barrier();
        // What was open is closed.
        r.barrier();
        let to = Target {
            remote_offset: 8,
            ac_index: 5,
            ..r.to()
        };
        r.settle();
        r.put(&s, (0, 1), Ack, to, 0);
        r.barrier();
        r.none(s.eq);
        return;
    }
    let t = quiet(r, entry(BITS), PUT);
    let open = AcEntry {
        match_id: ProcessId::ANY,
        uid: r.ni.uid(),
        jid: r.ni.jid(),
        pt_index: PORTAL,
    };
    let set = |index, entry| r.ni.ac_entry(index, entry).expect("legal");
    let closed = AcEntry {
        uid: open.uid + 1,
        ..open
    };
    set(1, closed);
    set(
        2,
        AcEntry {
            jid: open.jid + 1,
            ..open
        },
    );
    set(
        3,
        AcEntry {
            pt_index: PORTAL + 1,
            ..open
        },
    );
    set(
        4,
        AcEntry {
            match_id: ProcessId::new(r.peer().nid + 7, r.peer().pid),
            ..open
        },
    );
    set(5, open);
    r.barrier();
    r.barrier();
    let mut expected = [FILL; 16];
    expected[0] = 0;
    expected[7] = 5;
    assert_eq!(t.buf.read(), expected);
    assert_eq!(r.drops(), 6);
    set(5, closed);
    r.barrier();
    r.barrier();
    assert_eq!(t.buf.read(), expected);
    assert_eq!(r.drops(), 7);
}

/// Waits until a byte has changed, letting time and data move.
fn wait_for_change(r: &Rank, buf: &Buf) {
    let eq = r.eq(1);
    while buf.read()[0] == FILL {
        r.none(eq);
    }
}

fn taken_back(r: &Rank) {
    let rounds = r.rounds(100, 10);
    for round in 0..rounds {
        if r.is_target() {
            let spec = MeSpec {
                unlink: Unlink::Unlink,
                ..entry(BITS)
            };
            let me = r.ni.me_attach(PORTAL, spec, After).expect("an entry");
            let t = r.give(me, 16, Unlink::Unlink, |d| {
                d.options = PUT | REMOTE;
                d.eq = None;
            });
            r.barrier();
            wait_for_change(r, &t.buf);
            loop {
                // Data may be on its way into it.
                let gone = match round % 2 {
                    0 => r.ni.md_unlink(t.md),
                    _ => r.ni.me_unlink(t.me),
                };
                match gone {
                    Err(Error::MdInUse | Error::MeInUse) => {}
                    other => break assert_eq!(other, Ok(())),
                }
            }
            t.buf.fill(0x33);
            assert_eq!(r.ni.md_query(t.md), Err(Error::MdInvalid));
            assert_eq!(r.ni.me_unlink(t.me), Err(Error::MeInvalid));
            r.barrier();
            assert_eq!(t.buf.read(), [0x33; 16]);
            t.buf.check_guards();
            r.ni.eq_free(t.eq).expect("not in use");
        } else {
            let s = r.source(16, |d| d.options = NO_START);
            r.barrier();
            r.settle();
            for _ in 0..30 {
                r.ni.put(s.md, NoAck, r.to(), 0).expect("the put starts");
                r.take(s.eq, &[SendEnd]);
            }
            r.barrier();
            r.ni.md_unlink(s.md).expect("not in use");
            r.ni.eq_free(s.eq).expect("not in use");
        }
        r.barrier();
    }
}

fn moved(r: &Rank) {
    if !r.is_target() {
        let s = r.source(4, |_| ());
        for value in 1..=3 {
            r.barrier();
            r.settle();
            s.buf.fill(value);
            r.put_acked(&s, r.at(u64::from(value)), 0);
            r.barrier();
        }
        return;
    }
    let t = quiet(r, entry(BITS), PUT);
    let (old, new) = (&t.buf, Buf::new(16));
    let bytes = |at: usize, value| {
        let mut all = [FILL; 16];
        all[at..at + 4].fill(value);
        all
    };
    let put = || {
        r.barrier();
        r.barrier();
    };
    put();
    assert_eq!(old.read(), bytes(1, 1));
    r.ni.md_update(t.md, md(new.memory(), PUT | REMOTE), None)
        .expect("unconditional");
    put();
    assert_eq!(old.read(), bytes(1, 1));
    assert_eq!(new.read(), bytes(2, 2));
    // A threshold needs the library again.
    let counted = MdSpec {
        threshold: 1,
        ..md(old.memory(), PUT | REMOTE)
    };
    r.ni.md_update(t.md, counted, None).expect("unconditional");
    put();
    assert_eq!(r.ni.md_query(t.md).expect("alive").threshold, 0);
    assert_eq!(old.read()[3..7], [3; 4]);
    assert_eq!(new.read(), bytes(2, 2));
}

fn shadowed(r: &Rank) {
    if !r.is_target() {
        let s = r.source(4, |_| ());
        for value in 1..=3 {
            r.barrier();
            r.settle();
            s.buf.fill(value);
            r.put_acked(&s, r.to(), 0);
            r.barrier();
        }
        return;
    }
    let t = quiet(r, entry(BITS), PUT);
    let put = || {
        r.barrier();
        r.barrier();
    };
    put();
    assert_eq!(t.buf.read()[..4], [1; 4]);
    let front = r.ni.me_insert(t.me, entry(BITS), Before).expect("an entry");
    let seen = r.give(front, 16, Unlink::Retain, |_| ());
    put();
    r.take(seen.eq, &[PutStart, PutEnd]);
    assert_eq!(seen.buf.read()[..4], [2; 4]);
    assert_eq!(t.buf.read()[..4], [1; 4]);
    r.ni.md_unlink(seen.md).expect("not in use");
    r.ni.me_unlink(front).expect("not in use");
    put();
    assert_eq!(t.buf.read()[..4], [3; 4]);
    assert_eq!(seen.buf.read()[..4], [2; 4]);
}

/// A watched message is seen after the quiet ones before it, and a quiet one comes after the
/// watched ones before it.
fn ordered(r: &Rank) {
    let rounds = r.rounds(200, 10);
    const WATCHED: u64 = 0x99;
    if !r.is_target() {
        let s = r.source(16, |d| d.eq = None);
        for round in 0..rounds {
            r.barrier();
            r.settle();
            s.buf.fill(round as u8);
            let put = |bits, region| {
                r.ni.put_region(s.md, region, NoAck, with_bits(r, bits), round)
                    .expect("the put starts");
            };
            put(BITS, (0, 16));
            put(WATCHED, (0, 16));
            put(BITS, (0, 8));
            r.barrier();
        }
        return;
    }
    let t = quiet(r, entry(BITS), PUT);
    let me =
        r.ni.me_attach(PORTAL, entry(WATCHED), After)
            .expect("an entry");
    let w = r.give(me, 16, Unlink::Retain, |d| d.options = PUT | REMOTE);
    for round in 0..rounds {
        t.buf.fill(FILL);
        r.barrier();
        let e = r.take(w.eq, &[PutStart, PutEnd])[1];
        assert_eq!(e.hdr_data, round);
        assert_eq!(t.buf.read()[8..], [round as u8; 8]);
        assert_eq!(w.buf.read(), [round as u8; 16]);
        r.barrier();
    }
}

fn close(r: &Rank) {
    if r.is_target() {
        let t = quiet(r, entry(BITS), PUT);
        r.barrier();
        wait_for_change(r, &t.buf);
        r.ni.close().expect("the interface closes");
        let left = t.buf.read();
        t.buf.fill(0x33);
        assert_eq!(left, [7; 16]);
        assert_eq!(r.ni.md_unlink(t.md), Err(Error::NiInvalid));
        assert_eq!(t.buf.read(), [0x33; 16]);
        return;
    }
    let s = r.source(16, |d| d.options = NO_START);
    s.buf.fill(7);
    r.barrier();
    r.settle();
    // The peer may be gone at any of these.
    let count = r.many(100, 30);
    for i in 0..count {
        r.ni.put(s.md, Ack, r.to(), i).expect("the put starts");
    }
    let mut ended = 0;
    while ended < count {
        let e = r.next(s.eq);
        assert!(matches!(e.kind, SendEnd | ACKED), "{e:?}");
        ended += u64::from(e.kind == SendEnd);
    }
}
