//! Everything of the world but the firmware, so that a firmware can hold it while it runs.

use std::collections::VecDeque;

use crate::chip::Chip;
use crate::chip::rx::Delivery;
use crate::defs::niccb::Counter;
use crate::faults::{Edge, Faults, FaultsError};
use crate::firmware::TransferFault;
use crate::host::{HostFault, HostMemories};
use crate::network::{Fidelity, Network};
use crate::params::Machine;
use crate::queue::{Event, EventQueue};
use crate::time::SimTime;
use crate::topology::{NodeId, Topology};
use crate::trace::Trace;

/// What a chip reports to its firmware.
#[derive(Debug)]
pub(crate) enum Upcall {
    Mailbox {
        mailbox: u32,
        index: u32,
    },
    Work,
    Alarm {
        token: u64,
    },
    TxDone {
        token: u64,
        result: Result<(), TransferFault>,
    },
    Rx(Delivery),
}

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

/// Writes of firmwares on their way through HyperTransport.
#[derive(Debug, Default)]
pub(crate) struct PostedWrites {
    writes: Vec<Write>,
    vacant: Vec<u32>,
    /// Those under way, by node, oldest first.
    under_way: Vec<Vec<u32>>,
}

#[derive(Debug)]
struct Write {
    node: NodeId,
    address: u64,
    data: Vec<u8>,
}

impl PostedWrites {
    pub(crate) fn put(&mut self, node: NodeId, address: u64, data: &[u8]) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.writes.push(Write {
                node,
                address,
                data: Vec::new(),
            });
            (self.writes.len() - 1) as u32
        });
        let write = &mut self.writes[index as usize];
        (write.node, write.address) = (node, address);
        write.data.clear();
        write.data.extend_from_slice(data);
        if self.under_way.len() <= node.index() {
            self.under_way.resize_with(node.index() + 1, Vec::new);
        }
        self.under_way[node.index()].push(index);
        index
    }

    /// The write arrives.
    pub(crate) fn take(&mut self, index: u32) -> (u64, Vec<u8>) {
        let write = &mut self.writes[index as usize];
        let under_way = &mut self.under_way[write.node.index()];
        // They arrive in order.
        if let Some(at) = under_way.iter().position(|i| *i == index) {
            under_way.remove(at);
        }
        (write.address, std::mem::take(&mut write.data))
    }

    /// Bytes of a write on its way.
    pub(crate) fn length(&self, index: u32) -> usize {
        self.writes[index as usize].data.len()
    }

    /// Gives the buffer of [`PostedWrites::take`] back.
    pub(crate) fn recycle(&mut self, index: u32, buffer: Vec<u8>) {
        self.writes[index as usize].data = buffer;
        self.vacant.push(index);
    }

    /// Changes what was read at an address of a node's memory to what it will be when all writes have arrived.
    #[inline]
    fn show(&self, node: NodeId, address: u64, read: &mut [u8]) {
        let Some(under_way) = self.under_way.get(node.index()) else {
            return;
        };
        for index in under_way {
            let write = &self.writes[*index as usize];
            let skipped = usize::try_from(address.saturating_sub(write.address));
            let before = usize::try_from(write.address.saturating_sub(address));
            let (Ok(skipped), Ok(before)) = (skipped, before) else {
                continue;
            };
            let new = write.data.get(skipped..).unwrap_or_default();
            let old = read.get_mut(before..).unwrap_or_default();
            for (old, new) in old.iter_mut().zip(new) {
                *old = *new;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_sees_the_writes_before_it_and_nothing_around_them() {
        let (node, other) = (NodeId(2), NodeId(1));
        let mut posted = PostedWrites::default();
        let read = |posted: &PostedWrites, address| {
            let mut read = [0; 8];
            posted.show(node, address, &mut read);
            read
        };
        assert_eq!(read(&posted, 100), [0; 8]);
        let first = posted.put(node, 102, &[1; 4]);
        posted.put(other, 100, &[9; 8]);
        posted.put(node, 104, &[2; 4]);
        assert_eq!(read(&posted, 100), [0, 0, 1, 1, 2, 2, 2, 2]);
        assert_eq!(read(&posted, 104), [2, 2, 2, 2, 0, 0, 0, 0]);
        assert_eq!(read(&posted, 94), [0; 8]);
        assert_eq!(read(&posted, 108), [0; 8]);
        assert_eq!(read(&posted, u64::MAX - 3), [0; 8]);
        let (address, data) = posted.take(first);
        assert_eq!((address, data.len()), (102, 4));
        posted.recycle(first, data);
        assert_eq!(read(&posted, 100), [0, 0, 0, 0, 2, 2, 2, 2]);
        assert_eq!(posted.put(node, 100, &[3]), first, "used again");
        assert_eq!(read(&posted, 100), [3, 0, 0, 0, 2, 2, 2, 2]);
    }
}
