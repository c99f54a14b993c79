//! What a header tells, as fields and as bytes.

use super::{Ends, FrameError, Operation, Writer, take};
use portals_core::{Header, MdHandle};

pub(super) const WIDE: u8 = 1 << 0;
pub(super) const MATCH_BITS: u8 = 1 << 1;
pub(super) const LENGTH: u8 = 1 << 2;
pub(super) const OFFSET: u8 = 1 << 3;
pub(super) const EXTRA: u8 = 1 << 4;
pub(super) const MD: u8 = 1 << 5;
pub(super) const MOVED: u8 = 1 << 6;

/// Whether a header's operation answers another one: it is an ack or a reply.
pub(super) fn answers(operation: u8) -> bool {
    matches!(operation, 3 | 4)
}

/// A header without its ends, all fields side by side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields {
    operation: u8,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    /// `None`: as long as the data.
    length: Option<u64>,
    offset: u64,
    extra: u64,
    md: Option<MdHandle>,
    moved: u64,
}

impl Fields {
    /// Of a header that `data` bytes follow.
    #[inline]
    pub(super) fn new(header: &Header, data: u64) -> Self {
        let fields = match header.body {
            Operation::Put {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ack_md,
            } => Self {
                operation: 0,
                ac_index,
                length: Some(length),
                offset: remote_offset,
                extra: hdr_data,
                md: ack_md,
                ..Self::default()
            },
            Operation::Get {
                length,
                remote_offset,
                ac_index,
                reply_md,
                reply_offset,
            } => Self {
                operation: 1,
                ac_index,
                length: Some(length),
                offset: remote_offset,
                extra: reply_offset,
                md: Some(reply_md),
                ..Self::default()
            },
            Operation::GetPut {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                reply_md,
                reply_offset,
            } => Self {
                operation: 2,
                ac_index,
                length: Some(length),
                offset: remote_offset,
                extra: hdr_data,
                md: Some(reply_md),
                moved: reply_offset,
                ..Self::default()
            },
            Operation::Ack {
                md,
                offset,
                rlength,
                mlength,
            } => Self {
                operation: 3,
                length: Some(rlength),
                offset,
                md: Some(md),
                moved: mlength,
                ..Self::default()
            },
            Operation::Reply {
                md,
                local_offset,
                rlength,
                mlength,
            } => Self {
                operation: 4,
                length: Some(rlength),
                offset: local_offset,
                md: Some(md),
                moved: mlength,
                ..Self::default()
            },
        };
        Self {
            pt_index: header.pt_index,
            match_bits: header.match_bits,
            length: fields.length.filter(|length| *length != data),
            ..fields
        }
    }

    /// The header of a message with `data` bytes.
    #[inline(always)]
    pub(super) fn header(&self, ends: &Ends, data: u64) -> Result<Header, FrameError> {
        let length = self.length.unwrap_or(data);
        let md = |what| self.md.ok_or(FrameError::NoDescriptor(what));
        let body = match self.operation {
            0 => Operation::Put {
                length,
                remote_offset: self.offset,
                hdr_data: self.extra,
                ac_index: self.ac_index,
                ack_md: self.md,
            },
            1 => Operation::Get {
                length,
                remote_offset: self.offset,
                ac_index: self.ac_index,
                reply_md: md("get")?,
                reply_offset: self.extra,
            },
            2 => Operation::GetPut {
                length,
                remote_offset: self.offset,
                hdr_data: self.extra,
                ac_index: self.ac_index,
                reply_md: md("getput")?,
                reply_offset: self.moved,
            },
            3 => Operation::Ack {
                md: md("ack")?,
                offset: self.offset,
                rlength: length,
                mlength: self.moved,
            },
            4 => Operation::Reply {
                md: md("reply")?,
                local_offset: self.offset,
                rlength: length,
                mlength: self.moved,
            },
            other => return Err(FrameError::Operation(other)),
        };
        Ok(Header {
            target: ends.target,
            source: ends.source,
            uid: ends.who.0,
            jid: ends.who.1,
            pt_index: self.pt_index,
            match_bits: self.match_bits,
            body,
        })
    }

    #[inline]
    pub(super) fn write(&self, to: &mut Writer<'_>) {
        let start = to.len;
        let wide = (self.pt_index | self.ac_index) > 0xff;
        let mut present = 0;
        let (pt, ac) = if wide {
            (0, 0)
        } else {
            (self.pt_index as u8, self.ac_index as u8)
        };
        to.push_array([self.operation, 0, pt, ac]);
        if wide {
            present |= WIDE;
            to.push_array(self.pt_index.to_le_bytes());
            to.push_array(self.ac_index.to_le_bytes());
        }
        let mut word = |bit: u8, value: u64| {
            if value != 0 {
                present |= bit;
                to.push_array(value.to_le_bytes());
            }
        };
        word(MATCH_BITS, self.match_bits);
        if let Some(length) = self.length {
            present |= LENGTH;
            to.push_array(length.to_le_bytes());
        }
        let mut word = |bit: u8, value: u64| {
            if value != 0 {
                present |= bit;
                to.push_array(value.to_le_bytes());
            }
        };
        word(OFFSET, self.offset);
        word(EXTRA, self.extra);
        if let Some(md) = self.md {
            present |= MD;
            to.push_array(md.raw().to_le_bytes());
        }
        if self.moved != 0 {
            present |= MOVED;
            to.push_array(self.moved.to_le_bytes());
        }
        if let Some(place) = to.bytes.get_mut(start + 1) {
            *place = present;
        }
    }

    /// The fields, and what follows them.
    #[inline(always)]
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let short = FrameError::Short(bytes.len());
        let (first, mut rest) = bytes.split_first_chunk::<4>().ok_or(short)?;
        let [operation, present, pt, ac] = *first;
        let mut fields = Self {
            operation,
            pt_index: u32::from(pt),
            ac_index: u32::from(ac),
            ..Self::default()
        };
        if present & WIDE != 0 {
            fields.pt_index = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
            fields.ac_index = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & MATCH_BITS != 0 {
            fields.match_bits = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & LENGTH != 0 {
            fields.length = Some(u64::from_le_bytes(take(&mut rest).ok_or(short)?));
        }
        if present & OFFSET != 0 {
            fields.offset = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & EXTRA != 0 {
            fields.extra = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & MD != 0 {
            let raw = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
            fields.md = Some(MdHandle::from_raw(raw));
        }
        if present & MOVED != 0 {
            fields.moved = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        Ok((fields, rest))
    }
}
