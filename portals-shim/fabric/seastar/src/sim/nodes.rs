//! The nodes of the simulation, as the NICs see them.

use crate::kernel::Kernel;
use nic_model::{HostFault, HostMemories, HostMemory as _, NodeId};

/// The kernels by node.
///
/// What NICs write into memory of ranks is combined, and there when [`Nodes::flush`] returns: until then no rank may go on.
pub(super) struct Nodes {
    pub(super) all: Vec<Kernel>,
    /// Whose ranks' memory was written since; a node may be there more than once.
    written: Vec<NodeId>,
}

/// With more of them all are flushed, as a list without an end would need memory.
const MOST: usize = 1 << 12;

impl Nodes {
    pub(super) fn new(all: Vec<Kernel>) -> Self {
        let written = Vec::new();
        Self { all, written }
    }

    /// Makes the writes that ranks have not seen yet.
    pub(super) fn flush(&mut self) {
        for node in self.written.drain(..) {
            if let Some(kernel) = self.all.get_mut(node.index()) {
                kernel.driver.memory.flush();
            }
        }
    }
}

impl HostMemories for Nodes {
    fn read(&mut self, node: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        let kernel = self.all.get_mut(node.index());
        let kernel = kernel.ok_or_else(|| HostFault::new(node, address, buf.len()))?;
        kernel.driver.memory.read(address, buf)
    }

    fn write(&mut self, node: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault> {
        let kernel = self.all.get_mut(node.index());
        let kernel = kernel.ok_or_else(|| HostFault::new(node, address, data.len()))?;
        kernel.driver.memory.write(address, data)?;
        if self.written.last() != Some(&node) {
            self.written.push(node);
        }
        if self.written.len() >= MOST {
            self.flush();
        }
        Ok(())
    }
}
