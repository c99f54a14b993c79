//! The area of a ring for data that does not fit its cells: where pieces lie, and what the sender knows to be free.

use super::ring::{Corrupt, Word};

/// Pieces begin on lines of their own.
const GRAIN: u32 = 64;

/// Where the piece of `len` bytes lies that follows position `next` of an area of `size` bytes, a power of two, and
/// the position after it. A piece that would cross the end lies at the beginning: within the area for any `next`, if
/// it is not longer than that.
#[inline]
pub(super) const fn place(next: u32, len: u32, size: u32) -> (u32, u32) {
    let at = next & (size - 1);
    let pad = if at + len > size { size - at } else { 0 };
    let end = next
        .wrapping_add(pad)
        .wrapping_add(len.next_multiple_of(GRAIN));
    ((at + pad) & (size - 1), end)
}

/// Says in the reader's word of an area that it is at `position`: what lies before may be written again.
#[inline]
pub(super) fn give_back(freed: &impl Word, position: u32) {
    freed.release(position);
}

/// How far the reader of an area is by its word, if that is between `before`, where it was, and `next`, where the
/// writer is.
///
/// The word brings its own order with what the reader has read: it may be newer than the ring's word of released
/// cells that was looked at before it.
#[inline]
pub(super) fn given_back(freed: &impl Word, before: u32, next: u32) -> Result<u32, Corrupt> {
    let claimed = freed.acquire();
    let possible = claimed.wrapping_sub(before) <= next.wrapping_sub(before);
    if possible {
        Ok(claimed)
    } else {
        Err(Corrupt {
            claimed,
            from: before,
            to: next,
        })
    }
}

/// The sender's account of a ring's bulk area. Positions count up and wrap; a piece never crosses the end.
#[derive(Debug)]
pub(super) struct Bulk {
    size: u32,
    pub(super) next: u32,
    pub(super) freed: u32,
    /// `next` after each cell, by the cell's index.
    pub(super) marks: Vec<u32>,
}

impl Bulk {
    /// Of an unused area of `size` bytes, a power of two.
    pub(super) const fn new(size: u32) -> Self {
        Self {
            size,
            next: 0,
            freed: 0,
            marks: Vec::new(),
        }
    }

    /// Room for `len` bytes: the offset, and `next` after it.
    pub(super) fn room(&self, len: u32) -> Option<(u32, u32)> {
        let (at, end) = place(self.next, len, self.size);
        let fits = end.wrapping_sub(self.freed) <= self.size;
        fits.then_some((at, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn bulk_pieces_never_overlap_what_is_not_freed() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut bulk = Bulk {
            size: 1024,
            next: u32::MAX - 2047,
            freed: u32::MAX - 2047,
            marks: Vec::new(),
        };
        let mut used: VecDeque<(u32, u32, u32)> = VecDeque::new();
        let mut most = 0;
        for _ in 0..10_000 {
            let len = rng.u32(1..=512);
            match bulk.room(len) {
                Some((at, next)) => {
                    assert!(at + len <= 1024);
                    for (a, l, _) in &used {
                        assert!(at + len <= *a || a + l <= at, "{at}+{len} {a}+{l}");
                    }
                    used.push_back((at, len, next));
                    bulk.next = next;
                    most = most.max(used.len());
                }
                None => {
                    let (_, _, next) = used.pop_front().expect("an empty area has room");
                    bulk.freed = next;
                    if used.is_empty() {
                        assert_eq!(bulk.freed, bulk.next);
                    }
                }
            }
        }
        assert!(most > 2);
    }
}
