//! Programs in accelerated mode: the same events as elsewhere, in less time; and the way back to the
//! kernel.

mod random;

use super::super::sim::Setting;
use super::super::{Mode, in_threads_on};
use crate::trusted::TRUST;
use fabric_api::call::{Target, Wait};
use fabric_api::place::Placement;
use fabric_api::region::Region;
use nic_model::Machine;
use portals_core::{
    AckRequest, EqHandle, Event, EventKind, InsertPosition, MdHandle, MdOptions, MeHandle, MeSpec,
    NiFail, ProcessId, Status, Unlink,
};
use portals_shim::fabric::{Opened, in_process};
use portals_shim::{Interface, MdMemory, MdSpec};
use std::sync::Barrier;

fn machine() -> Machine {
    Machine::named("xt4").unwrap()
}

/// Runs one body per rank on the model.
fn ranks_on<R: Send>(
    n: u32,
    mode: Mode,
    machine: Machine,
    place: Placement,
    body: impl Fn(u32, &Opened) -> R + Sync,
) -> Vec<R> {
    let setting = Setting {
        machine,
        topology: None,
        map: crate::map::Map::default(),
        mode,
        faults: nic_model::Faults::none(),
        patience: None,
    };
    let waiting = in_threads_on(n, place, setting).unwrap();
    super::super::tests::each(waiting, body)
}

fn ranks<R: Send>(n: u32, mode: Mode, body: impl Fn(u32, &Opened) -> R + Sync) -> Vec<R> {
    ranks_on(n, mode, machine(), Placement::ONE, body)
}

const ALL: MeSpec = MeSpec {
    match_id: ProcessId::ANY,
    match_bits: 0,
    ignore_bits: u64::MAX,
    unlink: Unlink::Retain,
};

fn spec(memory: MdMemory, options: MdOptions, eq: Option<EqHandle>) -> MdSpec {
    MdSpec {
        memory,
        threshold: -1,
        max_size: 0,
        options,
        user_ptr: 0,
        eq,
    }
}

const OPEN: MdOptions = MdOptions::OP_PUT
    .union(MdOptions::OP_GET)
    .union(MdOptions::MANAGE_REMOTE);

fn to(process: ProcessId, pt_index: u32, remote_offset: u64) -> Target {
    Target {
        process,
        pt_index,
        ac_index: 0,
        match_bits: 0,
        remote_offset,
    }
}

/// Waits until everybody has come here.
fn meet(ni: &Interface, all: &Barrier) {
    ni.outside(|| all.wait()).unwrap();
}

// ---- time ----

/// Nanoseconds of a put with an ack, a get, and one of many puts, by size.
fn times(mode: Mode, len: usize) -> (u64, u64, u64) {
    let all = Barrier::new(2);
    let results = ranks(2, mode, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(512).unwrap();
        let region = Region::new(len.max(8)).unwrap();
        let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
        let options = OPEN | MdOptions::EVENT_START_DISABLE;
        let part = MdMemory::Region {
            region: region.clone(),
            offset: 0,
            len,
        };
        let own = (rank == 0).then_some(eq);
        let md = ni
            .md_attach(me, spec(part, options, own), Unlink::Retain)
            .unwrap();
        meet(ni, &all);
        if rank == 1 {
            meet(ni, &all);
            return (0, 0, 0);
        }
        let there = to(opened.peers[1], 4, 0);
        let until = |kind| while ni.eq_wait(eq).unwrap().event.kind != kind {};
        let start = ni.now();
        ni.put(md, AckRequest::Ack, there, 0).unwrap();
        until(EventKind::Ack);
        let put = ni.now() - start;
        let start = ni.now();
        ni.get(md, there).unwrap();
        until(EventKind::ReplyEnd);
        let get = ni.now() - start;
        let start = ni.now();
        const MANY: u64 = 100;
        for _ in 0..MANY {
            ni.put(md, AckRequest::NoAck, there, 0).unwrap();
        }
        let mut ends = 0;
        while ends < MANY {
            ends += u64::from(ni.eq_wait(eq).unwrap().event.kind == EventKind::SendEnd);
        }
        let many = (ni.now() - start) / MANY;
        meet(ni, &all);
        (put, get, many)
    });
    results[0]
}

#[test]
fn without_traps_and_interrupts_a_small_message_takes_less_time() {
    for len in [0, 8, 64, 1024] {
        let generic = times(Mode::Generic, len);
        let accelerated = times(Mode::Accelerated, len);
        let shorter = |g: u64, a: u64| a * 10 < g * 8;
        assert!(
            shorter(generic.0, accelerated.0) && shorter(generic.1, accelerated.1),
            "{len} B: {generic:?} against {accelerated:?}"
        );
    }
}

#[test]
fn the_same_program_takes_the_same_time_twice() {
    for len in [8, 5000] {
        assert_eq!(times(Mode::Accelerated, len), times(Mode::Accelerated, len));
    }
}

// ---- memory that is not there ----

fn nowhere(len: u64) -> MdMemory {
    MdMemory::Raw(fabric_api::region::RawMemory::trusted(
        portals_core::Memory::contiguous(0x1000, len),
        TRUST,
    ))
}

/// Every operation of `len` bytes with memory that is not there at one of its ends, and how its events say that it ended, as
/// the initiator and as the target sees them.
fn with_bad_memory(mode: Mode, place: Placement, len: u64) -> Vec<Vec<(EventKind, NiFail)>> {
    const SYNC: u32 = 5;
    let all = Barrier::new(2);
    ranks_on(2, mode, machine(), place, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(64).unwrap();
        let nowhere = || nowhere(len);
        let good = Region::new(64).unwrap();
        let here = || MdMemory::Region {
            region: good.clone(),
            offset: 0,
            len: len as usize,
        };
        let options = OPEN | MdOptions::EVENT_START_DISABLE;
        for (pt, memory) in [(4, here()), (6, nowhere())] {
            let me = ni.me_attach(pt, ALL, InsertPosition::After).unwrap();
            ni.md_attach(me, spec(memory, options, Some(eq)), Unlink::Retain)
                .unwrap();
        }
        let me = ni.me_attach(SYNC, ALL, InsertPosition::After).unwrap();
        ni.md_attach(me, spec(MdMemory::Empty, options, Some(eq)), Unlink::Retain)
            .unwrap();
        let bound = |memory| {
            let md = spec(memory, options, Some(eq));
            ni.md_bind(md, Unlink::Retain).unwrap()
        };
        let (whole, bad) = (bound(here()), bound(nowhere()));
        let empty = bound(MdMemory::Empty);
        meet(ni, &all);
        let mut seen = Vec::new();
        if rank == 1 {
            // The last operation has no bytes, so that it fails nowhere.
            loop {
                let event = ni.eq_wait(eq).unwrap().event;
                if event.pt_index == SYNC {
                    meet(ni, &all);
                    return seen;
                }
                seen.push((event.kind, event.ni_fail));
            }
        }
        let until = |ends: usize, seen: &mut Vec<_>| {
            for _ in 0..ends {
                let event = ni.eq_wait(eq).unwrap().event;
                seen.push((event.kind, event.ni_fail));
            }
        };
        let there = |pt| to(opened.peers[1], pt, 0);
        // To it, out of it, into it, and the exchange with it.
        ni.put(whole, AckRequest::Ack, there(6), 0).unwrap();
        until(2, &mut seen);
        ni.put(bad, AckRequest::Ack, there(4), 0).unwrap();
        until(2, &mut seen);
        ni.get(bad, there(4)).unwrap();
        until(1, &mut seen);
        ni.get(whole, there(6)).unwrap();
        until(1, &mut seen);
        ni.get_put(whole, whole, there(6), 0).unwrap();
        until(2, &mut seen);
        // All is well afterwards.
        ni.put(whole, AckRequest::Ack, there(4), 0).unwrap();
        until(2, &mut seen);
        ni.put(empty, AckRequest::NoAck, there(SYNC), 0).unwrap();
        meet(ni, &all);
        seen
    })
}

#[test]
fn memory_that_is_not_there_fails_alike_in_every_mode() {
    use EventKind::{Ack, GetEnd, GetPutEnd, PutEnd, ReplyEnd, SendEnd};
    let (well, there, here) = (NiFail::OK, NiFail::FAIL, NiFail::SEGV);
    let initiator = vec![
        // The put to memory that is not there, and the one from it.
        (SendEnd, well),
        (Ack, there),
        (SendEnd, here),
        (Ack, here),
        // The get into it, and the one from it.
        (ReplyEnd, here),
        (ReplyEnd, there),
        // The exchange with it.
        (SendEnd, well),
        (ReplyEnd, there),
        (SendEnd, well),
        (Ack, well),
    ];
    // In a header packet, behind one by the kernel's or the firmware's copy, and by the DMA engine.
    for len in [4, 8, 40] {
        let mut target = vec![
            (PutEnd, here),
            (GetEnd, well),
            (GetEnd, here),
            (GetPutEnd, here),
            (PutEnd, well),
        ];
        if len == 40 {
            // Its header had left when its data was found missing.
            target.insert(1, (PutEnd, there));
        }
        let expected = vec![initiator.clone(), target];
        for place in [Placement::ONE, Placement::new(2).unwrap()] {
            for mode in [Mode::Generic, Mode::Accelerated] {
                let seen = with_bad_memory(mode, place, len);
                assert_eq!(seen, expected, "{len} B, {mode:?}, {place:?}");
            }
        }
    }
}

// ---- the way back ----

/// A machine with room for about this many entries with descriptors in each NIC.
fn small(pairs: u32) -> Machine {
    let mut machine = machine();
    let p = &machine.protocol;
    let tables = 28 * 1024 + p.image + machine.firmware.sources * p.source_size;
    let pendings = (u32::from(super::super::ssnal::PENDINGS) + machine.accelerated.pendings) * 32;
    let pair = machine.accelerated.me_size + machine.accelerated.md_size;
    machine.accelerated.sram = tables + pendings + pairs * pair;
    machine.accelerated.take_over = nic_model::SimDuration::from_us(1_000);
    machine
}

fn pattern(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i * 7 + n * 13 + 1) as u8)
        .collect()
}

/// Numbered messages of all kinds of length stream into rank 0 while its NIC runs out of SRAM. None is
/// lost, none overtakes another, and what was made before goes on.
#[test]
fn a_full_nic_gives_its_process_to_the_kernel_in_mid_traffic() {
    const MESSAGES: u64 = 400;
    const LONGEST: usize = 5000;
    const LENGTHS: [usize; 6] = [0, 8, 16, 17, 1000, LONGEST];
    let length = |n: u64| LENGTHS[n as usize % LENGTHS.len()];
    let all = Barrier::new(2);
    let fell = ranks_on(
        2,
        Mode::Accelerated,
        small(20),
        Placement::ONE,
        |rank, opened| {
            let ni = &opened.interface;
            let eq = ni.eq_alloc(1024).unwrap();
            let peer = opened.peers[1 - rank as usize];
            let size = LONGEST * MESSAGES as usize;
            let inbox = Region::new(size).unwrap();
            let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
            let md = ni
                .md_attach(
                    me,
                    spec(MdMemory::whole(&inbox), OPEN, Some(eq)),
                    Unlink::Retain,
                )
                .unwrap();
            let outbox = Region::new(size).unwrap();
            let out_eq = ni.eq_alloc(64).unwrap();
            let out = ni
                .md_bind(
                    spec(MdMemory::whole(&outbox), OPEN, Some(out_eq)),
                    Unlink::Retain,
                )
                .unwrap();
            meet(ni, &all);
            if rank == 1 {
                // The source: at most 30 messages without ack, so that no queue overflows.
                let (mut sent, mut acked) = (0, 0);
                while acked < MESSAGES {
                    while sent < MESSAGES && sent < acked + 15 {
                        let at = sent * LONGEST as u64;
                        let len = length(sent);
                        outbox.write(at as usize, &pattern(sent, len)).unwrap();
                        ni.put_region(
                            out,
                            (at, len as u64),
                            AckRequest::Ack,
                            to(peer, 4, at),
                            sent,
                        )
                        .unwrap();
                        sent += 1;
                    }
                    let polled = ni.eq_wait(out_eq).unwrap();
                    assert!(!polled.dropped);
                    assert_eq!(polled.event.ni_fail, NiFail::OK);
                    if polled.event.kind == EventKind::Ack {
                        acked += 1;
                    }
                }
                // What rank 0 sent while it fell.
                let mut ends = 0;
                while ends < 2 {
                    ends += u32::from(ni.eq_wait(eq).unwrap().event.kind == EventKind::PutEnd);
                }
                let mut got = vec![0; 100_000];
                inbox.read(0, &mut got).unwrap();
                assert!(got == pattern(77, 100_000));
                meet(ni, &all);
                return 0;
            }
            let (mut started, mut ended) = (0, 0);
            let (mut fell, mut own) = (0, Vec::new());
            outbox.write(0, &pattern(77, 100_000)).unwrap();
            while ended < MESSAGES {
                let polled = ni.eq_wait(eq).unwrap();
                assert!(!polled.dropped);
                let event = polled.event;
                assert_eq!(event.ni_fail, NiFail::OK);
                match event.kind {
                    EventKind::PutStart => {
                        assert_eq!(event.hdr_data, started, "messages in order");
                        started += 1;
                    }
                    EventKind::PutEnd => {
                        let n = event.hdr_data;
                        let mut data = vec![0; length(n)];
                        inbox.read(event.offset as usize, &mut data).unwrap();
                        assert!(data == pattern(n, length(n)), "message {n}");
                        ended += 1;
                    }
                    other => panic!("{other:?}"),
                }
                if ended == 100 && own.is_empty() {
                    // A long message is on its way out while the NIC fills.
                    ni.put_region(out, (0, 100_000), AckRequest::Ack, to(peer, 4, 0), 1)
                        .unwrap();
                    while fell == 0 {
                        let before = ni.now();
                        let me = ni.me_attach(9, ALL, InsertPosition::After).unwrap();
                        own.push(me);
                        let md = spec(MdMemory::Empty, OPEN, Some(eq));
                        ni.md_attach(me, md, Unlink::Retain).unwrap();
                        if ni.now() - before > 1_000_000 {
                            fell = own.len();
                        }
                    }
                    ni.put_region(out, (0, 4), AckRequest::Ack, to(peer, 4, 200_000), 2)
                        .unwrap();
                }
            }
            // Handles of both times are good, and what was under way has ended.
            let mut kinds = Vec::new();
            while kinds.iter().filter(|k| **k == EventKind::Ack).count() < 2 {
                kinds.push(ni.eq_wait(out_eq).unwrap().event.kind);
            }
            use EventKind::{Ack, SendEnd, SendStart};
            assert_eq!(kinds.iter().filter(|k| **k == SendStart).count(), 2);
            assert_eq!(kinds.iter().filter(|k| **k == SendEnd).count(), 2);
            assert_eq!(kinds.iter().filter(|k| **k == Ack).count(), 2);
            for me in own {
                ni.me_unlink(me).unwrap();
            }
            ni.md_query(md).unwrap();
            ni.md_unlink(md).unwrap();
            ni.me_unlink(me).unwrap();
            ni.md_unlink(out).unwrap();
            assert_eq!(ni.status().unwrap().drop_count, 0);
            meet(ni, &all);
            fell
        },
    );
    assert!((5..=20).contains(&fell[0]), "{fell:?}");
}

const MOVED_PUTS: usize = 4;

/// How the events of puts end whose process moves to the kernel after so many looks at its queue, and at which further entry
/// of its list after `room` it has moved. Where they are `bad`, their memory is not there.
fn puts_in_a_move(room: usize, looks: usize, bad: bool) -> (usize, Vec<(EventKind, NiFail)>) {
    const LENGTH: usize = 3000;
    let all = Barrier::new(2);
    let rank = |rank: u32, opened: &Opened| {
        let ni = &opened.interface;
        let peer = opened.peers[1 - rank as usize];
        let memory = Region::new(LENGTH).unwrap();
        let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
        let md = spec(MdMemory::whole(&memory), OPEN, None);
        ni.md_attach(me, md, Unlink::Retain).unwrap();
        meet(ni, &all);
        let (mut attached, mut ends) = (0, Vec::new());
        if rank == 0 {
            let eq = ni.eq_alloc(64).unwrap();
            let source = match bad {
                true => nowhere(LENGTH as u64),
                false => MdMemory::whole(&memory),
            };
            let out = spec(source, OPEN, Some(eq));
            let out = ni.md_bind(out, Unlink::Retain).unwrap();
            let attach = || {
                let before = ni.now();
                ni.me_attach(9, ALL, InsertPosition::After).unwrap();
                ni.now() - before > 1_000_000
            };
            for _ in 0..room {
                assert!(!attach(), "it moved too early");
            }
            for _ in 0..MOVED_PUTS {
                ni.put(out, AckRequest::Ack, to(peer, 4, 0), 0).unwrap();
            }
            let end = |event: Event| (event.kind, event.ni_fail);
            for _ in 0..looks {
                ends.extend(ni.eq_get(eq).unwrap().map(|polled| end(polled.event)));
            }
            attached = 1 + (0..).take_while(|_| !attach()).count();
            while ends.len() < 3 * MOVED_PUTS {
                ends.push(end(ni.eq_wait(eq).unwrap().event));
            }
        }
        meet(ni, &all);
        (attached, ends)
    };
    let mode = (Mode::Accelerated, small(20), Placement::ONE);
    ranks_on(2, mode.0, mode.1, mode.2, rank).swap_remove(0)
}

/// A process moves to the kernel at many moments of its puts: each has ended before its ack comes. What ends with the memory of
/// this process does so on either side of the move.
#[test]
fn puts_under_way_in_a_move_end_before_their_acks() {
    for (bad, fail) in [(false, NiFail::OK), (true, NiFail::SEGV)] {
        // All but the last that does not fit.
        let room = puts_in_a_move(0, 0, bad).0 - 1;
        for looks in 0..80 {
            let (attached, ends) = puts_in_a_move(room, looks, bad);
            assert_eq!(attached, 1);
            let (mut ended, mut acked) = (0, 0);
            for (kind, _) in &ends {
                ended += usize::from(*kind == EventKind::SendEnd);
                acked += usize::from(*kind == EventKind::Ack);
                assert!(acked <= ended, "moved after {looks} looks: {ends:?}");
            }
            assert_eq!((ended, acked), (MOVED_PUTS, MOVED_PUTS));
            let so = |(kind, ended): &(EventKind, NiFail)| {
                *kind == EventKind::SendStart || *ended == fail
            };
            assert!(ends.iter().all(so), "moved after {looks} looks: {ends:?}");
        }
    }
}

/// Replies with data in buffers of their own wait for one another's receive pendings on neither node.
#[test]
fn getputs_both_ways_behind_a_long_put_are_all_answered() {
    const GETPUTS: usize = 300;
    const LENGTH: usize = 64;
    let mut machine = machine();
    machine.accelerated.pendings = 16;
    let all = Barrier::new(2);
    let rank = |rank: u32, opened: &Opened| {
        let ni = &opened.interface;
        let peer = opened.peers[1 - rank as usize];
        let region = || Region::new(LENGTH).unwrap();
        let (there, old, new) = (region(), region(), region());
        let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
        let md = spec(MdMemory::whole(&there), OPEN, None);
        ni.md_attach(me, md, Unlink::Retain).unwrap();
        let eq = ni.eq_alloc(4 * GETPUTS as u64).unwrap();
        let bind = |memory: &Region, eq| {
            let md = spec(MdMemory::whole(memory), OPEN, eq);
            ni.md_bind(md, Unlink::Retain).unwrap()
        };
        let (old, new) = (bind(&old, Some(eq)), bind(&new, None));
        let long = bind(&Region::new(100_000).unwrap(), None);
        meet(ni, &all);
        // Nothing takes it, and it holds up what comes behind it.
        ni.put(long, AckRequest::NoAck, to(peer, 5, 0), 0).unwrap();
        for _ in 0..GETPUTS {
            ni.get_put_region(old, new, (0, 0, LENGTH as u64), to(peer, 4, 0), 0)
                .unwrap();
        }
        let mut answered = 0;
        let mut failed = 0;
        while answered < GETPUTS {
            let event = ni.eq_wait(eq).unwrap().event;
            failed += usize::from(event.ni_fail != NiFail::OK);
            answered += usize::from(event.kind == EventKind::ReplyEnd);
        }
        meet(ni, &all);
        failed
    };
    let failed = ranks_on(2, Mode::Accelerated, machine, Placement::ONE, rank);
    assert_eq!(failed, [0, 0]);
}

/// The header of a getput is longer than others, whatever room for data the machine has behind those.
#[test]
fn getputs_go_where_header_packets_have_no_room_for_data() {
    for (mode, inline_data) in [Mode::Generic, Mode::Accelerated]
        .into_iter()
        .flat_map(|mode| [0, 7, 8].map(|n| (mode, n)))
    {
        let mut machine = machine();
        machine.protocol.inline_data = inline_data;
        let all = Barrier::new(2);
        let rank = |rank: u32, opened: &Opened| {
            let ni = &opened.interface;
            let there = Region::new(8).unwrap();
            there.write(0, b"thereisa").unwrap();
            let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
            let md = spec(MdMemory::whole(&there), OPEN, None);
            ni.md_attach(me, md, Unlink::Retain).unwrap();
            meet(ni, &all);
            let mut got = [0; 8];
            if rank == 0 {
                let eq = ni.eq_alloc(8).unwrap();
                let (old, new) = (Region::new(8).unwrap(), Region::new(8).unwrap());
                let bind = |memory: &Region, eq| {
                    let md = spec(MdMemory::whole(memory), OPEN, eq);
                    ni.md_bind(md, Unlink::Retain).unwrap()
                };
                let (into, from) = (bind(&old, Some(eq)), bind(&new, None));
                ni.get_put_region(into, from, (0, 0, 8), to(opened.peers[1], 4, 0), 0)
                    .unwrap();
                let wait = Wait::Nanos(1_000_000_000);
                let next = || ni.eq_poll(&[eq], wait).unwrap();
                while next().is_some_and(|p| p.event.kind != EventKind::ReplyEnd) {}
                old.read(0, &mut got).unwrap();
            }
            meet(ni, &all);
            got
        };
        let got = ranks_on(2, mode, machine, Placement::ONE, rank);
        assert_eq!(got[0], *b"thereisa", "{mode:?}, {inline_data} bytes");
    }
}

/// More processes than mailboxes, and messages between processes of one node in every combination.
#[test]
fn processes_beyond_the_mailboxes_stay_with_the_kernel() {
    let place = Placement::new(5).unwrap();
    let all = Barrier::new(10);
    let sums = ranks_on(10, Mode::Accelerated, machine(), place, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(256).unwrap();
        let region = Region::new(4096).unwrap();
        let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
        ni.md_attach(
            me,
            spec(MdMemory::whole(&region), OPEN, Some(eq)),
            Unlink::Retain,
        )
        .unwrap();
        let source = Region::new(256).unwrap();
        source.write(0, &[rank as u8 + 1; 256]).unwrap();
        let md = ni
            .md_bind(spec(MdMemory::whole(&source), OPEN, None), Unlink::Retain)
            .unwrap();
        meet(ni, &all);
        for peer in &opened.peers {
            let there = to(*peer, 4, u64::from(rank) * 256);
            ni.put_region(md, (0, 256), AckRequest::NoAck, there, 0)
                .unwrap();
        }
        let mut ends = 0;
        while ends < opened.peers.len() {
            ends += usize::from(ni.eq_wait(eq).unwrap().event.kind == EventKind::PutEnd);
        }
        let mut data = vec![0; 2560];
        region.read(0, &mut data).unwrap();
        meet(ni, &all);
        data.chunks(256)
            .enumerate()
            .all(|(n, chunk)| chunk.iter().all(|b| *b == n as u8 + 1))
    });
    assert!(sums.iter().all(|ok| *ok), "{sums:?}");
}
