//! What ranks say to each other about pinned memory, in the payloads of Mediums.
//!
//! ```text
//!  move    number u32   new u16   old u16   units u64 each
//!  moved   number u32   answers u32         each: code u32 (0: pinned)   pieces u32
//!                                           each of these: rkey u32   0 u32   bits u64   base u64   len u64
//! ```
//!
//! A unit has a piece for each part of it that is memory, the longest first. An answer has at least one for each unit that is
//! pinned, and the rest as far as a message has room.

use crate::am::limits::MAX_MEDIUM;
use ::firehose::{Answer, Move, Moved, Refusal, Unit};

/// How a peer reaches memory that is pinned for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// What selects its match entry.
    pub(crate) bits: u64,
    /// First byte of what of the unit is memory.
    pub(crate) base: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// The fabric's key.
    pub(crate) rkey: u32,
}

impl Reach {
    /// Where in it `len` bytes at `addr` are.
    #[inline]
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.base)?;
        (offset.checked_add(len)? <= self.len).then_some(offset)
    }
}

/// The pieces of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reaches {
    first: Reach,
    more: Vec<Reach>,
}

impl Reaches {
    /// `None` without any.
    pub(crate) fn new(mut all: Vec<Reach>) -> Option<Self> {
        if all.is_empty() {
            return None;
        }
        let more = all.split_off(1);
        all.pop().map(|first| Self { first, more })
    }

    fn all(&self) -> impl Iterator<Item = &Reach> {
        std::iter::once(&self.first).chain(&self.more)
    }

    pub(crate) fn push(&mut self, reach: Reach) {
        self.more.push(reach);
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> u64 {
        self.all().map(|r| r.len).sum()
    }

    /// Whether any of them has any of `len` bytes at `addr`.
    pub(crate) fn touch(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        self.all()
            .any(|r| r.base < end && addr < r.base.saturating_add(r.len))
    }

    /// The piece that has the byte at `addr`.
    #[inline]
    pub(crate) fn at(&self, addr: u64) -> Option<&Reach> {
        if self.first.offset_of(addr, 1).is_some() {
            return Some(&self.first);
        }
        self.more.iter().find(|r| r.offset_of(addr, 1).is_some())
    }

    /// What of `len` bytes at `addr` is in no piece.
    pub(crate) fn missing(&self, addr: u64, len: u64) -> Vec<(u64, u64)> {
        let mut known: Vec<(u64, u64)> = self
            .all()
            .map(|r| (r.base, r.base.saturating_add(r.len)))
            .collect();
        known.sort_unstable();
        let (mut at, end) = (addr, addr.saturating_add(len));
        let mut missing = Vec::new();
        for (from, to) in known {
            if from > at && at < end {
                missing.push((at, from.min(end) - at));
            }
            at = at.max(to);
        }
        if at < end {
            missing.push((at, end - at));
        }
        missing
    }
}

/// Bytes of an answer without its pieces, and of a piece.
const ANSWER: usize = 8;
const PIECE: usize = 32;

/// Units of one request; its answers fit a Medium, and so do as many that are given up.
pub(crate) const PER_MESSAGE: u32 = ((MAX_MEDIUM - 8) / (ANSWER + PIECE)) as u32;

/// Most pieces of a unit: those of an answer about one unit alone.
pub(crate) const PIECES: usize = (MAX_MEDIUM - 8 - ANSWER) / PIECE;

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    word(bytes, at).map(u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    word(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn encode_move(m: &Move) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 8 * (m.new.len() + m.old.len()));
    out.extend(m.number.to_le_bytes());
    out.extend((m.new.len() as u16).to_le_bytes());
    out.extend((m.old.len() as u16).to_le_bytes());
    for unit in m.new.iter().chain(&m.old) {
        out.extend(unit.0.to_le_bytes());
    }
    out
}

/// `None`: it is no request.
pub(crate) fn decode_move(b: &[u8]) -> Option<Move> {
    let number = u32_at(b, 0)?;
    let new = usize::from(u16::from_le_bytes(word(b, 4)?));
    let old = usize::from(u16::from_le_bytes(word(b, 6)?));
    if b.len() != 8 + 8 * (new + old) || new > PER_MESSAGE as usize {
        return None;
    }
    let units: Option<Vec<Unit>> = (0..new + old)
        .map(|i| u64_at(b, 8 + 8 * i).map(Unit))
        .collect();
    let mut units = units?;
    let old = units.split_off(new);
    Some(Move {
        number,
        new: units,
        old,
    })
}

pub(crate) fn encode_moved<'a>(
    number: u32,
    answers: impl ExactSizeIterator<Item = Answer<&'a Reaches>>,
) -> Vec<u8> {
    let count = answers.len();
    let mut out = Vec::with_capacity(8 + (ANSWER + PIECE) * count);
    out.extend(number.to_le_bytes());
    out.extend((count as u32).to_le_bytes());
    // Room for further pieces of units, beside the first of each.
    let mut room = MAX_MEDIUM.saturating_sub(out.capacity()) / PIECE;
    for answer in answers {
        let (code, pieces) = match answer {
            Ok(reaches) => {
                let more = reaches.more.len().min(room);
                room -= more;
                (0, Some(reaches.all().take(1 + more)))
            }
            Err(why) => (why.code(), None),
        };
        out.extend(u32::from(code).to_le_bytes());
        let at = out.len();
        out.extend(0u32.to_le_bytes());
        let mut written = 0u32;
        for r in pieces.into_iter().flatten() {
            out.extend(r.rkey.to_le_bytes());
            out.extend(0u32.to_le_bytes());
            for n in [r.bits, r.base, r.len] {
                out.extend(n.to_le_bytes());
            }
            written += 1;
        }
        out[at..at + 4].copy_from_slice(&written.to_le_bytes());
    }
    out
}

/// `None`: it is no reply.
pub(crate) fn decode_moved(b: &[u8]) -> Option<Moved<Reaches>> {
    let number = u32_at(b, 0)?;
    let count = u32_at(b, 4)?;
    let mut at = 8;
    let mut answers = Vec::new();
    for _ in 0..count {
        let (code, pieces) = (u32_at(b, at)?, u32_at(b, at + 4)? as usize);
        at += ANSWER;
        if code != 0 {
            let refusal = Refusal::from_code(u8::try_from(code).ok()?)?;
            answers.push((pieces == 0).then_some(Err(refusal))?);
            continue;
        }
        let end = pieces.checked_mul(PIECE)?.checked_add(at)?;
        let all = b.get(at..end)?.chunks_exact(PIECE);
        let all: Option<Vec<_>> = all.map(decode_piece).collect();
        answers.push(Ok(Reaches::new(all?)?));
        at = end;
    }
    (at == b.len()).then_some(Moved { number, answers })
}

fn decode_piece(b: &[u8]) -> Option<Reach> {
    Some(Reach {
        rkey: u32_at(b, 0)?,
        bits: u64_at(b, 8)?,
        base: u64_at(b, 16)?,
        len: u64_at(b, 24)?,
    })
}

/// Portals of pinned units, from this one up to the last that every interface has. A unit's list is as long as a portal
/// has units, and a SeaStar goes along it for each message.
const PORTAL: u32 = 40;
const PORTALS: u64 = 24;

/// The portal of the unit with these match bits.
pub(super) const fn portal_of(bits: u64) -> u32 {
    PORTAL + (bits % PORTALS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_damaged_ones_do_not() {
        let m = Move {
            number: 7,
            new: vec![Unit(1), Unit(u64::MAX)],
            old: vec![Unit(3)],
        };
        let bytes = encode_move(&m);
        assert_eq!(decode_move(&bytes), Some(m));
        let reach = Reach {
            bits: 1 << 40,
            base: 0x7000,
            len: 9,
            rkey: 5,
        };
        let other = Reach {
            base: 0x9000,
            ..reach
        };
        let two = Reaches::new(vec![reach, other]).unwrap();
        let one = Reaches::new(vec![other]).unwrap();
        let answers = vec![Ok(two), Err(Refusal::Unmapped), Ok(one)];
        let reply = encode(9, &answers);
        assert_eq!(decode_moved(&reply), Some(Moved { number: 9, answers }));
        for len in 0..bytes.len() {
            assert_eq!(decode_move(&bytes[..len]), None);
        }
        for len in 0..reply.len() {
            assert_eq!(decode_moved(&reply[..len]), None);
        }
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let noise: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(..) & 3).collect();
            let _ = (decode_move(&noise), decode_moved(&noise));
        }
    }

    #[test]
    fn the_largest_messages_fit_a_medium() {
        let units = vec![Unit(0); PER_MESSAGE as usize];
        let m = Move {
            number: 0,
            new: units.clone(),
            old: units,
        };
        assert!(encode_move(&m).len() <= MAX_MEDIUM);
        // As many pieces as there is room for, and one of each.
        let all = Reaches::new(vec![NOWHERE; PIECES]).unwrap();
        for count in [1, 2, PER_MESSAGE as usize] {
            let reply = encode(0, &vec![Ok(all.clone()); count]);
            assert!(reply.len() <= MAX_MEDIUM);
            let told = decode_moved(&reply).unwrap().answers;
            let first = told[0].as_ref().unwrap().more.len() + 1;
            assert_eq!(first == PIECES, count == 1, "{first} of {count} units");
            assert_eq!(told.len(), count);
        }
    }

    fn encode(number: u32, answers: &[Answer<Reaches>]) -> Vec<u8> {
        encode_moved(
            number,
            answers.iter().map(|a| a.as_ref().map_err(|why| *why)),
        )
    }

    const NOWHERE: Reach = Reach {
        bits: 0,
        base: 0,
        len: 0,
        rkey: 0,
    };

    #[test]
    fn pieces_are_found_and_so_is_what_is_in_none() {
        let piece = |base, len| Reach {
            base,
            len,
            ..NOWHERE
        };
        assert_eq!(Reaches::new(vec![]), None);
        let mut r = Reaches::new(vec![piece(0x3000, 0x2000), piece(0x1000, 0x1000)]).unwrap();
        assert_eq!(r.at(0x4fff).map(|p| p.base), Some(0x3000));
        assert_eq!(r.at(0x1000).map(|p| p.base), Some(0x1000));
        assert_eq!((r.at(0x2000), r.at(0x5000), r.at(0)), (None, None, None));
        assert_eq!(r.missing(0x1000, 0x4000), [(0x2000, 0x1000)]);
        assert_eq!(
            r.missing(0, 0x8000),
            [(0, 0x1000), (0x2000, 0x1000), (0x5000, 0x3000)]
        );
        assert_eq!(r.missing(0x3000, 0x1000), []);
        assert_eq!(r.missing(0x6000, 0x1000), [(0x6000, 0x1000)]);
        r.push(piece(0x2000, 0x1000));
        assert_eq!((r.missing(0x1000, 0x4000), r.bytes()), (vec![], 0x4000));
    }

    #[test]
    fn what_reaches_beyond_is_not_there() {
        let r = Reach {
            base: 0x1000,
            len: 0x100,
            ..NOWHERE
        };
        assert_eq!(r.offset_of(0x1001, 0xff), Some(1));
        assert_eq!(r.offset_of(0x1001, 0x100), None);
        assert_eq!(r.offset_of(0xfff, 1), None);
        assert_eq!(r.offset_of(u64::MAX, 2), None);
    }
}
