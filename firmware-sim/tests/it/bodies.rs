//! Tests of messages end to end, over any way to the chips. `make` gives drivers over that many
//! chips, not booted, each host with [`MEMORY`] bytes.

use nic_model::RegisterIo;
use nic_model::defs::command::{Command, OpCode, Receive, Transmit, flags};
use nic_model::defs::event::{EventType, RESULT_REFUSED, RejectedCommand, refusal};
use nic_model::defs::map;
use nic_model::defs::niccb::Counter;
use zerocopy::FromZeros;

use super::driver::{Chips, DATA, Message, Sim, init_process, mark_alive};

/// Bytes of each host that the tests need.
pub(crate) const MEMORY: usize = 4 << 20;

pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| rng.u8(..)).collect()
}

fn booted<C: Chips>(make: impl Fn(u16) -> Sim<C>, nodes: u16) -> Sim<C> {
    let mut sim = make(nodes);
    sim.boot_all();
    sim
}

/// Nothing was lost, nothing is left in the network and no CAM entry is held.
pub(crate) fn assert_quiet<C: Chips>(sim: &Sim<C>) {
    assert_eq!(sim.world.in_flight(), 0);
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

/// The reason of the last refusal that node 0 was told of.
fn refused<C: Chips>(sim: &mut Sim<C>, command: &impl Command) -> u8 {
    let now = sim.now();
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

pub(crate) fn header_only_and_inline<C: Chips>(make: impl Fn(u16) -> Sim<C>) {
    let mut sim = booted(&make, 2);
    let now = sim.now();
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

pub(crate) fn payloads_arrive_exactly<C: Chips>(make: impl Fn(u16) -> Sim<C>) {
    for (length, byte) in [
        (1, 0),
        (63, 1),
        (64, 2),
        (65, 3),
        (1024, 0),
        (1 << 20, 0),
        (9999, 1),
    ] {
        let mut sim = booted(&make, 2);
        let data = pattern(length, length as u64);
        sim.store(0, DATA, &data);
        let deposit = 2 * DATA + byte;
        let message = Message {
            to: 1,
            id: 7,
            payload: vec![(DATA, length as u32)],
            deposit,
            keep: length as u32,
            ..Message::default()
        };
        let now = sim.now();
        sim.send(0, now, &message);
        sim.run();
        let arrived = &sim.hosts[1].arrived;
        assert_eq!(arrived.len(), 1);
        assert_eq!(
            (arrived[0].kind, arrived[0].deposited),
            (EventType::RX_DONE, length as u32)
        );
        assert!(
            sim.load(1, deposit, length) == data,
            "{length} bytes differ"
        );
        assert_eq!(sim.load(1, deposit + length as u64, 8), [0; 8]);
        assert_eq!(sim.load(1, deposit - 8, 8), [0; 8]);
        assert_quiet(&sim);
    }
}

pub(crate) fn scattered_and_truncated<C: Chips>(make: impl Fn(u16) -> Sim<C>) {
    let mut sim = booted(&make, 2);
    let data = pattern(3000, 5);
    let pieces = [
        (DATA, 0, 701),
        (DATA + 0x1000, 701, 0),
        (DATA + 0x2000, 701, 2299),
    ];
    for (address, from, length) in pieces {
        sim.store(0, address, &data[from..from + length]);
    }
    let message = Message {
        to: 1,
        id: 1,
        payload: pieces.iter().map(|p| (p.0, p.2 as u32)).collect(),
        deposit: DATA,
        keep: 1000,
        ..Message::default()
    };
    let now = sim.now();
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
    assert!(sim.load(1, DATA, 1000) == data[..1000]);
    assert_eq!(sim.load(1, DATA + 1000, 64), [0; 64]);
    assert_eq!(
        (arrived[1].kind, arrived[1].discarded),
        (EventType::DROPPED, 3000)
    );
    assert_quiet(&sim);
}

pub(crate) fn a_node_sends_to_itself<C: Chips>(make: impl Fn(u16) -> Sim<C>) {
    let mut sim = booted(&make, 2);
    let data = pattern(5000, 9);
    sim.store(1, DATA, &data);
    let payload = vec![(DATA, 5000)];
    let now = sim.now();
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
    assert!(sim.load(1, 2 * DATA, 5000) == data);
    assert_quiet(&sim);
}

pub(crate) fn many_messages_of_many_sources_stay_in_order<C: Chips>(
    make: impl Fn(u16) -> Sim<C>,
) -> Sim<C> {
    let mut sim = booted(&make, 12);
    let nodes = sim.hosts.len() as u16;
    let rounds = 300u32;
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..rounds {
        for node in 0..nodes {
            let now = sim.now();
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
    // A machine may have refused messages for want of room, and have sent them again.
    for counter in [Counter::CAM_IN_USE, Counter::EVENTS_LOST] {
        assert_eq!(sim.counter(5, counter), 0, "{counter:?}");
    }
    sim
}

pub(crate) fn inline_messages_arrive_in_the_order_sent<C: Chips>(make: impl Fn(u16) -> Sim<C>) {
    let mut sim = booted(&make, 2);
    for id in 0..1000u32 {
        let now = sim.now();
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
    // A machine may have refused messages for want of room, and have sent them again.
    assert_eq!(sim.counter(1, Counter::EVENTS_LOST), 0);
}

pub(crate) fn a_process_that_is_not_alive_gets_nothing<C: Chips>(make: impl Fn(u16) -> Sim<C>) {
    let mut sim = make(2);
    sim.boot(0, true);
    sim.boot(1, false);
    let now = sim.now();
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
    assert_eq!(sim.world.in_flight(), 0);
    assert_eq!(sim.control(1, &mark_alive()), 0);
    let now = sim.now();
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

pub(crate) fn host_faults_end_transfers_with_a_failed_status<C: Chips>(
    make: impl Fn(u16) -> Sim<C>,
) {
    let mut sim = booted(&make, 2);
    let beyond = 1 << 40;
    let now = sim.now();
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
            (2, EventType::RX_FAULT),
            (3, EventType::RX_DONE)
        ]
    );
    let ends: Vec<_> = sim.hosts[0].log.iter().map(|e| e.1.kind()).collect();
    assert_eq!(
        ends,
        [EventType::TX_FAULT, EventType::TX_END, EventType::TX_END]
    );
    assert_eq!(sim.counter(0, Counter::HOST_FAULTS), 1);
    assert_eq!(sim.counter(1, Counter::HOST_FAULTS), 1);
    assert_eq!(sim.world.in_flight(), 0);
}

pub(crate) fn an_unreadable_header_does_not_disturb_the_sequence<C: Chips>(
    make: impl Fn(u16) -> Sim<C>,
) {
    let mut sim = booted(&make, 2);
    let now = sim.now();
    // Both transmits use pendings whose memory goes away and comes back in between.
    sim.world.io(0, now).write32(
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
    let now = sim.now();
    sim.world
        .io(0, now)
        .write32(map::ht_slot(8), map::HtMapEntry::mapping(0).unwrap().0);
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

pub(crate) fn absurd_commands_are_refused_with_a_reason<C: Chips>(make: impl Fn(u16) -> Sim<C>) {
    let mut sim = booted(&make, 2);
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
        (refusal::SEGMENTS, |c| c.segments = 4097.into()),
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
    let now = sim.now();
    sim.write(0, now, &good);
    assert_eq!(refused(&mut sim, &good), refusal::PENDING_STATE);
    assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), 14);
}
