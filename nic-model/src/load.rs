//! Routers and links alone under a load: latency and accepted load against offered load, as studies of
//! interconnection networks show them.
//!
//! Sources are open: in each flit time of a link every node creates a packet with the same probability, and the packet
//! waits at its source until the node port has room. Receivers take packets at once, so that no engine, firmware or host
//! is in the figures. Every packet is a full one of 9 flits.
//!
//! Loads are in flits for each node and flit time of a link: at 1 a node port is busy all the time.

use std::collections::VecDeque;

use crate::defs::packet::{PACKET_FLITS, PACKET_PAYLOAD, PacketHeader, kind, vc};
use crate::faults::{Faults, SplitMix, threshold};
use crate::network::{Fidelity, Network};
use crate::params::Machine;
use crate::queue::{Event, EventQueue};
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Topology};

/// Where the packets of each node go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Each node is as likely as any other, the source itself included.
    Uniform,
    /// As far as a ring allows without a tie: `ceil(k / 2) - 1` links plus in each dimension of `k` nodes.
    Tornado,
    /// As [`Pattern::Uniform`], but node 0 is four times as likely as each other node.
    HotSpot,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Tornado, Self::HotSpot];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Tornado => "tornado",
            Self::HotSpot => "hot spot",
        }
    }

    /// How often `source` sends to each node, in relation to the others.
    fn weights(self, topology: &Topology, source: NodeId) -> Vec<u64> {
        let mut weights = vec![1; topology.nodes()];
        match self {
            Self::Uniform => {}
            Self::HotSpot => weights[0] = 4,
            Self::Tornado => {
                let (dims, mut to) = (topology.dims(), topology.coordinates(source));
                for (at, extent) in to.iter_mut().zip(dims) {
                    *at = (*at + extent.div_ceil(2) - 1) % extent;
                }
                weights.fill(0);
                weights[topology.node_at(to).index()] = 1;
            }
        }
        weights
    }
}

/// What is offered, and for how long it is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Where packets go.
    pub pattern: Pattern,
    /// Thousandths of a flit for each node and flit time, up to 1000.
    pub per_mille: u32,
    /// Flit times before anything counts.
    pub warm_up: u32,
    /// Flit times in which deliveries are counted, and whose packets are timed.
    pub window: u32,
    /// Of the random numbers.
    pub seed: u64,
}

/// What became of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Carried {
    /// Mean time from a packet's creation until its tail is through the node port of its destination. `None` when packets
    /// of the window were still on their way a whole window later.
    pub latency: Option<SimDuration>,
    /// Flits created for each node and flit time of the window. It is what was asked for but for chance.
    pub offered: f64,
    /// Flits delivered for each node and flit time of the window.
    pub accepted: f64,
}

impl Carried {
    /// Whether the network falls behind what is offered. The mean latency then says how long the window was.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.latency.is_none() || self.accepted < 0.97 * self.offered
    }
}

/// What no network of these links can do better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Greatest load that the busiest channel of the routes can carry, node ports included.
    pub accepted: f64,
    /// Mean latency of packets that meet no other.
    pub latency: SimDuration,
}

/// The bounds of `pattern` on the routes that the machine has.
///
/// ```
/// use nic_model::{Machine, Topology, load::{Pattern, bounds}};
///
/// let ring = Topology::torus([8, 1, 1])?;
/// let machine = Machine::named("xt4")?;
/// // Three links plus of each node: a link carries what three nodes send.
/// let tornado = bounds(&machine, &ring, Pattern::Tornado);
/// assert!((tornado.accepted - 1.0 / 3.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn bounds(machine: &Machine, topology: &Topology, pattern: Pattern) -> Bounds {
    let mut network = idle(machine, topology);
    let nodes = topology.nodes();
    // Six links and the way into the node; the way out of a node carries what it sends.
    let mut loads = vec![0.0; nodes * 7];
    let mut links = 0.0;
    for source in nodes_of(topology) {
        let weights = pattern.weights(topology, source);
        let all = weights.iter().sum::<u64>() as f64;
        for (destination, &weight) in weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0)
        {
            let share = weight as f64 / all;
            loads[destination * 7 + 6] += share;
            let path = network.path(source, NodeId(destination as u16));
            for (node, port) in path.into_iter().flatten() {
                loads[node.index() * 7 + port.index()] += share;
                links += share / nodes as f64;
            }
        }
    }
    let busiest = loads.into_iter().fold(1.0, f64::max);
    let params = &machine.network;
    let link = params.router_hop + params.link_wire;
    let last = params.router_hop + machine.flit_wire_time() * PACKET_FLITS;
    Bounds {
        accepted: 1.0 / busiest,
        latency: SimDuration((links * link.as_ps() as f64).round() as u64 + last.as_ps()),
    }
}

/// Offers `load` to the network of `machine`, packet by packet. The same arguments give the same result.
///
/// ```
/// use nic_model::{Machine, Topology, load::{Load, Pattern, carry}};
///
/// let ring = Topology::torus([8, 1, 1])?;
/// let load = Load { pattern: Pattern::Tornado, per_mille: 100, warm_up: 1_000, window: 5_000, seed: 1 };
/// let carried = carry(&Machine::named("xt4")?, &ring, &load);
/// assert!((carried.accepted - 0.1).abs() < 0.02);
/// // Three links and four routers: at least 242 ns.
/// assert!(carried.latency.is_some_and(|l| (242..400).contains(&l.as_ns())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn carry(machine: &Machine, topology: &Topology, load: &Load) -> Carried {
    let mut bench = Bench::new(machine, topology, load);
    let (begin, end) = (load.warm_up, load.warm_up + load.window);
    let mut tick = 0;
    while tick < end || bench.timed_in_flight > 0 && tick < end + load.window {
        bench.tick((begin..end).contains(&tick));
        tick += 1;
    }
    let offers = topology.nodes() as f64 * f64::from(load.window);
    let timed = bench.timed - bench.timed_in_flight;
    Carried {
        latency: (bench.timed_in_flight == 0).then(|| SimDuration(bench.latency / timed.max(1))),
        offered: bench.timed as f64 * PACKET_FLITS as f64 / offers,
        accepted: bench.counted as f64 * PACKET_FLITS as f64 / offers,
    }
}

fn nodes_of(topology: &Topology) -> impl Iterator<Item = NodeId> + use<> {
    (0..topology.nodes()).map(|node| NodeId(node as u16))
}

fn idle(machine: &Machine, topology: &Topology) -> Network {
    Network::new(machine, topology.clone(), Fidelity::Packet, &Faults::none())
        .expect("only faults are refused, and there are none")
}

/// A packet that its source has created.
#[derive(Debug, Clone, Copy)]
struct Created {
    at: SimTime,
    to: NodeId,
    timed: bool,
}

/// A node that sends.
#[derive(Debug)]
struct Source {
    /// Sums of the weights up to each destination.
    sums: Vec<u64>,
    waiting: VecDeque<Created>,
}

/// The network with its sources and receivers.
struct Bench {
    network: Network,
    queue: EventQueue,
    sources: Vec<Source>,
    random: SplitMix,
    /// A draw below creates a packet.
    threshold: u64,
    flit: SimDuration,
    now: SimTime,
    /// Deliveries are counted.
    counting: bool,
    counted: u64,
    timed: u64,
    timed_in_flight: u64,
    /// Sum over the timed packets that were delivered, picoseconds.
    latency: u64,
}

impl Bench {
    fn new(machine: &Machine, topology: &Topology, load: &Load) -> Self {
        let sums = |source| {
            let weights = load.pattern.weights(topology, source).into_iter();
            let sum = |sum: &mut u64, weight| {
                *sum += weight;
                Some(*sum)
            };
            weights.scan(0, sum).collect()
        };
        let source = |node| Source {
            sums: sums(node),
            waiting: VecDeque::new(),
        };
        Self {
            network: idle(machine, topology),
            queue: EventQueue::default(),
            sources: nodes_of(topology).map(source).collect(),
            random: SplitMix::new(load.seed),
            threshold: threshold(load.per_mille.min(1_000).into(), 1_000 * PACKET_FLITS),
            flit: machine.flit_wire_time(),
            now: SimTime::ZERO,
            counting: false,
            counted: 0,
            timed: 0,
            timed_in_flight: 0,
            latency: 0,
        }
    }

    /// One flit time: what is due happens, and sources create packets.
    fn tick(&mut self, counting: bool) {
        self.counting = counting;
        let end = self.now + self.flit;
        for node in 0..self.sources.len() {
            if self.random.next() < self.threshold {
                self.create(node);
            }
        }
        while self.queue.next_time().is_some_and(|at| at < end) {
            self.step();
        }
        self.now = end;
    }

    fn create(&mut self, node: usize) {
        let sums = &self.sources[node].sums;
        let drawn = self.random.below(sums.last().copied().unwrap_or(1));
        let to = NodeId(sums.partition_point(|&sum| sum <= drawn) as u16);
        let (at, timed) = (self.now, self.counting);
        self.sources[node]
            .waiting
            .push_back(Created { at, to, timed });
        self.timed += u64::from(timed);
        self.timed_in_flight += u64::from(timed);
        self.feed(node);
    }

    /// Injects whatever the node port has room for.
    fn feed(&mut self, node: usize) {
        while let Some(&packet) = self.sources[node].waiting.front() {
            let source = NodeId(node as u16);
            if !self.network.room(source, false, PACKET_PAYLOAD) {
                return;
            }
            self.sources[node].waiting.pop_front();
            let mut header = PacketHeader(0);
            header.set_source(source.0);
            header.set_destination(packet.to.0);
            header.set_kind(kind::PAYLOAD);
            header.set_vc(vc::REQUEST);
            let mut payload = [0; PACKET_PAYLOAD];
            payload[..8].copy_from_slice(&packet.at.as_ps().to_le_bytes());
            payload[8] = packet.timed.into();
            let sent = self
                .network
                .inject(&mut self.queue, self.now, header, false, &payload);
            debug_assert!(sent.is_ok(), "no link is dead");
        }
    }

    fn step(&mut self) {
        let Some((now, event)) = self.queue.pop() else {
            return;
        };
        self.now = now;
        let (network, queue) = (&mut self.network, &mut self.queue);
        match event {
            Event::Router {
                node,
                input,
                packet,
            } => network.route(queue, now, node, input, packet),
            Event::Output { node, port } => network.wake_output(queue, now, node, port),
            Event::Delivered { packet, .. } => self.take(packet),
            Event::TxStep { node } => self.feed(node.index()),
            // No other part of the chip is there.
            _ => {}
        }
        self.network.settle(&mut self.queue, now);
    }

    fn take(&mut self, packet: u32) {
        if !self.network.arrive(packet) {
            return;
        }
        self.counted += u64::from(self.counting);
        let payload = self.network.payload(packet);
        if payload[8] != 0 {
            let mut at = [0; 8];
            at.copy_from_slice(&payload[..8]);
            self.latency += self.now.since(SimTime(u64::from_le_bytes(at))).as_ps();
            self.timed_in_flight -= 1;
        }
        self.network.remove(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(tie_break: u32) -> (Machine, Topology) {
        let machine = Machine::named("xt4").unwrap();
        let machine = machine.with("network.tie_break", tie_break.into()).unwrap();
        (machine, Topology::torus([8, 8, 1]).unwrap())
    }

    fn load(pattern: Pattern, per_mille: u32) -> Load {
        Load {
            pattern,
            per_mille,
            warm_up: 2_000,
            window: 4_000,
            seed: 1,
        }
    }

    #[test]
    fn bounds_are_those_of_the_books() {
        let bound = |tie_break, pattern| {
            let (machine, topology) = square(tie_break);
            bounds(&machine, &topology, pattern).accepted
        };
        for (tie_break, pattern, expected) in [
            // 8 / k with both directions alike; ties that all go plus cost a fifth.
            (1, Pattern::Uniform, 1.0),
            (0, Pattern::Uniform, 0.8),
            (1, Pattern::Tornado, 1.0 / 3.0),
            // 64 sources, a share of 4 in 67.
            (1, Pattern::HotSpot, 67.0 / 256.0),
        ] {
            let found = bound(tie_break, pattern);
            assert!((found - expected).abs() < 1e-9, "{pattern:?}: {found}");
        }
        let (machine, topology) = square(1);
        // Six links of 55 ns, a router of 50, 9 flits of 3.
        let tornado = bounds(&machine, &topology, Pattern::Tornado);
        assert_eq!(tornado.latency, SimDuration::from_ns(6 * 55 + 50 + 27));
    }

    #[test]
    fn a_small_load_is_carried_at_the_latency_of_an_empty_network() {
        let (machine, topology) = square(1);
        for pattern in Pattern::ALL {
            let carried = carry(&machine, &topology, &load(pattern, 10));
            let least = bounds(&machine, &topology, pattern).latency.as_ns() as f64;
            let found = carried.latency.unwrap().as_ns() as f64;
            assert!(
                (0.95..1.05).contains(&(found / least)),
                "{pattern:?}: {found}, {least}"
            );
        }
    }

    #[test]
    fn no_load_is_carried_beyond_the_bound() {
        let (machine, topology) = square(1);
        for pattern in Pattern::ALL {
            let most = bounds(&machine, &topology, pattern).accepted;
            let carried = carry(&machine, &topology, &load(pattern, 1_000));
            assert!(carried.is_saturated(), "{pattern:?}: {carried:?}");
            assert!(carried.accepted <= most * 1.01, "{pattern:?}: {carried:?}");
            assert!(carried.accepted > most / 2.0, "{pattern:?}: {carried:?}");
        }
    }

    #[test]
    fn balanced_ties_carry_more_uniform_load() {
        let carried = |tie_break| {
            let (machine, topology) = square(tie_break);
            carry(&machine, &topology, &load(Pattern::Uniform, 1_000)).accepted
        };
        let (plus, parity) = (carried(0), carried(1));
        assert!(parity > 1.05 * plus, "{plus}, {parity}");
    }
}
