//! The Portals header in 48 bytes, so that 16 bytes of data fit the 64-byte header packet.
//!
//! ```text
//!  0 type u8    1 portal u8   2 access control u8   3 flags u8
//!  4 source nid u16   6 source pid u16   8 target pid u16   10 job id u16   12 uid u32
//! 16 length u32      20 md u32          24 match bits u64
//! 32 offset u64      40 extra u64       (48 reply offset u64, getput only)
//! ```
//!
//! | operation | length | offset | extra |
//! |---|---|---|---|
//! | put | requested | remote offset | hdr_data |
//! | get | requested | remote offset | reply offset |
//! | getput | requested | remote offset | hdr_data; 8 more bytes hold the reply offset |
//! | ack | requested | request offset | accepted length |
//! | reply | bytes that follow | requested length | local offset |
//!
//! The flags are of an ack or reply. [`FAILED`]: the request was taken and has failed. [`AGAIN`]: it was
//! given up, and may have been taken all the same.
//!
//! The layout is this project's; real headers of the machine are not public. Node and process ids
//! and job ids have 16 bits here, lengths 32. An index above 255 is sent as 255, which is out of
//! range at every target.

use portals_core::{Fields, Header, MdHandle, ProcessId};

/// Bytes of every header but a getput's.
pub const LEN: usize = 48;
/// Bytes of a getput's.
pub const GETPUT_LEN: usize = 56;
/// Where the flags are.
pub const FLAGS_AT: usize = 3;
/// Flag of an ack or a reply: the request was taken and has failed; no data.
pub const FAILED: u8 = 1;
/// Flag of an ack or a reply that has been given up before: the initiator may have it already.
pub const AGAIN: u8 = 2;
/// Bytes of a header packet.
pub const PACKET: usize = 64;
const NO_MD: u32 = u32::MAX;

/// The flag of an answer that has been given up so often.
#[must_use]
pub const fn again(tries: u8) -> u8 {
    if tries > 0 { AGAIN } else { 0 }
}

/// Why a header packet cannot be one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Fewer bytes than the operation's header has.
    #[error("header packet of {0} bytes is too short")]
    Short(usize),
    /// No operation has this number.
    #[error("unknown operation {0}")]
    Type(u8),
}

fn put_at<const N: usize>(b: &mut [u8; GETPUT_LEN], at: usize, bytes: [u8; N]) {
    b[at..at + N].copy_from_slice(&bytes);
}

/// The length, offset and extra word of the layout. An answer has no extra field, so that what it moved has room.
fn to_words(fields: &Fields) -> [u64; 3] {
    match fields.operation {
        Fields::ACK => [fields.length, fields.offset, fields.moved],
        Fields::REPLY => [fields.moved, fields.length, fields.offset],
        _ => [fields.length, fields.offset, fields.extra],
    }
}

/// The fields that these words stand for, with the others as in `rest`.
fn from_words(words: [u64; 3], rest: Fields) -> Fields {
    let [first, second, third] = words;
    let (length, offset, extra, moved) = match rest.operation {
        Fields::ACK => (first, second, 0, third),
        Fields::REPLY => (second, third, 0, first),
        _ => (first, second, third, rest.moved),
    };
    Fields {
        length,
        offset,
        extra,
        moved,
        ..rest
    }
}

/// The bytes, and how many of them count.
#[must_use]
pub fn encode(h: &Header) -> ([u8; GETPUT_LEN], usize) {
    let fields = Fields::of(&h.body);
    let [length, offset, extra] = to_words(&fields);
    let tail = (fields.operation == Fields::GET_PUT).then_some(fields.moved);
    let md = fields.md.map_or(NO_MD, MdHandle::raw);
    let byte = |index: u32| index.min(255) as u8;
    let mut b = [0; GETPUT_LEN];
    put_at(
        &mut b,
        0,
        [fields.operation, byte(h.pt_index), byte(fields.ac_index), 0],
    );
    put_at(&mut b, 4, (h.source.nid as u16).to_le_bytes());
    put_at(&mut b, 6, (h.source.pid as u16).to_le_bytes());
    put_at(&mut b, 8, (h.target.pid as u16).to_le_bytes());
    put_at(&mut b, 10, (h.jid as u16).to_le_bytes());
    put_at(&mut b, 12, h.uid.to_le_bytes());
    put_at(&mut b, 16, (length as u32).to_le_bytes());
    put_at(&mut b, 20, md.to_le_bytes());
    put_at(&mut b, 24, h.match_bits.to_le_bytes());
    put_at(&mut b, 32, offset.to_le_bytes());
    put_at(&mut b, 40, extra.to_le_bytes());
    put_at(&mut b, 48, tail.unwrap_or(0).to_le_bytes());
    (b, if tail.is_some() { GETPUT_LEN } else { LEN })
}

/// The header at the start of a packet that arrived at node `nid`, and where inline data begins.
///
/// # Errors
/// [`HeaderError`] for bytes that cannot be one.
pub fn decode(packet: &[u8], nid: u32) -> Result<(Header, usize), HeaderError> {
    let short = HeaderError::Short(packet.len());
    let b: &[u8; LEN] = packet.first_chunk().ok_or(short)?;
    let u16_at = |at: usize| u32::from(u16::from_le_bytes([b[at], b[at + 1]]));
    let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let (operation, raw_md) = (b[0], u32_at(20));
    let (tail, end) = if operation == Fields::GET_PUT {
        let tail = packet.get(LEN..).and_then(|t| t.first_chunk());
        (u64::from_le_bytes(*tail.ok_or(short)?), GETPUT_LEN)
    } else {
        (0, LEN)
    };
    // Only a put can go without one.
    let has_md = operation != Fields::PUT || raw_md != NO_MD;
    let fields = from_words(
        [u64::from(u32_at(16)), u64_at(32), u64_at(40)],
        Fields {
            operation,
            ac_index: u32::from(b[2]),
            md: has_md.then_some(MdHandle::from_raw(raw_md)),
            moved: tail,
            ..Fields::default()
        },
    );
    let body = fields.body().map_err(|_| HeaderError::Type(operation))?;
    let header = Header {
        target: ProcessId::new(nid, u16_at(8)),
        source: ProcessId::new(u16_at(4), u16_at(6)),
        uid: u32_at(12),
        jid: u16_at(10),
        pt_index: u32::from(b[1]),
        match_bits: u64_at(24),
        body,
    };
    Ok((header, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portals_core::{Ack, Body};

    #[test]
    fn every_operation_survives_the_wire() {
        let md = MdHandle::from_raw(0x8123_4567);
        let bodies = [
            Body::Put {
                length: 9,
                remote_offset: 1 << 40,
                hdr_data: u64::MAX,
                ac_index: 3,
                ack_md: Some(md),
            },
            Body::Put {
                length: 0,
                remote_offset: 0,
                hdr_data: 0,
                ac_index: 0,
                ack_md: None,
            },
            Body::Get {
                length: 7,
                remote_offset: 5,
                ac_index: 1,
                reply_md: md,
                reply_offset: 1 << 33,
            },
            Body::GetPut {
                length: 8,
                remote_offset: 6,
                hdr_data: 77,
                ac_index: 0,
                reply_md: md,
                reply_offset: 1 << 35,
            },
            Body::Ack(Ack {
                md,
                offset: 1 << 40,
                rlength: 100,
                mlength: 50,
            }),
            Body::Reply {
                md,
                local_offset: 3,
                rlength: 100,
                mlength: 50,
            },
        ];
        for body in bodies {
            let h = Header {
                target: ProcessId::new(7, 128),
                source: ProcessId::new(9, 129),
                uid: 1000,
                jid: 4242,
                pt_index: 38,
                match_bits: 0x1234_5678_9abc_def0,
                body,
            };
            let (bytes, len) = encode(&h);
            assert_eq!(decode(&bytes[..len], 7), Ok((h, len)));
            assert_eq!(
                decode(&bytes[..len - 1], 7),
                Err(HeaderError::Short(len - 1))
            );
        }
    }
}
