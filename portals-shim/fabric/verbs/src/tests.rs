//! Tests on a device, named by `PORTOLAN_TEST_DEVICE`; without it they say that they skipped.

use fabric_api::call::{Target, Wait};
use fabric_api::region::Region;
use fabric_testing::{EndOnPanic, entry, spec, to};
use portals_core::{
    ANY, AcEntry, AckRequest, EqHandle, EventKind, InsertPosition, MdOptions, NiFail, ProcessId,
    Unlink,
};
use portals_shim::MdMemory;
use portals_shim::fabric::Opened;

mod announces;
mod auto;
mod awaited;
mod cm;
mod credits;
mod endpoints;
mod get_by_am;
mod hostile;
mod keys;
mod late;
mod limits;
mod links;
mod protocols;
mod put_now;
mod quiet;
mod raw;
mod relaxed;
mod rings;
mod rma_write_send;
mod strangers;
mod waits;
mod withdrawal;

pub(crate) use fabric_testing::device;

/// Runs one body per rank on its own thread; `None` without a device. Every rank can take messages, into regions of
/// `len` bytes, before the first body runs: what comes earlier is dropped.
fn ranks<R: Send>(
    n: u32,
    len: usize,
    body: impl Fn(u32, &Opened, &Side) -> R + Sync,
) -> Option<Vec<R>> {
    let device = device()?;
    let opened = portals_shim::fabric::interfaces(super::in_threads(n, Some(&device)).unwrap());
    let sides: Vec<Side> = opened.iter().map(|o| side(o, len)).collect();
    let body = &body;
    Some(std::thread::scope(|s| {
        let threads: Vec<_> = (0..)
            .zip(opened)
            .zip(sides)
            .map(|((rank, o), side)| {
                s.spawn(move || {
                    let _guard = EndOnPanic::guard();
                    (body(rank, &o, &side), o)
                })
            })
            .collect();
        // All bodies end before any interface closes: a rank may still need its peer's progress.
        let done: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        done.into_iter()
            .map(|(r, o)| {
                o.interface.close().unwrap();
                r
            })
            .collect()
    }))
}

/// More than any body here makes: a rank that gets no processor for a while must not lose one.
const EVENTS: u64 = 1 << 14;
const LOUD: u64 = 1;
const QUIET: u64 = 2;
const BELL: u64 = 3;

/// What each rank has: memory with an event queue, memory without one (which peers may reach with
/// their NIC), a bell, and memory to work from.
struct Side {
    eq: EqHandle,
    work: Region,
    loud: Region,
    quiet: Region,
    source: portals_core::MdHandle,
    quiet_md: portals_core::MdHandle,
}

fn side(o: &Opened, len: usize) -> Side {
    let ni = &o.interface;
    let eq = ni.eq_alloc(EVENTS).unwrap();
    let [work, loud, quiet] = [0; 3].map(|_| Region::new(len).unwrap());
    let [_, quiet_md, _] = [
        (LOUD, MdMemory::whole(&loud), Some(eq)),
        (QUIET, MdMemory::whole(&quiet), None),
        (BELL, MdMemory::Empty, Some(eq)),
    ]
    .map(|(bits, memory, eq)| {
        let me = ni.me_attach(4, entry(bits), InsertPosition::After).unwrap();
        ni.md_attach(me, spec(memory, eq), Unlink::Retain).unwrap()
    });
    let source = ni
        .md_bind(spec(MdMemory::whole(&work), Some(eq)), Unlink::Retain)
        .unwrap();
    Side {
        eq,
        work,
        loud,
        quiet,
        source,
        quiet_md,
    }
}

/// Longer than anything here takes on a machine that is busy with other work.
const PATIENCE: Wait = Wait::Nanos(120_000_000_000);

/// The next event of this kind for these bits; what comes before it is passed over. An event that was lost, or that does
/// not come, is a failure that says which: a test that waits for it for ever says nothing.
#[track_caller]
fn wait(o: &Opened, eq: EqHandle, kind: EventKind, bits: u64) -> portals_core::Event {
    let mut passed = Vec::new();
    loop {
        let Some(polled) = o.interface.eq_poll(&[eq], PATIENCE).unwrap() else {
            panic!("no {kind:?} for {bits} came; before it: {passed:?}");
        };
        let e = polled.event;
        assert!(!polled.dropped, "events before {e:?} were lost");
        assert_eq!(e.ni_fail, NiFail::OK);
        if e.kind == kind && e.match_bits == bits {
            return e;
        }
        passed.push((e.kind, e.match_bits));
    }
}

fn ring(o: &Opened, s: &Side, peer: ProcessId) {
    o.interface
        .put_region(s.source, (0, 0), AckRequest::NoAck, to(peer, BELL, 0), 0)
        .unwrap();
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + 3) as u8).collect()
}

/// Small one-sided puts in bursts of all lengths, some with other requests among them: each has one ack, and what a
/// message tells of is there when it arrives.
#[test]
fn device_bursts_of_small_puts_arrive_before_what_tells_of_them() {
    const EACH: usize = 24;
    const BURSTS: [usize; 12] = [1, 2, 4, 5, 6, 11, 12, 13, 21, 40, 64, 100];
    /// Bytes of the put at `place`.
    fn len(place: usize) -> usize {
        1 + place * 7 % EACH
    }
    ranks(2, 1 << 20, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        let bytes = pattern(1 << 16, 5);
        s.work.write(0, &bytes).unwrap();
        let mut place = 0;
        for (turn, burst) in BURSTS.into_iter().enumerate() {
            let places = place..place + burst;
            place += burst;
            if rank == 1 {
                wait(o, s.eq, EventKind::PutEnd, BELL);
                for at in places {
                    let mut seen = vec![0; EACH];
                    s.quiet.read(at * EACH, &mut seen).unwrap();
                    let mut sent = vec![0; EACH];
                    sent[..len(at)].copy_from_slice(&bytes[at..at + len(at)]);
                    assert_eq!(seen, sent, "put {at}");
                }
                ring(o, s, peer);
                continue;
            }
            let mut acks = burst;
            for at in places.clone() {
                let region = (at as u64, len(at) as u64);
                let there = to(peer, QUIET, (at * EACH) as u64);
                let put = o
                    .interface
                    .put_region(s.source, region, AckRequest::Ack, there, 0);
                put.unwrap();
                if turn % 3 == 1 && at % 5 == 4 {
                    // A write that is not small, far behind the others.
                    let there = to(peer, QUIET, 512 << 10);
                    let put =
                        o.interface
                            .put_region(s.source, (0, 5000), AckRequest::Ack, there, 0);
                    put.unwrap();
                    acks += 1;
                }
            }
            ring(o, s, peer);
            let mut answered = false;
            while acks > 0 || !answered {
                let e = o.interface.eq_wait(s.eq).unwrap().event;
                assert_eq!(e.ni_fail, NiFail::OK);
                match e.kind {
                    EventKind::Ack => acks -= 1,
                    EventKind::PutEnd => answered = true,
                    _ => {}
                }
            }
        }
    });
}

const SIZES: [usize; 12] = [
    1, 8, 63, 256, 257, 4096, 8191, 8192, 8193, 65_536, 100_003, 3_000_000,
];

/// Rank 0 puts to and gets from rank 1's memory `bits`, every size.
fn put_and_get(bits: u64) {
    let len = 3 << 20;
    ranks(2, 2 * len, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        if rank == 1 {
            for (i, size) in SIZES.into_iter().enumerate() {
                wait(o, s.eq, EventKind::PutEnd, BELL);
                let mut seen = vec![0; size];
                let memory = if bits == LOUD { &s.loud } else { &s.quiet };
                memory.read(i + 1, &mut seen).unwrap();
                assert!(seen == pattern(size, i), "put of {size} bytes");
                ring(o, s, peer);
            }
            wait(o, s.eq, EventKind::PutEnd, BELL);
            // The bells before, after each put, and at the end came through this library; what
            // the NIC alone served did not. The very first operation may have been sent before the
            // greeting was known to have arrived, and then takes the two-sided way.
            let bells = SIZES.len() as u64 + 2;
            let through = o.interface.status().unwrap().recv_count - bells;
            if bits == LOUD {
                assert_eq!(through, 2 * SIZES.len() as u64);
            } else {
                assert!(
                    through <= 1,
                    "{through} operations went through the library"
                );
            }
            return;
        }
        for (i, size) in SIZES.into_iter().enumerate() {
            s.work.write(i, &pattern(size, i)).unwrap();
            let there = to(peer, bits, i as u64 + 1);
            let region = (i as u64, size as u64);
            o.interface
                .put_region(s.source, region, AckRequest::Ack, there, 5)
                .unwrap();
            let ack = wait(o, s.eq, EventKind::Ack, bits);
            assert_eq!(
                (ack.mlength, ack.rlength, ack.offset),
                (size as u64, size as u64, i as u64 + 1)
            );
            ring(o, s, peer);
            wait(o, s.eq, EventKind::PutEnd, BELL);
            let back = (len + i) as u64;
            o.interface
                .get_region(s.source, (back, size as u64), there)
                .unwrap();
            let reply = wait(o, s.eq, EventKind::ReplyEnd, bits);
            assert_eq!((reply.offset, reply.mlength), (back, size as u64));
            let mut seen = vec![0; size];
            s.work.read(back as usize, &mut seen).unwrap();
            assert!(seen == pattern(size, i), "get of {size} bytes");
        }
        ring(o, s, peer);
    });
}

#[test]
fn device_two_sided_data_of_every_size() {
    put_and_get(LOUD);
}

#[test]
fn device_one_sided_data_of_every_size() {
    put_and_get(QUIET);
}

/// Many more messages than receive slots, both ways at once, in order.
#[test]
fn device_a_flood_is_delivered_in_order() {
    const MANY: u64 = 2_000;
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        let (mut sent, mut seen, mut left, mut bells) = (0, 0, 0, 0);
        while seen < MANY || left < MANY {
            if sent < MANY && sent - left < 200 {
                let put = (0, sent % 600);
                o.interface
                    .put_region(s.source, put, AckRequest::NoAck, to(peer, LOUD, 0), sent)
                    .unwrap();
                sent += 1;
            }
            while let Some(p) = o.interface.eq_poll(&[s.eq], Wait::No).unwrap() {
                assert!(!p.dropped);
                match p.event.kind {
                    EventKind::PutEnd if p.event.match_bits == LOUD => {
                        assert_eq!(p.event.hdr_data, seen);
                        seen += 1;
                    }
                    EventKind::SendEnd if p.event.match_bits == LOUD => left += 1,
                    // The peer may have ended before.
                    EventKind::PutEnd => bells += 1,
                    _ => {}
                }
            }
        }
        // The last messages of the peer may still be on their way out of it.
        ring(o, s, peer);
        if bells == 0 {
            wait(o, s.eq, EventKind::PutEnd, BELL);
        }
    });
}

/// An advertised descriptor is unlinked while the peer writes to it as fast as it can: afterwards
/// its memory does not change, later puts are dropped, and the connection lives.
#[test]
fn device_a_withdrawn_descriptor_is_out_of_reach() {
    ranks(2, 65_536, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        let ni = &o.interface;
        if rank == 1 {
            let me = ni.me_attach(4, entry(9), InsertPosition::After).unwrap();
            let target = Region::new(65_536).unwrap();
            let md = ni
                .md_attach(me, spec(MdMemory::whole(&target), None), Unlink::Retain)
                .unwrap();
            ring(o, s, peer);
            // The peer rings after some puts.
            wait(o, s.eq, EventKind::PutEnd, BELL);
            // Busy while a put that took the two-sided way is being placed.
            while ni.md_unlink(md) == Err(portals_core::Error::MdInUse) {
                assert!(
                    ni.eq_get(s.eq)
                        .unwrap()
                        .is_none_or(|p| p.event.match_bits != BELL)
                );
            }
            assert_eq!(ni.md_unlink(md), Err(portals_core::Error::MdInvalid));
            target.fill(0, 65_536, 0xEE).unwrap();
            ring(o, s, peer);
            wait(o, s.eq, EventKind::PutEnd, BELL);
            let mut seen = vec![0; 65_536];
            target.read(0, &mut seen).unwrap();
            assert!(
                seen.iter().all(|b| *b == 0xEE),
                "memory changed after the unlink"
            );
            assert!(ni.status().unwrap().drop_count > 0);
            return;
        }
        wait(o, s.eq, EventKind::PutEnd, BELL);
        let (mut acks, mut sent, mut rung, mut stop) = (0, 0, false, false);
        while !stop {
            if sent < 200 && (sent < 50 || sent - acks < 8) {
                let put =
                    ni.put_region(s.source, (0, 32_768), AckRequest::Ack, to(peer, 9, 0), sent);
                put.unwrap();
                sent += 1;
            }
            if sent == 20 && !rung {
                ring(o, s, peer);
                rung = true;
            }
            while let Some(p) = ni.eq_poll(&[s.eq], Wait::No).unwrap() {
                assert_eq!(p.event.ni_fail, NiFail::OK);
                match p.event.kind {
                    EventKind::Ack => acks += 1,
                    // The target has unlinked.
                    EventKind::PutEnd if p.event.match_bits == BELL => stop = true,
                    _ => {}
                }
            }
        }
        ni.put_region(s.source, (0, 32_768), AckRequest::NoAck, to(peer, 9, 0), 0)
            .unwrap();
        ring(o, s, peer);
        wait(o, s.eq, EventKind::SendEnd, BELL);
    });
}

/// An entry inserted ahead of an advertised one takes the next message.
#[test]
fn device_a_new_entry_ahead_takes_over() {
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        let ni = &o.interface;
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        if rank == 1 {
            wait(o, s.eq, EventKind::PutEnd, BELL);
            let me = ni
                .me_attach(4, entry(QUIET), InsertPosition::Before)
                .unwrap();
            ni.md_attach(
                me,
                spec(MdMemory::whole(&s.loud), Some(s.eq)),
                Unlink::Retain,
            )
            .unwrap();
            ring(o, s, peer);
            let e = wait(o, s.eq, EventKind::PutEnd, QUIET);
            assert_eq!(e.hdr_data, 77);
            return;
        }
        let put = |data| {
            let there = to(peer, QUIET, 0);
            ni.put_region(s.source, (0, 8), AckRequest::Ack, there, data)
                .unwrap();
            wait(o, s.eq, EventKind::Ack, QUIET);
        };
        put(1);
        put(2);
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        put(77);
    });
}
