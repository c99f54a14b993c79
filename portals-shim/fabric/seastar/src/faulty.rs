//! Programs on a machine in which something goes wrong, in both modes: every operation ends, its data
//! is whole or its event says that it failed.

use super::sim::Setting;
use super::{Mode, in_threads_on};
use fabric_api::call::{Target, Wait};
use fabric_api::place::Placement;
use fabric_api::region::Region;
use nic_model::{Fault, FaultRates, Faults, Machine, NodeId, Port, SimDuration, SimTime};
use portals_core::{
    AckRequest, EqHandle, Error, EventKind, InsertPosition, MdOptions, MeSpec, NiFail, ProcessId,
    Unlink,
};
use portals_shim::fabric::Opened;
use portals_shim::{Interface, MdMemory, MdSpec};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Barrier;

const RANKS: u32 = 3;
/// Operations of a rank towards each other rank, and their lengths; a getput takes at most 8 bytes.
const OPERATIONS: u32 = 16;
const LENGTHS: [usize; 8] = [0, 8, 16, 60, 700, 3_000, 9_000, 20_000];
/// Place of an operation in the memory of both ends.
const SLOT: usize = 20_000;
const MEMORY: usize = SLOT * (OPERATIONS * RANKS * RANKS) as usize;
/// Virtual nanoseconds after which silence is a hang; more than any limit of the machines here.
const PATIENCE: u64 = 50_000_000;

/// What may become of operations between nodes that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    /// All succeed.
    Nothing,
    /// Some fail.
    Fail,
}

/// An operation, the same number at both ends.
#[derive(Debug, Clone, Copy)]
struct Operation {
    from: u32,
    to: u32,
    number: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Get,
    GetPut,
}

impl Operation {
    /// Those of one rank, spread over its peers.
    fn of(from: u32) -> impl Iterator<Item = Self> {
        (0..OPERATIONS).flat_map(move |number| {
            (1..RANKS).map(move |step| Self {
                from,
                to: (from + step) % RANKS,
                number,
            })
        })
    }

    fn kind(&self) -> Kind {
        match self.number % 4 {
            0 | 1 => Kind::Put,
            2 => Kind::Get,
            _ => Kind::GetPut,
        }
    }

    fn length(&self) -> usize {
        let length = LENGTHS[(self.number * 5 + self.to) as usize % LENGTHS.len()];
        match self.kind() {
            Kind::GetPut => length.min(8),
            _ => length,
        }
    }

    fn id(&self) -> u64 {
        u64::from((self.from * RANKS + self.to) * OPERATIONS + self.number)
    }

    fn offset(&self) -> usize {
        self.id() as usize * SLOT
    }

    /// What `side` has in the operation's place at first: 0 the initiator, 1 the target.
    fn pattern(&self, side: u8) -> Vec<u8> {
        let byte = |i: usize| (i * 7 + self.id() as usize * 13) as u8 ^ (side * 0x5a);
        (0..self.length()).map(byte).collect()
    }

    /// Events of its initiator that end it.
    fn ends(&self) -> &'static [EventKind] {
        match self.kind() {
            Kind::Put => &[EventKind::SendEnd, EventKind::Ack],
            Kind::Get => &[EventKind::ReplyEnd],
            Kind::GetPut => &[EventKind::SendEnd, EventKind::ReplyEnd],
        }
    }
}

/// What one rank has seen.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Own operations: whether all went well. Those that the own node's failure stopped are not here.
    own: BTreeMap<u64, bool>,
    /// Operations of others that ended here: whether well.
    others: BTreeMap<u64, bool>,
    /// When the own operations began and when the last had ended, virtual nanoseconds.
    began: u64,
    at: u64,
    /// A call said that the own node has failed.
    failed: bool,
    /// Calls for further entries that took as long as a move to the kernel.
    moves: u32,
    memory: Vec<u8>,
}

fn spec(memory: MdMemory, eq: EqHandle, user_ptr: u64) -> MdSpec {
    MdSpec {
        memory,
        threshold: -1,
        max_size: 0,
        options: MdOptions::OP_PUT
            | MdOptions::OP_GET
            | MdOptions::MANAGE_REMOTE
            | MdOptions::EVENT_START_DISABLE,
        user_ptr,
        eq: Some(eq),
    }
}

/// The part of a rank: all operations at once, `further` entries while they are on their way, then
/// their ends.
fn play(rank: u32, opened: &Opened, all: &Barrier, further: u32) -> Seen {
    let ni = &opened.interface;
    let mut seen = Seen::default();
    let (own_eq, eq) = (ni.eq_alloc(2048).unwrap(), ni.eq_alloc(2048).unwrap());
    let memory = Region::new(MEMORY).unwrap();
    for op in (0..RANKS).flat_map(Operation::of) {
        let side = match rank {
            r if r == op.from => 0,
            r if r == op.to => 1,
            _ => continue,
        };
        memory.write(op.offset(), &op.pattern(side)).unwrap();
    }
    let everybody = MeSpec {
        match_id: ProcessId::ANY,
        match_bits: 7,
        ignore_bits: 0,
        unlink: Unlink::Retain,
    };
    let me = ni.me_attach(4, everybody, InsertPosition::After).unwrap();
    ni.md_attach(me, spec(MdMemory::whole(&memory), eq, 0), Unlink::Retain)
        .unwrap();
    let mut descriptors = Vec::new();
    for op in Operation::of(rank) {
        let part = MdMemory::Region {
            region: memory.clone(),
            offset: op.offset(),
            len: op.length(),
        };
        let md = ni.md_bind(spec(part, own_eq, op.id()), Unlink::Retain);
        descriptors.push((op, md.unwrap()));
    }
    ni.outside(|| all.wait()).unwrap();
    seen.began = ni.now();
    let mut waits: BTreeMap<u64, (Vec<EventKind>, bool)> = BTreeMap::new();
    for (op, md) in descriptors {
        let there = Target {
            process: opened.peers[op.to as usize],
            pt_index: 4,
            ac_index: 0,
            match_bits: 7,
            remote_offset: op.offset() as u64,
        };
        let made = match op.kind() {
            Kind::Put => ni.put(md, AckRequest::Ack, there, op.id()),
            Kind::Get => ni.get(md, there),
            Kind::GetPut => ni.get_put(md, md, there, op.id()),
        };
        match made {
            Ok(()) => {
                waits.insert(op.id(), (op.ends().to_vec(), true));
            }
            Err(Error::Fail) => seen.failed = true,
            Err(other) => panic!("{op:?}: {other:?}"),
        }
    }
    for _ in 0..further {
        let before = ni.now();
        match ni.me_attach(9, everybody, InsertPosition::After) {
            Ok(_) => seen.moves += u32::from(ni.now() - before >= TAKE_OVER.as_ns()),
            Err(Error::Fail) => seen.failed = true,
            Err(other) => panic!("{other:?}"),
        }
    }
    while !waits.is_empty() && !seen.failed {
        let polled = match ni.eq_poll(&[own_eq], Wait::Nanos(PATIENCE)) {
            Ok(Some(polled)) => polled,
            Ok(None) => panic!("rank {rank} hears nothing of {waits:?}"),
            Err(error) if error.error == Error::Fail => {
                seen.failed = true;
                break;
            }
            Err(other) => panic!("{other:?}"),
        };
        assert!(!polled.dropped);
        let (kind, id) = (polled.event.kind, polled.event.md.user_ptr);
        let (ends, ok) = waits
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{kind:?} of operation {id}, which had ended"));
        *ok &= polled.event.ni_fail == NiFail::OK;
        let at = ends.iter().position(|end| *end == kind);
        ends.remove(at.unwrap_or_else(|| panic!("{kind:?} of operation {id}, twice")));
        if ends.is_empty() {
            seen.own.insert(id, *ok);
            waits.remove(&id);
        }
    }
    seen.at = ni.now();
    ni.outside(|| all.wait()).unwrap();
    drain(ni, eq, &mut seen, opened);
    seen.memory = vec![0; MEMORY];
    memory.read(0, &mut seen.memory).unwrap();
    ni.outside(|| all.wait()).unwrap();
    seen
}

/// Takes the events of what others did here. They have all ended, or never will.
fn drain(ni: &Interface, eq: EqHandle, seen: &mut Seen, opened: &Opened) {
    loop {
        match ni.eq_poll(&[eq], Wait::Nanos(PATIENCE)) {
            Ok(Some(polled)) => {
                assert!(!polled.dropped);
                let event = polled.event;
                let id = event.offset / SLOT as u64;
                assert!(opened.peers.contains(&event.initiator));
                let twice = seen.others.insert(id, event.ni_fail == NiFail::OK);
                assert_eq!(twice, None, "operation {id} was taken twice: {event:?}");
            }
            Ok(None) => return,
            Err(error) if error.error == Error::Fail => {
                seen.failed = true;
                return;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn run(mode: Mode, machine: &Machine, faults: &Faults) -> Vec<Seen> {
    run_with(mode, machine, faults, 0)
}

fn run_with(mode: Mode, machine: &Machine, faults: &Faults, further: u32) -> Vec<Seen> {
    let setting = Setting {
        machine: machine.clone(),
        topology: None,
        map: crate::map::Map::default(),
        mode,
        faults: faults.clone(),
        patience: None,
    };
    let all = &Barrier::new(RANKS as usize);
    let waiting = in_threads_on(RANKS, Placement::ONE, setting).unwrap();
    super::tests::each(waiting, |rank, opened| play(rank, opened, all, further))
}

/// Compares both ends of all operations; how many went well, failed, and were of a failed node.
fn judge(seen: &[Seen], may: May, context: &str) -> (u32, u32, u32) {
    let (mut whole, mut broken, mut dead) = (0, 0, 0);
    for op in (0..RANKS).flat_map(Operation::of) {
        let (from, to) = (&seen[op.from as usize], &seen[op.to as usize]);
        let (own, taken) = (from.own.get(&op.id()), to.others.get(&op.id()));
        let context = format!("{context}: {op:?}, {own:?} for {taken:?}");
        let part = op.offset()..op.offset() + op.length();
        if from.failed || to.failed {
            dead += 1;
            if from.failed {
                continue;
            }
        }
        match own {
            None => panic!("{context}: no end"),
            Some(false) => {
                assert!(may == May::Fail || to.failed, "{context}");
                broken += 1;
                continue;
            }
            Some(true) => whole += 1,
        }
        let (put, got) = match op.kind() {
            Kind::Put => (true, false),
            Kind::Get => (false, true),
            Kind::GetPut => (true, true),
        };
        // A reply that was given up may have been taken all the same.
        let told = got && may == May::Fail && taken == Some(&false);
        if !to.failed && !told {
            assert_eq!(taken, Some(&true), "{context}");
        }
        if put {
            let expected = op.pattern(0);
            assert!(to.memory[part.clone()] == expected, "{context}: there");
        }
        if got {
            assert!(from.memory[part] == op.pattern(1), "{context}: back");
        }
    }
    (whole, broken, dead)
}

/// A machine that gives up soon.
fn machine() -> Machine {
    super::tests::impatient(200, 3_000, 5_000)
}

/// Booting takes less; clocks of ranks start after it, instants of faults before.
const BOOT: u64 = 30_000;

/// When operations are on their way on a sound machine, in the world's nanoseconds, and when those of
/// rank 1 end on its own clock.
fn sound(mode: Mode) -> (Range<u64>, u64) {
    let seen = run(mode, &machine(), &Faults::none());
    let last = seen.iter().map(|s| s.at).min().unwrap();
    (seen[1].began + BOOT..last, seen[1].at)
}

/// An instant while the operations are on their way.
fn instant(mode: Mode, rng: &mut fastrand::Rng) -> SimTime {
    SimTime::ZERO + SimDuration::from_ns(rng.u64(sound(mode).0))
}

/// Runs a fault in both modes with some seeds; the sums by mode.
fn both(
    may: May,
    machine: &Machine,
    plan: impl Fn(Mode, &mut fastrand::Rng) -> Faults,
) -> [(u32, u32, u32); 2] {
    Mode::ALL.map(|mode| {
        (0..5).fold((0, 0, 0), |sum, seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let faults = plan(mode, &mut rng);
            let seen = run(mode, machine, &faults);
            let (a, b, c) = judge(&seen, may, &format!("{mode}, seed {seed}, {faults:?}"));
            (sum.0 + a, sum.1 + b, sum.2 + c)
        })
    })
}

/// Operations of a row of [`both`].
const ALL: u32 = 5 * OPERATIONS * RANKS * (RANKS - 1);

fn rates(rates: FaultRates) -> impl Fn(Mode, &mut fastrand::Rng) -> Faults {
    move |_, rng| Faults::seeded(rng.u64(..)).with_rates(rates)
}

#[test]
fn without_faults_all_is_well() {
    let none = both(May::Nothing, &machine(), |_, _| Faults::none());
    assert_eq!(none, [(ALL, 0, 0); 2]);
}

#[test]
fn wrong_bits_on_links_only_take_time() {
    let wrong = rates(FaultRates {
        link_bit_errors: 100_000_000,
        ..FaultRates::default()
    });
    assert_eq!(both(May::Nothing, &machine(), wrong), [(ALL, 0, 0); 2]);
}

#[test]
fn lost_packets_are_sent_again_or_fail_their_operation() {
    let lost = rates(FaultRates {
        lost_packets: 3_000_000,
        ..FaultRates::default()
    });
    for (whole, broken, _) in both(May::Fail, &machine(), lost) {
        assert!(broken > 0 && whole > broken, "{whole} {broken}");
    }
}

#[test]
fn corrupted_packets_are_sent_again_or_fail_their_operation() {
    let corrupted = rates(FaultRates {
        corrupted_packets: 3_000_000,
        ..FaultRates::default()
    });
    for (whole, broken, _) in both(May::Fail, &machine(), corrupted) {
        assert!(broken > 0 && whole > broken, "{whole} {broken}");
    }
}

#[test]
fn a_dead_link_is_gone_round() {
    let dead = |mode, rng: &mut fastrand::Rng| {
        Faults::none().with(Fault::DeadLink {
            node: NodeId(rng.u16(0..3)),
            port: Port::XPlus,
            at: instant(mode, rng),
        })
    };
    for (whole, broken, _) in both(May::Fail, &machine(), dead) {
        assert_eq!(whole + broken, ALL);
        // What was on the link, no more.
        assert!(broken < ALL / 20, "{broken}");
    }
}

#[test]
fn a_dead_node_is_told_to_all() {
    for router in [false, true] {
        let dead = |mode, rng: &mut fastrand::Rng| {
            Faults::none().with(Fault::DeadNode {
                node: NodeId(rng.u16(0..3)),
                at: instant(mode, rng),
                router,
            })
        };
        // Packets that passed through a router are lost with it.
        let may = if router { May::Fail } else { May::Nothing };
        for (whole, broken, dead) in both(may, &machine(), dead) {
            assert!(
                dead > ALL / 2 && broken > 0 && whole > 0,
                "{whole} {broken}"
            );
        }
    }
}

#[test]
fn a_stalled_host_and_slow_engines_only_take_time() {
    let node = NodeId(1);
    for stalled in [true, false] {
        for mode in Mode::ALL {
            let (window, at_rest) = sound(mode);
            let from = SimTime::ZERO + SimDuration::from_ns(window.start);
            let until = from + SimDuration::from_us(1_000);
            let fault = match stalled {
                true => Fault::StalledHost { node, from, until },
                false => Fault::SlowDma {
                    node,
                    from,
                    until,
                    percent: 5,
                },
            };
            let seen = run(mode, &machine(), &Faults::none().with(fault));
            let context = format!("{mode}, {fault:?}");
            let (whole, ..) = judge(&seen, May::Nothing, &context);
            assert_eq!(whole, ALL / 5, "{context}");
            let later = seen[1].at - at_rest;
            let least = if stalled { 500_000 } else { 100_000 };
            assert!(later > least, "{context}: {later} ns later");
        }
    }
}

/// Hardly any room for messages, and all ranks send to all at once.
#[test]
fn exhausted_pendings_and_cam_entries_only_take_time() {
    for pendings in [4, 8] {
        let mut small = machine();
        small.accelerated.pendings = pendings;
        small.chip.cam_entries = 2;
        let none = both(May::Nothing, &small, |_, _| Faults::none());
        assert_eq!(none, [(ALL, 0, 0); 2]);
    }
}

/// Requests to it are given up, and so are answers, which are then sent again.
#[test]
fn a_host_that_is_stalled_for_longer_than_peers_try_leaves_nobody_without_an_end() {
    let stalled = |mode, rng: &mut fastrand::Rng| {
        let from = instant(mode, rng);
        Faults::none().with(Fault::StalledHost {
            node: NodeId(rng.u16(0..3)),
            from,
            until: from + SimDuration::from_us(10_000),
        })
    };
    for (whole, broken, _) in both(May::Fail, &machine(), stalled) {
        assert_eq!(whole + broken, ALL);
        assert!(whole > ALL / 2, "{whole}");
    }
}

/// What a move to the kernel takes at least on [`full`].
const TAKE_OVER: SimDuration = SimDuration::from_us(100);

/// A machine whose NICs are full when all operations have been made.
fn full() -> Machine {
    let mut machine = machine();
    let p = &machine.protocol;
    let tables = 28 * 1024 + p.image + machine.firmware.sources * p.source_size;
    let pendings = (u32::from(super::ssnal::PENDINGS) + machine.accelerated.pendings) * 32;
    let descriptors = OPERATIONS * (RANKS - 1) + 1;
    let own = descriptors * machine.accelerated.md_size + 2 * machine.accelerated.eq_size;
    let entries = 4 * machine.accelerated.me_size;
    machine.accelerated.sram = tables + pendings + own + entries;
    machine.accelerated.take_over = TAKE_OVER;
    machine
}

/// Processes go from their NIC to their kernel in the middle of operations while something is wrong. One
/// without its own node moves once; all operations end, whole or with a failure.
#[test]
fn a_move_to_the_kernel_under_faults_loses_nothing() {
    let packets = |lost, corrupted, link_bit_errors| FaultRates {
        lost_packets: lost,
        corrupted_packets: corrupted,
        link_bit_errors,
    };
    let from = SimTime::ZERO + SimDuration::from_ns(sound(Mode::Accelerated).0.start);
    let (node, until) = (NodeId(1), from + SimDuration::from_us(1_000));
    let scripted = |fault| move |_: u64| Faults::none().with(fault);
    let seeded = |rates| move |seed| Faults::seeded(seed).with_rates(rates);
    type Plan = Box<dyn Fn(u64) -> Faults>;
    let plans: [(May, Plan); 8] = [
        (May::Nothing, Box::new(|_| Faults::none())),
        (May::Nothing, Box::new(seeded(packets(0, 0, 100_000_000)))),
        (May::Fail, Box::new(seeded(packets(3_000_000, 0, 0)))),
        (May::Fail, Box::new(seeded(packets(0, 3_000_000, 0)))),
        (
            May::Nothing,
            Box::new(scripted(Fault::StalledHost { node, from, until })),
        ),
        (
            May::Nothing,
            Box::new(scripted(Fault::SlowDma {
                node,
                from,
                until,
                percent: 5,
            })),
        ),
        (
            May::Fail,
            Box::new(scripted(Fault::DeadLink {
                node,
                port: Port::XPlus,
                at: from + SimDuration::from_us(20),
            })),
        ),
        (
            May::Fail,
            Box::new(scripted(Fault::DeadNode {
                node,
                at: from + SimDuration::from_us(60),
                router: false,
            })),
        ),
    ];
    for (at, (may, plan)) in plans.iter().enumerate() {
        for seed in 0..8 {
            let faults = plan(seed);
            let seen = run_with(Mode::Accelerated, &full(), &faults, 8);
            let context = format!("plan {at}, seed {seed}, {faults:?}");
            for rank in seen.iter().filter(|rank| !rank.failed) {
                assert_eq!(rank.moves, 1, "{context}");
            }
            judge(&seen, *may, &context);
        }
    }
}
