//! What waits for a peer's back-off to end.

use firmware_sim::SeaStarFirmware;
use nic_model::defs::event::EventType;
use nic_model::defs::mailbox;
use nic_model::defs::niccb::Counter;
use nic_model::defs::packet::{Control, control, reason};
use nic_model::{
    Firmware, FirmwareContext, Machine, NodeId, RegisterIo, RxHeader, RxReport, SimDuration,
    TransferFault, World,
};

use super::driver::{Message, Sim};

/// A node that says to node 0 what its doorbell says, or one that runs the firmware.
enum Peer {
    Says,
    Runs(Box<SeaStarFirmware>),
}

impl Peer {
    fn runs(&mut self) -> Option<&mut SeaStarFirmware> {
        match self {
            Self::Says => None,
            Self::Runs(firmware) => Some(firmware),
        }
    }
}

impl Firmware for Peer {
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: u32, index: u32) {
        match self.runs() {
            Some(firmware) => firmware.mailbox_written(ctx, mailbox, index),
            None => ctx.send_control(NodeId(0), Control(index.into())),
        }
    }

    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        if let Some(firmware) = self.runs() {
            firmware.header_arrived(ctx, header);
        }
    }

    fn control_arrived(&mut self, ctx: &mut FirmwareContext<'_>, source: NodeId, word: Control) {
        if let Some(firmware) = self.runs() {
            firmware.control_arrived(ctx, source, word);
        }
    }

    fn tx_done(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        token: u64,
        result: Result<(), TransferFault>,
    ) {
        if let Some(firmware) = self.runs() {
            firmware.tx_done(ctx, token, result);
        }
    }

    fn rx_done(&mut self, ctx: &mut FirmwareContext<'_>, token: u64, report: RxReport) {
        if let Some(firmware) = self.runs() {
            firmware.rx_done(ctx, token, report);
        }
    }

    fn work(&mut self, ctx: &mut FirmwareContext<'_>) {
        if let Some(firmware) = self.runs() {
            firmware.work(ctx);
        }
    }

    fn alarm(&mut self, ctx: &mut FirmwareContext<'_>, token: u64) {
        if let Some(firmware) = self.runs() {
            firmware.alarm(ctx, token);
        }
    }
}

/// The peer of the only source structure refuses a message and then acknowledges another copy of it. A message to
/// another peer waits for the structure, which is idle only when the back-off is over.
#[test]
fn a_message_that_waits_for_a_structure_goes_when_the_back_off_ends() {
    let mut machine = Machine::named("xt4").unwrap();
    machine.firmware.sources = 1;
    let firmware = |node: NodeId, machine: &Machine| match node.0 {
        1 => Peer::Says,
        _ => Peer::Runs(Box::new(SeaStarFirmware::new(machine))),
    };
    let mut sim: Sim<World<Peer>> = Sim::with_firmware(machine, [3, 1, 1], 1 << 21, firmware);
    sim.contexts = true;
    sim.boot(0, true);
    sim.boot(2, true);
    let start = sim.now();
    for to in [1, 2] {
        let message = Message {
            to,
            id: to.into(),
            ..Message::default()
        };
        sim.send_later(0, start, &message);
    }
    sim.run_until(start + SimDuration::from_us(20));
    assert_eq!(sim.counter(0, Counter::SOURCE_WAITS), 1);
    let refused = Control::new(control::NACK, reason::RX_PENDING, 0);
    let taken = Control::new(control::ACK, 0, 1);
    for word in [refused, taken] {
        let now = sim.world.now();
        let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
        let mut registers = sim.world.registers(NodeId(1), now);
        registers.write32(doorbell, word.0 as u32);
    }
    sim.run();
    assert_eq!(sim.counter(0, Counter::NACKS_RECEIVED), 1);
    assert_eq!(sim.hosts[2].arrived.len(), 1, "the second message waits");
    let ended = [(1, EventType::TX_END), (2, EventType::TX_END)];
    assert_eq!(sim.hosts[0].ended, ended);
}
