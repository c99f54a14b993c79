//! Programs on nodes with fewer source structures than peers: every operation ends once, and well.

use super::sim::Setting;
use super::tests::{each, impatient};
use super::{Mode, in_threads_on};
use fabric_api::call::{Target, Wait};
use fabric_api::place::Placement;
use fabric_api::region::Region;
use nic_model::{Faults, Machine};
use portals_core::{
    AckRequest, EqHandle, EventKind, InsertPosition, MdHandle, MdOptions, MeSpec, NiFail,
    ProcessId, Unlink,
};
use portals_shim::fabric::Opened;
use portals_shim::{MdMemory, MdSpec};
use std::collections::HashMap;
use std::sync::Barrier;

const SLOT: u64 = 512;
const EVERYBODY: MeSpec = MeSpec {
    match_id: ProcessId::ANY,
    match_bits: 0,
    ignore_bits: u64::MAX,
    unlink: Unlink::Retain,
};

fn setting(machine: Machine, mode: Mode) -> Setting {
    Setting {
        machine,
        topology: None,
        map: crate::map::Map::default(),
        mode,
        faults: Faults::none(),
        patience: None,
    }
}

/// A descriptor that takes puts and gets, and that operations start from.
fn describe(opened: &Opened, memory: &Region) -> (MdHandle, EqHandle) {
    let ni = &opened.interface;
    let eq = ni.eq_alloc(4_096).unwrap();
    let spec = MdSpec {
        memory: MdMemory::whole(memory),
        threshold: -1,
        max_size: 0,
        options: MdOptions::OP_PUT
            | MdOptions::OP_GET
            | MdOptions::MANAGE_REMOTE
            | MdOptions::EVENT_START_DISABLE,
        user_ptr: 0,
        eq: Some(eq),
    };
    let me = ni.me_attach(4, EVERYBODY, InsertPosition::After).unwrap();
    (ni.md_attach(me, spec, Unlink::Retain).unwrap(), eq)
}

fn there(opened: &Opened, rank: u32, match_bits: u64, remote_offset: u64) -> Target {
    Target {
        process: opened.peers[rank as usize],
        pt_index: 4,
        ac_index: 0,
        match_bits,
        remote_offset,
    }
}

/// Every rank puts to every other one, with an ack, and gets from it, in an order of its own. Returns its virtual end.
fn all_to_all(rank: u32, opened: &Opened, ranks: u32, all: &Barrier) -> u64 {
    let ni = &opened.interface;
    let rounds = 3u64;
    // Its own slot, one for what each rank puts, one for what it gets from each.
    let slots = 1 + 2 * u64::from(ranks);
    let memory = Region::new((slots * SLOT) as usize).unwrap();
    let (md, eq) = describe(opened, &memory);
    memory.write(0, &[rank as u8 + 1; SLOT as usize]).unwrap();
    ni.outside(|| all.wait()).unwrap();
    let mut rng = fastrand::Rng::with_seed(rank.into());
    let mut others: Vec<u32> = (0..ranks).filter(|r| *r != rank).collect();
    let mut left = HashMap::<EventKind, u64>::new();
    let count = rounds * u64::from(ranks - 1);
    for kind in [EventKind::SendEnd, EventKind::Ack, EventKind::PutEnd] {
        left.insert(kind, count);
    }
    for kind in [EventKind::ReplyEnd, EventKind::GetEnd] {
        left.insert(kind, count);
    }
    for _ in 0..rounds {
        rng.shuffle(&mut others);
        for &to in &others {
            let length = [8, SLOT][rng.usize(0..2)];
            let put = there(opened, to, 0, (1 + u64::from(rank)) * SLOT);
            ni.put_region(md, (0, length), AckRequest::Ack, put, 0)
                .unwrap();
            let into = (1 + u64::from(ranks) + u64::from(to)) * SLOT;
            ni.get_region(md, (into, SLOT), there(opened, to, 0, 0))
                .unwrap();
        }
    }
    while left.values().any(|n| *n > 0) {
        let polled = ni.eq_poll(&[eq], Wait::Nanos(3_000_000_000)).unwrap();
        let event = polled
            .unwrap_or_else(|| panic!("rank {rank} waits for {left:?}"))
            .event;
        assert_eq!(event.ni_fail, NiFail::OK, "rank {rank}: {event:?}");
        let n = left.get_mut(&event.kind).unwrap();
        *n = n
            .checked_sub(1)
            .unwrap_or_else(|| panic!("one {:?} too many", event.kind));
    }
    for &from in &others {
        let mut byte = [0];
        for slot in [1 + from, 1 + ranks + from] {
            memory
                .read((u64::from(slot) * SLOT) as usize, &mut byte)
                .unwrap();
            assert_eq!(byte, [from as u8 + 1], "rank {rank}, slot {slot}");
        }
    }
    let end = ni.now();
    ni.outside(|| all.wait()).unwrap();
    end
}

#[test]
fn every_operation_with_more_peers_than_structures_ends_once_and_well() {
    for mode in Mode::ALL {
        let play = |sources: u32| {
            let ranks = 10;
            let mut machine = Machine::named("xt4").unwrap();
            machine.firmware.sources = sources;
            let all = &Barrier::new(ranks as usize);
            let waiting = in_threads_on(ranks, Placement::ONE, setting(machine, mode)).unwrap();
            each(waiting, |rank, opened| all_to_all(rank, opened, ranks, all))
        };
        for sources in [2, 3, 5] {
            let ends = play(sources);
            assert_eq!(ends, play(sources), "{mode}, {sources} structures");
        }
        // A structure for each peer: the time is that of a machine with as many as there are.
        assert_eq!(play(10), play(1024), "{mode}");
    }
}

/// A firmware that stops the node when it is out of structures keeps none in host memory: it refuses a command for
/// one peer too many, whose operation fails.
#[test]
fn an_operation_whose_command_is_refused_fails() {
    for mode in Mode::ALL {
        let ranks = 5;
        let mut machine = impatient(10, 400, 800);
        machine.firmware.sources = 2;
        machine.protocol.exhaustion = 2;
        let all = &Barrier::new(ranks as usize);
        let waiting = in_threads_on(ranks, Placement::ONE, setting(machine, mode)).unwrap();
        let seen = each(waiting, |rank, opened| {
            let ni = &opened.interface;
            let memory = Region::new(4_096).unwrap();
            let (md, eq) = describe(opened, &memory);
            ni.outside(|| all.wait()).unwrap();
            let mut seen = Vec::new();
            if rank == 0 {
                for to in 1..ranks {
                    let put = there(opened, to, to.into(), 0);
                    ni.put_region(md, (0, 2_048), AckRequest::Ack, put, 0)
                        .unwrap();
                }
                while seen.len() < 8
                    && let Ok(Some(polled)) = ni.eq_poll(&[eq], Wait::Nanos(50_000_000))
                {
                    let event = polled.event;
                    seen.push((event.match_bits, event.kind, event.ni_fail));
                }
            }
            ni.outside(|| all.wait()).unwrap();
            seen
        });
        for to in 1..ranks {
            let ends = seen[0].iter().filter(|s| s.0 == u64::from(to));
            let ends: Vec<_> = ends.map(|s| (s.1, s.2)).collect();
            let fail = if to <= 2 { NiFail::OK } else { NiFail::FAIL };
            let expected = [(EventKind::SendEnd, fail), (EventKind::Ack, fail)];
            assert_eq!(ends, expected, "{mode}: put to rank {to}");
        }
    }
}
