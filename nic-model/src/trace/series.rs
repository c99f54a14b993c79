//! The loads of links over virtual time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use super::{Output, Record, Scene, Sink, What, micros, quoted};
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Port, Topology};

/// Bins kept at most. More than any machine has links and node ports, so that wider bins are always few enough.
const MOST: usize = 1 << 18;
/// Least width of a bin.
const LEAST: SimDuration = SimDuration::from_ns(1);

const _: () = assert!(MOST as u64 > Topology::MAX_NODES * 7);

/// A link and a bin of time.
type Key = (u16, u8, u64);

#[derive(Debug, Default, Clone, Copy)]
struct Bin {
    packets: u64,
    flits: u64,
    /// Picoseconds.
    busy: u64,
}

impl Bin {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.flits += other.flits;
        self.busy += other.busy;
    }
}

/// Writes what each link and node port has carried in each bin of virtual time: a flat array of JSON objects, one a line.
///
/// | key | value |
/// |---|---|
/// | `machine` | the modelled machine |
/// | `link` | [`LinkName`](crate::LinkName), such as `"(0,0,1) x+"` |
/// | `node`, `x`, `y`, `z`, `port` | the same in parts; `node` is the number |
/// | `from_us`, `width_us` | first instant and width of the bin, microseconds |
/// | `packets`, `bytes` | packets whose heads left in the bin; their flits of 8 bytes, those sent again included |
/// | `busy_us` | time in the bin with flits on the link |
/// | `busy` | the share of the bin's width, 0 to 1 |
///
/// Bins in which nothing was on a link are left out. Objects come by node, port and time. The sums over the bins of a link
/// are the totals of [`LinkTable`](super::LinkTable).
///
/// Memory is bounded: 262,144 bins are kept. Where a run has more, pairs of bins become one of twice the width, of all
/// links at once and as often as needed.
#[derive(Debug)]
pub struct LinkSeries<W> {
    out: Output<W>,
    topology: Topology,
    machine: String,
    /// Picoseconds.
    width: u64,
    most: usize,
    bins: BTreeMap<Key, Bin>,
}

impl<W: Write> LinkSeries<W> {
    /// Writes to `to` at the end, which should be buffered; bins are as wide as `width`, but at least 1 ns.
    pub fn new(to: W, scene: &Scene, width: SimDuration) -> Self {
        Self {
            out: Output::new(to),
            topology: scene.topology.clone(),
            machine: scene.machine.clone(),
            width: width.max(LEAST).as_ps(),
            most: MOST,
            bins: BTreeMap::new(),
        }
    }

    /// A packet was on a link.
    fn add(&mut self, node: NodeId, port: Port, from: SimTime, flits: u64, busy: SimDuration) {
        let (mut at, end) = (from.0, from.0 + busy.as_ps());
        let mut part = Bin {
            packets: 1,
            flits,
            busy: 0,
        };
        loop {
            let bin = at / self.width;
            let next = end.min((bin + 1).saturating_mul(self.width));
            part.busy = next - at;
            let key = (node.0, port as u8, bin);
            self.bins.entry(key).or_default().add(part);
            if next >= end {
                break;
            }
            (part, at) = (Bin::default(), next);
        }
        while self.bins.len() > self.most && self.width <= u64::MAX / 2 {
            self.widen();
        }
    }

    /// Makes bins twice as wide.
    fn widen(&mut self) {
        self.width *= 2;
        for ((node, port, bin), part) in std::mem::take(&mut self.bins) {
            let key = (node, port, bin / 2);
            self.bins.entry(key).or_default().add(part);
        }
    }

    /// The object of a bin.
    fn row(&self, (node, port, bin): Key, part: Bin) -> String {
        let (node, port) = (NodeId(node), Port::from_index(port.into()));
        let name = self.topology.link_name(node, port);
        let [x, y, z] = name.at;
        let share = u128::from(part.busy) * 1_000_000 / u128::from(self.width);
        let mut row = format!(
            r#"{{"machine":{},"link":"{name}","node":{node},"x":{x},"y":{y},"z":{z},"port":"{}""#,
            quoted(&self.machine),
            port.name()
        );
        let _ = write!(
            row,
            r#","from_us":{},"width_us":{},"packets":{},"bytes":{},"busy_us":{},"busy":{}}}"#,
            micros(bin * self.width),
            micros(self.width),
            part.packets,
            part.flits * 8,
            micros(part.busy),
            micros(share as u64),
        );
        row
    }
}

impl<W: Write + Send> Sink for LinkSeries<W> {
    fn record(&mut self, record: &Record<'_>) {
        if let What::Hop {
            port,
            from,
            flits,
            busy,
            ..
        } = record.what
        {
            self.add(record.node, port, from, flits, busy);
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        self.out.write(b"[");
        let mut before = "\n";
        for (key, part) in std::mem::take(&mut self.bins) {
            let row = self.row(key, part);
            self.out.write(before.as_bytes());
            self.out.write(row.as_bytes());
            before = ",\n";
        }
        self.out.write(b"\n]\n");
        self.out.finish().map_err(|e| format!("link series: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Machine;

    fn series(width_ps: u64, most: usize) -> LinkSeries<Vec<u8>> {
        let topology = Topology::torus([2, 1, 1]).unwrap();
        let scene = Scene::new(&Machine::named("xt4").unwrap(), &topology);
        let series = LinkSeries::new(Vec::new(), &scene, SimDuration(width_ps));
        LinkSeries { most, ..series }
    }

    fn written(mut series: LinkSeries<Vec<u8>>) -> String {
        series.finish().unwrap();
        String::from_utf8(series.out.to).unwrap()
    }

    #[test]
    fn a_packet_counts_where_its_head_left_and_is_busy_where_its_flits_were() {
        let mut series = series(10_000, MOST);
        let (from, busy) = (SimTime(8_000), SimDuration(27_000));
        series.add(NodeId(1), Port::XPlus, from, 9, busy);
        let row = |from: &str, packets: u8, bytes: u8, busy: &str, share: &str| {
            format!(
                r#"{{"machine":"xt4","link":"(1,0,0) x+","node":1,"x":1,"y":0,"z":0,"port":"x+","from_us":{from},"width_us":0.01,"packets":{packets},"bytes":{bytes},"busy_us":{busy},"busy":{share}}}"#
            )
        };
        let rows = [
            row("0", 1, 72, "0.002", "0.2"),
            row("0.01", 0, 0, "0.01", "1"),
            row("0.02", 0, 0, "0.01", "1"),
            row("0.03", 0, 0, "0.005", "0.5"),
        ];
        assert_eq!(written(series), format!("[\n{}\n]\n", rows.join(",\n")));
    }

    #[test]
    fn bins_that_are_too_many_become_wider_and_lose_nothing() {
        let mut series = series(1_000, 8);
        for n in 0..1_000 {
            let (node, from) = (NodeId(n % 2), SimTime(u64::from(n) * 50_000));
            series.add(node, Port::XMinus, from, 9, SimDuration(27_000));
        }
        assert!(series.bins.len() <= 8, "{} bins", series.bins.len());
        // 50 us in four bins of each of two links.
        assert_eq!(series.width, 1_000 << 14);
        let mut sum = Bin::default();
        for part in series.bins.values() {
            sum.add(*part);
        }
        let sums = (sum.packets, sum.flits, sum.busy);
        assert_eq!(sums, (1_000, 9_000, 27_000_000));
    }

    #[test]
    fn a_run_without_packets_is_an_empty_array() {
        assert_eq!(written(series(1, MOST)), "[\n]\n");
        assert_eq!(series(1, MOST).width, 1_000);
    }
}
