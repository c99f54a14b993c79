//! The PCI configuration space of a SeaStar: 256 bytes.
//!
//! Vendor and device are what the public driver looks for. The rest is *ours*: a network
//! controller with one memory BAR of 2 MiB and one MSI vector (the chip interrupts by a
//! HyperTransport message).

use nic_model::defs::map::WINDOW_LEN;

/// PCI vendor: Cray.
pub const VENDOR_ID: u16 = 0x17DB;
/// PCI device: SeaStar.
pub const DEVICE_ID: u16 = 0x0101;

/// Bytes of the space.
pub(crate) const CONFIG_LEN: usize = 256;
/// Offset of the command register.
pub(crate) const COMMAND: usize = 0x04;
/// Command register: memory accesses and bus mastering on.
pub(crate) const MEMORY_AND_MASTER: u16 = 0b110;
const STATUS: usize = 0x06;
const CLASS: usize = 0x09;
const BAR0: usize = 0x10;
const SUBSYSTEM: usize = 0x2C;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3C;
const MSI: usize = 0x40;

/// One function's space; what the host may change is in `mask`.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSpace {
    bytes: [u8; CONFIG_LEN],
    mask: [u8; CONFIG_LEN],
}

impl Default for ConfigSpace {
    fn default() -> Self {
        let mut space = Self {
            bytes: [0; CONFIG_LEN],
            mask: [0; CONFIG_LEN],
        };
        let size_mask = !(WINDOW_LEN - 1);
        space.set(0x00, &VENDOR_ID.to_le_bytes(), &[0; 2]);
        space.set(0x02, &DEVICE_ID.to_le_bytes(), &[0; 2]);
        // Memory, bus mastering, and the disabling of INTx.
        space.set(COMMAND, &[0; 2], &0x0406u16.to_le_bytes());
        // A list of capabilities.
        space.set(STATUS, &0x0010u16.to_le_bytes(), &[0; 2]);
        // Other network controller.
        space.set(CLASS, &[0x00, 0x80, 0x02], &[0; 3]);
        space.set(BAR0, &[0; 4], &size_mask.to_le_bytes());
        space.set(SUBSYSTEM, &VENDOR_ID.to_le_bytes(), &[0; 2]);
        space.set(SUBSYSTEM + 2, &DEVICE_ID.to_le_bytes(), &[0; 2]);
        space.set(CAPABILITIES, &[MSI as u8], &[0]);
        space.set(INTERRUPT_LINE, &[0], &[0xFF]);
        // MSI: id 5, no next; control with the enable bit writable and 64-bit addresses.
        space.set(MSI, &[0x05, 0x00, 0x80, 0x00], &[0, 0, 0x01, 0]);
        space.set(MSI + 4, &[0; 4], &0xFFFF_FFFCu32.to_le_bytes());
        space.set(MSI + 8, &[0; 4], &[0xFF; 4]);
        space.set(MSI + 12, &[0; 2], &[0xFF; 2]);
        space
    }
}

impl ConfigSpace {
    fn set(&mut self, at: usize, bytes: &[u8], mask: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.mask[at..at + mask.len()].copy_from_slice(mask);
    }

    /// Fills `data` from `offset`; `None` when that is not inside.
    pub(crate) fn read(&self, offset: u64, data: &mut [u8]) -> Option<()> {
        let at = usize::try_from(offset).ok()?;
        data.copy_from_slice(self.bytes.get(at..at.checked_add(data.len())?)?);
        Some(())
    }

    /// Stores the writable bits of `data` at `offset`; `None` when that is not inside.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        let at = usize::try_from(offset).ok()?;
        let bytes = self.bytes.get_mut(at..at.checked_add(data.len())?)?;
        for ((byte, mask), new) in bytes.iter_mut().zip(&self.mask[at..]).zip(data) {
            *byte = (*byte & !mask) | (new & mask);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(space: &ConfigSpace, at: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn a_host_finds_a_seastar_and_sizes_its_window() {
        let mut space = ConfigSpace::default();
        assert_eq!(word(&space, 0), 0x0101_17DB);
        space.write(0x10, &[0xFF; 4]).unwrap();
        assert_eq!(word(&space, 0x10), 0xFFE0_0000, "2 MiB, 32 bits, memory");
        space.write(0, &[0; 4]).unwrap();
        assert_eq!(word(&space, 0), 0x0101_17DB, "read-only");
        assert_eq!(word(&space, 0x34) & 0xFF, 0x40);
        assert_eq!(word(&space, 0x40) & 0xFF, 5, "MSI");
    }

    #[test]
    fn accesses_past_the_end_are_refused() {
        let mut space = ConfigSpace::default();
        assert!(space.read(254, &mut [0; 4]).is_none());
        assert!(space.write(u64::MAX, &[0; 4]).is_none());
        assert!(space.write(256, &[]).is_some());
    }
}
