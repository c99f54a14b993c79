//! Message headers: what one process tells another about an operation.
//!
//! [`Header`] holds only legal states; [`encode`](Header::encode) and [`decode`](Header::decode)
//! give the 80-byte little-endian form used where a fabric has no format of its own. The SeaStar
//! fabric packs the same content into 48 bytes so that 16 bytes of data fit the header packet.
//!
//! ```text
//!  0 magic u16  2 version u8  3 type u8  4 portal u32  8 target nid,pid  16 source nid,pid
//! 24 uid u32   28 jid u32    32 match bits u64        40 length u64     48 offset u64
//! 56 extra u64 64 md u32     68 access control u32    72 moved length u64
//! ```
//! [`Fields`] says what of a body stands where.

mod fields;

pub use fields::{Fields, FieldsError};

use crate::ack::Ack;
use crate::handle::MdHandle;
use crate::types::ProcessId;

/// Bytes of the encoded form.
pub const WIRE_LEN: usize = 80;
const MAGIC: u16 = 0x3350;
const VERSION: u8 = 1;
const NO_MD: u32 = 0xffff_ffff;

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where it goes.
    pub target: ProcessId,
    /// Who sends it.
    pub source: ProcessId,
    /// User id of the sender.
    pub uid: u32,
    /// Job id of the sender.
    pub jid: u32,
    /// Portal index of the request; echoed in ack and reply.
    pub pt_index: u32,
    /// Match bits of the request; echoed in ack and reply.
    pub match_bits: u64,
    /// The operation.
    pub body: Body,
}

/// The part that differs between operations. Lengths and offsets are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// `length` bytes of data follow.
    Put {
        /// Requested length.
        length: u64,
        /// Offset for a remotely managed MD.
        remote_offset: u64,
        /// 64 bits for the target's events.
        hdr_data: u64,
        /// Access control index at the target.
        ac_index: u32,
        /// The source MD, when an ack is wanted.
        ack_md: Option<MdHandle>,
    },
    /// No data follows; a reply is wanted.
    Get {
        /// Requested length.
        length: u64,
        /// Offset for a remotely managed MD.
        remote_offset: u64,
        /// Access control index at the target.
        ac_index: u32,
        /// The destination MD.
        reply_md: MdHandle,
        /// Where in it the reply goes.
        reply_offset: u64,
    },
    /// `length` bytes of data follow and are exchanged with the target's.
    GetPut {
        /// Requested length.
        length: u64,
        /// Offset for a remotely managed MD.
        remote_offset: u64,
        /// 64 bits for the target's events.
        hdr_data: u64,
        /// Access control index at the target.
        ac_index: u32,
        /// The MD that receives the old contents.
        reply_md: MdHandle,
        /// Where in it they go.
        reply_offset: u64,
    },
    /// The answer to a put.
    Ack(Ack),
    /// The answer to a get or getput; `mlength` bytes of data follow.
    Reply {
        /// The destination MD.
        md: MdHandle,
        /// Where in it the data goes.
        local_offset: u64,
        /// The request's length.
        rlength: u64,
        /// Bytes that follow.
        mlength: u64,
    },
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer than [`WIRE_LEN`] bytes.
    #[error("header of {0} bytes is too short")]
    Short(usize),
    /// Magic or version differ.
    #[error("magic {magic:#06x} version {version} is not a portals header")]
    Magic {
        /// Seen magic.
        magic: u16,
        /// Seen version.
        version: u8,
    },
    /// Unknown operation.
    #[error("unknown operation {0}")]
    Type(u8),
}

impl Header {
    /// Bytes of data that follow this header.
    pub const fn payload_len(&self) -> u64 {
        match self.body {
            Body::Put { length, .. } | Body::GetPut { length, .. } => length,
            Body::Reply { mlength, .. } => mlength,
            // Not by name: a match of all five takes a jump by a table.
            _ => 0,
        }
    }

    /// The byte form.
    pub fn encode(&self) -> [u8; WIRE_LEN] {
        let fields = Fields::of(&self.body);
        let md = fields.md.map_or(NO_MD, MdHandle::raw);
        let mut b = [0; WIRE_LEN];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC.to_le_bytes());
        put(2, &[VERSION, fields.operation]);
        put(4, &self.pt_index.to_le_bytes());
        put(8, &self.target.nid.to_le_bytes());
        put(12, &self.target.pid.to_le_bytes());
        put(16, &self.source.nid.to_le_bytes());
        put(20, &self.source.pid.to_le_bytes());
        put(24, &self.uid.to_le_bytes());
        put(28, &self.jid.to_le_bytes());
        put(32, &self.match_bits.to_le_bytes());
        put(40, &fields.length.to_le_bytes());
        put(48, &fields.offset.to_le_bytes());
        put(56, &fields.extra.to_le_bytes());
        put(64, &md.to_le_bytes());
        put(68, &fields.ac_index.to_le_bytes());
        put(72, &fields.moved.to_le_bytes());
        b
    }

    /// Reads the byte form; bytes after [`WIRE_LEN`] are not looked at.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let b: &[u8; WIRE_LEN] = bytes
            .get(..WIRE_LEN)
            .and_then(|b| b.try_into().ok())
            .ok_or(DecodeError::Short(bytes.len()))?;
        let u32_at = |at: usize| u32::from_le_bytes(*field(b, at));
        let u64_at = |at: usize| u64::from_le_bytes(*field(b, at));
        let magic = u16::from_le_bytes([b[0], b[1]]);
        if magic != MAGIC || b[2] != VERSION {
            return Err(DecodeError::Magic {
                magic,
                version: b[2],
            });
        }
        let (operation, raw_md) = (b[3], u32_at(64));
        // Only a put can go without one.
        let has_md = operation != Fields::PUT || raw_md != NO_MD;
        let fields = Fields {
            operation,
            ac_index: u32_at(68),
            length: u64_at(40),
            offset: u64_at(48),
            extra: u64_at(56),
            md: has_md.then_some(MdHandle::from_raw(raw_md)),
            moved: u64_at(72),
        };
        let body = fields.body().map_err(|_| DecodeError::Type(operation))?;
        Ok(Self {
            target: ProcessId::new(u32_at(8), u32_at(12)),
            source: ProcessId::new(u32_at(16), u32_at(20)),
            uid: u32_at(24),
            jid: u32_at(28),
            pt_index: u32_at(4),
            match_bits: u64_at(32),
            body,
        })
    }
}

/// The `N` bytes at `at`; every caller's field lies within the header.
fn field<const N: usize>(b: &[u8; WIRE_LEN], at: usize) -> &[u8; N] {
    b[at..].first_chunk().unwrap_or(&[0; N])
}
