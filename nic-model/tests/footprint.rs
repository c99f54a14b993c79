//! What a large machine at rest takes. Alone in its process, so that nothing else is counted.

use nic_model::{
    Fidelity, Firmware, FirmwareContext, Machine, NodeId, Options, RegisterIo, RxHeader, RxReport,
    SimTime, Topology, TransferFault, World,
};

/// Does nothing.
struct Idle;

impl Firmware for Idle {
    fn mailbox_written(&mut self, _: &mut FirmwareContext<'_>, _: u32, _: u32) {}
    fn header_arrived(&mut self, _: &mut FirmwareContext<'_>, _: &RxHeader) {}
    fn tx_done(&mut self, _: &mut FirmwareContext<'_>, _: u64, _: Result<(), TransferFault>) {}
    fn rx_done(&mut self, _: &mut FirmwareContext<'_>, _: u64, _: RxReport) {}
    fn work(&mut self, _: &mut FirmwareContext<'_>) {}
    fn alarm(&mut self, _: &mut FirmwareContext<'_>, _: u64) {}
}

/// Resident memory of this process, in bytes; `None` where the system does not tell.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[test]
fn sixteen_cubed_nodes_take_less_than_200_mb() {
    let Some(before) = resident() else {
        println!("skipped: no /proc/self/statm");
        return;
    };
    let topology = Topology::torus([16; 3]).unwrap();
    let nodes = topology.nodes() as u16;
    let machine = Machine::named("xt4").unwrap();
    let options = Options {
        fidelity: Fidelity::Packet,
        ..Options::default()
    };
    let mut world = World::with_options(machine, topology, options, |_, _| Idle).unwrap();
    for node in 0..nodes {
        // As much of the SRAM as a boot touches: a mailbox, a pending, a control block.
        let mut registers = world.registers(NodeId(node), SimTime::ZERO);
        for address in [0xFFFA_0000, 0xFFFA_5000, 0xFFFA_7000] {
            registers.write32(address, 1);
        }
    }
    let taken = (resident().unwrap() - before) >> 20;
    println!("{nodes} nodes: {taken} MiB");
    assert!(taken < 190, "{taken} MiB");
    assert!(taken > 10, "the measure does not measure");
}
