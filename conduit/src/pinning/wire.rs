//! What ranks say to each other about pinned memory, in the payloads of Mediums.
//!
//! ```text
//!  move    number u32   new u16   old u16   units u64 each
//!  moved   number u32   answers u32         each: code u32 (0: pinned)  rkey u32  bits u64  base u64  len u64
//! ```

use crate::am::MAX_MEDIUM;
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

const ANSWER: usize = 32;

/// Units of one request; its answers fit a Medium, and so do as many that are given up.
pub(crate) const PER_MESSAGE: u32 = ((MAX_MEDIUM - 8) / ANSWER) as u32;

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

pub(crate) fn encode_moved(number: u32, answers: &[Answer<Reach>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + ANSWER * answers.len());
    out.extend(number.to_le_bytes());
    out.extend((answers.len() as u32).to_le_bytes());
    for answer in answers {
        let (code, r) = match answer {
            Ok(reach) => (0, *reach),
            Err(why) => (why.code(), NOWHERE),
        };
        out.extend(u32::from(code).to_le_bytes());
        out.extend(r.rkey.to_le_bytes());
        for n in [r.bits, r.base, r.len] {
            out.extend(n.to_le_bytes());
        }
    }
    out
}

const NOWHERE: Reach = Reach {
    bits: 0,
    base: 0,
    len: 0,
    rkey: 0,
};

/// `None`: it is no reply.
pub(crate) fn decode_moved(b: &[u8]) -> Option<Moved<Reach>> {
    let number = u32_at(b, 0)?;
    let count = u32_at(b, 4)? as usize;
    if b.len() != 8 + ANSWER * count {
        return None;
    }
    let answer = |at: usize| -> Option<Answer<Reach>> {
        let code = u32_at(b, at)?;
        if code != 0 {
            return Some(Err(Refusal::from_code(u8::try_from(code).ok()?)?));
        }
        Some(Ok(Reach {
            rkey: u32_at(b, at + 4)?,
            bits: u64_at(b, at + 8)?,
            base: u64_at(b, at + 16)?,
            len: u64_at(b, at + 24)?,
        }))
    };
    let answers: Option<Vec<_>> = (0..count).map(|i| answer(8 + ANSWER * i)).collect();
    Some(Moved {
        number,
        answers: answers?,
    })
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
        let answers = vec![Ok(reach), Err(Refusal::Unmapped)];
        let reply = encode_moved(9, &answers);
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
        let answers = vec![Err(Refusal::Limit); PER_MESSAGE as usize];
        assert!(encode_moved(0, &answers).len() <= MAX_MEDIUM);
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
