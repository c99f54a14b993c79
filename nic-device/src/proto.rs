//! vfio-user messages, revision 0.1: little endian, a header of 16 bytes and what follows it.
//!
//! Names and layouts are those of the protocol's public specification; the structures after the
//! header are those of the kernel's VFIO interface.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub(crate) const HEADER_LEN: usize = size_of::<Header>();
/// Most data bytes of one region access.
pub(crate) const MAX_DATA: usize = 64 * 1024;
/// Longest message either side takes; a longer one ends the connection.
pub(crate) const MAX_MESSAGE: usize = HEADER_LEN + size_of::<RegionAccess>() + MAX_DATA;
/// Descriptors taken with one message; the system closes what does not fit.
pub(crate) const MAX_FDS: usize = 8;

/// What a message is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub(crate) struct Command(pub(crate) U16);

impl Command {
    pub(crate) const VERSION: Self = Self(U16::new(1));
    pub(crate) const DMA_MAP: Self = Self(U16::new(2));
    pub(crate) const DMA_UNMAP: Self = Self(U16::new(3));
    pub(crate) const DEVICE_INFO: Self = Self(U16::new(4));
    pub(crate) const REGION_INFO: Self = Self(U16::new(5));
    pub(crate) const IRQ_INFO: Self = Self(U16::new(7));
    pub(crate) const SET_IRQS: Self = Self(U16::new(8));
    pub(crate) const REGION_READ: Self = Self(U16::new(9));
    pub(crate) const REGION_WRITE: Self = Self(U16::new(10));
    pub(crate) const RESET: Self = Self(U16::new(13));
}

/// Bits of [`Header::flags`].
pub(crate) mod flags {
    /// Mask of the type: 0 a command, 1 a reply.
    pub(crate) const TYPE: u32 = 0xF;
    pub(crate) const REPLY: u32 = 1;
    pub(crate) const NO_REPLY: u32 = 1 << 4;
    pub(crate) const ERROR: u32 = 1 << 5;
}

/// What every message begins with.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    /// The sender's; a reply repeats it.
    pub(crate) id: U16,
    pub(crate) command: Command,
    /// Bytes of the whole message.
    pub(crate) size: U32,
    pub(crate) flags: U32,
    /// An errno, where the error flag is set.
    pub(crate) error: U32,
}

/// [`Command::VERSION`]; a JSON object and a zero byte follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Version {
    pub(crate) major: U16,
    pub(crate) minor: U16,
}

/// The version spoken here.
pub(crate) const VERSION: Version = Version {
    major: U16::ZERO,
    minor: U16::new(1),
};

/// [`Command::DMA_MAP`], with the memory's descriptor.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DmaMapRequest {
    pub(crate) argsz: U32,
    /// Bit 0: the device may read, bit 1: it may write.
    pub(crate) flags: U32,
    /// Of the range within the descriptor.
    pub(crate) offset: U64,
    pub(crate) address: U64,
    pub(crate) size: U64,
}

/// [`Command::DMA_UNMAP`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DmaUnmapRequest {
    pub(crate) argsz: U32,
    /// Bit 1: report dirty pages (not offered), bit 2: all ranges.
    pub(crate) flags: U32,
    pub(crate) address: U64,
    pub(crate) size: U64,
}

/// [`Command::DEVICE_INFO`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct DeviceInfo {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) regions: U32,
    pub(crate) irqs: U32,
}

/// [`Command::REGION_INFO`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RegionInfo {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) index: U32,
    /// Of the first capability from the start of this structure; 0: none.
    pub(crate) cap_offset: U32,
    pub(crate) size: U64,
    /// Of the region within the descriptor that came along, where it can be mapped.
    pub(crate) offset: U64,
}

/// [`Command::IRQ_INFO`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct IrqInfo {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) index: U32,
    pub(crate) count: U32,
}

/// [`Command::SET_IRQS`]; an event descriptor may come along.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SetIrqs {
    pub(crate) argsz: U32,
    pub(crate) flags: U32,
    pub(crate) index: U32,
    pub(crate) start: U32,
    pub(crate) count: U32,
}

/// [`Command::REGION_READ`] and [`Command::REGION_WRITE`]; data follow a write and the reply to a
/// read.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RegionAccess {
    pub(crate) offset: U64,
    pub(crate) region: U32,
    pub(crate) count: U32,
}

const _: () = assert!(HEADER_LEN == 16);
const _: () = assert!(size_of::<DmaMapRequest>() == 32);
const _: () = assert!(size_of::<RegionInfo>() == 32);
const _: () = assert!(size_of::<SetIrqs>() == 20);

/// A message of `parts` behind one another.
pub(crate) fn message(id: u16, command: Command, flags: u32, parts: &[&[u8]]) -> Vec<u8> {
    let size = HEADER_LEN + parts.iter().map(|p| p.len()).sum::<usize>();
    let header = Header {
        id: id.into(),
        command,
        size: (size as u32).into(),
        flags: flags.into(),
        error: U32::ZERO,
    };
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(header.as_bytes());
    for part in parts {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// The reply that says that a command failed.
pub(crate) fn error_reply(to: &Header, errno: u32) -> Vec<u8> {
    let header = Header {
        id: to.id,
        command: to.command,
        size: (HEADER_LEN as u32).into(),
        flags: (flags::REPLY | flags::ERROR).into(),
        error: errno.into(),
    };
    header.as_bytes().to_vec()
}
