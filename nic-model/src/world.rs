//! The world: all chips, their firmwares and the network between them, in virtual time.

use std::fmt;

use crate::chip::WriteEffect;
use crate::defs::niccb::Counter;
use crate::fabric::{Fabric, Upcall};
use crate::firmware::{Firmware, FirmwareContext, deliver};
use crate::host::{HostMemories, RegisterIo};
use crate::params::Machine;
use crate::queue::Event;
use crate::time::SimTime;
use crate::topology::{NodeId, Topology};

/// The kind of an event that [`World::step`] has processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// A packet went through a router.
    Router,
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

/// All chips of a machine with firmware `F` on each, and the network.
///
/// Single-threaded and deterministic: the same calls give the same events. Nothing happens but
/// in [`World::step`].
pub struct World<F> {
    fabric: Fabric,
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
        mut firmware: impl FnMut(NodeId, &Machine) -> F,
    ) -> Self {
        let fabric = Fabric::new(machine, topology);
        let firmware = (0..fabric.chips.len())
            .map(|n| firmware(NodeId(n as u16), &fabric.machine))
            .collect();
        Self { fabric, firmware }
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
        self.fabric.network.packet_hops()
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
        let (time, event) = self.fabric.queue.pop()?;
        self.fabric.now = time;
        let fabric = &mut self.fabric;
        let (node, kind) = match event {
            Event::Router { node, packet } => {
                fabric.network.route(&mut fabric.queue, time, node, packet);
                (node, StepKind::Router)
            }
            Event::Delivered { node, packet } => {
                fabric.packet_delivered(node, packet);
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
        };
        while let Some((node, upcall)) = self.fabric.upcalls.pop_front() {
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
            Some(chip) => chip.host_register_read(address),
            None => u32::MAX,
        }
    }

    fn write32(&mut self, address: u32, value: u32) {
        let Some(chip) = self.fabric.chips.get_mut(self.node.index()) else {
            return;
        };
        if let WriteEffect::Doorbell { mailbox, index } = chip.host_register_write(address, value) {
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
