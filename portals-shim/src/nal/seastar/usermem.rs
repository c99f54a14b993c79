//! The memory of a rank, read and written by the process that holds the simulation.
// UNSAFETY: process_vm_readv and process_vm_writev take raw addresses of another process; the
// kernel checks them there, and the local side is a Rust slice.
#![expect(
    unsafe_code,
    reason = "reads and writes raw addresses of another process, which the kernel checks"
)]

use crate::process::{bytes, on_memory_of};
use std::ffi::c_void;

/// Memory by virtual address; a fault is an answer, never a crash.
pub(super) trait UserMemory: Send + std::fmt::Debug {
    /// Fills `buf`; `false` when a byte is not readable.
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool;
    /// Stores `data`; `false` when a byte is not writable.
    fn write(&mut self, addr: u64, data: &[u8]) -> bool;
}

/// The memory of process `pid`, which may be the own one (ranks as threads).
#[derive(Debug)]
pub(super) struct ProcessMemory {
    pub(super) pid: i32,
}

impl UserMemory for ProcessMemory {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool {
        let local = libc::iovec {
            iov_base: buf.as_mut_ptr().cast::<c_void>(),
            iov_len: buf.len(),
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr as usize),
            iov_len: buf.len(),
        };
        // SAFETY: `local` is an exclusively borrowed slice; `remote` is only an address that the
        // kernel checks in the other process (EFAULT), and both arrays have one element.
        let read = |pid| unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        on_memory_of(self.pid, |pid| bytes(read(pid))).is_ok_and(|n| n == buf.len())
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        let local = libc::iovec {
            iov_base: data.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: data.len(),
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr as usize),
            iov_len: data.len(),
        };
        // SAFETY: the kernel only reads `local`, a borrowed slice; it checks `remote` in the other
        // process. When that is the own process, the address belongs to an MD whose maker promised
        // that the library may write it (`RawMemory::new`, or a `Region`).
        let write = |pid| unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) };
        on_memory_of(self.pid, |pid| bytes(write(pid))).is_ok_and(|n| n == data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_addresses_are_answers() {
        let mut own = ProcessMemory {
            pid: std::process::id().cast_signed(),
        };
        let data = [1u8, 2, 3, 4];
        let mut back = [0u8; 4];
        assert!(own.read(data.as_ptr().expose_provenance() as u64, &mut back));
        assert_eq!(back, data);
        assert!(!own.read(8, &mut back));
        assert!(!own.write(u64::MAX - 2, &data));
    }
}
