//! Faults: what goes wrong in a run, from a seed, from a script, or both.
//!
//! ```toml
//! seed = 7
//!
//! [rates]
//! link_bit_errors = 100      # of 10^12 bits on a link; caught by the link's CRC and sent again
//! lost_packets = 5           # of 10^9 packets on a link
//! corrupted_packets = 5      # of 10^9 packets in a router; caught by the CRC from end to end
//!
//! [[dead_link]]              # the cable, both directions
//! node = 3
//! port = "x+"
//! at_ns = 12_000
//!
//! [[dead_node]]
//! node = 5
//! at_ns = 20_000
//! router = true              # false: only its NIC; packets still pass through
//!
//! [[slow_dma]]
//! node = 1
//! from_ns = 0
//! until_ns = 50_000
//! percent = 25               # of the normal rate
//!
//! [[stalled_host]]
//! node = 2
//! from_ns = 10_000
//! until_ns = 30_000
//!
//! [[slow_link]]              # the cable, both directions
//! link = "(0,0,1) y+"        # by its place; node and port say the same by number, in each table of a link
//! from_ns = 0                # 0 unless said
//! until_ns = 50_000          # the end of the run unless said
//! percent = 25               # of the normal rate
//!
//! [[link_rates]]             # the cable, both directions, in place of [rates]
//! node = 6
//! port = "z-"
//! link_bit_errors = 1_000_000
//!
//! [[lost_packet]]            # the packet of this number, from 0, of all from source to destination
//! source = 0
//! destination = 1
//! packet = 17
//!
//! [[corrupted_packet]]
//! source = 0
//! destination = 1
//! packet = 3
//! ```
//!
//! # Invariants
//!
//! * What happens depends on the seed, the script and the model's own events alone: each draw is a
//!   function of the seed, a stream (a link and a kind of fault) and a counter of that stream.
//! * No float decides anything: a rate is compared as an integer with 64 drawn bits.
//! * A seed without rates and an empty script change nothing, not even a draw.

mod file;
mod random;

use thiserror::Error;

use crate::time::SimTime;
use crate::topology::{NodeId, Port, Topology};

pub(crate) use random::{SplitMix, draw, threshold};

/// Why a fault file, or a fault, is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// Not TOML, or an entry of the wrong shape or with an unknown key; the text names the line.
    #[error("fault file: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value that makes no sense.
    #[error("{}{what}", at_line(.line))]
    Value {
        /// Line of the file, from 1; `None` for a fault that was built by program.
        line: Option<usize>,
        /// The value and what is wanted.
        what: String,
    },
}

fn at_line(line: &Option<usize>) -> String {
    line.map_or_else(
        || "fault: ".to_owned(),
        |line| format!("fault file line {line}: "),
    )
}

/// One scripted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Both directions of a link are cut. Packets between pairs whose route changes, and that are
    /// in the network, are lost; later ones take a detour.
    DeadLink {
        /// A node at one end.
        node: NodeId,
        /// The link.
        port: Port,
        /// When.
        at: SimTime,
    },
    /// A node stops: its chip does nothing any more and throws away what it is sent.
    DeadNode {
        /// The node.
        node: NodeId,
        /// When.
        at: SimTime,
        /// Its router stops too, as if all its links were cut.
        router: bool,
    },
    /// DMA engines of a node are slow.
    SlowDma {
        /// The node.
        node: NodeId,
        /// First instant.
        from: SimTime,
        /// First instant after.
        until: SimTime,
        /// Of the normal rate.
        percent: u32,
    },
    /// Both directions of a link carry their flits more slowly.
    SlowLink {
        /// A node at one end.
        node: NodeId,
        /// The link.
        port: Port,
        /// First instant.
        from: SimTime,
        /// First instant after; [`SimTime::NEVER`]: to the end.
        until: SimTime,
        /// Of the normal rate.
        percent: u32,
    },
    /// Both directions of a link have rates of their own, in the whole run.
    LinkRates {
        /// A node at one end.
        node: NodeId,
        /// The link.
        port: Port,
        /// The rates.
        rates: LinkRates,
    },
    /// The host of a node executes nothing.
    StalledHost {
        /// The node.
        node: NodeId,
        /// First instant.
        from: SimTime,
        /// First instant after.
        until: SimTime,
    },
    /// A certain packet vanishes.
    LostPacket {
        /// Its source.
        source: NodeId,
        /// Its destination.
        destination: NodeId,
        /// Its number among those from source to destination, from 0.
        packet: u64,
    },
    /// A bit of a certain packet is wrong when it arrives.
    CorruptedPacket {
        /// Its source.
        source: NodeId,
        /// Its destination.
        destination: NodeId,
        /// Its number among those from source to destination, from 0.
        packet: u64,
    },
}

/// How often what goes wrong at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// Wrong bits of 10^12 on a link, at most 500,000,000. Each costs a retry, never a packet.
    pub link_bit_errors: u64,
    /// Lost packets of 10^9 on a link.
    pub lost_packets: u64,
    /// Corrupted packets of 10^9 on a link's router, unseen by the link's CRC.
    pub corrupted_packets: u64,
}

impl FaultRates {
    pub(crate) const BITS: u64 = 1_000_000_000_000;
    pub(crate) const PACKETS: u64 = 1_000_000_000;
    /// So that a packet passes a link with at worst every second try.
    const MAX_BIT_ERRORS: u64 = 500_000_000;

    pub(crate) fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// Rates of one link. What is not said is as on the other links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkRates {
    /// See [`FaultRates::link_bit_errors`].
    pub link_bit_errors: Option<u64>,
    /// See [`FaultRates::lost_packets`].
    pub lost_packets: Option<u64>,
    /// See [`FaultRates::corrupted_packets`].
    pub corrupted_packets: Option<u64>,
}

impl LinkRates {
    /// The link's rates on a machine whose others have `base`.
    pub(crate) fn over(self, base: FaultRates) -> FaultRates {
        let Self {
            link_bit_errors,
            lost_packets,
            corrupted_packets,
        } = self;
        FaultRates {
            link_bit_errors: link_bit_errors.unwrap_or(base.link_bit_errors),
            lost_packets: lost_packets.unwrap_or(base.lost_packets),
            corrupted_packets: corrupted_packets.unwrap_or(base.corrupted_packets),
        }
    }
}

/// What goes wrong in a run. The default is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Faults {
    seed: u64,
    rates: FaultRates,
    script: Vec<Scripted>,
}

/// A fault of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scripted {
    fault: Fault,
    /// Of the file, if it comes from one.
    line: Option<usize>,
    /// Where its link begins, if it is named so and no topology has said which node that is.
    at: Option<[u16; 3]>,
}

/// The node of a link that is named by its place, until a topology says which it is. No grid has it.
const UNPLACED: NodeId = NodeId(u16::MAX);

impl Faults {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Nothing goes wrong yet; random faults will be drawn from `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Draws random faults from `seed` instead.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Random faults at these rates.
    #[must_use]
    pub fn with_rates(mut self, rates: FaultRates) -> Self {
        self.rates = rates;
        self
    }

    /// One more scripted fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        let (line, at) = (None, None);
        self.script.push(Scripted { fault, line, at });
        self
    }

    /// The seed of the random faults.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The rates of the random faults.
    #[must_use]
    pub fn rates(&self) -> FaultRates {
        self.rates
    }

    /// The scripted faults, in the order of the script. A link that a file names by its place is of node 65,535 before
    /// [`Faults::resolved`].
    pub fn script(&self) -> impl Iterator<Item = &Fault> {
        self.script.iter().map(|scripted| &scripted.fault)
    }

    /// Whether nothing goes wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.script.is_empty() && !self.rates.any()
    }

    /// Looks whether all faults make sense, and are of nodes and links that exist.
    ///
    /// # Errors
    /// [`FaultsError::Value`] of the first that does not.
    pub fn check(&self, topology: &Topology) -> Result<(), FaultsError> {
        self.clone().resolved(topology).map(drop)
    }

    /// The same on `topology`: each link that is named by its place has the node that sits there.
    ///
    /// # Errors
    /// [`FaultsError::Value`] of the first fault that makes no sense, or is of a node or link that does not exist.
    pub fn resolved(mut self, topology: &Topology) -> Result<Self, FaultsError> {
        self.check_rates()?;
        for scripted in &mut self.script {
            let line = scripted.line;
            let checked = check_values(scripted.fault)
                .and_then(|()| scripted.resolve(topology))
                .and_then(|()| check_places(scripted.fault, topology));
            checked.map_err(|what| FaultsError::Value { line, what })?;
        }
        Ok(self)
    }

    fn check_rates(&self) -> Result<(), FaultsError> {
        check_rates("rates", self.rates).map_err(|what| FaultsError::Value { line: None, what })
    }

    /// Percent of its normal rate at which the link `port` of `node` runs at `now`; 100 unless a fault of either of its ends
    /// says less. Of several faults the worst counts.
    pub(crate) fn link_percent(
        &self,
        topology: &Topology,
        node: NodeId,
        port: Port,
        now: SimTime,
    ) -> u32 {
        let ends = [
            (node, port),
            (topology.neighbour(node, port), port.opposite()),
        ];
        self.script()
            .filter_map(|&fault| match fault {
                Fault::SlowLink {
                    node,
                    port,
                    from,
                    until,
                    percent,
                } if ends.contains(&(node, port)) && from <= now && now < until => Some(percent),
                _ => None,
            })
            .min()
            .unwrap_or(100)
    }

    /// Percent of their normal rate at which the DMA engines of `node` run at `now`; 100 unless a
    /// fault says less. Of several faults the worst counts.
    #[must_use]
    pub fn dma_percent(&self, node: NodeId, now: SimTime) -> u32 {
        self.script()
            .filter_map(|&fault| match fault {
                Fault::SlowDma {
                    node: slow,
                    from,
                    until,
                    percent,
                } if slow == node && from <= now && now < until => Some(percent),
                _ => None,
            })
            .min()
            .unwrap_or(100)
    }

    /// When the host of `node` executes again: `now` unless it is stalled.
    #[must_use]
    pub fn host_resumes(&self, node: NodeId, now: SimTime) -> SimTime {
        let mut at = now;
        // Stalls may overlap or follow one another in any order.
        loop {
            let later = self
                .script()
                .filter_map(|&fault| match fault {
                    Fault::StalledHost {
                        node: stalled,
                        from,
                        until,
                    } if stalled == node && from <= at && at < until => Some(until),
                    _ => None,
                })
                .max();
            match later {
                Some(until) => at = until,
                None => return at,
            }
        }
    }

    /// When `node` stops, if it does.
    #[must_use]
    pub fn node_dies(&self, node: NodeId) -> Option<SimTime> {
        self.script()
            .filter_map(|&fault| match fault {
                Fault::DeadNode { node: dead, at, .. } if dead == node => Some(at),
                _ => None,
            })
            .min()
    }

    /// Whether `node` has stopped at `now`.
    #[must_use]
    pub fn is_dead(&self, node: NodeId, now: SimTime) -> bool {
        self.node_dies(node).is_some_and(|at| at <= now)
    }
}

impl Scripted {
    /// Gives a link that is named by its place the node that sits there.
    fn resolve(&mut self, topology: &Topology) -> Result<(), String> {
        let Some(at) = self.at.take() else {
            return Ok(());
        };
        let there = topology.node_at_place(at);
        let [x, y, z] = at;
        let dims = topology.dims().map(|extent| extent.to_string()).join("x");
        let there =
            there.ok_or_else(|| format!("({x},{y},{z}) is no place of the grid of {dims}"))?;
        if let Fault::DeadLink { node, .. }
        | Fault::SlowLink { node, .. }
        | Fault::LinkRates { node, .. } = &mut self.fault
        {
            *node = there;
        }
        Ok(())
    }
}

/// Looks whether rates are possible; `key` is the table that has them.
fn check_rates(key: &str, rates: FaultRates) -> Result<(), String> {
    let FaultRates {
        link_bit_errors,
        lost_packets,
        corrupted_packets,
    } = rates;
    for (rate, value, max) in [
        (
            "link_bit_errors",
            link_bit_errors,
            FaultRates::MAX_BIT_ERRORS,
        ),
        ("lost_packets", lost_packets, FaultRates::PACKETS),
        ("corrupted_packets", corrupted_packets, FaultRates::PACKETS),
    ] {
        if value > max {
            return Err(format!("{key}.{rate} = {value}, want 0 to {max}"));
        }
    }
    Ok(())
}

fn check_values(fault: Fault) -> Result<(), String> {
    match fault {
        Fault::DeadLink {
            port: Port::Node, ..
        }
        | Fault::SlowLink {
            port: Port::Node, ..
        }
        | Fault::LinkRates {
            port: Port::Node, ..
        } => Err("port = \"node\" is not a link, want x+ to z-".to_owned()),
        Fault::SlowDma { percent, .. } | Fault::SlowLink { percent, .. }
            if !(1..=100).contains(&percent) =>
        {
            Err(format!("percent = {percent}, want 1 to 100"))
        }
        Fault::LinkRates { rates, .. } => {
            check_rates("link_rates", rates.over(FaultRates::default()))
        }
        Fault::SlowDma { from, until, .. }
        | Fault::SlowLink { from, until, .. }
        | Fault::StalledHost { from, until, .. }
            if from >= until =>
        {
            Err(format!(
                "until {until} is not after from {from}: the window is empty"
            ))
        }
        _ => Ok(()),
    }
}

fn check_places(fault: Fault, topology: &Topology) -> Result<(), String> {
    let exists = |node: NodeId| {
        if topology.contains(node) {
            Ok(())
        } else {
            let nodes = topology.nodes();
            Err(format!("node {node} is not one of the {nodes} nodes"))
        }
    };
    match fault {
        Fault::DeadLink { node, port, .. }
        | Fault::SlowLink { node, port, .. }
        | Fault::LinkRates { node, port, .. } => {
            exists(node)?;
            if topology.has_link(node, port) {
                Ok(())
            } else {
                let link = topology.link_name(node, port);
                Err(format!("node {node} has no link {link}"))
            }
        }
        Fault::DeadNode { node, .. }
        | Fault::SlowDma { node, .. }
        | Fault::StalledHost { node, .. } => exists(node),
        Fault::LostPacket {
            source,
            destination,
            ..
        }
        | Fault::CorruptedPacket {
            source,
            destination,
            ..
        } => exists(source).and_then(|()| exists(destination)),
    }
}

#[cfg(test)]
mod tests;

impl Fault {
    /// Where it happens, and what a timeline calls it.
    pub(crate) fn place(&self) -> (NodeId, &'static str) {
        match *self {
            Self::DeadLink { node, .. } => (node, "dead link"),
            Self::DeadNode { node, .. } => (node, "dead node"),
            Self::SlowDma { node, .. } => (node, "slow dma"),
            Self::SlowLink { node, .. } => (node, "slow link"),
            Self::LinkRates { node, .. } => (node, "link rates"),
            Self::StalledHost { node, .. } => (node, "stalled host"),
            Self::LostPacket { .. } => (NodeId(0), "lost packet"),
            Self::CorruptedPacket { .. } => (NodeId(0), "corrupted packet"),
        }
    }
}
