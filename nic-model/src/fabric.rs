//! Everything of the world but the firmware, so that a firmware can hold it while it runs.

mod faults;

use std::collections::VecDeque;

use crate::chip::Chip;
use crate::defs::niccb::Counter;
use crate::faults::{Faults, FaultsError};
use crate::host::{HostFault, HostMemories};
use crate::network::{Fidelity, Network};
use crate::params::Machine;
use crate::posted::PostedWrites;
use crate::queue::{Event, EventQueue};
use crate::time::SimTime;
use crate::topology::{NodeId, Topology};
use crate::trace::Trace;
use crate::transfer::Upcall;
use faults::Edge;

#[derive(Debug)]
pub(crate) struct Fabric {
    pub(crate) now: SimTime,
    pub(crate) queue: EventQueue,
    pub(crate) network: Network,
    pub(crate) chips: Vec<Chip>,
    pub(crate) machine: Machine,
    pub(crate) posted: PostedWrites,
    /// Reports of the present event, to be passed on before the next.
    pub(crate) upcalls: VecDeque<(NodeId, Upcall)>,
    /// Interrupts that no host has taken.
    pub(crate) interrupts: VecDeque<(SimTime, NodeId)>,
    /// Interrupts of RAS controllers that no host has taken.
    pub(crate) ras_interrupts: VecDeque<(SimTime, NodeId)>,
    /// A burst's bytes; kept for its allocation.
    pub(crate) scratch: Vec<u8>,
    /// Who sees what happens, if anybody.
    pub(crate) trace: Trace,
    pub(crate) faults: Faults,
    /// When faults begin and end, earliest first.
    pub(crate) edges: VecDeque<Edge>,
}

impl Fabric {
    pub(crate) fn new(
        machine: Machine,
        topology: Topology,
        fidelity: Fidelity,
        faults: Faults,
    ) -> Result<Self, FaultsError> {
        let nodes = topology.nodes();
        let faults = faults.resolved(&topology)?;
        let network = Network::new(&machine, topology, fidelity, &faults)?;
        Ok(Self {
            now: SimTime::ZERO,
            queue: EventQueue::default(),
            network,
            chips: (0..nodes).map(|n| Chip::new(NodeId(n as u16))).collect(),
            machine,
            posted: PostedWrites::default(),
            upcalls: VecDeque::new(),
            interrupts: VecDeque::new(),
            ras_interrupts: VecDeque::new(),
            scratch: Vec::new(),
            trace: Trace::default(),
            edges: faults.edges(),
            faults,
        })
    }

    /// Reads host memory at once, as it is behind the writes that this node's firmware has posted: a read of
    /// HyperTransport does not pass them. A fault is counted.
    pub(crate) fn host_read(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        address: u64,
        buf: &mut [u8],
    ) -> Result<(), HostFault> {
        let result = if address.checked_add(buf.len() as u64).is_some() {
            memory.read(node, address, buf)
        } else {
            Err(HostFault::new(node, address, buf.len()))
        };
        if result.is_ok() {
            self.posted.show(node, address, buf);
        }
        self.count_fault(node, result)
    }

    /// Writes host memory at once; a fault is counted.
    pub(crate) fn host_write(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        address: u64,
        data: &[u8],
    ) -> Result<(), HostFault> {
        let result = if address.checked_add(data.len() as u64).is_some() {
            memory.write(node, address, data)
        } else {
            Err(HostFault::new(node, address, data.len()))
        };
        self.count_fault(node, result)
    }

    pub(crate) fn host_writable(
        &mut self,
        memory: &mut dyn HostMemories,
        node: NodeId,
        address: u64,
        length: usize,
    ) -> Result<(), HostFault> {
        let result = if address.checked_add(length as u64).is_some() {
            memory.writable(node, address, length)
        } else {
            Err(HostFault::new(node, address, length))
        };
        self.count_fault(node, result)
    }

    fn count_fault(
        &mut self,
        node: NodeId,
        result: Result<(), HostFault>,
    ) -> Result<(), HostFault> {
        if result.is_err() {
            self.chips[node.index()].count(Counter::HOST_FAULTS, 1);
        }
        result
    }

    /// An interrupt message has reached the host.
    pub(crate) fn interrupt_delivered(&mut self, node: NodeId) {
        let chip = &mut self.chips[node.index()];
        if self.now < chip.faults.host_stalled {
            let later = chip.faults.host_stalled;
            self.queue.push(later, Event::Interrupt { node });
        } else if chip.ht_interrupt == 0 {
            chip.count(Counter::INTERRUPTS_MASKED, 1);
        } else if chip.interrupt_waiting {
            chip.count(Counter::INTERRUPTS_COALESCED, 1);
        } else {
            chip.interrupt_waiting = true;
            self.interrupts.push_back((self.now, node));
        }
    }
}
