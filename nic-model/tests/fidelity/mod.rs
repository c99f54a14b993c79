//! The same traffic packet by packet and by message.

use std::fmt::Write;

use nic_model::{
    Deposit, DmaSegment, Fidelity, Firmware, FirmwareContext, HostFault, HostMemories, Machine,
    NodeId, Options, RegisterIo, RxHeader, RxReport, SimTime, Topology, TransferFault, TxJob,
    World, defs::mailbox,
};

const MEMORY: u32 = 1 << 20;
const SIDE: u16 = 4;

/// Sends its messages, oldest last, once its mailbox is written; deposits what comes.
struct Sender {
    to_send: Vec<(NodeId, u32)>,
    /// When each message had come.
    done: Vec<SimTime>,
}

impl Sender {
    fn next(&mut self, ctx: &mut FirmwareContext<'_>) {
        let Some((destination, length)) = self.to_send.pop() else {
            return;
        };
        let segments = match length {
            0 => Vec::new(),
            length => vec![DmaSegment { address: 0, length }],
        };
        let job = TxJob {
            destination,
            sequence: 0,
            header_address: 0,
            header_length: 64,
            segments,
            token: 0,
        };
        ctx.start_tx(job).expect("the engine is idle");
    }
}

impl Firmware for Sender {
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, _: u32, _: u32) {
        self.next(ctx);
    }

    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        let Some(payload) = header.payload else {
            self.done.push(ctx.now());
            return;
        };
        let segments = vec![DmaSegment {
            address: 0,
            length: MEMORY,
        }];
        ctx.deposit(payload, Deposit { segments, token: 0 })
            .expect("it has just arrived");
    }

    fn tx_done(&mut self, ctx: &mut FirmwareContext<'_>, _: u64, _: Result<(), TransferFault>) {
        self.next(ctx);
    }

    fn rx_done(&mut self, ctx: &mut FirmwareContext<'_>, _: u64, report: RxReport) {
        assert_eq!(report.fault, None);
        self.done.push(ctx.now());
    }

    fn work(&mut self, _: &mut FirmwareContext<'_>) {}

    fn alarm(&mut self, _: &mut FirmwareContext<'_>, _: u64) {}
}

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

/// A small generator of random numbers (xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// The end of the name of a pattern of many messages.
const MANY: &str = ", many";

/// The messages of `node` in a pattern.
fn messages(pattern: &str, node: u16, length: u32) -> Vec<(NodeId, u32)> {
    let nodes = SIDE * SIDE * SIDE;
    let at = [node % SIDE, node / SIDE % SIDE, node / SIDE / SIDE];
    let shift = |by: [u16; 3]| {
        let to: Vec<u16> = (0..3).map(|d| (at[d] + by[d]) % SIDE).collect();
        NodeId(to[0] + SIDE * (to[1] + SIDE * to[2]))
    };
    let mut state = u64::from(node) * 7919 + 1;
    // So many that the network is saturated for most of the run.
    let (pattern, long) = match pattern.strip_suffix(MANY) {
        Some(pattern) => (pattern, 30),
        None => (pattern, 6),
    };
    let count = if length < 1 << 10 { 40 } else { long };
    (0..count)
        .map(|n: u16| match pattern {
            "one pair" => (node == 0).then_some(NodeId(21)),
            "neighbour" => Some(shift([1, 0, 0])),
            "shift 2,2,2" => Some(shift([2, 2, 2])),
            "random" => Some(NodeId((random(&mut state) % u64::from(nodes)) as u16)),
            // Node 0 is four times as likely as any other.
            "hot spot" => {
                let drawn = random(&mut state) % u64::from(nodes + 3);
                Some(NodeId(drawn.saturating_sub(3) as u16))
            }
            "all to all" => Some(NodeId((node + 1 + n * 11) % nodes)),
            _ => (node != 0).then_some(NodeId(0)),
        })
        .filter_map(|to| Some((to?, length)))
        .collect()
}

/// What a run gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// When the last message was complete, in picoseconds.
    pub(crate) last: u64,
    /// When a message was complete, on the average.
    pub(crate) mean: u64,
    /// Events.
    pub(crate) events: u64,
}

/// Runs a pattern.
pub(crate) fn run(pattern: &str, length: u32, fidelity: Fidelity) -> Outcome {
    let topology = Topology::torus([SIDE; 3]).expect("it is small");
    let nodes = topology.nodes() as u16;
    let options = Options {
        fidelity,
        ..Options::default()
    };
    let firmware = |node: NodeId, _: &Machine| Sender {
        to_send: messages(pattern, node.0, length),
        done: Vec::new(),
    };
    let machine = Machine::named("xt4").expect("it is built in");
    let mut world =
        World::with_options(machine, topology, options, firmware).expect("there are no faults");
    for node in 0..nodes {
        let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
        let mut registers = world.registers(NodeId(node), SimTime::ZERO);
        registers.write32(doorbell, 1);
    }
    let mut memory = Shared(vec![0; MEMORY as usize]);
    let mut events = 0;
    while world.step(&mut memory).is_some() {
        events += 1;
    }
    let mut done = Vec::new();
    let mut sent = 0;
    for node in 0..nodes {
        sent += messages(pattern, node, length).len();
        let firmware = world.firmware(NodeId(node)).expect("it is a node");
        done.extend(firmware.done.iter().map(|time| time.as_ps()));
    }
    assert_eq!(done.len(), sent, "{pattern} {length}");
    Outcome {
        last: done.iter().copied().max().unwrap_or(0),
        mean: done.iter().sum::<u64>() / done.len() as u64,
        events,
    }
}

/// The patterns, and the greatest error in percent, of `last` and of `mean`, that messages
/// instead of packets may make: little where flows do not meet, more where they share links.
#[allow(dead_code, reason = "not every user of this file compares")]
pub(crate) const PATTERNS: [(&str, i64); 8] = [
    ("one pair", 1),
    ("neighbour", 1),
    ("shift 2,2,2", 30),
    ("random", 30),
    ("all to all", 25),
    ("all to one", 15),
    ("random, many", 35),
    ("hot spot, many", 50),
];

/// Payloads that are compared.
#[allow(dead_code, reason = "not every user of this file compares")]
pub(crate) const LENGTHS: [u32; 4] = [0, 512, 4_096, 65_536];

/// How much `coarse` differs from `fine`, in thousandths.
#[allow(dead_code, reason = "not every user of this file compares")]
pub(crate) fn error(fine: u64, coarse: u64) -> i64 {
    (coarse as i64 - fine as i64) * 1_000 / fine as i64
}

/// All comparisons.
#[allow(dead_code, reason = "not every user of this file prints")]
pub(crate) fn table() -> String {
    let mut table = String::from(
        "pattern           bytes   packets: last   mean  messages: error of last   mean    events saved\n",
    );
    for (pattern, _) in PATTERNS {
        for length in LENGTHS {
            let fine = run(pattern, length, Fidelity::Packet);
            let coarse = run(pattern, length, Fidelity::Message);
            let [last, mean] = [error(fine.last, coarse.last), error(fine.mean, coarse.mean)]
                .map(|e| e as f64 / 10.0);
            writeln!(
                table,
                "{pattern:14} {length:8} {:9} ns {:9} ns {last:+12.1} % {mean:+9.1} % {:9} to {}",
                fine.last / 1_000,
                fine.mean / 1_000,
                fine.events,
                coarse.events
            )
            .expect("a string takes it");
        }
    }
    table
}
