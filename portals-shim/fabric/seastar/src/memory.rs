//! What a node's NIC reaches: the kernel's own memory and that of its processes.
//!
//! A physical address has the process slot in bits 63 to 48: 0 is the kernel, from 1 on the processes
//! of the node, whose virtual addresses are their physical ones. That is what a lightweight kernel with
//! physically contiguous processes looks like to a NIC. Under `linux` the driver names each page by
//! itself, as if they were scattered.

use super::usermem::UserMemory;
use nic_model::{HostFault, HostMemory, NodeId};
use portals_core::Segment;
use std::collections::BTreeMap;

/// Where the slot begins in an address.
const SLOT: u32 = 48;
const SLOT_MASK: u64 = !0 << SLOT;

/// The physical address of a virtual one of the process of this index.
pub(super) const fn of_process(process: usize, addr: u64) -> u64 {
    (process as u64 + 1) << SLOT | (addr & !SLOT_MASK)
}

/// The memory of one node.
#[derive(Debug)]
pub(super) struct NodeMemory {
    node: NodeId,
    kernel: Vec<u8>,
    /// None of a process that has left.
    users: Vec<Option<Box<dyn UserMemory>>>,
    /// Freed kernel buffers by size class.
    free: BTreeMap<usize, Vec<u64>>,
    areas: Areas,
}

/// Kernel addresses from here on are areas.
const AREAS: u64 = 1 << 40;

/// Large pieces of kernel memory that take room only as far as they have been written.
#[derive(Debug, Default)]
struct Areas {
    /// By first address: length, and the bytes up to the last one written.
    by_base: BTreeMap<u64, (u64, Vec<u8>)>,
    next: u64,
}

impl Areas {
    fn reserve(&mut self, len: u64) -> u64 {
        let base = AREAS + self.next;
        self.next += len.next_multiple_of(64);
        self.by_base.insert(base, (len, Vec::new()));
        base
    }

    /// The bytes from `at` on, as far as they are there; `None` outside an area.
    fn range(&mut self, at: u64, len: usize) -> Option<(&mut Vec<u8>, usize)> {
        let (base, (size, bytes)) = self.by_base.range_mut(..=at).next_back()?;
        let offset = at - base;
        let end = offset.checked_add(len as u64)?;
        (end <= *size).then_some((bytes, usize::try_from(offset).ok()?))
    }

    /// Zeroes where nothing has been written.
    fn read(&mut self, at: u64, buf: &mut [u8]) -> bool {
        let Some((bytes, offset)) = self.range(at, buf.len()) else {
            return false;
        };
        let there = bytes.get(offset..).unwrap_or_default();
        let (written, blank) = buf.split_at_mut(there.len().min(buf.len()));
        written.copy_from_slice(&there[..written.len()]);
        blank.fill(0);
        true
    }

    fn write(&mut self, at: u64, data: &[u8]) -> bool {
        let Some((bytes, offset)) = self.range(at, data.len()) else {
            return false;
        };
        let end = offset + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset..end].copy_from_slice(data);
        true
    }
}

impl NodeMemory {
    /// Kernel memory of `fixed` bytes from address 0, to which [`NodeMemory::alloc`] adds.
    pub(super) fn new(node: NodeId, fixed: usize, users: Vec<Box<dyn UserMemory>>) -> Self {
        Self {
            node,
            kernel: vec![0; fixed],
            users: users.into_iter().map(Some).collect(),
            free: BTreeMap::new(),
            areas: Areas::default(),
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

    /// A large area of kernel memory, all zeroes, which takes room only as far as it is written.
    pub(super) fn reserve(&mut self, len: u64) -> u64 {
        self.areas.reserve(len)
    }

    /// Gives back an area; nothing happens for an address that begins none.
    pub(super) fn unreserve(&mut self, base: u64) {
        self.areas.by_base.remove(&base);
    }

    /// Bytes of an area; `None` outside, and where nothing has been written yet.
    pub(super) fn area(&mut self, at: u64, len: usize) -> Option<&[u8]> {
        let (bytes, offset) = self.areas.range(at, len)?;
        bytes.get(offset..offset + len)
    }

    /// The memory of the process that a slot names.
    fn user(&mut self, address: u64) -> Option<&mut dyn UserMemory> {
        let process = (address >> SLOT).checked_sub(1)?;
        let user = self.users.get_mut(usize::try_from(process).ok()?)?;
        Some(user.as_mut()?.as_mut())
    }

    /// Makes the writes to memory of processes that are not there yet.
    pub(super) fn flush(&mut self) {
        for user in self.users.iter_mut().flatten() {
            user.flush();
        }
    }

    /// A process has run since its memory was last accessed.
    pub(super) fn has_run(&mut self, process: usize) {
        if let Some(Some(user)) = self.users.get_mut(process) {
            user.has_run();
        }
    }

    /// The memory of one more process.
    pub(super) fn admit(&mut self, user: Box<dyn UserMemory>) {
        self.users.push(Some(user));
    }

    /// A process has left: neither what is under way from or to its memory nor anything later reaches it.
    pub(super) fn revoke(&mut self, process: usize) {
        if let Some(user) = self.users.get_mut(process) {
            *user = None;
        }
    }

    /// Reads memory of a process; `None` on a fault.
    pub(super) fn gather(&mut self, process: usize, segments: &[Segment]) -> Option<Vec<u8>> {
        let total: u64 = segments.iter().map(|s| s.len).sum();
        let mut out = vec![0; usize::try_from(total).ok()?];
        let mut at = 0;
        for s in segments {
            let end = at + s.len as usize;
            self.read(of_process(process, s.addr), &mut out[at..end])
                .ok()?;
            at = end;
        }
        Some(out)
    }

    /// Writes memory of a process; `false` on a fault.
    pub(super) fn scatter(
        &mut self,
        process: usize,
        segments: &[Segment],
        mut data: &[u8],
    ) -> bool {
        let stored = segments.iter().all(|s| {
            let (now, rest) = data.split_at(data.len().min(s.len as usize));
            data = rest;
            self.write(of_process(process, s.addr), now).is_ok()
        });
        self.flush();
        stored
    }
}

impl HostMemory for NodeMemory {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        let fault = HostFault::new(self.node, address, buf.len());
        if (AREAS..1 << SLOT).contains(&address) {
            return self.areas.read(address, buf).then_some(()).ok_or(fault);
        }
        if address & SLOT_MASK == 0 {
            buf.copy_from_slice(self.kernel(address, buf.len()).ok_or(fault)?);
            return Ok(());
        }
        let read = self
            .user(address)
            .is_some_and(|user| user.read(address & !SLOT_MASK, buf));
        read.then_some(()).ok_or(fault)
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), HostFault> {
        let fault = HostFault::new(self.node, address, data.len());
        if (AREAS..1 << SLOT).contains(&address) {
            return self.areas.write(address, data).then_some(()).ok_or(fault);
        }
        if address & SLOT_MASK == 0 {
            self.kernel(address, data.len())
                .ok_or(fault)?
                .copy_from_slice(data);
            return Ok(());
        }
        let written = self
            .user(address)
            .is_some_and(|user| user.write(address & !SLOT_MASK, data));
        written.then_some(()).ok_or(fault)
    }
}
