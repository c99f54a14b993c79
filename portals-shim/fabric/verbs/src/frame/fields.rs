//! The fields of a header as bytes: those that are not there are 0.

use super::{Ends, FrameError, Writer, take};
use portals_core::{Fields, Header, MdHandle};

pub(super) const WIDE: u8 = 1 << 0;
pub(super) const MATCH_BITS: u8 = 1 << 1;
pub(super) const LENGTH: u8 = 1 << 2;
pub(super) const OFFSET: u8 = 1 << 3;
pub(super) const EXTRA: u8 = 1 << 4;
pub(super) const MD: u8 = 1 << 5;
pub(super) const MOVED: u8 = 1 << 6;

/// Whether a header's operation answers another one: it is an ack or a reply.
pub(super) fn answers(operation: u8) -> bool {
    matches!(operation, Fields::ACK | Fields::REPLY)
}

/// A header without its ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeaderFields {
    pt_index: u32,
    match_bits: u64,
    /// `None`: as long as the data.
    length: Option<u64>,
    /// The rest of the body.
    body: Fields,
}

impl HeaderFields {
    /// Of a header that `data` bytes follow.
    #[inline]
    pub(super) fn new(header: &Header, data: u64) -> Self {
        let body = Fields::of(&header.body);
        Self {
            pt_index: header.pt_index,
            match_bits: header.match_bits,
            length: Some(body.length).filter(|length| *length != data),
            body,
        }
    }

    /// The header of a message with `data` bytes.
    #[inline(always)]
    pub(super) fn header(&self, ends: &Ends, data: u64) -> Result<Header, FrameError> {
        let fields = Fields {
            length: self.length.unwrap_or(data),
            ..self.body
        };
        Ok(Header {
            target: ends.target,
            source: ends.source,
            uid: ends.who.0,
            jid: ends.who.1,
            pt_index: self.pt_index,
            match_bits: self.match_bits,
            body: fields.body()?,
        })
    }

    #[inline]
    pub(super) fn write(&self, to: &mut Writer<'_>) {
        let start = to.len;
        let wide = (self.pt_index | self.body.ac_index) > 0xff;
        let mut present = 0;
        let (pt, ac) = if wide {
            (0, 0)
        } else {
            (self.pt_index as u8, self.body.ac_index as u8)
        };
        to.push_array([self.body.operation, 0, pt, ac]);
        if wide {
            present |= WIDE;
            to.push_array(self.pt_index.to_le_bytes());
            to.push_array(self.body.ac_index.to_le_bytes());
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
        word(OFFSET, self.body.offset);
        word(EXTRA, self.body.extra);
        if let Some(md) = self.body.md {
            present |= MD;
            to.push_array(md.raw().to_le_bytes());
        }
        if self.body.moved != 0 {
            present |= MOVED;
            to.push_array(self.body.moved.to_le_bytes());
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
            pt_index: u32::from(pt),
            ..Self::default()
        };
        let body = &mut fields.body;
        body.operation = operation;
        body.ac_index = u32::from(ac);
        if present & WIDE != 0 {
            fields.pt_index = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
            body.ac_index = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & MATCH_BITS != 0 {
            fields.match_bits = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & LENGTH != 0 {
            fields.length = Some(u64::from_le_bytes(take(&mut rest).ok_or(short)?));
        }
        if present & OFFSET != 0 {
            body.offset = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & EXTRA != 0 {
            body.extra = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        if present & MD != 0 {
            let raw = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
            body.md = Some(MdHandle::from_raw(raw));
        }
        if present & MOVED != 0 {
            body.moved = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        }
        Ok((fields, rest))
    }
}
