//! What stands in a cell.
//!
//! ```text
//!  0 ready u32   4 kind u8   5 flags u8   6 inline u16   8 token u32   12 bulk length u32   16 bulk offset u32
//! 20 -           24 header (80)                        104 inline data (152)
//! ```
//!
//! A short put has a form of its own, which with up to 24 bytes of data is one line of memory. What the ring says
//! already, who sends and who receives, is not in it.
//!
//! ```text
//!  0 ready u32   4 kind u8   6 length u16   8 portal u16   10 access control u16   12 md u32
//! 16 match bits u64   24 offset u64   32 header data u64                          40 data (216)
//! ```
//!
//! | kind | header | data | then |
//! |---|---|---|---|
//! | [`Kind::Message`] | yes | the first part, inline or in the bulk area | delivered; more parts follow if there are fewer bytes than the header says |
//! | [`Kind::Short`] | in the short form | all of it | delivered |
//! | [`Kind::More`] | – | the next part | as above |
//! | [`Kind::ReadyToSend`] | yes | RTS, where the data is: address, length of each piece | the receiver reads it from the sender's memory, then `AckToSend` |
//! | [`Kind::AckToSend`] | – | ATS (token of the RTS; flags: it failed, the data was not there, or the kernel does not let it be read) | the data may be reused; if it could not be read, it is sent: `Resent` |
//! | [`Kind::Resent`] | – | the first part of what could not be read (token of the RTS) | as a message |

use super::layout::CELL;
use portals_core::header::WIRE_LEN;
use portals_core::{Body, Header, MdHandle, ProcessId, Segment};
use smallvec::SmallVec;

const PREFIX_AT: usize = 4;
const HEADER_AT: usize = 24;
/// Where the data of a cell begins.
pub(super) const INLINE_AT: usize = HEADER_AT + WIRE_LEN;
/// Data that a cell holds, bytes.
pub(super) const INLINE: usize = CELL - INLINE_AT;
/// Bytes before the data, without the `ready` word.
pub(super) const HEAD: usize = INLINE_AT - PREFIX_AT;
const PIECE: usize = 16;
/// Pieces of memory that one RTS names.
pub(super) const PIECES: usize = INLINE / PIECE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    More,
    ReadyToSend,
    AckToSend,
    Short,
    Resent,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Message,
        Self::More,
        Self::ReadyToSend,
        Self::AckToSend,
        Self::Short,
        Self::Resent,
    ];
}

/// The fields of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) kind: Kind,
    /// Of [`Kind::AckToSend`].
    pub(super) failed: bool,
    /// Of [`Kind::AckToSend`] that failed: the data was not there.
    pub(super) absent: bool,
    /// Of [`Kind::AckToSend`]: the kernel does not copy between the two.
    pub(super) refused: bool,
    pub(super) inline: u16,
    pub(super) token: u32,
    pub(super) bulk_len: u32,
    pub(super) bulk_at: u32,
}

impl Prefix {
    /// A cell without data.
    pub(super) const fn of(kind: Kind) -> Self {
        Self {
            kind,
            failed: false,
            absent: false,
            refused: false,
            inline: 0,
            token: 0,
            bulk_len: 0,
            bulk_at: 0,
        }
    }
}

/// Why a cell cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CellError {
    #[error("unknown kind {0}")]
    Kind(u8),
    #[error("{0} bytes of data in a cell")]
    Inline(u16),
    #[error(transparent)]
    Header(#[from] portals_core::header::DecodeError),
}

/// The bytes from [`PREFIX_AT`] on, of which `header` may be missing.
#[inline]
pub(super) fn encode(prefix: &Prefix, header: Option<&Header>) -> [u8; HEAD] {
    let mut b = [0; HEAD];
    b[0] = prefix.kind as u8;
    b[1] = u8::from(prefix.failed) | u8::from(prefix.refused) << 1 | u8::from(prefix.absent) << 2;
    b[2..4].copy_from_slice(&prefix.inline.to_le_bytes());
    b[4..8].copy_from_slice(&prefix.token.to_le_bytes());
    b[8..12].copy_from_slice(&prefix.bulk_len.to_le_bytes());
    b[12..16].copy_from_slice(&prefix.bulk_at.to_le_bytes());
    if let Some(header) = header {
        b[HEADER_AT - PREFIX_AT..].copy_from_slice(&header.encode());
    }
    b
}

/// Where [`encode`]'s bytes stand in a cell.
pub(super) const fn head_at(cell: usize) -> usize {
    cell + PREFIX_AT
}

/// Reads a copy of a cell's head.
#[inline]
pub(super) fn decode(b: &[u8; HEAD]) -> Result<Prefix, CellError> {
    let kind = *Kind::ALL
        .get(usize::from(b[0]))
        .ok_or(CellError::Kind(b[0]))?;
    let inline = u16::from_le_bytes([b[2], b[3]]);
    let most = if kind == Kind::Short { SHORT } else { INLINE };
    if usize::from(inline) > most {
        return Err(CellError::Inline(inline));
    }
    let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    Ok(Prefix {
        kind,
        failed: b[1] & 1 != 0,
        refused: b[1] & 2 != 0,
        absent: b[1] & 4 != 0,
        inline,
        token: word(4),
        bulk_len: word(8),
        bulk_at: word(12),
    })
}

/// The header in a copy of a cell's head.
#[inline]
pub(super) fn header(b: &[u8; HEAD]) -> Result<Header, CellError> {
    Ok(Header::decode(&b[HEADER_AT - PREFIX_AT..])?)
}

/// Bytes of the short form without the `ready` word.
pub(super) const SHORT_HEAD: usize = 36;
/// Where the data of the short form begins.
pub(super) const SHORT_AT: usize = PREFIX_AT + SHORT_HEAD;
/// Data of the short form, bytes.
pub(super) const SHORT: usize = CELL - SHORT_AT;
const NO_MD: u32 = u32::MAX;

/// A put in the short form; `None` for a message that it cannot say.
#[inline]
pub(super) fn encode_short(h: &Header) -> Option<([u8; SHORT_HEAD], usize)> {
    let Body::Put {
        length,
        remote_offset,
        hdr_data,
        ac_index,
        ack_md,
    } = h.body
    else {
        return None;
    };
    if length > SHORT as u64 {
        return None;
    }
    let portal = u16::try_from(h.pt_index).ok()?;
    let access = u16::try_from(ac_index).ok()?;
    let mut b = [0; SHORT_HEAD];
    b[0] = Kind::Short as u8;
    b[2..4].copy_from_slice(&(length as u16).to_le_bytes());
    b[4..6].copy_from_slice(&portal.to_le_bytes());
    b[6..8].copy_from_slice(&access.to_le_bytes());
    b[8..12].copy_from_slice(&ack_md.map_or(NO_MD, MdHandle::raw).to_le_bytes());
    b[12..20].copy_from_slice(&h.match_bits.to_le_bytes());
    b[20..28].copy_from_slice(&remote_offset.to_le_bytes());
    b[28..36].copy_from_slice(&hdr_data.to_le_bytes());
    Some((b, length as usize))
}

/// Who is at the two ends of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) source: ProcessId,
    pub(super) target: ProcessId,
    /// User and job of the source.
    pub(super) who: (u32, u32),
}

/// The header of a short form; the length of its data was checked by [`decode`].
#[inline]
pub(super) fn decode_short(b: &[u8; SHORT_HEAD], inline: u16, ends: Ends) -> Header {
    let half = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
    let long = |at: usize| b[at..].first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
    let md = u32::from_le_bytes([b[8], b[9], b[10], b[11]]);
    Header {
        target: ends.target,
        source: ends.source,
        uid: ends.who.0,
        jid: ends.who.1,
        pt_index: u32::from(half(4)),
        match_bits: long(12),
        body: Body::Put {
            length: u64::from(inline),
            remote_offset: long(20),
            hdr_data: long(28),
            ac_index: u32::from(half(6)),
            ack_md: (md != NO_MD).then_some(MdHandle::from_raw(md)),
        },
    }
}

/// The pieces of an RTS.
pub(super) fn write_pieces(pieces: &[Segment]) -> SmallVec<[u8; INLINE]> {
    let mut out = SmallVec::new();
    for p in pieces.iter().take(PIECES) {
        out.extend_from_slice(&p.addr.to_le_bytes());
        out.extend_from_slice(&p.len.to_le_bytes());
    }
    out
}

/// Reads them. What they say is only ever given to the kernel.
pub(super) fn read_pieces(bytes: &[u8]) -> SmallVec<[Segment; PIECES]> {
    let half = |b: &[u8]| b.first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
    bytes
        .chunks_exact(PIECE)
        .map(|p| Segment {
            addr: half(p),
            len: half(&p[8..]),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portals_core::Ack;

    #[test]
    fn cells_survive_and_corrupted_ones_are_answers() {
        let h = Header {
            target: ProcessId::new(1, 128),
            source: ProcessId::new(2, 128),
            uid: 5,
            jid: 6,
            pt_index: 38,
            match_bits: 9,
            body: Body::Ack(Ack {
                md: MdHandle::from_raw(7),
                offset: 1,
                rlength: 2,
                mlength: 3,
            }),
        };
        let prefix = Prefix {
            failed: true,
            absent: true,
            refused: true,
            inline: 152,
            token: 3,
            bulk_len: 4,
            bulk_at: 5,
            ..Prefix::of(Kind::AckToSend)
        };
        let b = encode(&prefix, Some(&h));
        assert_eq!(decode(&b), Ok(prefix));
        assert_eq!(header(&b), Ok(h));
        let mut bad = b;
        bad[0] = 6;
        assert_eq!(decode(&bad), Err(CellError::Kind(6)));
        let mut bad = b;
        bad[2] = 153;
        assert_eq!(decode(&bad), Err(CellError::Inline(153)));
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let mut c = b;
            c[rng.usize(..HEAD)] = rng.u8(..);
            let _ = (decode(&c), header(&c));
        }
    }

    #[test]
    fn short_puts_survive_and_others_have_no_short_form() {
        let ends = Ends {
            source: ProcessId::new(2, 128),
            target: ProcessId::new(1, 128),
            who: (5, 6),
        };
        let put = |length, pt_index, ac_index, ack_md| Header {
            target: ends.target,
            source: ends.source,
            uid: 5,
            jid: 6,
            pt_index,
            match_bits: 0x0123_4567_89ab_cdef,
            body: Body::Put {
                length,
                remote_offset: u64::MAX - 1,
                hdr_data: 0xfedc_ba98_7654_3210,
                ac_index,
                ack_md,
            },
        };
        for h in [
            put(0, 0, 0, None),
            put(216, 39, 7, Some(MdHandle::from_raw(9))),
            put(24, 65_535, 65_535, None),
        ] {
            let (short, len) = encode_short(&h).unwrap();
            let mut head = [0xaa; HEAD];
            head[..SHORT_HEAD].copy_from_slice(&short);
            let prefix = decode(&head).unwrap();
            assert_eq!(
                (prefix.kind, usize::from(prefix.inline)),
                (Kind::Short, len)
            );
            assert_eq!(decode_short(&short, prefix.inline, ends), h);
            head[2] = 217;
            assert_eq!(decode(&head), Err(CellError::Inline(217)));
        }
        for h in [
            put(217, 0, 0, None),
            put(8, 65_536, 0, None),
            put(8, 0, 65_536, None),
        ] {
            assert_eq!(encode_short(&h), None);
        }
    }

    #[test]
    fn pieces_survive() {
        let list: Vec<Segment> = (1..=9).map(|i| Segment { addr: i, len: i }).collect();
        let bytes = write_pieces(&list);
        assert_eq!(bytes.len(), 144);
        assert_eq!(read_pieces(&bytes).as_slice(), list);
        assert_eq!(read_pieces(&bytes[..17]).len(), 1);
    }
}
