//! Messages end to end through driver, firmware, chip and network.

use nic_model::defs::command::{OpCode, Receive, Transmit, flags};
use nic_model::defs::event::{EventType, RejectedCommand, refusal};
use nic_model::defs::map;
use nic_model::defs::niccb::Counter;
use nic_model::{Machine, RegisterIo, SimTime};
use zerocopy::FromZeros;

use super::bodies::{self, assert_quiet, pattern};
use super::driver::{DATA, Message, RX_PENDINGS, Sim};

/// The model in this process.
fn model(nodes: u16) -> Sim {
    let dims = match nodes {
        12 => [3, 2, 2],
        _ => [nodes, 1, 1],
    };
    Sim::with_machine(waiting(), dims, bodies::MEMORY)
}

/// A machine whose messages wait in the network when there is no room for them.
fn waiting() -> Machine {
    let mut machine = Machine::named("xt4").unwrap();
    machine.protocol.exhaustion = 0;
    machine
}

fn put(sim: &mut Sim, node: usize, address: u64, bytes: &[u8]) {
    sim.memory[node].bytes[address as usize..address as usize + bytes.len()].copy_from_slice(bytes);
}

fn at(sim: &Sim, node: usize, address: u64, length: usize) -> &[u8] {
    &sim.memory[node].bytes[address as usize..address as usize + length]
}

#[test]
fn header_only_and_inline() {
    bodies::header_only_and_inline(model);
}

#[test]
fn payloads_arrive_exactly() {
    bodies::payloads_arrive_exactly(model);
}

#[test]
fn scattered_and_truncated() {
    bodies::scattered_and_truncated(model);
}

#[test]
fn a_node_sends_to_itself() {
    bodies::a_node_sends_to_itself(model);
}

#[test]
fn many_messages_of_many_sources_stay_in_order() {
    let sim = bodies::many_messages_of_many_sources_stay_in_order(model);
    assert!(sim.counter(5, Counter::PORT_HIGH_WATER) > 1000);
}

#[test]
fn inline_messages_arrive_in_the_order_sent() {
    bodies::inline_messages_arrive_in_the_order_sent(model);
}

#[test]
fn without_receive_pendings_messages_wait_in_order() {
    let mut sim = Sim::with_machine(waiting(), [2, 1, 1], 4 << 20);
    sim.boot_all();
    sim.hosts[1].deaf = true;
    let count = u32::from(RX_PENDINGS) + 40;
    for id in 0..count {
        let now = sim.world.now();
        let payload = if id % 16 == 1 {
            vec![(DATA, 100)]
        } else {
            vec![]
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
    let mut machine = waiting();
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
    bodies::a_process_that_is_not_alive_gets_nothing(model);
}

#[test]
fn host_faults_end_transfers_with_a_failed_status() {
    bodies::host_faults_end_transfers_with_a_failed_status(model);
}

#[test]
fn an_unreadable_header_does_not_disturb_the_sequence() {
    bodies::an_unreadable_header_does_not_disturb_the_sequence(model);
}

#[test]
fn absurd_commands_are_refused_with_a_reason() {
    bodies::absurd_commands_are_refused_with_a_reason(model);
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

/// Unknown flags of a RECEIVE are refused, and leave the message as it was.
#[test]
fn a_receive_with_unknown_flags_is_refused() {
    let mut sim = Sim::pair(4 << 20);
    sim.hosts[1].deaf = true;
    sim.store(0, DATA, &[7; 300]);
    let message = Message {
        to: 1,
        id: 1,
        payload: vec![(DATA, 300)],
        deposit: DATA,
        keep: 300,
        ..Message::default()
    };
    let now = sim.now();
    sim.send(0, now, &message);
    sim.run();
    let pending = sim.hosts[1].unanswered[0];
    for bit in 0..8 {
        let flag = 1 << bit;
        if [flags::RELEASE, flags::SILENT].contains(&flag) {
            continue;
        }
        let mut receive = Receive::new_zeroed();
        receive.op = OpCode::RECEIVE;
        receive.flags = flags::RELEASE | flag;
        receive.length = 300.into();
        receive.address = (DATA >> 2).into();
        receive.pending_index = pending.into();
        let now = sim.now();
        sim.write(1, now, &receive);
        sim.run();
        let (_, event) = *sim.hosts[1].log.last().unwrap();
        assert_eq!(event.kind(), EventType::REJECTED, "flag {flag:#x}");
        let reason = RejectedCommand(event.index()).reason();
        assert_eq!(reason, refusal::FLAGS, "flag {flag:#x}");
        assert_eq!(sim.load(1, DATA, 300), [0; 300]);
    }
    sim.answer_all(1);
    sim.run();
    assert_eq!(sim.load(1, DATA, 300), [7; 300]);
    assert_eq!(sim.hosts[1].arrived.len(), 1);
}
