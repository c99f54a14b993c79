//! Memory that is unmapped or mapped by threads that may not use the conduit. They note the range, and the thread that has
//! the turn looks at what is pinned there before it does anything that a peer could act on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ranges that are kept apart; more of them are all memory.
const MOST: usize = 64;

/// Says that memory has gone, from threads that may not use the conduit ([`crate::Conduit::elsewhere`]).
#[derive(Clone, Debug, Default)]
pub struct Elsewhere(Arc<Word>);

#[derive(Debug, Default)]
struct Word {
    due: AtomicBool,
    ranges: Mutex<Ranges>,
}

/// Addresses and lengths, in an array: an allocator may give memory back while it holds its locks, so that nothing can be
/// allocated to note it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranges {
    kept: [(u64, u64); MOST],
    count: usize,
}

impl Default for Ranges {
    fn default() -> Self {
        Self {
            kept: [(0, 0); MOST],
            count: 0,
        }
    }
}

impl Ranges {
    fn push(&mut self, range: (u64, u64)) {
        if let Some(place) = self.kept.get_mut(self.count) {
            *place = range;
            self.count += 1;
        } else {
            self.kept[0] = (0, u64::MAX);
            self.count = 1;
        }
    }

    pub(super) fn as_slice(&self) -> &[(u64, u64)] {
        &self.kept[..self.count]
    }
}

impl Elsewhere {
    /// `len` bytes at `addr` have been unmapped, their contents taken away, or other memory has come there. No transfer
    /// of this rank that begins later uses what is pinned there. Its next call that sends or polls asks peers to give such units
    /// back, and outside of handlers waits for them. Allocates nothing.
    pub fn forget(&self, addr: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut ranges = self.0.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.push((addr, len));
        self.0.due.store(true, Ordering::Release);
    }

    /// Whether there is a range that nobody has looked at.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.0.due.load(Ordering::Relaxed)
    }

    /// The ranges since the last time.
    pub(super) fn take(&self) -> Ranges {
        let mut ranges = self.0.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.due.store(false, Ordering::Relaxed);
        std::mem::take(&mut ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranges_are_all_memory() {
        let word = Elsewhere::default();
        word.forget(4096, 0);
        assert!(!word.is_due());
        for n in 1..=MOST as u64 {
            word.forget(n << 12, 4096);
        }
        let told = word.take();
        assert_eq!(told.as_slice().len(), MOST);
        assert_eq!(told.as_slice()[1], (2 << 12, 4096));
        assert!(!word.is_due() && word.take().as_slice().is_empty());
        for n in 0..=MOST as u64 {
            word.forget(n << 12, 4096);
        }
        assert!(word.is_due());
        assert_eq!(word.take().as_slice(), [(0, u64::MAX)]);
    }
}
