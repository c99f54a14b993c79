//! The slots of a ring: how a frame lies in one, and how its reader knows that all of it is there.
//!
//! ```text
//!   slot, 256 bytes:  … free …  frame, 0 to 7 bytes of anything, seal (8), last word (8)
//!   seal:       bytes 0-3 sum, 4-7 value of a put without a header (`frame.rs`)
//!   last word:  byte 0 flags (bit 0: there is a value, bit 1: always), 1 bytes of the frame, 2-3 zero, 4-7 number
//! ```
//!
//! # Invariants
//!
//! * A slot is empty when its last word is zero. The reader empties it before it gives the slot's credit back, so that
//!   nothing old is read as new.
//! * The peer may write at any time: a slot is copied by whole words, and what is looked at is the copy.
//! * Nothing is taken out of a slot but the expected frame: what looks like none may be on its way.
//! * The sum is over all that the frame and its end consist of. An adapter may place the bytes of a packet in any order
//!   (a processor that copies them backwards does): a frame of which some are missing is not there yet.

use fabric_api::region::Region;
use std::sync::atomic::Ordering;

/// Bytes of a slot.
pub(crate) const SLOT: usize = 256;
/// Bytes of a slot after the frame.
pub(crate) const END: usize = 16;
/// Words of the longest frame.
pub(super) const WORDS: usize = (SLOT - END) / 8;

const VALUE: u64 = 1;
const FULL: u64 = 2;
/// Bits of a last word that have no meaning.
const NONE: u64 = 0xffff_00fc;

/// What a slot's last word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last {
    word: u64,
}

impl Last {
    const fn new(number: u32, len: usize, value: Option<u32>) -> Self {
        let word = (number as u64) << 32 | (len as u64) << 8 | FULL;
        Self {
            word: word | value.is_some() as u64,
        }
    }

    const fn number(self) -> u32 {
        (self.word >> 32) as u32
    }

    const fn len(self) -> usize {
        (self.word >> 8) as usize & 0xff
    }

    /// A writer that keeps to the protocol may have made it.
    const fn is_possible(self) -> bool {
        self.word & FULL != 0 && self.word & NONE == 0 && self.len() <= SLOT - END
    }
}

#[inline(always)]
const fn add(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ sum >> 32
}

/// What the frame's words are added to.
#[inline(always)]
const fn start(last: Last, value: u32) -> u64 {
    add(last.word, value as u64)
}

/// Bytes of a slot that a frame of `len` bytes takes, if it fits.
#[inline]
pub(crate) const fn taken(len: usize) -> Option<usize> {
    let words = len.div_ceil(8);
    if words > WORDS {
        return None;
    }
    Some(words * 8 + END)
}

/// Ends the frame number `number` of `len` bytes at the start of `bytes`, which are as many as it takes of a slot.
#[inline(always)]
pub(crate) fn end(bytes: &mut [u8], len: usize, number: u32, value: Option<u32>) {
    let last = Last::new(number, len, value);
    let value = value.unwrap_or(0);
    let Some((frame, [seal, word])) = bytes.as_chunks_mut::<8>().0.split_last_chunk_mut::<2>()
    else {
        return;
    };
    let mut sum = start(last, value);
    for word in frame {
        sum = add(sum, u64::from_le_bytes(*word));
    }
    *seal = (u64::from(value) << 32 | u64::from(sum as u32)).to_le_bytes();
    *word = last.word.to_le_bytes();
}

/// A frame that was copied out of its slot: its bytes, and the value of a put without a header.
pub(super) type Taken = (usize, Option<u32>);

/// The end of a ring that is read.
#[derive(Debug)]
pub(super) struct Reader {
    region: Region,
    slots: usize,
    /// The slot that is read next.
    at: usize,
}

impl Reader {
    pub(super) fn new(slots: usize) -> Option<Self> {
        let region = Region::new(slots.checked_mul(SLOT)?).ok()?;
        Some(Self {
            region,
            slots,
            at: 0,
        })
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Begins with the first slot again. All are empty: nothing was written since the last frame that was taken.
    pub(super) fn begin(&mut self) {
        self.at = 0;
    }

    /// Whether something is in the slot that is read next.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        let last = self.at * SLOT + SLOT - 8;
        self.region
            .load_u64(last, Ordering::Acquire)
            .is_ok_and(|word| word != 0)
    }

    /// Whether every slot is empty. What is in one when the peer writes no more, and all frames before have been taken, is
    /// no frame.
    pub(super) fn is_clean(&self) -> bool {
        let mut lasts = (0..self.slots).map(|slot| slot * SLOT + SLOT - 8);
        lasts.all(|last| matches!(self.region.load_u64(last, Ordering::Acquire), Ok(0)))
    }

    /// Takes the frame with the number `expected` into `copy`, if all of it is in the slot that is read next. What else is
    /// there is a later frame, or one that is being placed, or none; it stays.
    #[inline]
    pub(super) fn take(&mut self, expected: u32, copy: &mut [u64; WORDS]) -> Option<Taken> {
        let end = self.at * SLOT + SLOT;
        let word = |at| self.region.load_u64(at, Ordering::Relaxed).ok();
        let last = Last {
            word: self.region.load_u64(end - 8, Ordering::Acquire).ok()?,
        };
        if last.number() != expected || !last.is_possible() {
            return None;
        }
        let seal = word(end - END)?;
        let value = (seal >> 32) as u32;
        let mut sum = start(last, value);
        let words = last.len().div_ceil(8);
        let first = end - END - 8 * words;
        for (at, place) in copy.iter_mut().take(words).enumerate() {
            *place = word(first + 8 * at)?;
            sum = add(sum, *place);
        }
        if seal as u32 != sum as u32 {
            return None;
        }
        self.region.store_u64(end - 8, 0, Ordering::Relaxed).ok()?;
        self.at += 1;
        if self.at == self.slots {
            self.at = 0;
        }
        Some((last.len(), (last.word & VALUE != 0).then_some(value)))
    }
}

#[cfg(test)]
mod tests;
