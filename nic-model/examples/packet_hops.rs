//! How many packet-hops a second the model simulates here:
//! `cargo run --release -p nic-model --example packet_hops [MiB per node]`.
//!
//! Every node of an 8 x 8 x 8 torus streams messages of 64 KiB to a node 6 links away; a firmware
//! of a few lines deposits whatever comes.

use std::time::Instant;

use nic_model::{
    Deposit, DmaSegment, Firmware, FirmwareContext, HostFault, HostMemories, Machine, NodeId,
    RegisterIo, RxHeader, RxReport, SimTime, Topology, TransferFault, TxJob, World,
    defs::{mailbox, map},
};

const MESSAGE: u32 = 64 << 10;

/// Streams `left` messages to `target` once its mailbox is written.
struct Streamer {
    target: NodeId,
    left: u32,
    received: u64,
}

impl Streamer {
    fn next(&mut self, ctx: &mut FirmwareContext<'_>) {
        if self.left > 0 {
            self.left -= 1;
            let segments = vec![DmaSegment {
                address: 0,
                length: MESSAGE,
            }];
            let job = TxJob {
                destination: self.target,
                sequence: 0,
                header_address: 0,
                header_length: 48,
                segments,
                token: 0,
            };
            ctx.start_tx(job)
                .expect("the engine has just reported that it is idle");
        }
    }
}

impl Firmware for Streamer {
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, _: u32, _: u32) {
        self.next(ctx);
    }

    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        if let Some(payload) = header.payload {
            let segments = vec![DmaSegment {
                address: 0,
                length: MESSAGE,
            }];
            ctx.deposit(payload, Deposit { segments, token: 0 })
                .expect("it has just arrived");
        }
    }

    fn tx_done(&mut self, ctx: &mut FirmwareContext<'_>, _: u64, _: Result<(), TransferFault>) {
        self.next(ctx);
    }

    fn rx_done(&mut self, _: &mut FirmwareContext<'_>, _: u64, report: RxReport) {
        self.received += u64::from(report.deposited);
    }

    fn work(&mut self, _: &mut FirmwareContext<'_>) {}

    fn alarm(&mut self, _: &mut FirmwareContext<'_>, _: u64) {}
}

/// One memory of `MESSAGE` bytes that all nodes share.
struct Shared(Vec<u8>);

impl HostMemories for Shared {
    fn read(&mut self, _: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        buf.copy_from_slice(&self.0[address as usize..address as usize + buf.len()]);
        Ok(())
    }

    fn write(&mut self, _: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault> {
        self.0[address as usize..address as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib: u32 = std::env::args().nth(1).map_or(Ok(1), |arg| arg.parse())?;
    let topology = Topology::torus([8, 8, 8])?;
    let nodes = topology.nodes() as u16;
    // Two links in each dimension.
    let target = |NodeId(n): NodeId| {
        let shifted = [(n % 8 + 2) % 8, (n / 8 % 8 + 2) % 8, (n / 64 + 2) % 8];
        NodeId(shifted[0] + 8 * shifted[1] + 64 * shifted[2])
    };
    let mut world = World::new(Machine::named("xt4")?, topology, |node, _| Streamer {
        target: target(node),
        left: mib * (1 << 20) / MESSAGE,
        received: 0,
    });
    for node in 0..nodes {
        let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
        world
            .registers(NodeId(node), SimTime::ZERO)
            .write32(doorbell, 1);
        assert_eq!(
            world
                .registers(NodeId(node), SimTime::ZERO)
                .read32(map::NID),
            u32::from(node)
        );
    }
    let start = Instant::now();
    let mut events = 0u64;
    let mut memory = Shared(vec![0; MESSAGE as usize]);
    while world.step(&mut memory).is_some() {
        events += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    let received: u64 = (0..nodes)
        .filter_map(|n| world.firmware(NodeId(n)))
        .map(|f| f.received)
        .sum();
    println!(
        "{nodes} nodes, {received} bytes, {} of virtual time: {} packet-hops, {events} events",
        world.now(),
        world.packet_hops()
    );
    println!(
        "{seconds:.2} s: {:.2} M packet-hops/s, {:.2} M events/s",
        world.packet_hops() as f64 / seconds / 1e6,
        events as f64 / seconds / 1e6
    );
    Ok(())
}
