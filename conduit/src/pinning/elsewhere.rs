//! Memory that goes, or comes, on threads that may not use the conduit: they leave word, and the thread that has the turn
//! looks at what is pinned there before it does anything that a peer could act on.

use crate::conduit::Conduit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Ranges that are kept apart; more of them are all memory.
const MOST: usize = 64;

/// Says that memory has gone, from threads that may not use the conduit ([`Conduit::elsewhere`]).
#[derive(Clone, Debug, Default)]
pub struct Elsewhere(Arc<Word>);

#[derive(Debug, Default)]
struct Word {
    due: AtomicBool,
    /// Addresses and lengths.
    ranges: Mutex<Vec<(u64, u64)>>,
}

impl Elsewhere {
    /// `len` bytes at `addr` have been unmapped, their contents taken away, or other memory has come there. What is pinned of
    /// them is not used by a transfer of this rank that begins later; peers are asked to give them back in its next call that
    /// sends or polls, which waits for them outside of handlers.
    pub fn forget(&self, addr: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut ranges = self.0.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if ranges.len() < MOST {
            ranges.push((addr, len));
        } else {
            ranges.truncate(1);
            ranges[0] = (0, u64::MAX);
        }
        self.0.due.store(true, Ordering::Release);
    }

    /// Whether there is a range that nobody has looked at.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.0.due.load(Ordering::Relaxed)
    }

    /// The ranges since the last time.
    pub(super) fn take(&self) -> Vec<(u64, u64)> {
        let mut ranges = self.0.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.due.store(false, Ordering::Relaxed);
        std::mem::take(&mut ranges)
    }
}

impl Conduit {
    /// Sees to it that what other threads took away is pinned by nobody, if there is such memory. Not in handlers, which may
    /// not wait.
    #[inline(always)]
    pub(crate) fn mind_elsewhere(&self) {
        if self.elsewhere.is_due() {
            self.forget_elsewhere();
        }
    }

    #[cold]
    fn forget_elsewhere(&self) {
        if self.handler_depth.get() > 0 {
            return;
        }
        for (addr, len) in self.elsewhere.take() {
            self.renew_mapped(addr, len);
        }
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
        assert_eq!((told.len(), told[1]), (MOST, (2 << 12, 4096)));
        assert!(!word.is_due() && word.take().is_empty());
        for n in 0..=MOST as u64 {
            word.forget(n << 12, 4096);
        }
        assert!(word.is_due());
        assert_eq!(word.take(), [(0, u64::MAX)]);
    }
}
