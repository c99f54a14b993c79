//! What happens when there is no room: three policies, and what each costs.

use std::fmt::Write;

use nic_model::defs::event::{EventType, RESULT_REFUSED, refusal};
use nic_model::defs::map;
use nic_model::defs::niccb::{Counter, crash};
use nic_model::defs::pending::status;
use nic_model::{Machine, NodeId, RegisterIo, SimDuration};

use super::driver::{DATA, Message, RX_PENDINGS, Sim, init_process};

fn machine(exhaustion: u32) -> Machine {
    let mut machine = Machine::named("xt4").unwrap();
    machine.protocol.exhaustion = exhaustion;
    machine.protocol.give_up = SimDuration::from_us(20_000);
    machine
}

fn message(id: u32, length: u32) -> Message {
    Message {
        to: 1,
        id,
        payload: if length == 0 {
            vec![]
        } else {
            vec![(DATA, length)]
        },
        deposit: DATA,
        keep: length,
        ..Message::default()
    }
}

/// Sends `count` messages to a host that does not answer until `answer` after.
fn flood(sim: &mut Sim, count: u32, answer: SimDuration) {
    sim.hosts[1].deaf = true;
    for id in 0..count {
        let now = sim.world.now();
        sim.send_later(0, now, &message(id, length(id)));
    }
    let until = sim.world.now() + answer;
    sim.run_until(until);
    sim.answer_all(1);
    sim.run();
}

/// Few messages have payload: what waits at the node port holds up what comes behind.
fn length(id: u32) -> u32 {
    if id % 12 == 3 { 300 } else { 0 }
}

fn ids(sim: &Sim, node: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = sim.hosts[node].arrived.iter().map(|a| a.id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn refused_messages_are_sent_again_and_arrive_once() {
    let mut sim = Sim::with_machine(machine(1), [2, 1, 1], 4 << 20);
    sim.boot_all();
    let count = u32::from(RX_PENDINGS) + 50;
    flood(&mut sim, count, SimDuration::from_us(800));
    assert_eq!(ids(&sim, 1), (0..count).collect::<Vec<_>>());
    for (id, arrived) in sim.hosts[1].arrived.iter().map(|a| (a.id, a)) {
        assert_eq!(arrived.deposited, length(id), "message {id}");
    }
    assert!(sim.counter(1, Counter::NACKS_SENT) > 3);
    assert_eq!(
        sim.counter(1, Counter::NACKS_SENT),
        sim.counter(0, Counter::NACKS_RECEIVED)
    );
    assert!(sim.counter(0, Counter::RESENT) > 3);
    assert!(sim.counter(1, Counter::RX_PENDING_WAITS) > 3);
    assert_eq!(sim.counter(0, Counter::GIVEN_UP), 0);
    assert_eq!(sim.counter(0, Counter::TX_COMPLETE), count);
    assert_eq!(sim.counter(0, Counter::IN_FLIGHT), 0);
    assert_eq!(sim.world.packets_in_flight(), 0);
}

#[test]
fn without_cam_entries_messages_are_drained_and_sent_again() {
    let mut machine = machine(1);
    machine.chip.cam_entries = 2;
    let mut sim = Sim::with_machine(machine, [2, 1, 1], 4 << 20);
    sim.boot_all();
    flood(&mut sim, 60, SimDuration::from_us(500));
    assert_eq!(ids(&sim, 1), (0..60).collect::<Vec<_>>());
    assert!(sim.counter(1, Counter::CAM_OVERFLOW) > 3);
    assert!(sim.counter(1, Counter::PACKETS_DRAINED) > 5);
    assert_eq!(sim.counter(1, Counter::CAM_HIGH_WATER), 2);
    assert_eq!(sim.counter(1, Counter::CAM_FREELIST), 2);
    assert_eq!(sim.world.packets_in_flight(), 0);
}

#[test]
fn a_host_that_never_answers_fails_what_it_has_not_taken() {
    let mut sim = Sim::with_machine(machine(1), [2, 1, 1], 4 << 20);
    sim.boot_all();
    sim.hosts[1].deaf = true;
    let count = u32::from(RX_PENDINGS) + 20;
    for id in 0..count {
        let now = sim.world.now();
        sim.send_later(0, now, &message(id, 0));
    }
    sim.run();
    let ends = |kind| {
        sim.hosts[0]
            .log
            .iter()
            .filter(|e| e.1.kind() == kind)
            .count()
    };
    assert_eq!(ends(EventType::TX_END), usize::from(RX_PENDINGS));
    assert_eq!(ends(EventType::TX_FAILED), 20);
    assert_eq!(sim.counter(0, Counter::GIVEN_UP), 20);
    let failed = sim.hosts[0]
        .log
        .iter()
        .find(|e| e.1.kind() == EventType::TX_FAILED)
        .unwrap();
    let upper = sim.upper(0, failed.1.index());
    assert_eq!(upper.status.get(), status::UNDELIVERED);
    // The peer has room again: the numbers start where the lost ones ended.
    sim.answer_all(1);
    sim.run();
    let now = sim.world.now();
    sim.send(0, now, &message(1000, 150));
    sim.run();
    assert_eq!(sim.hosts[1].arrived.last().unwrap().id, 1000);
    assert_eq!(sim.counter(0, Counter::IN_FLIGHT), 0);
}

#[test]
fn the_machine_of_2005_stops() {
    let mut sim = Sim::with_machine(machine(2), [2, 1, 1], 4 << 20);
    sim.boot_all();
    sim.hosts[1].deaf = true;
    let count = u32::from(RX_PENDINGS) + 5;
    for id in 0..count {
        let now = sim.world.now();
        sim.send_later(0, now, &message(id, 0));
    }
    sim.run();
    assert_eq!(sim.world.stopped(NodeId(1)), Some(crash::NO_RX_PENDING));
    assert_eq!(sim.counter(1, Counter::CRASH_CONTROL), crash::NO_RX_PENDING);
    assert!(sim.counter(1, Counter::DEAD_PACKETS) > 0);
    // The sender hears of every message: taken, or given up.
    let ends = |kind| {
        sim.hosts[0]
            .log
            .iter()
            .filter(|e| e.1.kind() == kind)
            .count()
    };
    assert_eq!(
        ends(EventType::TX_END) + ends(EventType::TX_FAILED),
        count as usize
    );
    assert!(ends(EventType::TX_FAILED) >= 5);
}

#[test]
fn peers_beyond_the_source_structures_are_refused_and_fail() {
    let mut machine = machine(1);
    machine.firmware.sources = 1;
    let mut sim = Sim::with_machine(machine, [3, 1, 1], 2 << 20);
    sim.boot_all();
    for from in [0, 2] {
        let now = sim.world.now();
        sim.send(from, now, &message(u32::from(from), 0));
        sim.run_until(now + SimDuration::from_us(100));
    }
    sim.run();
    assert_eq!(ids(&sim, 1), [0]);
    assert_eq!(
        sim.hosts[2].log.last().unwrap().1.kind(),
        EventType::TX_FAILED
    );
    assert!(sim.counter(1, Counter::STATELESS_DROPS) > 1);
    assert_eq!(sim.counter(1, Counter::LAST_NID_DROPPED), 2);
    assert_eq!(sim.counter(1, Counter::SOURCE_FREELIST), 0);
}

/// Virtual time to get `count` messages to a host that answers at once, with so few receive
/// pendings that senders are refused, for each policy.
#[test]
fn overload_table() {
    let mut table = String::from("policy     senders      us  refused  again\n");
    for (policy, name) in [(0, "wait"), (1, "go-back-n")] {
        for senders in [1u16, 4, 11] {
            let mut sim = Sim::with_machine(machine(policy), [3, 2, 2], 2 << 20);
            sim.boot_all();
            let start = sim.world.now();
            for id in 0..20 {
                for from in 1..=senders {
                    sim.send_later(
                        from,
                        start,
                        &Message {
                            to: 0,
                            ..message(id, length(id))
                        },
                    );
                }
            }
            sim.run();
            let arrived = &sim.hosts[0].arrived;
            assert_eq!(arrived.len(), 20 * usize::from(senders));
            let last = arrived.iter().map(|a| a.time).max().unwrap();
            writeln!(
                table,
                "{name:10} {senders:7} {:7} {:8} {:6}",
                last.since(start).as_ns() / 1000,
                sim.counter(0, Counter::NACKS_SENT),
                (0..12)
                    .map(|n| sim.counter(n, Counter::RESENT))
                    .sum::<u32>()
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

/// Beyond 256 messages in flight each further one costs more.
#[test]
fn transmits_beyond_the_slots_cost_more() {
    let rate = |slots: u32| {
        let mut machine = machine(1);
        machine.protocol.dma_slots = slots;
        let mut sim = Sim::with_machine(machine, [2, 1, 1], 2 << 20);
        sim.boot_all();
        let start = sim.world.now();
        for id in 0..200 {
            let long = Message {
                payload: vec![(DATA, 600)],
                ..message(id, 0)
            };
            sim.send_later(0, start, &long);
        }
        sim.run();
        assert_eq!(sim.hosts[1].arrived.len(), 200);
        let last = sim.hosts[1].arrived.last().unwrap().time.since(start);
        (last, sim.counter(0, Counter::BEYOND_SLOTS))
    };
    let (wide, none) = rate(256);
    let (narrow, beyond) = rate(4);
    assert_eq!(none, 0);
    assert!(beyond > 20, "{beyond} beyond");
    assert!(
        narrow > wide + SimDuration::from_us(20),
        "{narrow:?} {wide:?}"
    );
}

#[test]
fn sram_holds_so_much_and_no_more() {
    let mut sim = Sim::new([1, 1, 1], 1 << 20);
    let mut io = sim.world.registers(NodeId(0), sim.world.now());
    io.write32(map::ht_slot(8), map::HtMapEntry::mapping(0).unwrap().0);
    let refused = RESULT_REFUSED | u32::from(refusal::TABLE);
    let mut init = init_process();
    init.num_pendings = 1275.into();
    init.eqcb_table = (map::HOST_SRAM + 1275 * 32).into();
    assert_eq!(
        sim.control(0, &init),
        refused,
        "more than the generic process may have"
    );
    init.num_pendings = 1274.into();
    let own = 1024 * 32 + 22 * 1024;
    init.eqcb_table = (map::NICCB - own - 31).into();
    assert_eq!(
        sim.control(0, &init),
        refused,
        "among the source structures"
    );
    init.eqcb_table = (map::HOST_SRAM + 1273 * 32).into();
    assert_eq!(sim.control(0, &init), refused, "tables overlap");
    init.eqcb_table = (map::NICCB - own - 32).into();
    assert_eq!(sim.control(0, &init), 0);
    // A second process may not have the first one's tables.
    let mut second = init;
    second.process_index = 2;
    assert_eq!(sim.control(0, &second), refused);
    second.pending_table = (map::HOST_SRAM + 1274 * 32).into();
    second.eqcb_table = (map::NICCB - own - 64).into();
    assert_eq!(sim.control(0, &second), 0);
}

/// The header packet holds 12 bytes of data on a machine of 2005, 16 on later ones.
#[test]
fn inline_data_is_as_long_as_the_machine_says() {
    for inline_data in [12u32, 16] {
        let mut machine = machine(1);
        machine.protocol.inline_data = inline_data;
        let mut sim = Sim::with_machine(machine, [2, 1, 1], 2 << 20);
        sim.boot_all();
        let now = sim.world.now();
        let inline = vec![7; inline_data as usize];
        let short = Message {
            inline: inline.clone(),
            ..message(1, 0)
        };
        sim.send(0, now, &short);
        sim.run();
        assert_eq!(sim.hosts[1].arrived[0].inline, inline);
        assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), 0);
        if inline_data < 16 {
            let long = Message {
                inline: vec![7; 13],
                ..message(2, 0)
            };
            let now = sim.world.now();
            sim.send(0, now, &long);
            sim.run();
            assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), 1);
        }
    }
}
