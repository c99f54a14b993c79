//! The table of links.

use std::collections::BTreeMap;
use std::io::Write;

use super::{Output, Record, Scene, Sink, What};
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Port, Topology};

#[derive(Debug, Default, Clone, Copy)]
struct Use {
    packets: u64,
    flits: u64,
    busy: SimDuration,
    first: Option<SimTime>,
    last: SimTime,
}

/// Writes a table of what each link and node port has carried, by its [`LinkName`](crate::LinkName) and the number of its node.
///
/// A link is busy while flits are on it: flits × the time of a flit, longer on a slow link. Its utilisation is that over
/// the time from the first to the last record of the world.
#[derive(Debug)]
pub struct LinkTable<W> {
    out: Output<W>,
    topology: Topology,
    uses: BTreeMap<(u16, u8), Use>,
    span: Option<(SimTime, SimTime)>,
}

impl<W: Write> LinkTable<W> {
    /// Writes to `to` at the end.
    pub fn new(to: W, scene: &Scene) -> Self {
        Self {
            out: Output::new(to),
            topology: scene.topology.clone(),
            uses: BTreeMap::new(),
            span: None,
        }
    }
}

impl<W: Write + Send> Sink for LinkTable<W> {
    fn record(&mut self, record: &Record<'_>) {
        let (first, last) = self.span.get_or_insert((record.time, record.time));
        *first = (*first).min(record.time);
        *last = (*last).max(record.time);
        if let What::Hop {
            port,
            from,
            flits,
            busy,
            ..
        } = record.what
        {
            let used = self.uses.entry((record.node.0, port as u8)).or_default();
            used.packets += 1;
            used.flits += flits;
            used.busy += busy;
            used.first.get_or_insert(from);
            used.last = record.time;
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        let (from, to) = self.span.unwrap_or_default();
        let span = to.since(from).0.max(1);
        let micros = |ps: u64| format!("{}.{:03}", ps / 1_000_000, ps / 1_000 % 1_000);
        let head = format!(
            "{:>14} {:>10} {:>12} {:>12} {:>7} {:>13} {:>13} {:>5}\n",
            "link", "packets", "bytes", "busy us", "in use", "first us", "last us", "node"
        );
        self.out.write(head.as_bytes());
        for (&(node, port), used) in &self.uses {
            let busy = used.busy.0;
            let permille = u128::from(busy) * 1000 / u128::from(span);
            let name = self
                .topology
                .link_name(NodeId(node), Port::from_index(port.into()));
            let name = name.to_string();
            let line = format!(
                "{name:>14} {:>10} {:>12} {:>12} {:>5}.{}% {:>13} {:>13} {node:>5}\n",
                used.packets,
                used.flits * 8,
                micros(busy),
                permille / 10,
                permille % 10,
                micros(used.first.unwrap_or_default().0),
                micros(used.last.0),
            );
            self.out.write(line.as_bytes());
        }
        let line = format!(
            "{} links and node ports in {} us\n",
            self.uses.len(),
            micros(span)
        );
        self.out.write(line.as_bytes());
        self.out.finish().map_err(|e| format!("links: {e}"))
    }
}
