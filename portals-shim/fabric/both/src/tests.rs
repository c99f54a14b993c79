//! Tests on a device, named by `PORTOLAN_TEST_DEVICE`; without it they say that they skipped. Four ranks, of which 0
//! and 1 share memory, and 2 and 3.

use fabric_api::call::{Target, Wait};
use fabric_api::region::Region;
use fabric_testing::{EndOnPanic, entry, spec};
use portals_core::{
    AckRequest, EqHandle, EventKind, InsertPosition, MdHandle, MeSpec, NiFail, ProcessId, Unlink,
};
use portals_shim::MdMemory;
use portals_shim::fabric::Opened;
use rustix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::time::{Duration, Instant};

const RANKS: u32 = 4;
const TOGETHER: u32 = 2;

/// Runs one body per rank on its own thread; without a device none. Every rank can take messages, into regions of
/// `len` bytes, before the first body runs: what comes earlier is dropped.
fn ranks(len: usize, body: impl Fn(u32, &Opened, &Side) + Sync) {
    let device = std::env::var("PORTOLAN_TEST_DEVICE").ok();
    let Some(device) = device.filter(|d| !d.is_empty()) else {
        println!("skipped: no RDMA device (PORTOLAN_TEST_DEVICE is not set)");
        return;
    };
    let opened = portals_shim::fabric::interfaces(
        super::in_threads(RANKS, TOGETHER, Some(&device)).unwrap(),
    );
    let sides: Vec<Side> = opened.iter().map(|o| side(o, len)).collect();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..)
            .zip(&opened)
            .zip(sides)
            .map(|((rank, o), side)| {
                let body = &body;
                s.spawn(move || {
                    let _guard = EndOnPanic::guard();
                    body(rank, o, &side);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        // A close waits for what its peers have still to take.
        for o in &opened {
            s.spawn(|| o.interface.close().unwrap());
        }
    });
}

const DATA: u64 = 1;
const QUIET: u64 = 2;
const BELL: u64 = 3;
const PORTAL: u32 = 4;

struct Side {
    eq: EqHandle,
    data: Region,
    quiet: Region,
    work: Region,
    source: MdHandle,
    /// Bells that have rung and were not waited for, by who rang.
    bells: RefCell<[u32; RANKS as usize]>,
}

fn side(o: &Opened, len: usize) -> Side {
    let ni = &o.interface;
    let eq = ni.eq_alloc(4096).unwrap();
    let [data, quiet, work] = [0; 3].map(|_| ni.new_region(len).unwrap());
    for (match_bits, memory, eq) in [
        (DATA, MdMemory::whole(&data), Some(eq)),
        (QUIET, MdMemory::whole(&quiet), None),
        (BELL, MdMemory::Empty, Some(eq)),
    ] {
        let me = ni
            .me_attach(PORTAL, entry(match_bits), InsertPosition::After)
            .unwrap();
        ni.md_attach(me, spec(memory, eq), Unlink::Retain).unwrap();
    }
    let source = ni
        .md_bind(spec(MdMemory::whole(&work), Some(eq)), Unlink::Retain)
        .unwrap();
    Side {
        eq,
        data,
        quiet,
        work,
        source,
        bells: RefCell::default(),
    }
}

fn put(o: &Opened, s: &Side, to: u32, bits: u64, region: (u64, u64), at: u64, ack: AckRequest) {
    let target = Target {
        process: o.peers[to as usize],
        pt_index: PORTAL,
        ac_index: 0,
        match_bits: bits,
        remote_offset: at,
    };
    let tag = u64::from(u32::from(ack == AckRequest::Ack));
    o.interface
        .put_region(s.source, region, ack, target, tag)
        .unwrap();
}

/// Takes the next event; a bell is kept, another one is given.
fn next(o: &Opened, s: &Side) -> Option<(EventKind, u64)> {
    let event = o.interface.eq_wait(s.eq).unwrap().event;
    assert_eq!(event.ni_fail, NiFail::OK);
    if event.kind == EventKind::PutEnd && event.match_bits == BELL {
        let from = o.peers.iter().position(|id| *id == event.initiator);
        s.bells.borrow_mut()[from.unwrap()] += 1;
        return None;
    }
    Some((event.kind, event.match_bits))
}

/// Waits for an ack; other events are passed over.
fn acked(o: &Opened, s: &Side, bits: u64) {
    while next(o, s) != Some((EventKind::Ack, bits)) {}
}

/// Waits for a rank's bell.
fn hear(o: &Opened, s: &Side, from: u32) {
    while s.bells.borrow()[from as usize] == 0 {
        next(o, s);
    }
    s.bells.borrow_mut()[from as usize] -= 1;
}

fn ring(o: &Opened, s: &Side, to: u32) {
    put(o, s, to, BELL, (0, 0), 0, AckRequest::NoAck);
}

/// Rings everybody and waits for everybody.
fn meet(o: &Opened, s: &Side, rank: u32) {
    for to in (0..RANKS).filter(|to| *to != rank) {
        ring(o, s, to);
    }
    for from in (0..RANKS).filter(|from| *from != rank) {
        hear(o, s, from);
    }
}

/// Every pair: messages with and without the library's part, short and long; each arrives, and each pair's messages
/// went its way.
#[test]
fn device_each_pair_uses_its_way() {
    const LEN: usize = 256 << 10;
    ranks(RANKS as usize * LEN, |rank, o, s| {
        s.work.fill(0, LEN, rank as u8 + 1).unwrap();
        meet(o, s, rank);
        let before = o.interface.paths().unwrap();
        let others = || (0..RANKS).filter(|to| *to != rank);
        let mut puts = 0;
        for to in others() {
            for len in [8, 5000, LEN as u64] {
                let at = u64::from(rank) * LEN as u64;
                put(o, s, to, DATA, (0, len), at, AckRequest::Ack);
                acked(o, s, DATA);
                put(o, s, to, QUIET, (0, len), at, AckRequest::Ack);
                acked(o, s, QUIET);
                puts += 2;
            }
        }
        let after = o.interface.paths().unwrap();
        let all = after.one_sided + after.two_sided - before.one_sided - before.two_sided;
        assert!(all >= puts, "{after:?} {before:?}");
        // One of three peers shares memory. What came meanwhile is answered the way it came.
        let near = after.by_memory - before.by_memory;
        assert!(near >= puts / 3 && all - near >= puts / 3 * 2, "{after:?}");
        assert!(after.one_sided > before.one_sided, "{after:?}");
        meet(o, s, rank);
        for from in others() {
            for region in [&s.data, &s.quiet] {
                let mut bytes = vec![0; LEN];
                region.read(from as usize * LEN, &mut bytes).unwrap();
                assert!(bytes.iter().all(|b| *b == from as u8 + 1), "from {from}");
            }
        }
        meet(o, s, rank);
    });
}

/// A window onto a peer's memory exists exactly where memory is shared.
#[test]
fn device_a_window_opens_to_ranks_of_the_memory_only() {
    ranks(4096, |rank, o, s| {
        meet(o, s, rank);
        for to in (0..RANKS).filter(|to| *to != rank) {
            let target = Target {
                process: o.peers[to as usize],
                pt_index: PORTAL,
                ac_index: 0,
                match_bits: QUIET,
                remote_offset: 0,
            };
            let window = o.interface.window(&target);
            assert_eq!(
                window.is_some(),
                rank / TOGETHER == to / TOGETHER,
                "{rank} {to}"
            );
        }
        meet(o, s, rank);
    });
}

/// A rank that sleeps is woken by a message of either way. Without that it would look 200 ms later.
#[test]
fn device_a_sleeper_is_woken_on_both_ways() {
    const ROUNDS: u32 = 15;
    ranks(4096, |rank, o, s| {
        let nothing = o.interface.eq_alloc(1).unwrap();
        meet(o, s, rank);
        for peer in [1, 2] {
            let mut took = Vec::new();
            for _ in 0..ROUNDS {
                if rank == peer {
                    // Long enough for rank 0 to fall asleep.
                    let pause = Wait::Nanos(5_000_000);
                    assert!(o.interface.eq_poll(&[nothing], pause).unwrap().is_none());
                    let start = Instant::now();
                    ring(o, s, 0);
                    hear(o, s, 0);
                    took.push(start.elapsed());
                } else if rank == 0 {
                    hear(o, s, peer);
                    ring(o, s, peer);
                }
            }
            took.sort();
            if let Some(median) = took.get(took.len() / 2) {
                println!("round trip to a sleeper, rank {peer}: {median:?}");
                assert!(*median < Duration::from_millis(100), "{took:?}");
            }
        }
        meet(o, s, rank);
    });
}

/// Processor time of this process.
fn used() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Four ranks that wait use 2 % of a core each at most.
#[test]
fn alone_idle_waits_use_no_core() {
    const IDLE: Duration = Duration::from_secs(3);
    ranks(4096, |rank, o, s| {
        meet(o, s, rank);
        if rank != 0 {
            hear(o, s, 0);
            return;
        }
        // Own ends may still come.
        let quiet = Wait::Nanos(200_000_000);
        while o.interface.eq_poll(&[s.eq], quiet).unwrap().is_some() {}
        let (start, before) = (Instant::now(), used());
        let nanos = IDLE.as_nanos() as u64;
        let event = o.interface.eq_poll(&[s.eq], Wait::Nanos(nanos)).unwrap();
        let (waited, cpu) = (start.elapsed(), used() - before);
        assert!(event.is_none(), "{event:?}");
        let share = cpu.as_secs_f64() / waited.as_secs_f64();
        println!("four idle ranks used {:.3} % of a core", share * 100.0);
        assert!(share < 0.08, "{share} of a core for four idle ranks");
        for to in 1..RANKS {
            ring(o, s, to);
        }
    });
}

/// A descriptor that is taken back is out of reach on both ways, and the owner's call returns.
#[test]
fn device_what_is_taken_back_is_gone_on_both_ways() {
    const ROUNDS: u64 = 20;
    const MOVING: u64 = 9;
    ranks(4096, |rank, o, s| {
        let ni = &o.interface;
        meet(o, s, rank);
        for round in 1..=ROUNDS {
            let memory = (rank == 0).then(|| {
                let region = ni.new_region(4096).unwrap();
                let entry = MeSpec {
                    match_id: ProcessId::ANY,
                    match_bits: MOVING,
                    ignore_bits: 0,
                    unlink: Unlink::Retain,
                };
                let me = ni.me_attach(PORTAL, entry, InsertPosition::After).unwrap();
                let md = spec(MdMemory::whole(&region), None);
                let md = ni.md_attach(me, md, Unlink::Retain).unwrap();
                (region, me, md)
            });
            meet(o, s, rank);
            if rank != 0 {
                s.work.write(0, &round.to_ne_bytes()).unwrap();
                let at = u64::from(rank) * 8;
                put(o, s, 0, MOVING, (0, 8), at, AckRequest::Ack);
                acked(o, s, MOVING);
            }
            meet(o, s, rank);
            if let Some((region, me, md)) = memory {
                ni.md_unlink(md).unwrap();
                ni.me_unlink(me).unwrap();
                for from in 1..RANKS as usize {
                    let mut word = [0; 8];
                    region.read(from * 8, &mut word).unwrap();
                    assert_eq!(u64::from_ne_bytes(word), round, "from {from}");
                }
            }
            meet(o, s, rank);
            if rank != 0 {
                put(o, s, 0, MOVING, (0, 8), 0, AckRequest::NoAck);
            }
            meet(o, s, rank);
        }
        if rank == 0 {
            // Each rank's last message of a round found nothing.
            assert_eq!(ni.status().unwrap().drop_count, ROUNDS * 3);
        }
        meet(o, s, rank);
    });
}
