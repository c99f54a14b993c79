//! The RAS area: the top 4 KiB of SRAM, through which the node's controller (L0) and the host talk.
//!
//! ```text
//! 0xFFFFF000 config     0xFFFFF040 six channels, 32 B each     0xFFFFF100 their buffers
//! 0xFFFFFE80 coldspin
//! ```
//!
//! A channel is a ring of bytes. Its indices run freely: empty when they are equal, full when they
//! differ by the size, which is a power of two. The config words are those of public drivers; the
//! places of channels and buffers are *ours*.

use super::map::L0;
use crate::host::RegisterIo;

/// Offset of the config words.
pub const CONFIG: u32 = L0;
/// Version of the area.
pub const VERSION: u32 = 2;
/// Bytes of an event in an event channel.
pub const EVENT_LEN: usize = 256;

/// The config words, by their offset from [`CONFIG`].
pub mod config {
    /// Address of the channels.
    pub const BUFFER: u32 = 0;
    /// Address of the word with which the host interrupts the controller; *ours*: the doorbell
    /// word, a bit for each channel.
    pub const INTERRUPT: u32 = 4;
    /// [`VERSION`](super::VERSION).
    pub const VERSION: u32 = 8;
    /// NID in the low 16 bits.
    pub const NODE: u32 = 12;
    /// Which of the board's four processors.
    pub const PROCESSOR: u32 = 16;
}

/// The word of [`config::INTERRUPT`].
pub const DOORBELL: u32 = L0 + 0x3C;

/// One of the six channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// Events, host to controller.
    EventUp,
    /// Events, controller to host.
    EventDown,
    /// Console, host to controller.
    ConsoleUp,
    /// Console, controller to host.
    ConsoleDown,
    /// Debugger, host to controller.
    KgdbUp,
    /// Debugger, controller to host.
    KgdbDown,
}

impl Channel {
    /// All, in the order of the area.
    pub const ALL: [Self; 6] = [
        Self::EventUp,
        Self::EventDown,
        Self::ConsoleUp,
        Self::ConsoleDown,
        Self::KgdbUp,
        Self::KgdbDown,
    ];

    /// Offset of its buffer from [`L0`], and the buffer's bytes, a power of two.
    #[must_use]
    pub const fn buffer(self) -> (u32, u32) {
        match self {
            Self::EventUp => (0x100, 1024),
            Self::EventDown => (0x500, 1024),
            Self::ConsoleUp => (0x900, 512),
            Self::ConsoleDown => (0xB00, 256),
            Self::KgdbUp => (0xC00, 128),
            Self::KgdbDown => (0xC80, 128),
        }
    }

    const fn block(self) -> u32 {
        L0 + 0x40 + 32 * self as u32
    }

    /// Address of the writer's index.
    #[must_use]
    pub const fn write_index(self) -> u32 {
        self.block()
    }

    /// Address of the reader's index.
    #[must_use]
    pub const fn read_index(self) -> u32 {
        self.block() + 4
    }

    /// Address of the offset of the buffer from [`L0`].
    #[must_use]
    pub const fn offset_word(self) -> u32 {
        self.block() + 8
    }

    /// Address of the buffer's size.
    #[must_use]
    pub const fn size_word(self) -> u32 {
        self.block() + 12
    }

    /// Bytes to read, as the indices say; a reader that finds more than the size is behind a
    /// broken writer and takes the last `size`.
    #[must_use]
    pub fn used(self, io: &mut dyn RegisterIo) -> u32 {
        let written = io.read32(self.write_index());
        written
            .wrapping_sub(io.read32(self.read_index()))
            .min(self.buffer().1)
    }

    /// Writes all of `bytes`, or nothing when there is no room; whether it did.
    pub fn write(self, io: &mut dyn RegisterIo, bytes: &[u8]) -> bool {
        let (offset, size) = self.buffer();
        let free = size - self.used(io);
        let Some(count) = u32::try_from(bytes.len()).ok().filter(|n| *n <= free) else {
            return false;
        };
        let start = io.read32(self.write_index());
        for (n, byte) in (0..count).zip(bytes) {
            let at = start.wrapping_add(n) % size;
            let (word, shift) = (L0 + offset + at / 4 * 4, at % 4 * 8);
            let value = io.read32(word) & !(0xFF << shift) | u32::from(*byte) << shift;
            io.write32(word, value);
        }
        io.write32(self.write_index(), start.wrapping_add(count));
        let bells = io.read32(DOORBELL) | 1 << self as u32;
        io.write32(DOORBELL, bells);
        true
    }

    /// Reads up to `limit` bytes.
    pub fn read(self, io: &mut dyn RegisterIo, limit: usize) -> Vec<u8> {
        let (offset, size) = self.buffer();
        let count = self.used(io).min(u32::try_from(limit).unwrap_or(u32::MAX));
        let written = io.read32(self.write_index());
        // Behind a broken writer the last `size` bytes are what there is.
        let start = match io.read32(self.read_index()) {
            read if written.wrapping_sub(read) <= size => read,
            _ => written.wrapping_sub(size),
        };
        let bytes = (0..count)
            .map(|n| {
                let at = start.wrapping_add(n) % size;
                (io.read32(L0 + offset + at / 4 * 4) >> (at % 4 * 8)) as u8
            })
            .collect();
        io.write32(self.read_index(), start.wrapping_add(count));
        bytes
    }
}

/// An event of an event channel: a code, the node it is about, and text. *Ours.*
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RasEvent {
    /// One of [`event`].
    pub code: u32,
    /// The node it is about.
    pub nid: u16,
    /// Up to 248 bytes.
    pub data: Vec<u8>,
}

/// Codes of RAS events; *ours*.
pub mod event {
    /// A node's heartbeat has stopped.
    pub const NODE_FAILED: u32 = 1;
    /// The host says something for the log.
    pub const HOST_LOG: u32 = 2;
}

impl RasEvent {
    /// The 256 bytes of the channel: code, NID, length of the data, data.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; EVENT_LEN] {
        let mut bytes = [0; EVENT_LEN];
        let length = self.data.len().min(EVENT_LEN - 8);
        bytes[0..4].copy_from_slice(&self.code.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.nid.to_le_bytes());
        bytes[6..8].copy_from_slice(&(length as u16).to_le_bytes());
        bytes[8..8 + length].copy_from_slice(&self.data[..length]);
        bytes
    }

    /// The event in the bytes of a channel; `None` when they are too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; EVENT_LEN] = bytes.first_chunk()?;
        let length = usize::from(u16::from_le_bytes([bytes[6], bytes[7]])).min(EVENT_LEN - 8);
        Some(Self {
            code: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            nid: u16::from_le_bytes([bytes[4], bytes[5]]),
            data: bytes[8..8 + length].to_vec(),
        })
    }

    /// Writes the event to `channel`; whether there was room.
    pub fn post(&self, channel: Channel, io: &mut dyn RegisterIo) -> bool {
        channel.write(io, &self.to_bytes())
    }

    /// The next event of `channel`.
    pub fn take(channel: Channel, io: &mut dyn RegisterIo) -> Option<Self> {
        if (channel.used(io) as usize) < EVENT_LEN {
            return None;
        }
        Self::from_bytes(&channel.read(io, EVENT_LEN))
    }
}

/// Fills the area as the controller does before it starts the host.
pub fn init(io: &mut dyn RegisterIo, nid: u16, processor: u32) {
    io.write32(CONFIG + config::BUFFER, L0 + 0x40);
    io.write32(CONFIG + config::INTERRUPT, DOORBELL);
    io.write32(CONFIG + config::VERSION, VERSION);
    io.write32(CONFIG + config::NODE, u32::from(nid));
    io.write32(CONFIG + config::PROCESSOR, processor);
    for channel in Channel::ALL {
        let (offset, size) = channel.buffer();
        io.write32(channel.offset_word(), offset);
        io.write32(channel.size_word(), size);
    }
}

const _: () = {
    let mut n = 0;
    let mut end = 0x100;
    while n < Channel::ALL.len() {
        let (offset, size) = Channel::ALL[n].buffer();
        assert!(size.is_power_of_two() && offset >= end);
        end = offset + size;
        n += 1;
    }
    assert!(L0 + end <= super::map::L0_COLDSPIN);
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Words(BTreeMap<u32, u32>);

    impl RegisterIo for Words {
        fn read32(&mut self, address: u32) -> u32 {
            assert!(address >= L0 && address.is_multiple_of(4));
            self.0.get(&address).copied().unwrap_or(0)
        }

        fn write32(&mut self, address: u32, value: u32) {
            assert!(address >= L0 && address.is_multiple_of(4));
            self.0.insert(address, value);
        }
    }

    #[test]
    fn rings_carry_bytes_in_order_past_the_wrap_of_their_indices() {
        let mut io = Words::default();
        let ring = Channel::ConsoleUp;
        io.write32(ring.write_index(), u32::MAX - 100);
        io.write32(ring.read_index(), u32::MAX - 100);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for n in 0..200u32 {
            let line = vec![n as u8; 1 + n as usize % 60];
            if ring.write(&mut io, &line) {
                sent.extend(line);
            }
            got.extend(ring.read(&mut io, n as usize % 45));
        }
        got.extend(ring.read(&mut io, 1 << 20));
        assert!(sent.len() > 3000 && sent == got);
        assert!(!ring.write(&mut io, &[0; 513]));
        assert!(ring.write(&mut io, &[1; 512]));
        assert!(!ring.write(&mut io, &[1]));
        assert_eq!(io.read32(DOORBELL), 1 << 2);
    }

    #[test]
    fn events_survive_the_ring_and_broken_indices_do_no_harm() {
        let mut io = Words::default();
        let event = RasEvent {
            code: event::NODE_FAILED,
            nid: 7,
            data: b"heartbeat".to_vec(),
        };
        for _ in 0..4 {
            assert!(event.post(Channel::EventDown, &mut io));
        }
        assert!(!event.post(Channel::EventDown, &mut io));
        for _ in 0..4 {
            let taken = RasEvent::take(Channel::EventDown, &mut io);
            assert_eq!(taken.as_ref(), Some(&event));
        }
        assert_eq!(RasEvent::take(Channel::EventDown, &mut io), None);
        io.write32(Channel::EventDown.write_index(), 0xDEAD_BEEF);
        assert_eq!(Channel::EventDown.read(&mut io, usize::MAX).len(), 1024);
        assert_eq!(Channel::EventDown.used(&mut io), 0);
    }
}
