//! A peer that does not keep to the firmware's rules.

use firmware_sim::SeaStarFirmware;
use nic_model::defs::mailbox;
use nic_model::defs::niccb::Counter;
use nic_model::{
    DmaSegment, Firmware, FirmwareContext, Machine, NodeId, RegisterIo, RxHeader, RxReport,
    TransferFault, TxJob, World,
};

use super::driver::{DATA, Sim};

/// Node 0 sends whatever its doorbell says; the others run the firmware.
enum Peer {
    Wild,
    Tame(Box<SeaStarFirmware>),
}

impl Firmware for Peer {
    /// The index is the sequence number in bits 15..0 and the payload's length in bits 31..16.
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: u32, index: u32) {
        match self {
            Self::Wild => {
                let job = TxJob {
                    destination: NodeId(1),
                    sequence: index as u16,
                    header_address: DATA,
                    header_length: 64,
                    segments: vec![DmaSegment {
                        address: DATA,
                        length: index >> 16,
                    }],
                    token: 0,
                };
                ctx.start_tx(job).unwrap();
            }
            Self::Tame(firmware) => firmware.mailbox_written(ctx, mailbox, index),
        }
    }

    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        if let Self::Tame(firmware) = self {
            firmware.header_arrived(ctx, header);
        }
    }

    fn tx_done(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        token: u64,
        result: Result<(), TransferFault>,
    ) {
        if let Self::Tame(firmware) = self {
            firmware.tx_done(ctx, token, result);
        }
    }

    fn rx_done(&mut self, ctx: &mut FirmwareContext<'_>, token: u64, report: RxReport) {
        if let Self::Tame(firmware) = self {
            firmware.rx_done(ctx, token, report);
        }
    }

    fn work(&mut self, ctx: &mut FirmwareContext<'_>) {
        if let Self::Tame(firmware) = self {
            firmware.work(ctx);
        }
    }

    fn alarm(&mut self, ctx: &mut FirmwareContext<'_>, token: u64) {
        if let Self::Tame(firmware) = self {
            firmware.alarm(ctx, token);
        }
    }
}

fn pair() -> Sim<World<Peer>> {
    let machine = Machine::named("xt4").unwrap();
    let mut sim = Sim::with_firmware(machine, [2, 1, 1], 1 << 21, |node, machine| match node.0 {
        0 => Peer::Wild,
        _ => Peer::Tame(Box::new(SeaStarFirmware::new(machine))),
    });
    sim.boot(1, true);
    sim
}

fn send(sim: &mut Sim<World<Peer>>, sequence: u16, length: u16) {
    let now = sim.world.now();
    let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
    let value = u32::from(length) << 16 | u32::from(sequence);
    sim.world.registers(NodeId(0), now).write32(doorbell, value);
    sim.run();
}

#[test]
fn a_message_out_of_sequence_is_drained_and_counted() {
    let mut sim = pair();
    send(&mut sim, 0, 0);
    send(&mut sim, 5, 1000);
    send(&mut sim, 0, 0);
    send(&mut sim, 1, 0);
    assert_eq!(sim.hosts[1].arrived.len(), 2);
    assert_eq!(sim.counter(1, Counter::SEQUENCE_ERRORS), 2);
    assert_eq!(sim.counter(1, Counter::CAM_IN_USE), 0);
    assert_eq!(sim.world.packets_in_flight(), 0);
}

#[test]
fn sequence_numbers_wrap() {
    let mut sim = pair();
    for sequence in 0..=u16::MAX {
        send(&mut sim, sequence, 0);
        sim.hosts[1].log.clear();
    }
    send(&mut sim, 0, 0);
    assert_eq!(sim.hosts[1].arrived.len(), 65_537);
    assert_eq!(sim.counter(1, Counter::SEQUENCE_ERRORS), 0);
}

#[test]
fn random_headers_and_lengths_do_no_harm_seed_3() {
    let mut sim = pair();
    let mut rng = fastrand::Rng::with_seed(3);
    for sequence in 0..2_000u16 {
        let wild = rng.u8(0..10) == 0;
        for byte in &mut sim.memory[0].bytes[DATA as usize..DATA as usize + 64] {
            *byte = rng.u8(..);
        }
        // What the driver of the tests asks for must be a possible receive: at most 64 KiB.
        sim.memory[0].bytes[DATA as usize + 6..DATA as usize + 8].fill(0);
        sim.memory[0].bytes[DATA as usize + 15] = 0;
        if wild {
            send(&mut sim, rng.u16(..), rng.u16(0..3000));
        }
        send(&mut sim, sequence, rng.u16(0..3000));
    }
    assert!(sim.counter(1, Counter::SEQUENCE_ERRORS) > 100);
    assert!(sim.hosts[1].arrived.len() >= 2_000);
    assert_eq!(sim.counter(1, Counter::CAM_IN_USE), 0);
    assert_eq!(sim.world.packets_in_flight(), 0);
}
