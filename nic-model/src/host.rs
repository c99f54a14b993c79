//! The seams between the chip and its host: host memory for the DMA engines, registers for the
//! driver. The owner of the node (its simulated kernel) implements the first and uses the second.

use thiserror::Error;

use crate::topology::NodeId;

/// Host memory could not be reached; the transfer ends with a failed status and is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error("host physical range {address:#x}+{length} of node {node} is not reachable")]
pub struct HostFault {
    /// The node whose memory was addressed.
    pub node: u16,
    /// First byte of the range, host physical.
    pub address: u64,
    /// Bytes of the range.
    pub length: usize,
}

impl HostFault {
    /// A fault over `length` bytes from `address` of the memory of `node`.
    #[must_use]
    pub const fn new(node: NodeId, address: u64, length: usize) -> Self {
        Self {
            node: node.0,
            address,
            length,
        }
    }
}

/// The memory of one host, by physical byte address.
///
/// Bits 63..48 of an address are the process slot (slot 0 is the kernel itself), bits 47..0 the
/// address within it; the model only passes them on.
pub trait HostMemory {
    /// Fills `buf` from `address`, all of it or none.
    ///
    /// # Errors
    /// [`HostFault`] when a byte of the range is not mapped.
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), HostFault>;

    /// Stores `data` at `address`, all of it or nothing.
    ///
    /// # Errors
    /// [`HostFault`] when a byte of the range is not mapped or not writable.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), HostFault>;
}

/// The memories of all hosts; passed to [`World::step`](crate::World::step), so that the owner
/// of the world keeps owning them.
///
/// A slice of [`HostMemory`] indexed by node is one.
pub trait HostMemories {
    /// Reads the memory of `node`; see [`HostMemory::read`].
    ///
    /// # Errors
    /// [`HostFault`] when a byte of the range is not mapped.
    fn read(&mut self, node: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault>;

    /// Writes the memory of `node`; see [`HostMemory::write`].
    ///
    /// # Errors
    /// [`HostFault`] when a byte of the range is not mapped or not writable.
    fn write(&mut self, node: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault>;

    /// Whether [`HostMemories::write`] of `length` bytes would succeed; memory stays as it is.
    ///
    /// # Errors
    /// Those of [`HostMemories::write`].
    fn writable(&mut self, node: NodeId, address: u64, length: usize) -> Result<(), HostFault> {
        let mut bytes = vec![0; length];
        self.read(node, address, &mut bytes)?;
        self.write(node, address, &bytes)
    }
}

impl<M: HostMemory> HostMemories for Vec<M> {
    fn read(&mut self, node: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        match self.get_mut(node.index()) {
            Some(memory) => memory.read(address, buf),
            None => Err(HostFault::new(node, address, buf.len())),
        }
    }

    fn write(&mut self, node: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault> {
        match self.get_mut(node.index()) {
            Some(memory) => memory.write(address, data),
            None => Err(HostFault::new(node, address, data.len())),
        }
    }
}

/// What a host driver sees of a chip: 32-bit accesses within the 2 MiB window at 0xFFE00000.
///
/// The model implements it per node and instant ([`World::registers`](crate::World::registers));
/// a mapped BAR can implement it too.
pub trait RegisterIo {
    /// Reads the word at `address`; an address nothing answers reads as all ones.
    fn read32(&mut self, address: u32) -> u32;

    /// Writes the word at `address`; an address nothing answers swallows it.
    fn write32(&mut self, address: u32, value: u32);
}
