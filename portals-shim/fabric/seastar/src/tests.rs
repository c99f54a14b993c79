use super::*;
use crate::trusted::TRUST;
use fabric_api::call::{Target, Wait};
use fabric_api::region::Region;
use fabric_testing::spec;
use nic_model::SimDuration;
use portals_core::{
    AckRequest, EventKind, InsertPosition, MdOptions, MeSpec, NiFail, ProcessId, Unlink,
};
use portals_shim::fabric::Opened;
use portals_shim::{MdMemory, MdSpec};

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// A machine that probes, gives up, and hears of nodes that fail after so many microseconds.
pub(super) fn impatient(probe_after: u64, give_up: u64, declared_dead: u64) -> Machine {
    let mut machine = Machine::named("xt4").unwrap();
    machine.protocol.probe_after = SimDuration::from_us(probe_after);
    machine.protocol.give_up = SimDuration::from_us(give_up);
    machine.protocol.declared_dead = SimDuration::from_us(declared_dead);
    machine
}

/// Runs a body on a thread for each rank, from the join to the close; returns what they return.
pub(super) fn each<R: Send>(
    waiting: Vec<InThread>,
    body: impl Fn(u32, &Opened) -> R + Sync,
) -> Vec<R> {
    let body = &body;
    std::thread::scope(|s| {
        let threads: Vec<_> = waiting
            .into_iter()
            .map(|w| {
                s.spawn(move || {
                    let rank = w.rank();
                    let opened = Opened::from(w.join().unwrap());
                    let result = body(rank, &opened);
                    opened.interface.close().unwrap();
                    result
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Runs one body per rank, each on its own thread, and returns what they return.
fn ranks<R: Send>(n: u32, body: impl Fn(u32, &Opened) -> R + Sync) -> Vec<R> {
    ranks_of(n, &FabricConfig::default(), body)
}

/// Ranks with choices for the model.
fn ranks_of<R: Send>(
    n: u32,
    config: &FabricConfig,
    body: impl Fn(u32, &Opened) -> R + Sync,
) -> Vec<R> {
    let waiting = in_threads_of(n, config).unwrap();
    each(waiting, body)
}

const EVERYBODY: MeSpec = MeSpec {
    match_id: ProcessId::ANY,
    match_bits: 7,
    ignore_bits: 0,
    unlink: Unlink::Retain,
};

pub(super) fn to(process: ProcessId, remote_offset: u64) -> Target {
    Target {
        process,
        pt_index: 4,
        ac_index: 0,
        match_bits: 7,
        remote_offset,
    }
}

/// Rank 0 puts `len` bytes with an ack and gets them back elsewhere; both ranks' events are
/// returned with their times.
fn round(len: usize, offset: usize) -> Vec<Vec<(EventKind, u64)>> {
    round_of(len, offset, &FabricConfig::default())
}

fn round_of(len: usize, offset: usize, config: &FabricConfig) -> Vec<Vec<(EventKind, u64)>> {
    ranks_of(2, config, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(64).unwrap();
        let region = Region::new(2 * len + 8192).unwrap();
        let me = ni.me_attach(4, EVERYBODY, InsertPosition::After).unwrap();
        let md = ni
            .md_attach(me, spec(MdMemory::whole(&region), Some(eq)), Unlink::Retain)
            .unwrap();
        let mut seen = Vec::new();
        let mut wait = |kind: EventKind| {
            loop {
                let e = ni.eq_wait(eq).unwrap().event;
                assert_eq!(e.ni_fail, NiFail::OK);
                seen.push((e.kind, ni.now()));
                if e.kind == kind {
                    return e;
                }
            }
        };
        let pattern: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
        // A word of greeting, so that the target's entry exists before the put.
        let peer = opened.peers[1 - rank as usize];
        if rank == 1 {
            ni.put_region(md, (0, 0), AckRequest::NoAck, to(peer, 0), 1)
                .unwrap();
            let got = wait(EventKind::GetEnd);
            assert_eq!(got.mlength, len as u64);
            let mut data = vec![0; len];
            region.read(64 + offset, &mut data).unwrap();
            assert_eq!(data, pattern);
        } else {
            wait(EventKind::PutEnd);
            region.write(offset, &pattern).unwrap();
            let there = to(peer, 64 + offset as u64);
            ni.put_region(md, (offset as u64, len as u64), AckRequest::Ack, there, 99)
                .unwrap();
            let ack = wait(EventKind::Ack);
            assert_eq!((ack.mlength, ack.rlength), (len as u64, len as u64));
            let back = (len + 4096 + offset) as u64;
            ni.get_region(md, (back, len as u64), there).unwrap();
            let reply = wait(EventKind::ReplyEnd);
            assert_eq!((reply.offset, reply.mlength), (back, len as u64));
            let mut data = vec![0; len];
            region.read(back as usize, &mut data).unwrap();
            assert_eq!(data, pattern);
        }
        seen
    })
}

#[test]
fn data_of_every_size_and_alignment_goes_there_and_back() {
    for len in [0, 1, 15, 16, 17, 63, 64, 65, 4096, 100_003] {
        for offset in [0, 1, 6] {
            round(len, offset);
        }
    }
}

#[test]
fn the_same_program_takes_the_same_time_twice() {
    let first = round(5000, 0);
    assert_eq!(first, round(5000, 0));
    assert!(first[0].last().unwrap().1 > 10_000, "{first:?}");
}

fn two_on_a_node() -> FabricConfig {
    FabricConfig {
        place: Placement::new(2).unwrap(),
        ..FabricConfig::default()
    }
}

/// When the last event of `round` came, for each rank.
fn ends(of: &[Vec<(EventKind, u64)>]) -> Vec<u64> {
    of.iter().map(|seen| seen.last().unwrap().1).collect()
}

#[test]
fn ranks_of_one_node_reach_each_other_without_the_chip() {
    let machine = Machine::named("xt4").unwrap();
    for len in [0, 1, 16, 17, 4096, 100_003] {
        for offset in [0, 5] {
            let (near, far) = (round_of(len, offset, &two_on_a_node()), round(len, offset));
            let kinds = |of: &[Vec<(EventKind, u64)>]| -> Vec<Vec<EventKind>> {
                let mut kinds: Vec<Vec<EventKind>> =
                    of.iter().map(|s| s.iter().map(|e| e.0).collect()).collect();
                kinds.iter_mut().for_each(|k| k.sort_by_key(|k| *k as u8));
                kinds
            };
            assert_eq!(kinds(&near), kinds(&far), "{len} {offset}");
            if len < 20 {
                // A message between nodes costs an interrupt, this one none.
                let saved = ends(&far)[0] - ends(&near)[0];
                let interrupt = machine.host.interrupt_entry.as_ns();
                assert!(saved > 2 * interrupt, "{saved} of {interrupt} ns");
            }
        }
    }
}

#[test]
fn several_ranks_of_several_nodes_have_ids_of_their_own() {
    let barrier = std::sync::Barrier::new(5);
    let seen = ranks_of(5, &two_on_a_node(), |rank, opened| {
        let ni = &opened.interface;
        assert_eq!(ni.id(), opened.peers[rank as usize]);
        let eq = ni.eq_alloc(64).unwrap();
        let region = Region::new(64).unwrap();
        let me = ni.me_attach(4, EVERYBODY, InsertPosition::After).unwrap();
        let md = ni
            .md_attach(me, spec(MdMemory::whole(&region), Some(eq)), Unlink::Retain)
            .unwrap();
        ni.outside(|| barrier.wait()).unwrap();
        for peer in &opened.peers {
            ni.put_region(md, (0, 8), AckRequest::NoAck, to(*peer, 0), rank.into())
                .unwrap();
        }
        let mut from = Vec::new();
        while from.len() < 5 {
            let e = ni.eq_wait(eq).unwrap().event;
            if e.kind == EventKind::PutEnd {
                assert_eq!(e.initiator, opened.peers[e.hdr_data as usize]);
                from.push(e.hdr_data);
            }
        }
        ni.outside(|| barrier.wait()).unwrap();
        from.sort_unstable();
        (ni.id().nid, ni.id().pid, from)
    });
    let ids: Vec<(u32, u32)> = seen.iter().map(|s| (s.0, s.1)).collect();
    assert_eq!(ids, [(1, 128), (1, 129), (2, 128), (2, 129), (3, 128)]);
    assert!(seen.iter().all(|s| s.2 == [0, 1, 2, 3, 4]), "{seen:?}");
}

#[test]
fn pages_of_linux_carry_the_same_bytes_and_cost_more() {
    let linux = FabricConfig {
        machine: "xt4-linux".to_owned(),
        ..FabricConfig::default()
    };
    for (len, offset) in [(64, 0), (4096, 0), (4096, 6), (100_003, 3)] {
        let (light, heavy) = (round(len, offset), round_of(len, offset, &linux));
        assert!(ends(&heavy)[0] > ends(&light)[0], "{len} {offset}");
    }
}

/// A descriptor that pins a megabyte costs 256 pages, one over a part of it none of them; resident memory stays pinned.
#[test]
fn memory_that_is_pinned_is_not_pinned_again() {
    let linux = FabricConfig {
        machine: "xt4-linux".to_owned(),
        ..FabricConfig::default()
    };
    let page = Machine::named("xt4-linux").unwrap().host.pin_page.as_ns();
    let took = ranks_of(1, &linux, |_, opened| {
        let ni = &opened.interface;
        let region = Region::new(1 << 20).unwrap();
        let bind = |offset, len, options| {
            let memory = MdMemory::Region {
                region: region.clone(),
                offset,
                len,
            };
            let mut spec = spec(memory, None);
            spec.options |= options;
            let start = ni.now();
            let md = ni.md_bind(spec, Unlink::Retain).unwrap();
            (md, ni.now() - start)
        };
        let none = bind(0, 1 << 20, MdOptions::empty()).1;
        let costs = |offset, len, options| {
            let (md, took) = bind(offset, len, options);
            (md, took - none)
        };
        let (pinned, resident) = (MdOptions::PINNED, MdOptions::RESIDENT);
        let (md, first) = costs(0, 1 << 20, pinned);
        let again = costs(4096, 8192, pinned).1;
        ni.md_unlink(md).unwrap();
        let (md, anew) = costs(0, 1 << 20, resident);
        ni.md_unlink(md).unwrap();
        [first, again, anew, costs(0, 1 << 20, pinned).1]
    });
    assert_eq!(took, [[256 * page, 0, 256 * page, 0]]);
}

#[test]
fn computing_takes_virtual_time_and_interrupts_more() {
    let barrier = std::sync::Barrier::new(2);
    let took = ranks(2, |rank, opened| {
        let ni = &opened.interface;
        let region = Region::new(64).unwrap();
        let me = ni.me_attach(4, EVERYBODY, InsertPosition::After).unwrap();
        let md = ni
            .md_attach(me, spec(MdMemory::whole(&region), None), Unlink::Retain)
            .unwrap();
        ni.outside(|| barrier.wait()).unwrap();
        let start = ni.now();
        if rank == 0 {
            ni.compute(100_000).unwrap();
        } else {
            for _ in 0..4 {
                ni.put_region(md, (0, 8), AckRequest::NoAck, to(opened.peers[0], 0), 0)
                    .unwrap();
                ni.compute(20_000).unwrap();
            }
        }
        ni.now() - start
    });
    let machine = Machine::named("xt4").unwrap();
    let interrupt = machine.host.interrupt_entry + machine.host.interrupt_exit;
    let stolen = took[0] - 100_000;
    assert!(stolen > 4 * interrupt.as_ns(), "{took:?}");
    assert!(stolen < 8 * interrupt.as_ns(), "{took:?}");
}

#[test]
fn a_grid_must_hold_the_nodes() {
    let with = |topology: &str| FabricConfig {
        topology: Some(topology.to_owned()),
        ..FabricConfig::default()
    };
    assert_eq!(ranks_of(3, &with("3,mesh"), |_, _| ()).len(), 3);
    let refused = in_threads_of(3, &with("2x1x1")).unwrap();
    let threads: Vec<_> = refused
        .into_iter()
        .map(|r| std::thread::spawn(move || r.join().unwrap_err().to_string()))
        .collect();
    for thread in threads {
        let why = thread.join().unwrap();
        assert!(why.contains("3 nodes do not fit a grid of 2"), "{why}");
    }
    assert!(in_threads_of(3, &with("2x")).is_err());
}

#[test]
fn a_deadlocked_program_is_told_so() {
    let results = ranks(2, |_, opened| {
        let eq = opened.interface.eq_alloc(4).unwrap();
        opened.interface.eq_wait(eq)
    });
    assert!(results.iter().all(|r| *r == Err(portals_core::Error::Fail)));
}

#[test]
fn a_limited_wait_ends_at_its_limit() {
    let ends = ranks(2, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(4).unwrap();
        let from = ni.now();
        let limit = 1_000 * u64::from(rank + 1);
        assert!(ni.eq_poll(&[eq], Wait::Nanos(limit)).unwrap().is_none());
        (ni.now() - from, limit)
    });
    for (took, limit) in ends {
        assert!((limit..limit + 1_000).contains(&took), "{took} for {limit}");
    }
}

#[test]
fn ranks_that_waited_outside_return_together() {
    let barrier = std::sync::Barrier::new(3);
    let clocks = ranks(3, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(4).unwrap();
        ni.eq_poll(&[eq], Wait::Nanos(u64::from(rank) * 10_000))
            .unwrap();
        let before = ni.now();
        ni.outside(|| barrier.wait()).unwrap();
        (before, ni.now())
    });
    let latest = clocks.iter().map(|c| c.0).max().unwrap();
    assert!(clocks.iter().all(|c| c.1 == latest), "{clocks:?}");
}

#[test]
fn a_fence_can_follow_a_fence_at_once() {
    const FENCES: usize = 400;
    let barrier = std::sync::Barrier::new(4);
    let clocks = ranks(4, |_, opened| {
        for _ in 0..FENCES {
            opened.interface.outside(|| barrier.wait()).unwrap();
        }
        opened.interface.now()
    });
    assert!(clocks.iter().all(|c| *c == clocks[0]), "{clocks:?}");
}

#[test]
fn a_bad_address_fails_the_operation_and_nothing_else() {
    let results = ranks(2, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(16).unwrap();
        let region = Region::new(4096).unwrap();
        let me = ni.me_attach(4, EVERYBODY, InsertPosition::After).unwrap();
        ni.md_attach(me, spec(MdMemory::whole(&region), Some(eq)), Unlink::Retain)
            .unwrap();
        if rank == 1 {
            // The greeting says that the entry is there; the good put ends the test.
            let hello = ni
                .md_bind(spec(MdMemory::Empty, None), Unlink::Retain)
                .unwrap();
            ni.put(hello, AckRequest::NoAck, to(opened.peers[0], 0), 0)
                .unwrap();
            loop {
                let e = ni.eq_wait(eq).unwrap().event;
                if e.kind == EventKind::PutEnd && e.hdr_data == 2 {
                    return NiFail::OK;
                }
            }
        }
        ni.eq_wait(eq).unwrap();
        ni.eq_wait(eq).unwrap();
        let nowhere = bad_memory();
        let bad = ni.md_bind(spec(nowhere, Some(eq)), Unlink::Retain).unwrap();
        ni.put(bad, AckRequest::NoAck, to(opened.peers[1], 0), 1)
            .unwrap();
        let fail = loop {
            let e = ni.eq_wait(eq).unwrap().event;
            if e.kind == EventKind::SendEnd {
                break e.ni_fail;
            }
        };
        let good = ni
            .md_bind(spec(MdMemory::Empty, None), Unlink::Retain)
            .unwrap();
        ni.put(good, AckRequest::NoAck, to(opened.peers[1], 0), 2)
            .unwrap();
        fail
    });
    assert_eq!(results, [NiFail::SEGV, NiFail::OK]);
}

/// Long messages are under way to a process that closes: what comes then does not reach its memory.
#[test]
fn memory_of_a_process_that_has_closed_is_not_touched() {
    const LEN: usize = 1 << 20;
    for mode in [Mode::Generic, Mode::Accelerated] {
        let config = FabricConfig {
            mode,
            ..FabricConfig::default()
        };
        let (filled, meet) = (AtomicBool::new(false), Barrier::new(2));
        let body = |opened: &Opened, rank: u32| {
            let ni = &opened.interface;
            let eq = ni.eq_alloc(64).unwrap();
            let region = Region::new(LEN).unwrap();
            let me = ni.me_attach(4, EVERYBODY, InsertPosition::After).unwrap();
            let md = spec(MdMemory::whole(&region), Some(eq));
            let md = ni.md_attach(me, md, Unlink::Retain).unwrap();
            let peer = to(opened.peers[1 - rank as usize], 0);
            if rank == 1 {
                // A word of greeting, so that the entry exists before the puts.
                ni.put_region(md, (0, 0), AckRequest::NoAck, peer, 0)
                    .unwrap();
                while ni.eq_wait(eq).unwrap().event.kind != EventKind::PutStart {}
                ni.close().unwrap();
                region.fill(0, LEN, 9).unwrap();
                filled.store(true, Ordering::SeqCst);
                meet.wait();
                let mut now = vec![0; LEN];
                region.read(0, &mut now).unwrap();
                assert!(now.iter().all(|b| *b == 9), "{mode:?}");
                return;
            }
            while ni.eq_wait(eq).unwrap().event.kind != EventKind::PutEnd {}
            for _ in 0..3 {
                ni.put_region(md, (0, LEN as u64), AckRequest::NoAck, peer, 0)
                    .unwrap();
            }
            let mut ends = 0;
            // In small steps until the peer has filled its memory, which takes no virtual time.
            while ends < 3 {
                let step = if filled.load(Ordering::SeqCst) {
                    1_000_000
                } else {
                    500
                };
                let polled = ni.eq_poll(&[eq], Wait::Nanos(step)).unwrap();
                ends += u32::from(polled.is_some_and(|p| p.event.kind == EventKind::SendEnd));
            }
            assert!(
                filled.load(Ordering::SeqCst),
                "the puts took longer than that"
            );
            meet.wait();
            ni.close().unwrap();
        };
        std::thread::scope(|s| {
            for waiting in in_threads_of(2, &config).unwrap() {
                let body = &body;
                s.spawn(move || {
                    let rank = waiting.rank();
                    body(&waiting.join().unwrap().into(), rank);
                });
            }
        });
    }
}

/// A page that is not mapped any more.
fn bad_memory() -> MdMemory {
    MdMemory::Raw(fabric_api::region::RawMemory::trusted(
        portals_core::Memory::contiguous(0x1000, 64),
        TRUST,
    ))
}

/// Peers that answer every reply with a request at once keep the processor of rank 0 in its
/// interrupt handler; its own process must still get on.
#[test]
fn peers_that_never_rest_do_not_keep_a_process_out() {
    const LIMIT: u32 = 3_000;
    let rounds = ranks(8, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(4096).unwrap();
        let memory = Region::new(4096).unwrap();
        let me = ni.me_attach(4, EVERYBODY, InsertPosition::After).unwrap();
        let own_eq = (rank != 0).then_some(eq);
        ni.md_attach(me, spec(MdMemory::whole(&memory), own_eq), Unlink::Retain)
            .unwrap();
        let part = |len| MdSpec {
            options: MdOptions::EVENT_START_DISABLE,
            ..spec(
                MdMemory::Region {
                    region: memory.clone(),
                    offset: 0,
                    len,
                },
                own_eq,
            )
        };
        let word = ni.md_bind(part(8), Unlink::Retain).unwrap();
        let bell = ni.md_bind(part(0), Unlink::Retain).unwrap();
        ni.outside(|| ()).unwrap();
        if rank == 0 {
            for _ in 0..200 {
                assert!(ni.eq_get(eq).unwrap().is_none());
            }
            for peer in &opened.peers[1..] {
                ni.put(bell, AckRequest::NoAck, to(*peer, 0), 0).unwrap();
            }
            return 0;
        }
        for round in 0..LIMIT {
            ni.get_put(word, word, to(opened.peers[0], 0), 0).unwrap();
            loop {
                match ni.eq_wait(eq).unwrap().event.kind {
                    EventKind::ReplyEnd => break,
                    EventKind::PutEnd => return round,
                    _ => {}
                }
            }
        }
        LIMIT
    });
    assert!(rounds.iter().all(|r| *r < LIMIT), "{rounds:?}");
}

/// A request that nobody will answer ends with a failure, in place of the answer.
#[test]
fn a_request_to_a_node_that_is_not_there_ends_with_a_failure() {
    ranks(1, |_, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(16).unwrap();
        let region = Region::new(4096).unwrap();
        let md = ni
            .md_bind(spec(MdMemory::whole(&region), Some(eq)), Unlink::Retain)
            .unwrap();
        let nowhere = ProcessId::new(77, opened.peers[0].pid);
        ni.put_region(md, (0, 1000), AckRequest::Ack, to(nowhere, 0), 0)
            .unwrap();
        ni.get_region(md, (0, 1000), to(nowhere, 0)).unwrap();
        let mut failed = Vec::new();
        while failed.len() < 3 {
            let e = ni.eq_wait(eq).unwrap().event;
            if e.ni_fail != NiFail::OK {
                assert!(e.kind == EventKind::SendEnd || e.mlength == 0, "{e:?}");
                failed.push(e.kind);
            }
        }
        let expected = [EventKind::SendEnd, EventKind::Ack, EventKind::ReplyEnd];
        assert_eq!(failed, expected);
    });
}
