//! Conditional update and post.

use super::case::{COUNTS, Case, LOCAL, case};
use super::rank::*;
use portals_shim::{EqHandle, Error, MdOptions, MdSpec, NiFail, Unlink};

pub(super) const CASES: &[Case] = &[
    case(
        "an update is refused by an unread event",
        "91, 95, 96, rules 47, 50",
        refused,
    ),
    case("a bad update changes nothing", "97, rule 49", bad).not_served(LOCAL),
    case(
        "an update is refused until a promised END is read",
        "92, rule 47",
        outstanding,
    ),
    case("a refused post makes nothing", "94", post),
    case("an update replaces the memory", "98, rule 49", memory),
    case(
        "an update leaves gets alone that are being answered",
        "98, rules 28, 49",
        answered,
    ),
    case(
        "updates lose no message",
        "93, rules 46, 48, 52",
        race_update,
    )
    .not_served(COUNTS),
    case("posts lose no message", "93, rules 46, 48", race_post).not_served(COUNTS),
];

fn refused(r: &Rank) {
    if !r.is_target() {
        r.barrier();
        r.knock(r.to(), 0);
        r.barrier();
        r.barrier();
        r.knock(r.to(), 0);
        r.barrier();
        return;
    }
    let t = r.target(64, |d| d.threshold = 9);
    let new = MdSpec {
        threshold: 4,
        user_ptr: 8,
        eq: Some(t.eq),
        ..md(t.buf.memory(), PUT)
    };
    r.barrier();
    r.barrier();
    // The queue has events now: the update looks at what has arrived.
    assert!(r.ni.eq_peek(t.eq).expect("a queue").is_some());
    let before = r.ni.md_query(t.md).expect("alive");
    let at = t.buf.segment();
    let shown = (before.threshold, before.start, before.length);
    assert_eq!(shown, (8, at.addr, at.len));
    let update = |test| r.ni.md_update(t.md, new.clone(), test);
    assert_eq!(update(Some(t.eq)), Err(Error::MdNoUpdate));
    assert_eq!(r.ni.md_query(t.md), Ok(before));
    r.take(t.eq, &[PutStart, PutEnd]);
    assert_eq!(update(Some(t.eq)), Ok(before));
    let now = r.ni.md_query(t.md).expect("alive");
    assert_eq!((now.threshold, now.user_ptr), (4, 8));
    r.barrier();
    r.barrier();
    assert!(update(None).is_ok());
    let bad = EqHandle::from_raw(u32::MAX);
    assert_eq!(update(Some(bad)), Err(Error::EqInvalid));
}

fn bad(r: &Rank) {
    let t = r.target(64, |_| ());
    let before = r.ni.md_query(t.md);
    let bad = EqHandle::from_raw(u32::MAX);
    let good = md(t.buf.memory(), PUT);
    let with = |eq| MdSpec { eq, ..good.clone() };
    let too_many = MdSpec {
        memory: super::pieces::iovec(&[&t.buf; 65], 0),
        options: PUT | MdOptions::IOVEC,
        ..good.clone()
    };
    for (new, test, error) in [
        (with(Some(bad)), None, Error::EqInvalid),
        (with(None), Some(bad), Error::EqInvalid),
        (too_many, None, Error::MdIllegal),
    ] {
        assert_eq!(r.ni.md_update(t.md, new, test), Err(error));
        assert_eq!(r.ni.md_query(t.md), before);
    }
    assert_eq!(r.ni.eq_free(t.eq), Err(Error::EqInUse));
}

fn post(r: &Rank) {
    if !r.is_target() {
        r.barrier();
        r.knock(r.to(), 1);
        r.barrier();
        r.knock(r.to(), 2);
        r.barrier();
        r.knock(r.to(), 3);
        return;
    }
    let (t, eq) = (r.target(64, |_| ()), r.eq(8));
    let new = || MdSpec {
        eq: Some(eq),
        ..md(Buf::new(8).memory(), PUT)
    };
    let post = || {
        let test = Some(t.eq);
        r.ni.me_md_post(t.me, entry(BITS), Before, new(), Unlink::Unlink, test)
    };
    r.barrier();
    r.take(t.eq, &[PutStart]);
    // Either END is unread or it is still to come.
    assert_eq!(post(), Err(Error::MdNoUpdate));
    r.take(t.eq, &[PutEnd]);
    r.barrier();
    r.take(t.eq, &[PutStart, PutEnd]);
    let (me, md) = post().expect("the queue is quiet");
    r.barrier();
    let e = r.take(eq, &[PutStart, PutEnd])[1];
    assert_eq!((e.hdr_data, e.md_handle), (3, md));
    r.ni.me_unlink(me).expect("not in use");
    r.none(t.eq);
}

fn memory(r: &Rank) {
    if !r.is_target() {
        let s = r.source(6, |_| ());
        for _ in 0..3 {
            r.barrier();
            r.put_acked(&s, r.to(), 0);
            r.barrier();
        }
        return;
    }
    let plain = r.target(8, |_| ());
    let (a, b) = (Buf::new(4), Buf::new(4));
    let update = |memory| {
        let new = MdSpec {
            eq: Some(plain.eq),
            ..md(memory, PUT)
        };
        r.ni.md_update(plain.md, new, None).expect("unconditional");
    };
    let arrives = || {
        r.barrier();
        r.take(plain.eq, &[PutStart, PutEnd]);
        r.barrier();
    };
    let data = Buf::pattern(6, 0);
    arrives();
    update(super::pieces::iovec(&[&a, &b], 0x100));
    arrives();
    assert_eq!(a.read(), data[..4]);
    assert_eq!(b.read(), [data[4], data[5], FILL, FILL]);
    let mut first = data.clone();
    first.extend([FILL; 2]);
    assert_eq!(plain.buf.read(), first);
    plain.buf.fill(0);
    update(plain.buf.memory());
    arrives();
    let mut last = data.clone();
    last.extend([0; 2]);
    assert_eq!(plain.buf.read(), last);
    assert_eq!(b.read(), [data[4], data[5], FILL, FILL]);
}

fn answered(r: &Rank) {
    const LEN: usize = 100_000;
    let rounds = r.many(50, 6);
    if r.is_target() {
        let t = r.target(LEN, |d| d.options = GET | REMOTE);
        let other = Buf::new(LEN);
        t.buf.write(0, &Buf::pattern(LEN, 1));
        other.write(0, &Buf::pattern(LEN, 2));
        r.barrier();
        for n in 0..rounds {
            let (mut started, mut ended) = (0, 0);
            while ended < 2 {
                let e = r.next(t.eq);
                assert_eq!(e.ni_fail, NiFail::OK, "{e:?}");
                started += u32::from(e.kind == GetStart);
                ended += u32::from(e.kind == GetEnd);
                if (e.kind, started) == (GetStart, 1) {
                    let now = if n % 2 == 0 { &other } else { &t.buf };
                    let spec = MdSpec {
                        eq: Some(t.eq),
                        ..md(now.memory(), GET | REMOTE)
                    };
                    r.ni.md_update(t.md, spec, None).expect("unconditional");
                }
            }
        }
        return r.barrier();
    }
    let both = [(); 2].map(|()| r.source(LEN, |d| d.options = NO_START));
    r.barrier();
    for _ in 0..rounds {
        for s in &both {
            s.buf.fill(0);
            r.ni.get(s.md, r.to()).expect("the get starts");
        }
        for s in &both {
            let e = r.next(s.eq);
            assert_eq!((e.kind, e.ni_fail), (ReplyEnd, NiFail::OK), "{e:?}");
            let got = s.buf.read();
            let whole = |seed| got == Buf::pattern(LEN, seed);
            assert!(whole(1) || whole(2), "neither the old bytes nor the new");
        }
    }
    r.barrier();
}

fn race_update(r: &Rank) {
    race(r, true);
}

fn race_post(r: &Rank) {
    race(r, false);
}

/// The receives of a message-passing library: search what came early, and post if there is nothing.
fn race(r: &Rank, by_update: bool) {
    let count = r.rounds(5000, 200);
    if !r.is_target() {
        let s = r.source(8, |d| d.eq = None);
        r.barrier();
        for i in 0..count {
            r.ni.put(s.md, NoAck, r.to(), i).expect("the put starts");
            // Comes to rest now and then until a receive is posted, so that both ways are taken.
            if i % 50 == 49 {
                r.barrier();
            }
        }
        return;
    }
    let early = r.target(8, |d| {
        d.options = PUT | REMOTE | NO_START;
        d.eq = Some(r.eq(256));
    });
    let early_eq = r.ni.md_query(early.md).expect("alive").eq;
    let early_eq = early_eq.expect("a queue");
    let posted = r.eq(64);
    let buf = Buf::new(8);
    let ready = MdSpec {
        threshold: 1,
        eq: Some(posted),
        ..md(buf.memory(), PUT | REMOTE | NO_START)
    };
    let test = Some(early_eq);
    let mut seen = Vec::new();
    let mut direct = 0;
    let mut resting = false;
    r.barrier();
    while (seen.len() as u64) < count {
        let waiting = by_update.then(|| {
            let me =
                r.ni.me_insert(early.me, entry(BITS), Before)
                    .expect("an entry");
            let mut asleep = ready.clone();
            asleep.threshold = 0;
            let md = r.ni.md_attach(me, asleep, Unlink::Retain);
            (me, md.expect("a descriptor"))
        });
        let (me, md) = loop {
            let posted = match waiting {
                Some((me, md)) => r.ni.md_update(md, ready.clone(), test).map(|_| (me, md)),
                None => r.ni.me_md_post(
                    early.me,
                    entry(BITS),
                    Before,
                    ready.clone(),
                    Unlink::Retain,
                    test,
                ),
            };
            match posted {
                Ok(made) => break made,
                Err(e) => assert_eq!(e, Error::MdNoUpdate),
            }
            while let Some(p) = r.ni.eq_get(early_eq).expect("a queue") {
                assert!(!p.dropped);
                if p.event.kind == PutEnd {
                    seen.push(p.event.hdr_data);
                    resting |= p.event.hdr_data % 50 == 49;
                }
            }
        };
        if resting {
            resting = false;
            r.barrier();
        }
        if (seen.len() as u64) < count {
            let e = r.take(posted, &[PutEnd])[0];
            direct += 1;
            seen.push(e.hdr_data);
            resting |= e.hdr_data % 50 == 49;
        }
        r.ni.md_unlink(md).expect("not in use");
        r.ni.me_unlink(me).expect("not in use");
    }
    if resting {
        r.barrier();
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
    assert_eq!(r.drops(), 0);
    assert!(direct > 0);
}

/// START has been read, END is under way, or unread, or read at last.
fn outstanding(r: &Rank) {
    let len = r.many(1 << 20, 100_000) as usize;
    if !r.is_target() {
        let s = r.source(len, |_| ());
        r.barrier();
        r.put(&s, (0, len as u64), NoAck, r.to(), 0);
        return;
    }
    let t = r.target(len, |_| ());
    let new = MdSpec {
        eq: Some(t.eq),
        ..md(t.buf.memory(), PUT)
    };
    r.barrier();
    r.take(t.eq, &[PutStart]);
    let before = r.ni.md_query(t.md);
    loop {
        let update = r.ni.md_update(t.md, new.clone(), Some(t.eq));
        assert_eq!(update, Err(Error::MdNoUpdate));
        assert_eq!(r.ni.md_query(t.md), before);
        if r.ni.eq_peek(t.eq).expect("a queue").is_some() {
            break;
        }
    }
    let update = || r.ni.md_update(t.md, new.clone(), Some(t.eq));
    assert_eq!(update(), Err(Error::MdNoUpdate));
    r.take(t.eq, &[PutEnd]);
    assert!(update().is_ok());
}
