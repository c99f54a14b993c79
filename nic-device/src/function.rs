//! What a driver needs of a PCI function with a SeaStar behind it.

use std::time::Duration;

use nic_model::RegisterIo;

use crate::error::DeviceError;
use crate::memory::DmaMemory;

/// A chip as its host driver holds it: registers by their SeaStar addresses, memory that the chip
/// reaches, interrupts.
///
/// Registers behave as those of PCI do: writes are posted and a read pushes them out; a function
/// that is gone reads as all ones and swallows writes, and [`Function::fault`] says why.
pub trait Function: RegisterIo {
    /// Lets the chip read and write all of `memory` at `address`, which then names it in commands
    /// and in the HT map.
    ///
    /// # Errors
    /// The range overlaps another, or the device refuses it.
    fn map(&mut self, memory: &DmaMemory, address: u64) -> Result<(), DeviceError>;

    /// Takes the memory that was mapped at `address` away from the chip.
    ///
    /// # Errors
    /// Nothing begins there, or the device is gone.
    fn unmap(&mut self, address: u64) -> Result<(), DeviceError>;

    /// Interrupts since the last call, waiting up to `patience` for one; 0 when none came.
    ///
    /// # Errors
    /// The device is gone.
    fn interrupts(&mut self, patience: Duration) -> Result<u64, DeviceError>;

    /// Why the function does not answer any more.
    fn fault(&self) -> Option<&DeviceError>;
}
