//! Programs whose messages are given up: every operation ends once at its initiator, SEND_END first, and is
//! taken at most once at its target.

use super::sim::Setting;
use super::{Mode, in_threads_on};
use fabric_api::call::{Target, Wait};
use fabric_api::place::Placement;
use fabric_api::region::Region;
use nic_model::{Fault, Faults, NodeId, SimDuration, SimTime};
use portals_core::{
    AckRequest, EventKind, InsertPosition, MdOptions, MeSpec, NiFail, ProcessId, Unlink,
};
use portals_shim::fabric::Opened;
use portals_shim::{MdMemory, MdSpec};
use std::collections::BTreeMap;
use std::sync::Barrier;

/// Operations of a rank, and of those at most so many at once.
const OPERATIONS: u64 = 200;
const AT_ONCE: u64 = 40;
/// Some follow their header, some ride in it.
const LENGTHS: [u64; 4] = [20_000, 8, 64, 4_096];
/// Virtual nanoseconds after which nothing more comes.
const PATIENCE: u64 = 50_000_000;
/// The rank that all others put to and get from.
const TARGET: u32 = 1;
const EVERYBODY: MeSpec = MeSpec {
    match_id: ProcessId::ANY,
    match_bits: 0,
    ignore_bits: u64::MAX,
    unlink: Unlink::Retain,
};

/// What one rank has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Ends of its own operations, by bits, and how many failed.
    own: BTreeMap<u64, (Vec<EventKind>, u32)>,
    /// How often operations of others ended here, by bits.
    taken: BTreeMap<u64, u32>,
}

fn bits(rank: u32, number: u64) -> u64 {
    number * 8 + u64::from(rank)
}

fn is_get(number: u64) -> bool {
    number % 3 == 2
}

/// The same fault of the target again and again, each time for `lasts`, by its first and last instant.
fn often(period: u64, lasts: u64, fault: impl Fn(SimTime, SimTime) -> Fault) -> Faults {
    (0..200).fold(Faults::none(), |faults, n| {
        let from = SimTime::ZERO + SimDuration::from_us(100 + period * n);
        faults.with(fault(from, from + SimDuration::from_us(lasts)))
    })
}

/// Slow engines: messages wait in the network for longer than their senders do.
fn slow(from: SimTime, until: SimTime) -> Fault {
    Fault::SlowDma {
        node: NodeId(TARGET as u16),
        from,
        until,
        percent: 1,
    }
}

/// All but one rank put to that one or get from it, through one descriptor.
fn play(rank: u32, opened: &Opened, all: &Barrier) -> Seen {
    let ni = &opened.interface;
    let mut seen = Seen::default();
    let eq = ni.eq_alloc(4_096).unwrap();
    let memory = Region::new(LENGTHS[0] as usize).unwrap();
    let spec = MdSpec {
        memory: MdMemory::whole(&memory),
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
    let md = ni.md_attach(me, spec, Unlink::Retain).unwrap();
    ni.outside(|| all.wait()).unwrap();
    let (mut made, mut ended) = (0, 0);
    loop {
        while rank != TARGET && made < OPERATIONS && made - ended < AT_ONCE {
            let there = Target {
                process: opened.peers[TARGET as usize],
                pt_index: 4,
                ac_index: 0,
                match_bits: bits(rank, made),
                remote_offset: 0,
            };
            let part = (
                0,
                LENGTHS[(made + u64::from(rank)) as usize % LENGTHS.len()],
            );
            if is_get(made) {
                ni.get_region(md, part, there).unwrap();
            } else {
                ni.put_region(md, part, AckRequest::Ack, there, 0).unwrap();
            }
            made += 1;
        }
        // Nothing more comes, or the own node has failed.
        let Ok(Some(polled)) = ni.eq_poll(&[eq], Wait::Nanos(PATIENCE)) else {
            break;
        };
        let event = polled.event;
        if rank == TARGET {
            *seen.taken.entry(event.match_bits).or_default() += 1;
            continue;
        }
        ended += u64::from(matches!(event.kind, EventKind::Ack | EventKind::ReplyEnd));
        let (ends, failed) = seen.own.entry(event.match_bits).or_default();
        ends.push(event.kind);
        *failed += u32::from(event.ni_fail != NiFail::OK);
    }
    ni.outside(|| all.wait()).unwrap();
    seen
}

/// Each operation ends once at its initiator, in order; how many failed, and of those how many were taken.
fn judge(mode: Mode, ranks: u32, faults: Faults, dies: bool) -> (u32, u32) {
    let setting = Setting {
        // It gives up soon, and hears soon of nodes that fail.
        machine: super::tests::impatient(10, 40, 20),
        topology: None,
        map: crate::map::Map::default(),
        mode,
        faults,
        patience: None,
    };
    let all = &Barrier::new(ranks as usize);
    let waiting = in_threads_on(ranks, Placement::ONE, setting).unwrap();
    let seen = super::tests::each(waiting, |rank, opened| play(rank, opened, all));
    let taken = &seen[TARGET as usize].taken;
    assert!(taken.values().all(|times| *times == 1), "{mode}: {taken:?}");
    let (mut broken, mut late) = (0, 0);
    for rank in (0..ranks).filter(|rank| *rank != TARGET) {
        for number in 0..OPERATIONS {
            let bits = bits(rank, number);
            let context = format!("{mode}: operation {number} of rank {rank}");
            let expected: &[EventKind] = match is_get(number) {
                true => &[EventKind::ReplyEnd],
                false => &[EventKind::SendEnd, EventKind::Ack],
            };
            let own = seen[rank as usize].own.get(&bits);
            let (ends, failed) = own.unwrap_or_else(|| panic!("{context} has no end"));
            assert_eq!(ends, expected, "{context}");
            let there = taken.contains_key(&bits);
            assert!(dies || *failed > 0 || there, "{context}");
            broken += u32::from(*failed > 0);
            late += u32::from(*failed > 0 && there);
        }
    }
    (broken, late)
}

/// Their senders give them up; they arrive, and are answered.
#[test]
fn an_answer_to_an_operation_that_was_given_up_ends_no_other() {
    for mode in Mode::ALL {
        let mut all = 0;
        for (period, lasts) in [(1_000, 900), (400, 200), (300, 200)] {
            let (_, late) = judge(mode, 8, often(period, lasts, slow), false);
            all += late;
        }
        assert!(all > 20, "{mode}: {all} of those that failed were taken");
    }
}

/// The target gives its answers up.
#[test]
fn an_answer_that_comes_twice_ends_no_other_operation() {
    for mode in Mode::ALL {
        for ranks in [4, 6] {
            judge(mode, ranks, often(1_000, 1_000, slow), false);
        }
    }
}

/// Whenever it fails, and however soon all others are told.
#[test]
fn a_send_to_a_node_that_has_failed_ends_before_its_answer() {
    for mode in Mode::ALL {
        for at in 1..20 {
            let faults = Faults::none().with(Fault::DeadNode {
                node: NodeId(TARGET as u16),
                at: SimTime::ZERO + SimDuration::from_us(40 + 10 * at),
                router: false,
            });
            judge(mode, 3, faults, true);
        }
    }
}
