//! How many packet-hops a second the model simulates here:
//! `cargo run --release -p nic-model --example packet_hops [load|idle|put] [packet|message] [KiB per node]`.
//!
//! `load`: every node of an 8 x 8 x 8 torus streams to a node 6 links away, so that every link is
//! wanted by twice what it carries. `idle`: one node streams to one 12 links away. `put`: one node
//! sends to its neighbour. A firmware of a few lines deposits whatever comes. `valgrind --tool=callgrind` on it gives the instructions,
//! which do not depend on what else the machine does.

use std::time::Instant;

use nic_model::{
    Deposit, DmaSegment, Fidelity, Firmware, FirmwareContext, HostFault, HostMemories, Machine,
    NodeId, Options, RegisterIo, RxHeader, RxReport, SimTime, Topology, TransferFault, TxJob,
    World,
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
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |word: &str| {
        let before = args.len();
        args.retain(|arg| arg != word);
        args.len() < before
    };
    let put = flag("put");
    let idle = (flag("idle") | put) & !flag("load");
    let fidelity = match flag("message") & !flag("packet") {
        true => Fidelity::Message,
        false => Fidelity::Packet,
    };
    let kib: u32 = args.first().map_or(Ok(512), |arg| arg.parse())?;
    let topology = Topology::torus([8, 8, 8])?;
    let nodes = topology.nodes() as u16;
    let links = if idle { 4 } else { 2 };
    let target = |NodeId(n): NodeId| {
        if put {
            return NodeId(n ^ 1);
        }
        let shifted = [n % 8, n / 8 % 8, n / 64].map(|at| (at + links) % 8);
        NodeId(shifted[0] + 8 * shifted[1] + 64 * shifted[2])
    };
    let options = Options {
        fidelity,
        ..Options::default()
    };
    let firmware = |node: NodeId, _: &Machine| Streamer {
        target: target(node),
        left: if idle && node.0 > 0 {
            0
        } else {
            (kib << 10).div_ceil(MESSAGE)
        },
        received: 0,
    };
    let mut world = World::with_options(Machine::named("xt4")?, topology, options, firmware)?;
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
