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

use portals_core::{Body, Header, MdHandle, ProcessId};

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

/// The bytes, and how many of them count.
#[must_use]
pub fn encode(h: &Header) -> ([u8; GETPUT_LEN], usize) {
    let (kind, ac, length, md, offset, extra, tail) = match h.body {
        Body::Put {
            length,
            remote_offset,
            hdr_data,
            ac_index,
            ack_md,
        } => (
            0u8,
            ac_index,
            length,
            ack_md.map_or(NO_MD, MdHandle::raw),
            remote_offset,
            hdr_data,
            None,
        ),
        Body::Get {
            length,
            remote_offset,
            ac_index,
            reply_md,
            reply_offset,
        } => (
            1,
            ac_index,
            length,
            reply_md.raw(),
            remote_offset,
            reply_offset,
            None,
        ),
        Body::GetPut {
            length,
            remote_offset,
            hdr_data,
            ac_index,
            reply_md,
            reply_offset,
        } => (
            2,
            ac_index,
            length,
            reply_md.raw(),
            remote_offset,
            hdr_data,
            Some(reply_offset),
        ),
        Body::Ack {
            md,
            offset,
            rlength,
            mlength,
        } => (3, 0, rlength, md.raw(), offset, mlength, None),
        Body::Reply {
            md,
            local_offset,
            rlength,
            mlength,
        } => (4, 0, mlength, md.raw(), rlength, local_offset, None),
    };
    let byte = |index: u32| index.min(255) as u8;
    let mut b = [0; GETPUT_LEN];
    put_at(&mut b, 0, [kind, byte(h.pt_index), byte(ac), 0]);
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
    let (length, offset, extra) = (u64::from(u32_at(16)), u64_at(32), u64_at(40));
    let (raw_md, ac_index) = (u32_at(20), u32::from(b[2]));
    let md = MdHandle::from_raw(raw_md);
    let mut end = LEN;
    let body = match b[0] {
        0 => Body::Put {
            length,
            remote_offset: offset,
            hdr_data: extra,
            ac_index,
            ack_md: (raw_md != NO_MD).then_some(md),
        },
        1 => Body::Get {
            length,
            remote_offset: offset,
            ac_index,
            reply_md: md,
            reply_offset: extra,
        },
        2 => {
            let tail: &[u8; 8] = packet
                .get(LEN..)
                .and_then(|t| t.first_chunk())
                .ok_or(short)?;
            end = GETPUT_LEN;
            Body::GetPut {
                length,
                remote_offset: offset,
                hdr_data: extra,
                ac_index,
                reply_md: md,
                reply_offset: u64::from_le_bytes(*tail),
            }
        }
        3 => Body::Ack {
            md,
            offset,
            rlength: length,
            mlength: extra,
        },
        4 => Body::Reply {
            md,
            local_offset: extra,
            rlength: offset,
            mlength: length,
        },
        other => return Err(HeaderError::Type(other)),
    };
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
            Body::Ack {
                md,
                offset: 1 << 40,
                rlength: 100,
                mlength: 50,
            },
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
