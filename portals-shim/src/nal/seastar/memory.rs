//! What a node's NIC reaches: the kernel's own memory and that of its process.
//!
//! A physical address has the process slot in bits 63 to 48: 0 is the kernel, 1 the process, whose
//! virtual addresses are its physical ones. That is what a lightweight kernel with physically
//! contiguous processes looks like to a NIC; paging is not modelled.

use super::usermem::UserMemory;
use nic_model::{HostFault, HostMemory, NodeId};
use std::collections::BTreeMap;

/// The process's slot, as the upper bits of an address.
const PROCESS: u64 = 1 << 48;
const SLOT_MASK: u64 = !0 << 48;

/// The physical address of a process's virtual one.
pub(super) const fn of_process(addr: u64) -> u64 {
    PROCESS | (addr & !SLOT_MASK)
}

/// The memory of one node.
#[derive(Debug)]
pub(super) struct NodeMemory {
    node: NodeId,
    kernel: Vec<u8>,
    user: Box<dyn UserMemory>,
    /// Freed kernel buffers by size class.
    free: BTreeMap<usize, Vec<u64>>,
}

impl NodeMemory {
    /// Kernel memory of `fixed` bytes from address 0, to which [`NodeMemory::alloc`] adds.
    pub(super) fn new(node: NodeId, fixed: usize, user: Box<dyn UserMemory>) -> Self {
        Self {
            node,
            kernel: vec![0; fixed],
            user,
            free: BTreeMap::new(),
        }
    }

    /// A kernel buffer of at least `len` bytes, 64-byte aligned.
    pub(super) fn alloc(&mut self, len: usize) -> u64 {
        let class = len.max(64).next_power_of_two();
        if let Some(at) = self.free.get_mut(&class).and_then(Vec::pop) {
            return at;
        }
        let at = self.kernel.len().next_multiple_of(64);
        self.kernel.resize(at + class, 0);
        at as u64
    }

    /// Gives back a buffer of [`NodeMemory::alloc`].
    pub(super) fn free(&mut self, at: u64, len: usize) {
        self.free
            .entry(len.max(64).next_power_of_two())
            .or_default()
            .push(at);
    }

    /// A range of kernel memory; `None` past its end.
    pub(super) fn kernel(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let at = usize::try_from(at).ok()?;
        self.kernel.get_mut(at..at.checked_add(len)?)
    }
}

impl HostMemory for NodeMemory {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        let fault = HostFault::new(self.node, address, buf.len());
        match address & SLOT_MASK {
            0 => buf.copy_from_slice(self.kernel(address, buf.len()).ok_or(fault)?),
            PROCESS => {
                if !self.user.read(address & !SLOT_MASK, buf) {
                    return Err(fault);
                }
            }
            _ => return Err(fault),
        }
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), HostFault> {
        let fault = HostFault::new(self.node, address, data.len());
        match address & SLOT_MASK {
            0 => self
                .kernel(address, data.len())
                .ok_or(fault)?
                .copy_from_slice(data),
            PROCESS => {
                if !self.user.write(address & !SLOT_MASK, data) {
                    return Err(fault);
                }
            }
            _ => return Err(fault),
        }
        Ok(())
    }
}
