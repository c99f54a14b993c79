//! What the host sees of the chip besides mailboxes: the control block and the RAS area.

use nic_model::defs::map;
use nic_model::defs::niccb::{ALIVE, Counter, crash};
use nic_model::defs::ras::{self, Channel, RasEvent, config, event};
use nic_model::{NodeId, RegisterIo, SimDuration, SimTime};

use super::driver::{DATA, Message, Sim};

#[test]
fn the_control_block_tells_what_the_firmware_does() {
    let mut sim = Sim::pair(1 << 21);
    let now = sim.world.now();
    let message = Message {
        to: 1,
        id: 1,
        payload: vec![(DATA, 1000)],
        deposit: DATA,
        keep: 1000,
        ..Message::default()
    };
    sim.send(0, now, &message);
    sim.run();
    let late = SimTime(0) + SimDuration::from_us(3_500_000);
    let mut io = sim.world.registers(NodeId(1), late);
    let mut read = |counter: Counter| io.read32(counter.address());
    assert_eq!(read(Counter::VERSION), 1);
    assert_eq!(read(Counter::FOOD), ALIVE);
    assert_eq!(read(Counter::HEARTBEAT), 3, "a tick for each second");
    assert_eq!(read(Counter::RX_MESSAGE), 1);
    assert_eq!(read(Counter::RX_COMPLETE), 1);
    assert_eq!(read(Counter::INTERRUPTS), 2);
    assert_eq!(read(Counter::CAM_HIGH_WATER), 1);
    assert_eq!(read(Counter::CAM_FREELIST), 256);
    assert_eq!(read(Counter::LOCAL_NID), 1);
    assert_eq!(read(Counter::CRASH_CONTROL), 0);
    assert_eq!(sim.counter(0, Counter::SOURCE_FREELIST), 1023);
    assert_eq!(sim.counter(0, Counter::TX_PENDING_HEAD), u32::MAX);
    assert_eq!(sim.counter(0, Counter::TX_COMPLETION), 0);
}

#[test]
fn a_stopped_heart_is_noticed_and_the_others_are_told() {
    let mut sim = Sim::new([3, 1, 1], 1 << 20);
    sim.boot_all();
    sim.world.stop_node(NodeId(1));
    sim.run();
    let dead = sim.world.machine().protocol.declared_dead;
    assert!(sim.world.now() >= SimTime::ZERO + dead);
    let mut told = Vec::new();
    while let Some((at, node)) = sim.world.poll_ras_interrupt() {
        assert!(at >= SimTime::ZERO + dead);
        let mut io = sim.world.registers(node, at);
        let news = RasEvent::take(Channel::EventDown, &mut io).expect("an event");
        assert_eq!((news.code, news.nid), (event::NODE_FAILED, 1));
        told.push(node.0);
    }
    assert_eq!(told, [0, 2]);
    let late = sim.world.now() + dead;
    let mut io = sim.world.registers(NodeId(1), late);
    assert_eq!(
        io.read32(Counter::HEARTBEAT.address()),
        0,
        "it beats no more"
    );
    assert_eq!(io.read32(Counter::CRASH_CONTROL.address()), crash::STOPPED);
    let mut io = sim.world.registers(NodeId(2), late);
    assert!(io.read32(Counter::HEARTBEAT.address()) >= 20);
}

#[test]
fn host_and_controller_talk_through_the_ras_area() {
    let mut sim = Sim::new([6, 1, 1], 1 << 20);
    let node = NodeId(5);
    let now = sim.world.now();
    let mut io = sim.world.registers(node, now);
    let word = |io: &mut dyn RegisterIo, offset| io.read32(ras::CONFIG + offset);
    assert_eq!(word(&mut io, config::VERSION), 2);
    assert_eq!(word(&mut io, config::NODE), 5);
    assert_eq!(word(&mut io, config::PROCESSOR), 1);
    assert_eq!(word(&mut io, config::BUFFER), map::L0 + 0x40);
    assert!(Channel::ConsoleUp.write(&mut io, b"booting\n"));
    let log = RasEvent {
        code: event::HOST_LOG,
        nid: 5,
        data: b"up".to_vec(),
    };
    assert!(log.post(Channel::EventUp, &mut io));
    assert_eq!(sim.world.poll_console(node), b"booting\n");
    assert_eq!(sim.world.poll_console(node), b"");
    assert_eq!(sim.world.poll_ras_event(node), Some(log));
    assert_eq!(sim.world.poll_ras_event(node), None);
    assert!(sim.world.type_console(node, b"reboot"));
    let mut io = sim.world.registers(node, now);
    assert_eq!(Channel::ConsoleDown.read(&mut io, 100), b"reboot");
}
