//! The world: all chips, their firmwares and the network between them, in virtual time.

use std::fmt;

use crate::chip::WriteEffect;
use crate::defs::niccb::{Counter, crash};
use crate::fabric::Fabric;
use crate::faults::{Faults, FaultsError};
use crate::firmware::{Firmware, FirmwareContext, deliver};
use crate::host::{HostMemories, RegisterIo};
use crate::network::{Fidelity, LinkStats, NetworkStats};
use crate::params::Machine;
use crate::queue::Event;
use crate::time::SimTime;
use crate::topology::{NodeId, Port, Topology};
use crate::trace::{Sink, What};
use crate::transfer::Upcall;

/// The kind of an event that [`World::step`] has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// A packet went through a router.
    Router,
    /// An output of a router had its occasion to send a packet that waited.
    Output,
    /// A packet came through a node port.
    Delivered,
    /// The transmit engine fetched a header or a burst.
    Transmit,
    /// The receive engine consumed a packet.
    Receive,
    /// A doorbell reached the chip.
    Doorbell,
    /// The embedded processor finished a piece of work.
    Work,
    /// A timer of the firmware ran out.
    Alarm,
    /// A write of the firmware reached host memory.
    HostWrite,
    /// An interrupt reached the host.
    Interrupt,
    /// The RAS controllers found that a node's heartbeat had stopped.
    NodeFailed,
}

/// One processed event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub time: SimTime,
    /// Where.
    pub node: NodeId,
    /// What.
    pub kind: StepKind,
}

/// What a world is besides machine and shape.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How exactly the network is simulated.
    pub fidelity: Fidelity,
    /// What goes wrong.
    pub faults: Faults,
}

/// All chips of a machine with firmware `F` on each, and the network.
///
/// Single-threaded and deterministic: the same calls give the same events. Nothing happens but
/// in [`World::step`].
pub struct World<F> {
    pub(crate) fabric: Fabric,
    firmware: Vec<F>,
}

impl<F> fmt::Debug for World<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.fabric.now)
            .field("nodes", &self.fabric.chips.len())
            .finish_non_exhaustive()
    }
}

impl<F: Firmware> World<F> {
    /// A machine at time zero, with one firmware for each node.
    pub fn new(
        machine: Machine,
        topology: Topology,
        firmware: impl FnMut(NodeId, &Machine) -> F,
    ) -> Self {
        Self::with_options(machine, topology, Options::default(), firmware)
            .expect("only faults are refused, and there are none")
    }

    /// A world with another network, or with faults; see [`World::new`].
    ///
    /// # Errors
    /// [`FaultsError`] when a fault makes no sense, or is of a node or link that is not there.
    pub fn with_options(
        machine: Machine,
        topology: Topology,
        options: Options,
        mut firmware: impl FnMut(NodeId, &Machine) -> F,
    ) -> Result<Self, FaultsError> {
        let fabric = Fabric::new(machine, topology, options.fidelity, options.faults)?;
        let firmware = (0..fabric.chips.len())
            .map(|n| firmware(NodeId(n as u16), &fabric.machine))
            .collect();
        Ok(Self { fabric, firmware })
    }

    /// Has `sink` told of everything from now on.
    pub fn trace_to(&mut self, sink: Box<dyn Sink>) {
        let nodes = self.fabric.chips.len();
        self.fabric.trace.start(sink, &self.fabric.machine, nodes);
        self.fabric.network.watch();
    }

    /// Whether somebody is told.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.fabric.trace.is_on()
    }

    /// Tells the sink of something that happened at a host.
    pub fn trace(&mut self, time: SimTime, node: NodeId, what: What<'_>) {
        self.fabric.trace.note(time, node, what);
    }

    /// Ends the trace; the sink is dropped.
    ///
    /// # Errors
    /// What the sink could not do, in one line.
    pub fn end_trace(&mut self) -> Result<(), String> {
        self.fabric.trace.finish()
    }

    /// When the last processed event happened.
    #[must_use]
    pub fn now(&self) -> SimTime {
        self.fabric.now
    }

    /// The machine's parameters.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.fabric.machine
    }

    /// The network's shape.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.fabric.network.topology
    }

    /// The firmware of `node`.
    #[must_use]
    pub fn firmware(&self, node: NodeId) -> Option<&F> {
        self.firmware.get(node.index())
    }

    /// The firmware of `node`, to take out of it what it has put down for its host.
    pub fn firmware_mut(&mut self, node: NodeId) -> Option<&mut F> {
        self.firmware.get_mut(node.index())
    }

    /// A counter of `node`, read without a register access; zero for a node that is not there.
    #[must_use]
    pub fn counter(&self, node: NodeId, counter: Counter) -> u32 {
        self.fabric
            .chips
            .get(node.index())
            .map_or(0, |chip| chip.counter(counter))
    }

    /// Routers crossed by all packets so far.
    #[must_use]
    pub fn packet_hops(&self) -> u64 {
        self.fabric.network.stats().hops
    }

    /// What the network has counted.
    #[must_use]
    pub fn network_stats(&self) -> NetworkStats {
        self.fabric.network.stats()
    }

    /// What the output `port` of the router of `node` has done; `None` if there is no such link.
    #[must_use]
    pub fn link(&self, node: NodeId, port: Port) -> Option<LinkStats> {
        self.fabric.network.link(node, port)
    }

    /// All links and node ports, by node and port.
    pub fn links(&self) -> impl Iterator<Item = (NodeId, Port, LinkStats)> {
        let nodes = (0..self.topology().nodes()).map(|n| NodeId(n as u16));
        nodes.flat_map(move |node| {
            (0..7)
                .map(Port::from_index)
                .filter_map(move |port| Some((node, port, self.link(node, port)?)))
        })
    }

    /// Most flits that ever waited between the transmit engine of `node` and its router.
    #[must_use]
    pub fn injection_high_water(&self, node: NodeId) -> u32 {
        self.fabric.network.injection_high_water(node)
    }

    /// How exactly the network is simulated.
    #[must_use]
    pub fn fidelity(&self) -> Fidelity {
        self.fabric.network.fidelity()
    }

    /// What goes wrong in this world.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.fabric.faults
    }

    /// Whether packets from `source` have a way to `destination`.
    pub fn is_reachable(&mut self, source: NodeId, destination: NodeId) -> bool {
        self.fabric.network.is_reachable(source, destination)
    }

    /// The links that packets from `source` to `destination` take; `None` if there is no way.
    pub fn path(&mut self, source: NodeId, destination: NodeId) -> Option<Vec<(NodeId, Port)>> {
        self.fabric.network.path(source, destination)
    }

    /// Packets in links, routers and node ports.
    #[must_use]
    pub fn packets_in_flight(&self) -> usize {
        self.fabric.network.packets_in_flight()
    }

    /// When the next event happens; `None` when the world is at rest.
    #[must_use]
    pub fn next_event_time(&self) -> Option<SimTime> {
        self.fabric.queue.next_time()
    }

    /// Processes exactly one event. `None` when the world is at rest.
    pub fn step(&mut self, memory: &mut dyn HostMemories) -> Option<Step> {
        if !self.fabric.edges.is_empty() {
            self.fabric.handle_faults();
        }
        let (time, event) = self.fabric.queue.pop()?;
        self.fabric.now = time;
        if self.fabric.trace.is_on() {
            self.fabric
                .trace
                .event(time, &event, &self.fabric.network, &self.fabric.posted);
        }
        let fabric = &mut self.fabric;
        let (node, kind) = match event {
            Event::Router {
                node,
                input,
                packet,
            } => {
                let queue = &mut fabric.queue;
                fabric.network.route(queue, time, node, input, packet);
                fabric.trace.incidents(time, &mut fabric.network);
                return Some(Step {
                    time,
                    node,
                    kind: StepKind::Router,
                });
            }
            Event::Output { node, port } => {
                let queue = &mut fabric.queue;
                fabric.network.wake_output(queue, time, node, port);
                fabric.trace.incidents(time, &mut fabric.network);
                return Some(Step {
                    time,
                    node,
                    kind: StepKind::Output,
                });
            }
            Event::Delivered { node, packet } => {
                if fabric.network.arrive(packet) {
                    fabric.packet_delivered(node, packet);
                }
                (node, StepKind::Delivered)
            }
            Event::TxStep { node } => {
                fabric.tx_step(memory, node);
                (node, StepKind::Transmit)
            }
            Event::RxStep { node } => {
                fabric.rx_step(memory, node);
                (node, StepKind::Receive)
            }
            Event::Doorbell {
                node,
                mailbox,
                index,
            } => {
                fabric
                    .upcalls
                    .push_back((node, Upcall::Mailbox { mailbox, index }));
                (node, StepKind::Doorbell)
            }
            Event::Work { node } => {
                fabric.upcalls.push_back((node, Upcall::Work));
                (node, StepKind::Work)
            }
            Event::Alarm { node, token } => {
                fabric.upcalls.push_back((node, Upcall::Alarm { token }));
                (node, StepKind::Alarm)
            }
            Event::HostWrite { node, write } => {
                let (address, data) = fabric.posted.take(write);
                // A fault has been counted; there is nobody to tell.
                let _ = fabric.host_write(memory, node, address, &data);
                fabric.posted.recycle(write, data);
                (node, StepKind::HostWrite)
            }
            Event::Interrupt { node } => {
                fabric.interrupt_delivered(node);
                (node, StepKind::Interrupt)
            }
            Event::NodeFailed { node } => {
                fabric.node_declared_dead(node);
                (node, StepKind::NodeFailed)
            }
        };
        fabric.trace.incidents(time, &mut fabric.network);
        while let Some((node, upcall)) = self.fabric.upcalls.pop_front() {
            if self.fabric.trace.is_on() {
                self.fabric.trace.upcall(time, node, &upcall);
            }
            let worked = matches!(upcall, Upcall::Work);
            let mut ctx = FirmwareContext {
                fabric: &mut self.fabric,
                memory,
                node,
                at: time,
            };
            deliver(&mut self.firmware[node.index()], &mut ctx, upcall);
            if worked {
                let at = ctx.at;
                let next = self.fabric.chips[node.index()].processor.finish(at);
                if let Some(end) = next {
                    self.fabric.queue.push(end, Event::Work { node });
                }
            }
        }
        self.fabric.network.settle(&mut self.fabric.queue, time);
        Some(Step { time, node, kind })
    }

    /// Processes every event up to and including `until`; how many there were.
    pub fn run_until(&mut self, until: SimTime, memory: &mut dyn HostMemories) -> u64 {
        let mut steps = 0;
        while self.next_event_time().is_some_and(|time| time <= until) {
            self.step(memory);
            steps += 1;
        }
        steps
    }

    /// The oldest interrupt that has reached a host: when, and which. Further ones for the same
    /// node coalesce until it has been polled; after that the host itself must remember at most
    /// one more while its handler runs.
    pub fn poll_interrupt(&mut self) -> Option<(SimTime, NodeId)> {
        let (time, node) = self.fabric.interrupts.pop_front()?;
        self.fabric.chips[node.index()].interrupt_waiting = false;
        Some((time, node))
    }

    /// The registers of `node` as its host sees them at `now`.
    ///
    /// Reads show the chip as of the last processed event, so advance the world to `now` first.
    /// Writes are stored at once, except that a doorbell (the command write index) reaches the
    /// firmware one HyperTransport write latency after `now`; a `now` in the world's past counts
    /// as the present. The cost to the host is the caller's to account (`[host]` parameters).
    /// Of a node that is not there all reads are ones.
    pub fn registers(&mut self, node: NodeId, now: SimTime) -> Registers<'_> {
        Registers {
            fabric: &mut self.fabric,
            node,
            now,
        }
    }
}

/// The registers of one node at one instant; see [`World::registers`].
#[derive(Debug)]
pub struct Registers<'a> {
    fabric: &'a mut Fabric,
    node: NodeId,
    now: SimTime,
}

impl RegisterIo for Registers<'_> {
    fn read32(&mut self, address: u32) -> u32 {
        match self.fabric.chips.get_mut(self.node.index()) {
            Some(chip) => {
                let now = self.now.max(self.fabric.now);
                chip.tick(now, self.fabric.machine.protocol.heartbeat);
                chip.host_register_read(address)
            }
            None => u32::MAX,
        }
    }

    fn write32(&mut self, address: u32, value: u32) {
        let Some(chip) = self.fabric.chips.get_mut(self.node.index()) else {
            return;
        };
        match chip.host_register_write(address, value) {
            WriteEffect::None => {}
            WriteEffect::Crash => {
                let now = self.now.max(self.fabric.now);
                self.fabric.stop(self.node, crash::HOST, now);
            }
            WriteEffect::Doorbell { mailbox, index } => {
                let at = self.now.max(self.fabric.now) + self.fabric.machine.chip.ht_write_latency;
                self.fabric.queue.push(
                    at,
                    Event::Doorbell {
                        node: self.node,
                        mailbox,
                        index,
                    },
                );
            }
        }
    }
}
