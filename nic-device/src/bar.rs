//! BAR 0 mapped into this process.
// UNSAFETY: maps device memory and makes references to its registers, which only volatile
// accesses go through.
#![expect(unsafe_code, reason = "maps device memory and refers to its registers")]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nic_model::RegisterIo;
use nic_model::defs::map::{WINDOW, WINDOW_LEN};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use volatile_register::RW;

use crate::error::DeviceError;

/// The register window, mapped.
#[derive(Debug)]
pub(crate) struct MappedBar {
    base: NonNull<c_void>,
}

// SAFETY: the mapping belongs to this value alone (made in `map`, freed in `drop`) and is not
// tied to the thread that made it.
unsafe impl Send for MappedBar {}

impl MappedBar {
    /// Maps the window, which is at `offset` of `file`.
    pub(crate) fn map(file: BorrowedFd<'_>, offset: u64) -> Result<Self, DeviceError> {
        // SAFETY: without an address hint or MAP_FIXED a new mapping touches nothing that exists.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                WINDOW_LEN as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                offset,
            )
        }
        .map_err(DeviceError::system("map the register window"))?;
        let base = NonNull::new(base).ok_or(DeviceError::Lacks("register window"))?;
        Ok(Self { base })
    }

    /// The register at `address`, where the window has one.
    fn register(&self, address: u32) -> Option<&RW<u32>> {
        let offset = address.checked_sub(WINDOW)?;
        if !offset.is_multiple_of(4) || offset >= WINDOW_LEN {
            return None;
        }
        // SAFETY: `offset` is below the length mapped in `map`, checked above.
        let register = unsafe {
            self.base
                .as_ptr()
                .cast::<RW<u32>>()
                .byte_add(offset as usize)
        };
        // SAFETY: mapped for as long as `self` is borrowed (unmapped in `drop` only), aligned
        // because the mapping is page-aligned and `offset` a multiple of 4, and an `RW` is only
        // ever accessed by volatile reads and writes through a shared reference.
        Some(unsafe { &*register })
    }
}

impl Drop for MappedBar {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and no reference outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr(), WINDOW_LEN as usize) };
    }
}

impl RegisterIo for MappedBar {
    fn read32(&mut self, address: u32) -> u32 {
        self.register(address)
            .map_or(u32::MAX, |register| u32::from_le(register.read()))
    }

    fn write32(&mut self, address: u32, value: u32) {
        if let Some(register) = self.register(address) {
            // SAFETY: a register of the chip; what a write does to the chip is the driver's
            // business, and the chip reaches only memory that was mapped for it.
            unsafe { register.write(value.to_le()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DmaMemory;
    use nic_model::defs::map;
    use std::os::fd::AsFd;

    #[test]
    fn registers_are_words_of_the_window() {
        let memory = DmaMemory::new(u64::from(WINDOW_LEN)).unwrap();
        let mut bar = MappedBar::map(memory.as_fd(), 0).unwrap();
        bar.write32(map::NICCB + 4, 0x1234_5678);
        bar.write32(0xFFFF_FFFC, 9);
        let mut word = [0; 4];
        memory
            .read(u64::from(map::NICCB + 4 - WINDOW), &mut word)
            .unwrap();
        assert_eq!(u32::from_le_bytes(word), 0x1234_5678);
        assert_eq!(bar.read32(0xFFFF_FFFC), 9);
        for nowhere in [0, WINDOW - 4, WINDOW + 2] {
            bar.write32(nowhere, 7);
            assert_eq!(bar.read32(nowhere), u32::MAX);
        }
    }
}
