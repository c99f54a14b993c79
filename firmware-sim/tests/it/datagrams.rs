//! IP datagrams: op code 13, events 126 and 127, the receive buffer table.

use nic_model::defs::command::{OpCode, SendDatagram};
use nic_model::defs::datagram::{DatagramHeader, buffer_entry, give_buffer};
use nic_model::defs::event::EventType;
use nic_model::defs::niccb::Counter;
use nic_model::{NodeId, RegisterIo};
use zerocopy::FromZeros;

use super::driver::{DATA, Sim};

/// Where the target's buffers are.
const BUFFERS: u64 = 2 * DATA;
const BUFFER: u64 = 0x4000;

fn give(sim: &mut Sim, node: u16, index: u32) {
    let now = sim.world.now();
    let mut io = sim.world.registers(NodeId(node), now);
    give_buffer(&mut io, index, BUFFERS + BUFFER * u64::from(index));
}

/// Sends a datagram of `data` (a multiple of 4 bytes with the header) by transmit pending 0.
fn send(sim: &mut Sim, from: u16, to: u16, data: &[u8]) {
    let header = DatagramHeader::ip(4 + data.len() as u32);
    let bytes = &mut sim.memory[usize::from(from)].bytes[DATA as usize..];
    bytes[..4].copy_from_slice(&header.0.to_le_bytes());
    bytes[4..4 + data.len()].copy_from_slice(data);
    let mut command = SendDatagram::new_zeroed();
    command.op = OpCode::DATAGRAM;
    command.nid = to.into();
    command.length = u32::from(header.length()).into();
    command.address = (DATA >> 2).into();
    let now = sim.world.now();
    sim.write(from, now, &command);
    sim.run();
}

fn kinds(sim: &Sim, node: usize) -> Vec<(EventType, u16)> {
    let log = &sim.hosts[node].log;
    log.iter().map(|e| (e.1.kind(), e.1.index())).collect()
}

#[test]
fn datagrams_fill_the_buffers_in_turn() {
    let mut sim = Sim::pair(4 << 20);
    for index in [0, 1, 5] {
        give(&mut sim, 1, index);
    }
    let lengths = [0usize, 1500, 15_996];
    for (n, length) in lengths.into_iter().enumerate() {
        let data: Vec<u8> = (0..length).map(|b| (b * 7 + n) as u8).collect();
        send(&mut sim, 0, 1, &data);
        let index = [0u16, 1, 5][n];
        assert_eq!(kinds(&sim, 1)[n], (EventType::DATAGRAM, index));
        let at = (BUFFERS + BUFFER * u64::from(index)) as usize;
        let got = &sim.memory[1].bytes[at..at + 4 + length];
        let header = DatagramHeader(u32::from_le_bytes(got[..4].try_into().unwrap()));
        assert_eq!(header, DatagramHeader::ip(4 + length as u32));
        assert!(got[4..] == data);
        let now = sim.world.now();
        let mut io = sim.world.registers(NodeId(1), now);
        assert_eq!(
            io.read32(buffer_entry(u32::from(index))),
            0,
            "the entry is empty"
        );
    }
    assert_eq!(kinds(&sim, 0), [(EventType::TX_END, 0); 3]);
    assert_eq!(sim.counter(0, Counter::IP_TX), 3);
    assert_eq!(sim.counter(1, Counter::IP_RX), 3);
    assert_eq!(sim.counter(1, Counter::CAM_IN_USE), 0);
}

#[test]
fn without_a_buffer_they_are_dropped_and_the_host_is_told_once() {
    let mut sim = Sim::pair(4 << 20);
    for _ in 0..3 {
        send(&mut sim, 0, 1, &[1; 100]);
    }
    assert_eq!(kinds(&sim, 1), [(EventType::DATAGRAM_EMPTY, 0)]);
    assert_eq!(sim.counter(1, Counter::IP_RX_DROPPED), 3);
    give(&mut sim, 1, 63);
    send(&mut sim, 0, 1, &[2; 100]);
    send(&mut sim, 0, 1, &[2; 100]);
    let events = kinds(&sim, 1);
    assert_eq!(
        events[1..],
        [(EventType::DATAGRAM, 63), (EventType::DATAGRAM_EMPTY, 0)]
    );
    // The sender is not told: a datagram is not acknowledged.
    assert_eq!(kinds(&sim, 0), [(EventType::TX_END, 0); 5]);
    assert_eq!(sim.world.packets_in_flight(), 0);
}

#[test]
fn a_datagram_that_lies_about_itself_leaves_the_buffer() {
    let mut sim = Sim::pair(4 << 20);
    give(&mut sim, 1, 9);
    // The header says 100 bytes, the command sends 60 and then 200.
    for quads in [14u32, 49] {
        let header = DatagramHeader::ip(100);
        sim.memory[0].bytes[DATA as usize..DATA as usize + 4]
            .copy_from_slice(&header.0.to_le_bytes());
        let mut command = SendDatagram::new_zeroed();
        command.op = OpCode::DATAGRAM;
        command.nid = 1.into();
        command.length = quads.into();
        command.address = (DATA >> 2).into();
        let now = sim.world.now();
        sim.write(0, now, &command);
        sim.run();
    }
    assert_eq!(kinds(&sim, 1), []);
    assert_eq!(sim.counter(1, Counter::IP_RX_DROPPED), 2);
    send(&mut sim, 0, 1, &[3; 40]);
    assert_eq!(kinds(&sim, 1), [(EventType::DATAGRAM, 9)]);
}

#[test]
fn absurd_datagrams_are_refused() {
    let mut sim = Sim::pair(1 << 21);
    type Change = fn(&mut SendDatagram);
    let cases: [Change; 4] = [
        |c| c.nid = 2.into(),
        |c| c.length = u32::MAX.into(),
        |c| c.address = u64::MAX.into(),
        |c| c.pending_index = 64.into(),
    ];
    for (n, change) in cases.into_iter().enumerate() {
        let mut command = SendDatagram::new_zeroed();
        command.op = OpCode::DATAGRAM;
        command.nid = 1.into();
        change(&mut command);
        let now = sim.world.now();
        sim.write(0, now, &command);
        sim.run();
        assert_eq!(sim.counter(0, Counter::COMMANDS_REJECTED), n as u32 + 1);
    }
}
