//! The loads of links over time, beside the counters of the world.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use nic_model::trace::{LinkSeries, LinkTable, Scene, Sink};
use nic_model::{
    Deposit, DmaSegment, Fault, FaultRates, Faults, Fidelity, Firmware, FirmwareContext, HostFault,
    HostMemories, Machine, NodeId, Options, Port, RegisterIo, RxHeader, RxReport, SimDuration,
    SimTime, Topology, TransferFault, TxJob, World, defs::mailbox,
};

/// Sends messages to other nodes one after the other, and takes what comes.
struct Sender(Vec<(NodeId, u32)>);

impl Sender {
    fn next(&mut self, ctx: &mut FirmwareContext<'_>) {
        let Some((destination, length)) = self.0.pop() else {
            return;
        };
        let job = TxJob {
            destination,
            sequence: 0,
            header_address: 0,
            header_length: 64,
            segments: vec![DmaSegment { address: 0, length }],
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
        if let Some(payload) = header.payload {
            let (address, length) = (0, 1 << 20);
            let segments = vec![DmaSegment { address, length }];
            let deposit = Deposit { segments, token: 0 };
            ctx.deposit(payload, deposit).expect("it has just arrived");
        }
    }

    fn tx_done(&mut self, ctx: &mut FirmwareContext<'_>, _: u64, _: Result<(), TransferFault>) {
        self.next(ctx);
    }

    fn rx_done(&mut self, _: &mut FirmwareContext<'_>, _: u64, _: RxReport) {}

    fn work(&mut self, _: &mut FirmwareContext<'_>) {}

    fn alarm(&mut self, _: &mut FirmwareContext<'_>, _: u64) {}
}

struct Memory;

impl HostMemories for Memory {
    fn read(&mut self, _: NodeId, _: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        buf.fill(0x5A);
        Ok(())
    }

    fn write(&mut self, _: NodeId, _: u64, _: &[u8]) -> Result<(), HostFault> {
        Ok(())
    }
}

/// A file that can be looked at afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// All nodes of a torus of 4 x 2 x 2 send 20,000 bytes to two others; the world, its series of bins of `bin` and its table.
fn traffic(faults: Faults, bin: SimDuration) -> (World<Sender>, String, String) {
    let options = Options {
        fidelity: Fidelity::Packet,
        faults,
    };
    let topology = Topology::torus([4, 2, 2]).unwrap();
    let machine = Machine::named("xt4").unwrap();
    let to = |node: NodeId| [5, 11].map(|way| (NodeId((node.0 + way) % 16), 20_000));
    let mut world = World::with_options(machine, topology, options, |node, _| {
        Sender(to(node).to_vec())
    })
    .unwrap();
    let (series, table) = (Shared::default(), Shared::default());
    let scene = Scene::new(world.machine(), world.topology());
    let sinks: Vec<Box<dyn Sink>> = vec![
        Box::new(LinkSeries::new(series.clone(), &scene, bin)),
        Box::new(LinkTable::new(table.clone(), &scene)),
    ];
    world.trace_to(Box::new(sinks));
    for node in (0..16).map(NodeId) {
        let mut registers = world.registers(node, SimTime::ZERO);
        registers.write32(mailbox::address(0, mailbox::COMMAND_WRITE), 1);
    }
    while world.step(&mut Memory).is_some() {}
    world.end_trace().unwrap();
    (world, series.text(), table.text())
}

/// Slow links that become sound and slow again under way, and links that send packets again.
fn faulty() -> Faults {
    let rates = FaultRates {
        link_bit_errors: 100_000_000,
        ..FaultRates::default()
    };
    let slow = |node, port, from: u64, until: u64, percent| Fault::SlowLink {
        node: NodeId(node),
        port,
        from: SimTime(from * 1_000),
        until: SimTime(until * 1_000),
        percent,
    };
    let mut faults = Faults::seeded(3).with_rates(rates);
    for n in 0..20 {
        let from = 1_000 + n * 1_510;
        faults = faults
            .with(slow(0, Port::XPlus, from, from + 700, 10))
            .with(slow(5, Port::YPlus, from, from + 900, 30));
    }
    faults
}

/// The number behind a key of an object.
fn number(row: &str, key: &str) -> f64 {
    let (_, rest) = row.split_once(&format!("\"{key}\":")).unwrap();
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

/// Picoseconds of a time that is written with them.
fn ps(row: &str, key: &str) -> u64 {
    (number(row, key) * 1e6).round() as u64
}

fn rows(series: &str) -> Vec<&str> {
    let inner = series.strip_prefix("[\n").unwrap();
    let inner = inner.strip_suffix("\n]\n").unwrap();
    inner.split(",\n").collect()
}

fn link(row: &str) -> &str {
    row.split('"').nth(7).unwrap()
}

#[test]
fn the_bins_of_a_link_sum_up_to_its_totals() {
    for faults in [Faults::none(), faulty()] {
        let (world, series, table) = traffic(faults, SimDuration::from_ns(250));
        let mut sums: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
        for row in rows(&series) {
            let sum = sums.entry(link(row)).or_default();
            let part = ["packets", "bytes"].map(|key| number(row, key) as u64);
            let part = [part[0], part[1], ps(row, "busy_us")];
            sum.iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part);
        }
        let mut seen = 0;
        for (node, port, stats) in world.links() {
            let name = world.topology().link_name(node, port).to_string();
            let expected = [stats.packets, stats.flits * 8, stats.busy.as_ps()];
            let found = sums.get(name.as_str()).copied().unwrap_or_default();
            assert_eq!(found, expected, "{name}");
            seen += usize::from(stats.packets > 0);
            let mut lines = table.lines();
            let line = lines.find(|line| line.trim_start().starts_with(&name));
            assert_eq!(line.is_some(), stats.packets > 0, "{name}");
            let cells: Vec<&str> = line.map_or(Vec::new(), |l| l.split_whitespace().collect());
            if let [_, _, packets, bytes, busy, .., of] = cells.as_slice() {
                let busy = busy.replace('.', "").parse::<u64>().unwrap();
                let cells = [packets.parse().unwrap(), bytes.parse().unwrap(), busy];
                assert_eq!(cells, [expected[0], expected[1], expected[2] / 1_000]);
                assert_eq!(of.parse(), Ok(node.0));
            }
        }
        assert_eq!(seen, sums.len(), "no other link");
        assert!(seen > 60, "{seen} links");
    }
}

#[test]
fn no_link_is_in_use_for_more_than_all_of_a_bin() {
    for faults in [Faults::none(), faulty()] {
        // Bins shorter than a packet show every overlap.
        let (_, series, _) = traffic(faults, SimDuration::from_ns(5));
        let rows = rows(&series);
        assert!(rows.len() > 10_000, "{} rows", rows.len());
        let mut full = 0;
        for row in rows {
            let share = number(row, "busy");
            assert!((0.0..=1.0).contains(&share), "{row}");
            assert!(ps(row, "busy_us") <= ps(row, "width_us"), "{row}");
            full += u32::from(share == 1.0);
        }
        assert!(full > 1_000, "{full} bins in use all the time");
    }
}

#[test]
fn bins_of_any_width_say_the_same_and_every_run_too() {
    let bin = SimDuration::from_ns(500);
    let (_, fine, _) = traffic(faulty(), SimDuration::from_ns(125));
    let (_, coarse, _) = traffic(faulty(), bin);
    assert_eq!(coarse, traffic(faulty(), bin).1);
    let mut sums: BTreeMap<(&str, u64), [u64; 3]> = BTreeMap::new();
    for row in rows(&fine) {
        let key = (link(row), ps(row, "from_us") / bin.as_ps());
        let sum = sums.entry(key).or_default();
        let part = [number(row, "packets"), number(row, "bytes")].map(|n| n as u64);
        let part = [part[0], part[1], ps(row, "busy_us")];
        sum.iter_mut()
            .zip(part)
            .for_each(|(sum, part)| *sum += part);
    }
    let coarse = rows(&coarse);
    assert_eq!(coarse.len(), sums.len());
    for row in coarse {
        let key = (link(row), ps(row, "from_us") / bin.as_ps());
        let found = [
            number(row, "packets") as u64,
            number(row, "bytes") as u64,
            ps(row, "busy_us"),
        ];
        assert_eq!(sums[&key], found, "{row}");
    }
}
