//! The fault matrix: whatever fails, a message arrives whole and once, or an end that is alive has
//! a defined failure of it. Never a silent loss, never a message twice.
//!
//! Each row of [`FAULTS`] is run in each of [`MODES`] with [`SEEDS`] seeds; what came of the
//! messages is a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use nic_model::defs::event::EventType;
use nic_model::defs::niccb::Counter;
use nic_model::{Fault, FaultRates, Faults, Machine, NodeId, Port, SimDuration, SimTime};

use super::accelerated;
use super::driver::{DATA, Message, Sim};

const SEEDS: u64 = 21;
pub(crate) const MESSAGES: u32 = 40;
pub(crate) const SENDERS: [u16; 2] = [0, 2];
pub(crate) const TARGET: u16 = 1;
/// Where each message's data is, at both ends.
pub(crate) const SLOT: u64 = 0x1000;
pub(crate) const MEMORY: usize = 0x18_0000;
/// After this a machine of the matrix has booted.
pub(crate) const BOOTED: u64 = 30_000;

/// How the machine's firmware is set up, and who matches. A further mode is a further row.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    exhaustion: u32,
    /// Puts and gets of processes whose Portals state the firmware holds.
    accelerated: bool,
}

const fn generic(name: &'static str, exhaustion: u32) -> Mode {
    Mode {
        name,
        exhaustion,
        accelerated: false,
    }
}

const MODES: [Mode; 4] = [
    generic("go-back-n", 1),
    generic("wait", 0),
    generic("panic", 2),
    Mode {
        name: "accelerated",
        exhaustion: 1,
        accelerated: true,
    },
];

/// What a fault does to a run.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) faults: Faults,
    /// The target's host answers nothing until then.
    deaf: Option<SimDuration>,
    /// Addresses that some messages use and that are not there.
    pub(crate) bad_source: bool,
    pub(crate) bad_target: bool,
    /// No message has payload, which would fill the node port before the pendings run out.
    pub(crate) light: bool,
    /// Damaged payload is a failure; what else may fail.
    pub(crate) may: May,
}

/// What may become of messages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum May {
    /// All arrive.
    #[default]
    Nothing,
    /// Some may arrive damaged, and the target knows.
    Damage,
    /// Some may be given up or damaged, and an end that is alive knows.
    Failure,
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    machine: fn(&mut Machine),
    pub(crate) plan: fn(&mut fastrand::Rng) -> Plan,
}

fn at(rng: &mut fastrand::Rng) -> SimTime {
    SimTime(0) + SimDuration::from_ns(rng.u64(BOOTED..BOOTED + 60_000))
}

fn scripted(fault: Fault, may: May) -> Plan {
    Plan {
        faults: Faults::none().with(fault),
        may,
        ..Plan::default()
    }
}

fn rates(rng: &mut fastrand::Rng, rates: FaultRates) -> Plan {
    Plan {
        faults: Faults::seeded(rng.u64(..)).with_rates(rates),
        may: May::Damage,
        ..Plan::default()
    }
}

fn dead(rng: &mut fastrand::Rng, node: u16, router: bool) -> Plan {
    let node = NodeId(node);
    let at = at(rng);
    scripted(Fault::DeadNode { node, at, router }, May::Failure)
}

const ROWS: [Row; 16] = [
    Row {
        name: "none",
        machine: |_| {},
        plan: |_| Plan::default(),
    },
    Row {
        name: "wrong bits on links",
        machine: |_| {},
        plan: |rng| {
            let link_bit_errors = 100_000_000;
            Plan {
                may: May::Nothing,
                ..rates(
                    rng,
                    FaultRates {
                        link_bit_errors,
                        ..FaultRates::default()
                    },
                )
            }
        },
    },
    Row {
        name: "lost packets",
        machine: |_| {},
        plan: |rng| {
            let lost_packets = 20_000_000;
            rates(
                rng,
                FaultRates {
                    lost_packets,
                    ..FaultRates::default()
                },
            )
        },
    },
    Row {
        name: "corrupted packets",
        machine: |_| {},
        plan: |rng| {
            let corrupted_packets = 20_000_000;
            rates(
                rng,
                FaultRates {
                    corrupted_packets,
                    ..FaultRates::default()
                },
            )
        },
    },
    Row {
        name: "one lost packet",
        machine: |_| {},
        plan: |rng| {
            let packet = rng.u64(0..60);
            let (source, destination) = if rng.bool() { (0, 1) } else { (1, 0) };
            let fault = Fault::LostPacket {
                source: NodeId(source),
                destination: NodeId(destination),
                packet,
            };
            scripted(fault, May::Damage)
        },
    },
    Row {
        name: "one corrupted packet",
        machine: |_| {},
        plan: |rng| {
            let packet = rng.u64(0..60);
            let (source, destination) = if rng.bool() { (0, 1) } else { (1, 0) };
            let fault = Fault::CorruptedPacket {
                source: NodeId(source),
                destination: NodeId(destination),
                packet,
            };
            scripted(fault, May::Damage)
        },
    },
    Row {
        name: "dead link, detour",
        machine: |_| {},
        plan: |rng| {
            let at = at(rng);
            let fault = Fault::DeadLink {
                node: NodeId(0),
                port: Port::XPlus,
                at,
            };
            scripted(fault, May::Damage)
        },
    },
    Row {
        name: "dead target",
        machine: |_| {},
        plan: |rng| dead(rng, 1, false),
    },
    Row {
        name: "dead target, router too",
        machine: |_| {},
        plan: |rng| dead(rng, 1, true),
    },
    Row {
        name: "dead sender",
        machine: |_| {},
        plan: |rng| dead(rng, 2, false),
    },
    Row {
        name: "slow DMA",
        machine: |_| {},
        plan: |rng| {
            let fault = Fault::SlowDma {
                node: NodeId(rng.u16(0..3)),
                from: at(rng),
                until: SimTime(0) + SimDuration::from_us(10_000),
                percent: rng.u32(3..50),
            };
            scripted(fault, May::Nothing)
        },
    },
    Row {
        name: "stalled host",
        machine: |_| {},
        plan: |rng| {
            let from = at(rng);
            let fault = Fault::StalledHost {
                node: NodeId(rng.u16(0..3)),
                from,
                until: from + SimDuration::from_us(rng.u64(1..800)),
            };
            scripted(fault, May::Nothing)
        },
    },
    Row {
        name: "no receive pendings",
        // One of each kind, where the firmware has the pendings.
        machine: |m| m.accelerated.pendings = 2,
        plan: |rng| Plan {
            deaf: Some(SimDuration::from_us(rng.u64(60..600))),
            light: true,
            ..Plan::default()
        },
    },
    Row {
        name: "two CAM entries",
        machine: |m| m.chip.cam_entries = 2,
        plan: |rng| Plan {
            deaf: Some(SimDuration::from_us(rng.u64(1..300))),
            ..Plan::default()
        },
    },
    Row {
        name: "one source structure",
        machine: |m| m.firmware.sources = 1,
        plan: |_| Plan {
            may: May::Failure,
            ..Plan::default()
        },
    },
    Row {
        name: "unmapped memory",
        machine: |_| {},
        plan: |rng| Plan {
            bad_source: rng.bool(),
            bad_target: true,
            may: May::Failure,
            ..Plan::default()
        },
    },
];

fn machine(row: &Row, mode: Mode) -> Machine {
    let mut machine = Machine::named("xt4").unwrap();
    machine.protocol.probe_after = SimDuration::from_us(200);
    machine.protocol.give_up = SimDuration::from_us(3_000);
    machine.protocol.declared_dead = SimDuration::from_us(5_000);
    (row.machine)(&mut machine);
    machine.protocol.exhaustion = mode.exhaustion;
    machine
}

pub(crate) fn length(id: u32, rng: &mut fastrand::Rng) -> u32 {
    match id % 4 {
        0 => rng.u32(1..2_000),
        1 => rng.u32(1..200),
        _ => 0,
    }
}

/// What became of the messages of one run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) arrived: u32,
    pub(crate) damaged: u32,
    pub(crate) failed: u32,
    /// Of a dead sender, or taken by a target that is dead now.
    pub(crate) dead: u32,
}

fn run(row: &Row, mode: Mode, seed: u64) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let plan = (row.plan)(&mut rng);
    let context = format!("{}, {}, seed {seed}", row.name, mode.name);
    if mode.accelerated {
        return accelerated::run(machine(row, mode), plan, &mut rng, &context);
    }
    let mut sim = Sim::with_faults(machine(row, mode), [3, 1, 1], MEMORY, plan.faults);
    sim.boot_all();
    assert!(sim.world.now().as_ns() < BOOTED, "{}", sim.world.now());
    let mut sent = BTreeMap::new();
    sim.hosts[usize::from(TARGET)].deaf = plan.deaf.is_some();
    sim.run_until(SimTime(0) + SimDuration::from_ns(BOOTED));
    let start = SimTime(0) + SimDuration::from_ns(BOOTED);
    // In the order of time, or a sender would be overtaken by what it waits for.
    let mut calls: Vec<(SimTime, u16)> = (0..MESSAGES)
        .flat_map(|_| SENDERS)
        .map(|from| (start + SimDuration::from_ns(rng.u64(0..60_000)), from))
        .collect();
    calls.sort_unstable();
    let mut number = [0u32; 3];
    for (when, from) in calls {
        let n = number[usize::from(from)];
        number[usize::from(from)] += 1;
        let id = u32::from(from) * 1_000 + n;
        let length = if plan.light { 0 } else { length(n, &mut rng) };
        let slot = DATA + SLOT * u64::from(u32::from(from) * MESSAGES + n);
        let data: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
        sim.memory[usize::from(from)].bytes[slot as usize..slot as usize + data.len()]
            .copy_from_slice(&data);
        let bad = |wanted: bool| wanted && n % 8 == 4;
        let message = Message {
            to: TARGET,
            id,
            inline: vec![n as u8; n as usize % 17],
            payload: match length {
                0 => vec![],
                length if bad(plan.bad_source) => vec![(1 << 40, length)],
                length => vec![(slot, length)],
            },
            deposit: if bad(plan.bad_target) { 1 << 40 } else { slot },
            keep: length,
        };
        sent.insert(id, (data, slot));
        sim.run_until(when);
        sim.send_later(from, when.max(sim.world.now()), &message);
    }
    if let Some(deaf) = plan.deaf {
        sim.run_until(start + deaf);
        if sim.world.stopped(NodeId(TARGET)).is_none() {
            sim.answer_all(TARGET);
        }
    }
    sim.run();
    judge(&sim, &sent, plan.may, &context)
}

/// Looks at both ends of every message.
fn judge(sim: &Sim, sent: &BTreeMap<u32, (Vec<u8>, u64)>, may: May, context: &str) -> Outcome {
    let dead = |node: u16| sim.world.stopped(NodeId(node)).is_some();
    let mut outcome = Outcome::default();
    for (&id, (data, slot)) in sent {
        let from = (id / 1_000) as u16;
        let target = &sim.hosts[usize::from(TARGET)];
        let mut here = target.arrived.iter().filter(|a| a.id == id);
        let arrived = here.next();
        assert!(here.next().is_none(), "{context}: message {id} came twice");
        let ends: Vec<_> = sim.hosts[usize::from(from)]
            .ended
            .iter()
            .filter(|e| e.0 == id)
            .map(|e| e.1)
            .collect();
        let whole =
            arrived.is_some_and(|a| !matches!(a.kind, EventType::RX_FAILED | EventType::RX_FAULT));
        if whole && !data.is_empty() {
            let at = *slot as usize;
            let bytes = &sim.memory[usize::from(TARGET)].bytes[at..at + data.len()];
            assert!(
                bytes == data,
                "{context}: message {id} arrived with other data"
            );
        }
        if dead(from) || (dead(TARGET) && ends == [EventType::TX_END]) {
            outcome.dead += 1;
            continue;
        }
        assert_eq!(
            ends.len(),
            1,
            "{context}: message {id} ended {ends:?}, {arrived:?}"
        );
        match (ends[0], arrived) {
            (EventType::TX_END, Some(_)) if whole => outcome.arrived += 1,
            (_, Some(_)) if !whole => outcome.damaged += 1,
            (EventType::TX_FAILED | EventType::TX_FAULT, _) => outcome.failed += 1,
            other => panic!("{context}: message {id} is lost in silence: {other:?}"),
        }
    }
    let panicked = dead(TARGET);
    if !panicked && may != May::Failure {
        assert_eq!(outcome.failed, 0, "{context}: {outcome:?}");
    }
    if !panicked && may == May::Nothing {
        assert_eq!(outcome.damaged, 0, "{context}: {outcome:?}");
    }
    let stats = sim.world.network_stats();
    assert_eq!(sim.world.packets_in_flight(), 0, "{context}: {stats:?}");
    for node in (0..3).filter(|n| !dead(*n)) {
        assert_eq!(
            sim.counter(node, Counter::CAM_IN_USE),
            0,
            "{context}: node {node}"
        );
        assert_eq!(
            sim.counter(node, Counter::IN_FLIGHT),
            0,
            "{context}: node {node}"
        );
    }
    outcome
}

#[test]
fn every_fault_in_every_mode_is_survived_or_told() {
    let mut table = format!(
        "{:24} {:11} arrived damaged failed  dead\n",
        "fault", "mode"
    );
    for row in &ROWS {
        for mode in MODES {
            let name = mode.name;
            let mut sum = Outcome::default();
            for seed in 0..SEEDS {
                let outcome = run(row, mode, seed);
                sum.arrived += outcome.arrived;
                sum.damaged += outcome.damaged;
                sum.failed += outcome.failed;
                sum.dead += outcome.dead;
            }
            let Outcome {
                arrived,
                damaged,
                failed,
                dead,
            } = sum;
            writeln!(
                table,
                "{:24} {name:11} {arrived:7} {damaged:7} {failed:6} {dead:5}",
                row.name
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn a_faulty_run_twice_is_the_same_run() {
    for row in &ROWS {
        for mode in [MODES[0], MODES[3]] {
            assert_eq!(run(row, mode, 3), run(row, mode, 3), "{}", row.name);
        }
    }
}
