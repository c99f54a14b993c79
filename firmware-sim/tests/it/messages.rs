//! Messages end to end through driver, firmware, chip and network.

use nic_model::defs::command::{OpCode, Receive, Transmit, flags};
use nic_model::defs::event::{EventType, RESULT_REFUSED, RejectedCommand, refusal};
use nic_model::defs::map;
use nic_model::defs::niccb::Counter;
use nic_model::{Machine, RegisterIo, SimTime};
use zerocopy::FromZeros;

use super::driver::{DATA, Message, RX_PENDINGS, Sim, init_process, mark_alive};

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| rng.u8(..)).collect()
}

fn put(sim: &mut Sim, node: usize, address: u64, bytes: &[u8]) {
    sim.memory[node].bytes[address as usize..address as usize + bytes.len()].copy_from_slice(bytes);
}

fn at(sim: &Sim, node: usize, address: u64, length: usize) -> &[u8] {
    &sim.memory[node].bytes[address as usize..address as usize + length]
}

/// Nothing is left in the network and no CAM entry is held.
fn assert_quiet(sim: &Sim) {
    assert_eq!(sim.world.packets_in_flight(), 0);
    for node in 0..sim.hosts.len() as u16 {
        for counter in [
            Counter::CAM_IN_USE,
            Counter::HOST_FAULTS,
            Counter::SEQUENCE_ERRORS,
            Counter::EVENTS_LOST,
            Counter::COMMANDS_REJECTED,
            Counter::TRANSFERS_FAILED,
            Counter::STATELESS_DROPS,
        ] {
            assert_eq!(sim.counter(node, counter), 0, "{counter:?} of node {node}");
        }
    }
}

#[test]
fn header_only_and_inline() {
    let mut sim = Sim::pair(1 << 20);
    let now = sim.world.now();
    sim.send(
        0,
        now,
        &Message {
            to: 1,
            id: 1,
            ..Message::default()
        },
    );
    let inline = pattern(16, 1);
    sim.send(
        0,
        now,
        &Message {
            to: 1,
            id: 2,
            inline: inline.clone(),
            ..Message::default()
        },
    );
    sim.run();
    let arrived = &sim.hosts[1].arrived;
    assert_eq!(arrived.len(), 2);
    assert_eq!(
        (arrived[0].id, arrived[0].source, arrived[0].inline.len()),
        (1, 0, 0)
    );
    assert_eq!((arrived[1].id, &arrived[1].inline), (2, &inline));
    assert_eq!(sim.counter(0, Counter::TX_COMPLETE), 2);
    assert_eq!(sim.counter(1, Counter::RX_MESSAGE), 2);
    assert_eq!(sim.counter(1, Counter::CAM_HIGH_WATER), 0);
    assert_quiet(&sim);
}

#[test]
fn payloads_arrive_exactly() {
    for (length, byte) in [
        (1, 0),
        (63, 1),
        (64, 2),
        (65, 3),
        (1024, 0),
        (1 << 20, 0),
        (9999, 1),
    ] {
        let mut sim = Sim::pair(4 << 20);
        let data = pattern(length, length as u64);
        put(&mut sim, 0, DATA, &data);
        let deposit = 2 * DATA + byte;
        let message = Message {
            to: 1,
            id: 7,
            payload: vec![(DATA, length as u32)],
            deposit,
            keep: length as u32,
            ..Message::default()
        };
        let now = sim.world.now();
        sim.send(0, now, &message);
        sim.run();
        let arrived = &sim.hosts[1].arrived;
        assert_eq!(arrived.len(), 1);
        assert_eq!(
            (arrived[0].kind, arrived[0].deposited),
            (EventType::RX_DONE, length as u32)
        );
        assert!(
            at(&sim, 1, deposit, length) == data,
            "{length} bytes differ"
        );
        assert_eq!(at(&sim, 1, deposit + length as u64, 8), [0; 8]);
        assert_eq!(at(&sim, 1, deposit - 8, 8), [0; 8]);
        assert_quiet(&sim);
    }
}

#[test]
fn scattered_and_truncated() {
    let mut sim = Sim::pair(4 << 20);
    let data = pattern(3000, 5);
    let pieces = [
        (DATA, 0, 701),
        (DATA + 0x1000, 701, 0),
        (DATA + 0x2000, 701, 2299),
    ];
    for (address, from, length) in pieces {
        put(&mut sim, 0, address, &data[from..from + length]);
    }
    let message = Message {
        to: 1,
        id: 1,
        payload: pieces.iter().map(|p| (p.0, p.2 as u32)).collect(),
        deposit: DATA,
        keep: 1000,
        ..Message::default()
    };
    let now = sim.world.now();
    sim.send(0, now, &message);
    sim.send(
        0,
        now,
        &Message {
            id: 2,
            keep: 0,
            ..message
        },
    );
    sim.run();
    let arrived = &sim.hosts[1].arrived;
    assert_eq!((arrived[0].deposited, arrived[0].discarded), (1000, 2000));
    assert!(at(&sim, 1, DATA, 1000) == &data[..1000]);
    assert_eq!(at(&sim, 1, DATA + 1000, 64), [0; 64]);
    assert_eq!(
        (arrived[1].kind, arrived[1].discarded),
        (EventType::DROPPED, 3000)
    );
    assert_quiet(&sim);
}

#[test]
fn a_node_sends_to_itself() {
    let mut sim = Sim::pair(4 << 20);
    let data = pattern(5000, 9);
    put(&mut sim, 1, DATA, &data);
    let payload = vec![(DATA, 5000)];
    let now = sim.world.now();
    let message = Message {
        to: 1,
        id: 3,
        payload,
        deposit: 2 * DATA,
        keep: 5000,
        ..Message::default()
    };
    sim.send(1, now, &message);
    sim.run();
    assert_eq!(sim.hosts[1].arrived[0].source, 1);
    assert!(at(&sim, 1, 2 * DATA, 5000) == data);
    assert_quiet(&sim);
}

#[test]
fn many_messages_of_many_sources_stay_in_order() {
    let mut sim = Sim::new([3, 2, 2], 2 << 20);
    sim.boot_all();
    let nodes = sim.hosts.len() as u16;
    let rounds = 300u32;
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..rounds {
        for node in 0..nodes {
            let now = sim.world.now();
            let length = if rng.bool() { 0 } else { rng.u32(1..2000) };
            let payload = if length == 0 {
                vec![]
            } else {
                vec![(DATA, length)]
            };
            let message = Message {
                to: 5,
                id: round,
                payload,
                deposit: DATA,
                keep: length,
                ..Message::default()
            };
            sim.send(node, now, &message);
        }
    }
    sim.run();
    // Completion order may differ between messages with and without payload; header events are
    // in order, and every one is there.
    let mut seen = vec![Vec::new(); usize::from(nodes)];
    for arrived in &sim.hosts[5].arrived {
        seen[usize::from(arrived.source)].push(arrived.id);
    }
    for ids in &mut seen {
        ids.sort_unstable();
        assert_eq!(*ids, (0..rounds).collect::<Vec<_>>());
    }
    assert!(sim.counter(5, Counter::RX_PENDING_WAITS) > 0);
    assert_quiet(&sim);
}

#[test]
fn inline_messages_arrive_in_the_order_sent() {
    let mut sim = Sim::pair(1 << 20);
    for id in 0..1000u32 {
        let now = sim.world.now();
        let inline = id.to_le_bytes().to_vec();
        sim.send(
            0,
            now,
            &Message {
                to: 1,
                id,
                inline,
                ..Message::default()
            },
        );
    }
    sim.run();
    let ids: Vec<u32> = sim.hosts[1].arrived.iter().map(|a| a.id).collect();
    assert_eq!(ids, (0..1000).collect::<Vec<_>>());
    assert_quiet(&sim);
}

#[test]
fn without_receive_pendings_messages_wait_in_order() {
    let mut sim = Sim::pair(4 << 20);
    sim.hosts[1].deaf = true;
    let count = u32::from(RX_PENDINGS) + 40;
    for id in 0..count {
        let now = sim.world.now();
        let payload = if id % 2 == 0 {
            vec![]
        } else {
            vec![(DATA, 100)]
        };
        let message = Message {
            to: 1,
            id,
            payload,
            deposit: DATA,
            keep: 100,
            ..Message::default()
        };
        sim.send(0, now, &message);
    }
    sim.run();
    assert_eq!(sim.hosts[1].unanswered.len(), usize::from(RX_PENDINGS));
    assert_eq!(sim.counter(1, Counter::RX_PENDING_WAITS), 40);
    sim.answer_all(1);
    sim.run();
    let mut ids: Vec<u32> = sim.hosts[1].arrived.iter().map(|a| a.id).collect();
    assert_eq!(ids.len(), count as usize);
    ids.retain(|id| id % 2 == 0);
    assert!(ids.is_sorted());
    assert_quiet(&sim);
}

#[test]
fn without_cam_entries_messages_wait() {
    let mut machine = Machine::named("xt4").unwrap();
    machine.chip.cam_entries = 2;
    let mut sim = Sim::with_machine(machine, [2, 1, 1], 4 << 20);
    sim.boot_all();
    sim.hosts[1].deaf = true;
    for id in 0..10 {
        let now = sim.world.now();
        let message = Message {
            to: 1,
            id,
            payload: vec![(DATA, 300)],
            deposit: DATA,
            keep: 300,
            ..Message::default()
        };
        sim.send(0, now, &message);
    }
    sim.run();
    assert_eq!(sim.hosts[1].unanswered.len(), 2);
    assert_eq!(sim.counter(1, Counter::CAM_OVERFLOW), 8);
    sim.answer_all(1);
    sim.run();
    let ids: Vec<u32> = sim.hosts[1].arrived.iter().map(|a| a.id).collect();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
    assert_eq!(sim.counter(1, Counter::CAM_HIGH_WATER), 2);
    assert_quiet(&sim);
}

#[test]
fn a_process_that_is_not_alive_gets_nothing() {
    let mut sim = Sim::new([2, 1, 1], 1 << 21);
    sim.boot(0, true);
    sim.boot(1, false);
    let now = sim.world.now();
    let message = Message {
        to: 1,
        id: 1,
        payload: vec![(DATA, 5000)],
        keep: 5000,
        ..Message::default()
    };
    sim.send(0, now, &message);
    sim.run();
    assert!(sim.hosts[1].log.is_empty());
    assert_eq!(sim.counter(1, Counter::STATELESS_DROPS), 1);
    assert_eq!(sim.counter(1, Counter::LAST_NID_DROPPED), 0);
    assert!(sim.counter(1, Counter::PACKETS_DRAINED) >= 79);
    assert_eq!(sim.world.packets_in_flight(), 0);
    assert_eq!(sim.control(1, &mark_alive()), 0);
    let now = sim.world.now();
    sim.send(
        0,
        now,
        &Message {
            to: 1,
            id: 2,
            ..Message::default()
        },
    );
    sim.run();
    assert_eq!(sim.hosts[1].arrived.len(), 1);
}

#[test]
fn host_faults_end_transfers_with_a_failed_status() {
    let mut sim = Sim::pair(1 << 21);
    let beyond = 1 << 40;
    let now = sim.world.now();
    let good = Message {
        to: 1,
        id: 1,
        payload: vec![(DATA, 4000)],
        deposit: DATA,
        keep: 4000,
        ..Message::default()
    };
    // The source's payload is not there: both ends fail. Then the target's buffer is not there.
    sim.send(
        0,
        now,
        &Message {
            payload: vec![(beyond, 4000)],
            ..good.clone()
        },
    );
    sim.send(
        0,
        now,
        &Message {
            id: 2,
            deposit: beyond,
            ..good.clone()
        },
    );
    sim.send(0, now, &Message { id: 3, ..good });
    sim.run();
    let kinds: Vec<_> = sim.hosts[1]
        .arrived
        .iter()
        .map(|a| (a.id, a.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            (1, EventType::RX_FAILED),
            (2, EventType::RX_FAILED),
            (3, EventType::RX_DONE)
        ]
    );
    let ends: Vec<_> = sim.hosts[0].log.iter().map(|e| e.1.kind()).collect();
    assert_eq!(
        ends,
        [EventType::TX_FAILED, EventType::TX_END, EventType::TX_END]
    );
    assert_eq!(sim.counter(0, Counter::HOST_FAULTS), 1);
    assert_eq!(sim.counter(1, Counter::HOST_FAULTS), 1);
    assert_eq!(sim.world.packets_in_flight(), 0);
}

#[test]
fn an_unreadable_header_does_not_disturb_the_sequence() {
    let mut sim = Sim::pair(1 << 21);
    let now = sim.world.now();
    // Both transmits use pendings whose memory goes away and comes back in between.
    let mut io = sim.world.registers(nic_model::NodeId(0), now);
    io.write32(
        map::ht_slot(8),
        map::HtMapEntry::mapping(1 << 40).unwrap().0,
    );
    sim.send(
        0,
        now,
        &Message {
            to: 1,
            id: 1,
            ..Message::default()
        },
    );
    sim.run();
    assert_eq!(sim.counter(0, Counter::TRANSFERS_FAILED), 1);
    let now = sim.world.now();
    let mut io = sim.world.registers(nic_model::NodeId(0), now);
    io.write32(map::ht_slot(8), map::HtMapEntry::mapping(0).unwrap().0);
    sim.send(
        0,
        now,
        &Message {
            to: 1,
            id: 2,
            ..Message::default()
        },
    );
    sim.run();
    assert_eq!(
        sim.hosts[1]
            .arrived
            .iter()
            .map(|a| a.id)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(sim.counter(1, Counter::SEQUENCE_ERRORS), 0);
}

/// The reason of the last refusal that node 0 was told of.
fn refused(sim: &mut Sim, command: &impl nic_model::defs::command::Command) -> u8 {
    let now = sim.world.now();
    let seen = sim.hosts[0].log.len();
    sim.write(0, now, command);
    sim.run();
    let mut refusals = sim.hosts[0].log[seen..]
        .iter()
        .filter(|e| e.1.kind() == EventType::REJECTED);
    let (_, event) = refusals.next().expect("a refusal");
    assert!(refusals.next().is_none());
    RejectedCommand(event.index()).reason()
}

#[test]
fn absurd_commands_are_refused_with_a_reason() {
    let mut sim = Sim::pair(1 << 21);
    assert_eq!(
        sim.control(0, &init_process()),
        RESULT_REFUSED | u32::from(refusal::STATE)
    );
    let mut good = Transmit::new_zeroed();
    good.op = OpCode::TRANSMIT;
    good.nid = 1.into();
    good.header_length = 48.into();
    type Change = fn(&mut Transmit);
    let cases: [(u8, Change); 9] = [
        (refusal::NODE, |c| c.nid = 2.into()),
        (refusal::PENDING, |c| c.pending_index = 64.into()),
        (refusal::LENGTH, |c| c.header_length = 65.into()),
        (refusal::LENGTH, |c| c.header_length = 0.into()),
        (refusal::LENGTH, |c| c.length = u32::MAX.into()),
        (refusal::ADDRESS, |c| {
            (c.length, c.address) = (4.into(), u64::MAX.into())
        }),
        (refusal::SEGMENTS, |c| c.segments = u16::MAX.into()),
        (refusal::LENGTH, |c| {
            (c.segments, c.length) = (1.into(), 4.into())
        }),
        (refusal::FLAGS, |c| c.flags = 0x80),
    ];
    for (reason, change) in cases {
        let mut command = good;
        change(&mut command);
        assert_eq!(refused(&mut sim, &command), reason);
    }
    let mut receive = Receive::new_zeroed();
    receive.op = OpCode::RECEIVE;
    assert_eq!(refused(&mut sim, &receive), refusal::PENDING);
    receive.pending_index = 64.into();
    assert_eq!(refused(&mut sim, &receive), refusal::PENDING_STATE);
    good.op = OpCode(99);
    assert_eq!(refused(&mut sim, &good), refusal::OP_CODE);
    good.op = OpCode::TRANSMIT;
    good.flags = flags::INTERRUPT;
    let now = sim.world.now();
    sim.write(0, now, &good);
    assert_eq!(refused(&mut sim, &good), refusal::PENDING_STATE);
    assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), 14);
}

#[test]
fn a_full_event_queue_loses_nothing() {
    let mut sim = Sim::pair(1 << 21);
    // The host of node 1 sleeps: its interrupt is masked, it releases nothing by itself.
    let now = sim.world.now();
    sim.world
        .registers(nic_model::NodeId(1), now)
        .write32(map::HT_INTERRUPT, 0);
    let mut bad = Transmit::new_zeroed();
    bad.op = OpCode(77);
    for _ in 0..1500 {
        let now = sim.world.now();
        sim.write(1, now, &bad);
    }
    let until = SimTime(sim.world.now().0 + 1_000_000_000);
    sim.world.run_until(until, &mut sim.memory);
    assert!(sim.counter(1, Counter::EQ_NEARLY_FULL) > 0);
    assert!(sim.hosts[1].log.is_empty());
    sim.world
        .registers(nic_model::NodeId(1), until)
        .write32(map::HT_INTERRUPT, 1);
    sim.run();
    assert_eq!(sim.hosts[1].log.len(), 1500);
    assert_eq!(sim.counter(1, Counter::EVENTS_LOST), 0);
}

/// A message of 300 bytes from node 0 to a deaf node 1; the receive pending that holds it.
fn held(sim: &mut Sim, id: u32) -> u16 {
    sim.hosts[1].deaf = true;
    let data = pattern(300, u64::from(id));
    put(sim, 0, DATA, &data);
    let now = sim.world.now();
    sim.send(
        0,
        now,
        &Message {
            to: 1,
            id,
            payload: vec![(DATA, 300)],
            ..Message::default()
        },
    );
    sim.run();
    sim.hosts[1].unanswered.pop().expect("a header event")
}

fn receive(pending: u16, flags: u8) -> Receive {
    let mut receive = Receive::new_zeroed();
    receive.op = OpCode::RECEIVE;
    receive.flags = flags;
    receive.length = 300.into();
    receive.address = (DATA >> 2).into();
    receive.pending_index = pending.into();
    receive
}

#[test]
fn a_release_drains_the_payload_nobody_wanted() {
    let mut sim = Sim::pair(1 << 21);
    let pending = held(&mut sim, 1);
    assert_eq!(sim.world.packets_in_flight(), 5);
    let (now, events) = (sim.world.now(), sim.hosts[1].log.len());
    sim.release(1, now, pending);
    sim.run();
    assert_eq!(sim.counter(1, Counter::PACKETS_DRAINED), 5);
    assert_eq!(sim.hosts[1].log.len(), events, "a release has no event");
    assert_quiet(&sim);
    // It is free now, so a second release is refused.
    let now = sim.world.now();
    sim.release(1, now, pending);
    sim.run();
    assert_eq!(sim.counter(1, Counter::COMMANDS_REJECTED), 1);
}

#[test]
fn a_receive_can_release_its_pending_and_be_silent() {
    let mut sim = Sim::pair(1 << 21);
    for id in 1..200 {
        let pending = held(&mut sim, id);
        let (now, events) = (sim.world.now(), sim.hosts[1].log.len());
        sim.write(1, now, &receive(pending, flags::RELEASE | flags::SILENT));
        sim.run();
        assert!(at(&sim, 1, DATA, 300) == pattern(300, u64::from(id)));
        assert_eq!(sim.hosts[1].log.len(), events);
    }
    // Without the flags the end is an event.
    let pending = held(&mut sim, 200);
    let now = sim.world.now();
    let receive = receive(pending, 0);
    sim.write(1, now, &receive);
    sim.run();
    assert_eq!(
        sim.hosts[1].arrived.last().map(|a| a.kind),
        Some(EventType::RX_DONE)
    );
    assert_quiet(&sim);
}

#[test]
fn interrupts_coalesce_until_taken_and_can_be_masked() {
    let mut sim = Sim::pair(1 << 21);
    let now = sim.world.now();
    for id in 0..5 {
        sim.send(
            0,
            now,
            &Message {
                to: 1,
                id,
                ..Message::default()
            },
        );
    }
    // Nobody takes interrupts while the world runs by itself.
    sim.world
        .run_until(SimTime(now.0 + 1_000_000_000), &mut sim.memory);
    assert_eq!(sim.counter(1, Counter::INTERRUPTS), 5);
    assert_eq!(sim.counter(1, Counter::INTERRUPTS_COALESCED), 4);
    let of_target = std::iter::from_fn(|| sim.world.poll_interrupt()).filter(|i| i.1.0 == 1);
    assert_eq!(of_target.count(), 1);
    let now = sim.world.now();
    sim.world
        .registers(nic_model::NodeId(1), now)
        .write32(map::HT_INTERRUPT, 0);
    sim.send(
        0,
        now,
        &Message {
            to: 1,
            id: 9,
            ..Message::default()
        },
    );
    sim.world
        .run_until(SimTime(now.0 + 1_000_000_000), &mut sim.memory);
    assert_eq!(sim.counter(1, Counter::INTERRUPTS_MASKED), 1);
    assert!(!std::iter::from_fn(|| sim.world.poll_interrupt()).any(|i| i.1.0 == 1));
}
