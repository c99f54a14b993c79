//! The chip's address space as the host sees it.
//!
//! ```text
//! 0xFFE00000  window of 2 MiB, uncached      0xFFFA0000  mailboxes, 4 KiB each
//! 0xFFE00108  own NID                        0xFFFA4000  datagram buffer table
//! 0xFFE20000  HT map, 16 slots               0xFFFA5000  host-managed SRAM (lower pendings, EQCBs)
//! 0xFFE20048  HT interrupt register          0xFFFFE000  NIC control block
//! 0xFFFA0000  SRAM, 384 KiB to the end       0xFFFFF000  RAS area
//! ```

use bitfield::bitfield;

/// First address of the host's window onto the chip.
pub const WINDOW: u32 = 0xFFE0_0000;
/// Bytes of the window.
pub const WINDOW_LEN: u32 = 0x0020_0000;
/// Own NID in the low 16 bits; read-only.
pub const NID: u32 = 0xFFE0_0108;
/// The HT map: [`HT_SLOTS`] words of [`HtMapEntry`].
pub const HT_MAP: u32 = 0xFFE2_0000;
/// Slots of the HT map; slot `s` answers firmware addresses `s << 28`.
pub const HT_SLOTS: u32 = 16;
/// The two slots a host uses for memory that the firmware reaches (pendings, event queues).
pub const HT_HOST_SLOTS: [u32; 2] = [8, 9];
/// Bytes that one slot maps.
pub const HT_SLOT_LEN: u32 = 1 << 28;
/// HT interrupt register. While it is zero the interrupt line is masked; the driver writes its
/// interrupt vector word (non-zero) to open it.
pub const HT_INTERRUPT: u32 = 0xFFE2_0048;
/// First byte of SRAM.
pub const SRAM: u32 = 0xFFFA_0000;
/// Bytes of SRAM.
pub const SRAM_LEN: u32 = 0x0006_0000;
/// First mailbox; the one of process index `p` is at `MAILBOXES + (p - 1) * MAILBOX_LEN`.
pub const MAILBOXES: u32 = 0xFFFA_0000;
/// Bytes of a mailbox: one page, so that it can be mapped into a process.
pub const MAILBOX_LEN: u32 = 4096;
/// Mailboxes before the next table.
pub const MAILBOX_COUNT: u32 = 4;
/// Datagram receive buffer table: 64 host addresses in quad-bytes.
pub const DATAGRAM_BUFFERS: u32 = 0xFFFA_4000;
/// Buffers in that table.
pub const DATAGRAM_BUFFER_COUNT: u32 = 64;
/// Host-managed SRAM: lower pendings, then event queue control blocks.
pub const HOST_SRAM: u32 = 0xFFFA_5000;
/// NIC control block, see [`niccb`](super::niccb).
pub const NICCB: u32 = 0xFFFF_E000;
/// RAS (L0) area.
pub const L0: u32 = 0xFFFF_F000;
/// Bytes of the RAS area.
pub const L0_LEN: u32 = 0x1000;
/// Where a processor spins that the RAS controller holds.
pub const L0_COLDSPIN: u32 = 0xFFFF_FE80;
/// Bytes of a lower pending and of an event queue control block in SRAM.
pub const LOWER_PENDING_LEN: u32 = 32;

bitfield! {
    /// One slot of the HT map.
    ///
    /// | bits | field |
    /// |---|---|
    /// | 14..0 | host physical address bits 42..28 |
    /// | 15 | valid |
    /// | 31..16 | *ours*: host physical address bits 63..48, the process slot |
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct HtMapEntry(pub u32);
    impl Debug;
    /// Host physical address bits 42..28.
    pub u16, base, set_base: 14, 0;
    /// Whether the slot answers.
    pub valid, set_valid: 15;
    /// Host physical address bits 63..48.
    pub u16, process, set_process: 31, 16;
}

impl HtMapEntry {
    /// The entry that maps the 256 MiB around host physical `address`; `None` when bits 47..43
    /// are set, which a slot cannot express.
    #[must_use]
    pub fn mapping(address: u64) -> Option<Self> {
        if address & 0x0000_F800_0000_0000 != 0 {
            return None;
        }
        let base = (address >> 28 & 0x7FFF) as u32;
        let process = (address >> 48) as u32;
        Some(Self(process << 16 | 0x8000 | base))
    }

    /// Host physical address of `offset` within the slot; `None` when not valid.
    #[must_use]
    pub fn translate(self, offset: u32) -> Option<u64> {
        let offset = u64::from(offset & (HT_SLOT_LEN - 1));
        self.valid()
            .then(|| u64::from(self.process()) << 48 | u64::from(self.base()) << 28 | offset)
    }
}

/// The firmware address of host physical `address` seen through HT slot `slot`.
#[must_use]
pub const fn firmware_address(slot: u32, address: u64) -> u32 {
    (slot & (HT_SLOTS - 1)) << 28 | (address as u32 & (HT_SLOT_LEN - 1))
}

/// The address of HT map slot `slot`.
#[must_use]
pub const fn ht_slot(slot: u32) -> u32 {
    HT_MAP + 4 * (slot & (HT_SLOTS - 1))
}

const _: () = assert!(SRAM as u64 + SRAM_LEN as u64 == 1 << 32);
const _: () = assert!(MAILBOXES + MAILBOX_COUNT * MAILBOX_LEN == DATAGRAM_BUFFERS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_translates_back() {
        let address = 0x0003_0123_4567_89A0;
        let entry = HtMapEntry::mapping(address).unwrap();
        let firmware = firmware_address(9, address);
        assert_eq!(firmware >> 28, 9);
        assert_eq!(entry.translate(firmware), Some(address));
        assert_eq!(HtMapEntry(0).translate(firmware), None);
        assert_eq!(HtMapEntry::mapping(1 << 44), None);
    }
}
