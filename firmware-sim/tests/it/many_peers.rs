//! More peers than source structures: idle peers' numbers go to host memory, nothing is lost or taken twice.

use std::collections::BTreeMap;

use nic_model::defs::event::EventType;
use nic_model::defs::niccb::Counter;
use nic_model::{FaultRates, Faults, Machine, NodeId, SimDuration};

use super::driver::{DATA, Message, Sim};

/// Hosts that send and take headers alone need no more memory.
const SMALL: usize = 0x2_0000;
/// Room for a slot of each message.
const LARGE: usize = DATA as usize + 0x4_0000;
const SLOT: u64 = 0x100;

fn machine(sources: u32) -> Machine {
    let mut machine = Machine::named("xt4").unwrap();
    machine.firmware.sources = sources;
    machine
}

/// A booted machine whose hosts have context tables.
fn hosts(sources: u32, dims: [u16; 3], memory: usize, faults: Faults) -> Sim {
    let mut sim = Sim::with_faults(machine(sources), dims, memory, faults);
    sim.contexts = true;
    sim.boot_all();
    sim
}

fn short(to: u16, id: u32) -> Message {
    Message {
        to,
        id,
        ..Message::default()
    }
}

/// How many messages have ended so at a node.
fn ends(sim: &Sim, node: u16, kind: EventType) -> usize {
    let ended = &sim.hosts[usize::from(node)].ended;
    ended.iter().filter(|(_, end)| *end == kind).count()
}

/// Node 0 sends to all others and all others send to it, twice: every message arrives once.
fn one_and_all(dims: [u16; 3]) -> Sim {
    let nodes = dims.iter().product::<u16>();
    let mut sim = hosts(1024, dims, SMALL, Faults::none());
    for round in 0..2 {
        for peer in 1..nodes {
            let now = sim.now();
            let id = u32::from(peer) * 4 + round;
            sim.send_later(0, now, &short(peer, id));
            sim.send_later(peer, now, &short(0, id + 2));
            if peer % 16 == 0 {
                // A host that is never behind: what it cannot take would be sent again and again.
                sim.run_until(now + SimDuration::from_us(40));
            }
        }
        sim.run();
    }
    for peer in 1..nodes {
        let arrived = &sim.hosts[usize::from(peer)].arrived;
        let ids: Vec<u32> = arrived.iter().map(|a| a.id).collect();
        let first = u32::from(peer) * 4;
        assert_eq!(ids, [first, first + 1], "node {peer}");
        assert_eq!(ends(&sim, peer, EventType::TX_END), 2, "node {peer}");
    }
    let mut taken = BTreeMap::<u32, u32>::new();
    for arrived in &sim.hosts[0].arrived {
        *taken.entry(arrived.id).or_default() += 1;
    }
    assert_eq!(taken.len(), 2 * usize::from(nodes - 1));
    assert!(taken.values().all(|times| *times == 1));
    assert_eq!(ends(&sim, 0, EventType::TX_END), 2 * usize::from(nodes - 1));
    assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), 0);
    assert_eq!(sim.counter(0, Counter::GIVEN_UP), 0);
    assert_eq!(sim.counter(0, Counter::IN_FLIGHT), 0);
    sim
}

#[test]
fn a_node_talks_to_1_100_peers() {
    let sim = one_and_all([11, 10, 10]);
    assert!(sim.counter(0, Counter::CONTEXTS_SAVED) > 75);
    assert!(sim.counter(0, Counter::CONTEXTS_FETCHED) > 75);
    assert_eq!(sim.counter(0, Counter::SOURCE_FREELIST), 0);
}

#[test]
fn a_node_talks_to_3_000_peers() {
    let sim = one_and_all([20, 15, 10]);
    assert!(sim.counter(0, Counter::CONTEXTS_FETCHED) > 2_000);
}

/// All nodes of a machine send to one at the same time, some messages each.
fn incast(dims: [u16; 3], each: u32) {
    let nodes = dims.iter().product::<u16>();
    let mut sim = hosts(1024, dims, SMALL, Faults::none());
    let start = sim.now();
    for id in 0..each {
        for from in 1..nodes {
            sim.send_later(from, start, &short(0, u32::from(from) * each + id));
        }
    }
    sim.run();
    let given_up = (0..nodes).map(|n| sim.counter(n, Counter::GIVEN_UP));
    assert_eq!(given_up.sum::<u32>(), 0);
    let mut orders = BTreeMap::new();
    for arrived in &sim.hosts[0].arrived {
        let last = orders.insert(arrived.source, arrived.id);
        assert!(last < Some(arrived.id), "{arrived:?} after {last:?}");
    }
    let all = u32::from(nodes - 1) * each;
    assert_eq!(sim.hosts[0].arrived.len(), all as usize);
    // The processor of the target has time for what it takes.
    let refused = sim.counter(0, Counter::NACKS_SENT);
    assert!(refused < 20 * all, "{refused} refusals of {all} messages");
}

#[test]
fn all_nodes_send_to_one_at_once() {
    incast([5, 5, 4], 2);
    incast([11, 10, 10], 1);
    incast([20, 15, 10], 1);
}

/// With as many peers as there are structures, none of them is ever written to host memory.
#[test]
fn a_job_that_fits_its_structures_pays_for_no_table() {
    let play = |contexts| {
        let mut sim = Sim::with_machine(machine(7), [2, 2, 2], SMALL);
        sim.contexts = contexts;
        sim.boot_all();
        let start = sim.now();
        for id in 0..5 {
            for peer in 1..8 {
                sim.send_later(0, start, &short(peer, id));
                sim.send_later(peer, start, &short(0, id));
            }
        }
        sim.run();
        let times: Vec<_> = sim.hosts[0].arrived.iter().map(|a| a.time).collect();
        (times, sim.counter(0, Counter::CONTEXTS_SAVED))
    };
    let (with, saved) = play(true);
    assert_eq!(saved, 0);
    assert_eq!(with.len(), 35);
    assert_eq!(play(false).0.len(), with.len());
}

/// Random messages among few nodes with fewer structures; `lossy` links lose packets too.
///
/// Returns how often a structure was written to host memory, and when the last message arrived.
fn random(seed: u64, lossy: bool) -> (u32, u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let sources = rng.u32(2..5);
    let mut faults = Faults::seeded(seed);
    if lossy {
        faults = faults.with_rates(FaultRates {
            lost_packets: 2_000_000,
            ..FaultRates::default()
        });
    }
    let mut sim = hosts(sources, [3, 2, 2], LARGE, faults);
    let nodes = sim.hosts.len() as u16;
    let context = format!("seed {seed}, {sources} structures");
    // By id: sender, target, data.
    let mut sent = Vec::<(u16, u16, Vec<u8>)>::new();
    for id in 0..rng.u32(100..250) {
        let (from, to) = (rng.u16(0..nodes), rng.u16(0..nodes));
        let length = if rng.u32(0..3) == 0 {
            rng.u32(1..64) * 4
        } else {
            0
        };
        let data: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
        let at = DATA + SLOT * u64::from(id);
        sim.store(from, at, &data);
        let message = Message {
            to,
            id,
            payload: if data.is_empty() {
                vec![]
            } else {
                vec![(at, length)]
            },
            deposit: at,
            keep: length,
            inline: vec![id as u8; rng.usize(0..16)],
        };
        let now = sim.now();
        let deaf = rng.u16(0..nodes);
        if rng.u32(0..40) == 0 {
            sim.hosts[usize::from(deaf)].deaf = true;
        }
        sim.send_later(from, now, &message);
        sent.push((from, to, data));
        if rng.u32(0..4) == 0 {
            sim.run_until(now + SimDuration::from_ns(rng.u64(1..20_000)));
        }
    }
    for node in 0..nodes {
        sim.answer_all(node);
    }
    sim.run();
    let mut orders = BTreeMap::<(u16, u16), u32>::new();
    let mut taken = vec![0; sent.len()];
    for (node, host) in (0..nodes).zip(&sim.hosts) {
        for arrived in &host.arrived {
            let (from, to, data) = &sent[arrived.id as usize];
            taken[arrived.id as usize] += 1;
            assert_eq!(
                (arrived.source, node),
                (*from, *to),
                "{context}: {arrived:?}"
            );
            if arrived.kind == EventType::RX_DONE {
                let at = DATA + SLOT * u64::from(arrived.id);
                assert_eq!(
                    sim.load(node, at, data.len()),
                    *data,
                    "{context}: {arrived:?}"
                );
                assert_eq!(arrived.deposited as usize, data.len());
            } else {
                let damaged = lossy && arrived.kind == EventType::RX_FAILED;
                assert!(damaged || data.is_empty(), "{context}: {arrived:?}");
            }
            if data.is_empty() {
                // Headers are recorded as they come: those of a pair in the order of their sending.
                let last = orders.insert((*from, *to), arrived.id);
                assert!(
                    last < Some(arrived.id),
                    "{context}: {arrived:?} after {last:?}"
                );
            }
        }
        let well = host.ended.iter().all(|(_, end)| *end == EventType::TX_END);
        assert!(well, "{context}: {:?}", host.ended);
        for counter in [
            Counter::IN_FLIGHT,
            Counter::COMMANDS_REJECTED,
            Counter::BAD_CONTROL,
        ] {
            assert_eq!(
                sim.counter(node, counter),
                0,
                "{context}, node {node}: {counter:?}"
            );
        }
    }
    assert!(
        taken.iter().all(|times| *times == 1),
        "{context}: {taken:?}"
    );
    let ended: usize = sim.hosts.iter().map(|host| host.ended.len()).sum();
    assert_eq!(ended, sent.len(), "{context}");
    let last = sim.hosts.iter().flat_map(|h| &h.arrived).map(|a| a.time);
    let saved = (0..nodes).map(|n| sim.counter(n, Counter::CONTEXTS_SAVED));
    (saved.sum(), last.max().map_or(0, |time| time.as_ps()))
}

#[test]
fn with_few_structures_nothing_is_lost_or_taken_twice_seed_0_to_149() {
    let mut saved = 0;
    for seed in 0..150 {
        saved += random(seed, false).0;
    }
    assert!(
        saved > 1_000,
        "{saved} structures were written to host memory"
    );
}

#[test]
fn with_few_structures_and_lost_packets_nothing_is_lost_or_taken_twice_seed_0_to_99() {
    for seed in 0..100 {
        random(seed, true);
    }
}

#[test]
fn a_run_with_few_structures_twice_is_the_same_run() {
    for seed in 0..5 {
        assert_eq!(random(seed, true), random(seed, true));
    }
}

/// Nodes that all send round a ring, each with messages to more peers than it has structures, do not refuse
/// one another for ever.
#[test]
fn nodes_that_all_send_leave_a_structure_for_those_that_send() {
    let mut sim = hosts(2, [5, 1, 1], SMALL, Faults::none());
    let start = sim.now();
    for id in 0..40 {
        for from in 0..5u16 {
            for step in 1..5 {
                let to = (from + step) % 5;
                sim.send_later(from, start, &short(to, id * 5 + u32::from(step)));
            }
        }
    }
    sim.run();
    for node in 0..5 {
        assert_eq!(sim.hosts[usize::from(node)].arrived.len(), 160);
        assert_eq!(ends(&sim, node, EventType::TX_END), 160);
        assert!(sim.counter(node, Counter::SOURCE_WAITS) > 0);
        assert_eq!(sim.counter(node, Counter::GIVEN_UP), 0);
    }
    assert!(sim.now().since(start) < SimDuration::from_us(20_000));
}

/// A process is not set up with a table in memory that is not mapped.
#[test]
fn a_table_that_is_not_there_is_refused() {
    use super::driver::init_process;
    use nic_model::RegisterIo;
    use nic_model::defs::event::{RESULT_REFUSED, refusal};
    use nic_model::defs::map;
    let mut sim = Sim::new([2, 1, 1], SMALL);
    let mut io = sim.world.registers(NodeId(0), sim.world.now());
    io.write32(map::ht_slot(8), map::HtMapEntry::mapping(0).unwrap().0);
    let mut init = init_process();
    init.context_table_ht = map::firmware_address(9, 0).into();
    let refused = RESULT_REFUSED | u32::from(refusal::ADDRESS);
    assert_eq!(sim.control(0, &init), refused);
}
