//! What stands in a cell.
//!
//! ```text
//!  0 ready u32   4 kind u8   5 flags u8   6 inline u16   8 token u32   12 bulk length u32   16 bulk offset u32
//! 20 -           24 header (80)                        104 inline data (152)
//! ```
//!
//! | kind | header | data | then |
//! |---|---|---|---|
//! | [`Kind::Message`] | yes | the first part, inline or in the bulk area | delivered; more parts follow if there are fewer bytes than the header says |
//! | [`Kind::More`] | – | the next part | as above |
//! | [`Kind::Announce`] | yes | where the data is: address, length of each piece | the receiver reads it from the sender's memory, then `Fetched` |
//! | [`Kind::Fetched`] | – | – (token of the announcement; flag: it failed) | the data may be reused |

use super::layout::CELL;
use portals_core::header::WIRE_LEN;
use portals_core::{Header, Segment};
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
/// Pieces of memory that one announcement names.
pub(super) const PIECES: usize = INLINE / PIECE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    More,
    Announce,
    Fetched,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Message, Self::More, Self::Announce, Self::Fetched];
}

/// The fields of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) kind: Kind,
    /// Of [`Kind::Fetched`].
    pub(super) failed: bool,
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
    b[1] = u8::from(prefix.failed);
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
    if usize::from(inline) > INLINE {
        return Err(CellError::Inline(inline));
    }
    let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    Ok(Prefix {
        kind,
        failed: b[1] & 1 != 0,
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

/// The pieces of an announcement.
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
    use portals_core::{Body, MdHandle, ProcessId};

    #[test]
    fn cells_survive_and_corrupted_ones_are_answers() {
        let h = Header {
            target: ProcessId::new(1, 128),
            source: ProcessId::new(2, 128),
            uid: 5,
            jid: 6,
            pt_index: 38,
            match_bits: 9,
            body: Body::Ack {
                md: MdHandle::from_raw(7),
                offset: 1,
                rlength: 2,
                mlength: 3,
            },
        };
        let prefix = Prefix {
            failed: true,
            inline: 152,
            token: 3,
            bulk_len: 4,
            bulk_at: 5,
            ..Prefix::of(Kind::Fetched)
        };
        let b = encode(&prefix, Some(&h));
        assert_eq!(decode(&b), Ok(prefix));
        assert_eq!(header(&b), Ok(h));
        let mut bad = b;
        bad[0] = 4;
        assert_eq!(decode(&bad), Err(CellError::Kind(4)));
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
    fn pieces_survive() {
        let list: Vec<Segment> = (1..=9).map(|i| Segment { addr: i, len: i }).collect();
        let bytes = write_pieces(&list);
        assert_eq!(bytes.len(), 144);
        assert_eq!(read_pieces(&bytes).as_slice(), list);
        assert_eq!(read_pieces(&bytes[..17]).len(), 1);
    }
}
