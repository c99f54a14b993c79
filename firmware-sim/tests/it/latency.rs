//! Virtual latencies and rates of the model, as tables.

use std::fmt::Write;

use nic_model::defs::event::EventType;
use nic_model::defs::niccb::Counter;
use nic_model::{Machine, SimDuration, SimTime};

use super::driver::{DATA, Message, Sim};

/// From the command write to the last event that the target's handler reads, in virtual time.
fn one_way(sim: &mut Sim, to: u16, length: u32) -> SimDuration {
    let start = SimTime(sim.world.now().0 + 50_000_000);
    let mut message = Message {
        to,
        id: 1,
        deposit: 8 * DATA,
        keep: length,
        ..Message::default()
    };
    if length <= 16 {
        message.inline = vec![1; length as usize];
    } else {
        message.payload = vec![(DATA, length)];
    }
    sim.send(0, start, &message);
    sim.run();
    let (time, event) = sim.hosts[usize::from(to)]
        .log
        .iter()
        .rfind(|e| e.1.kind() != EventType::TX_END)
        .copied()
        .expect("an event");
    assert_eq!(
        event.kind(),
        if length <= 16 {
            EventType::HEADER
        } else {
            EventType::RX_DONE
        }
    );
    time.since(start)
}

#[test]
fn one_way_latency_table() {
    let mut table = String::from("   bytes     one way        rate\n");
    for length in [
        0,
        8,
        16,
        17,
        32,
        64,
        256,
        1024,
        2048,
        4096,
        8192,
        16384,
        32768,
        65536,
        131_072,
        262_144,
        524_288,
        1 << 20,
        4 << 20,
    ] {
        let mut sim = Sim::pair(16 << 20);
        let time = one_way(&mut sim, 1, length);
        let rate = u64::from(length) * 1_000_000 / time.as_ps();
        writeln!(
            table,
            "{length:8} {:8}.{:03} ns {rate:5} MB/s",
            time.as_ns(),
            time.0 % 1000
        )
        .unwrap();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn each_link_adds_one_hop() {
    let machine = Machine::named("xt4").unwrap();
    let step = machine.network.router_hop + machine.network.link_wire;
    let times: Vec<_> = (1..=4u16)
        .map(|links| {
            let mut sim = Sim::new([9, 1, 1], 16 << 20);
            sim.boot_all();
            one_way(&mut sim, links, 8)
        })
        .collect();
    for pair in times.windows(2) {
        assert_eq!(pair[1].0 - pair[0].0, step.0);
    }
    let mut sim = Sim::new([9, 1, 1], 16 << 20);
    sim.boot_all();
    assert_eq!(
        one_way(&mut sim, 5, 8),
        times[3],
        "node 5 is 4 links away, round the ring"
    );
}

#[test]
fn payload_hides_under_the_first_interrupt() {
    let times: Vec<_> = [32, 1024]
        .map(|length| one_way(&mut Sim::pair(16 << 20), 1, length))
        .into();
    // Store and forward would add at least the wire time of 992 bytes once more.
    assert!(times[1].0 - times[0].0 < 1_000_000, "{times:?}");
    let inline = one_way(&mut Sim::pair(16 << 20), 1, 16);
    let step = times[0].0 - inline.0;
    assert!(
        (2_000_000..4_000_000).contains(&step),
        "leaving inline costs {step} ps"
    );
}

#[test]
fn a_long_message_runs_at_the_slowest_stage() {
    for (rx, expected) in [(2_700, 2_000), (1_000, 1_000)] {
        let mut machine = Machine::named("xt4").unwrap();
        machine.chip.tx_rate = nic_model::Rate::new(2_000);
        machine.chip.rx_rate = nic_model::Rate::new(rx);
        let mut sim = Sim::with_machine(machine, [2, 1, 1], 16 << 20);
        sim.boot_all();
        let length = 4u32 << 20;
        let time = one_way(&mut sim, 1, length);
        let rate = u64::from(length) * 1_000_000 / time.as_ps();
        assert!(
            (expected * 98 / 100..=expected).contains(&rate),
            "{rate} MB/s"
        );
        assert!(sim.counter(1, Counter::PORT_HIGH_WATER) > 2_000);
    }
}

#[test]
fn two_senders_share_the_links_they_share() {
    // Nodes 0 and 1 send to node 2 over the same link 1 -> 2.
    let mut sim = Sim::new([5, 1, 1], 16 << 20);
    sim.boot_all();
    let length = 1u32 << 20;
    let start = sim.world.now();
    for (from, deposit) in [(0, 4 * DATA), (1, 8 * DATA)] {
        let message = Message {
            to: 2,
            id: u32::from(from),
            payload: vec![(DATA, length)],
            deposit,
            keep: length,
            ..Message::default()
        };
        sim.send(from, start, &message);
    }
    sim.run();
    let last = sim.hosts[2].arrived.iter().map(|a| a.time).max().unwrap();
    let rate = 2 * u64::from(length) * 1_000_000 / last.since(start).as_ps();
    // 64 bytes in 27 ns.
    assert!((2_250..2_371).contains(&rate), "{rate} MB/s");
}
