//! Stacks of threads. When a thread ends the C library empties its stack, or unmaps it, by calls that pass by no name, and the
//! next thread gets it. So nothing of a stack is pinned for longer than a message; that of the first thread stays, and may.

use super::edge::own_stack;
use std::cell::Cell;

/// The usual size of a stack, bytes.
const STACK: u64 = 8 << 20;

thread_local! {
    /// First address and length of the thread's stack, once it was asked for.
    static OWN: Cell<Option<Option<(u64, u64)>>> = const { Cell::new(None) };
}

/// The stack of the calling thread; `None` of the first thread, whose stack goes with the process.
pub(super) fn own() -> Option<(u64, u64)> {
    OWN.get().unwrap_or_else(|| {
        let found = own_stack();
        OWN.set(Some(found));
        found
    })
}

/// Whether memory is, or may be, of the calling thread's stack.
#[inline]
pub(super) fn is_near(addr: u64) -> bool {
    let here = 0u8;
    addr.abs_diff((&raw const here).addr() as u64) < STACK
}

/// Whether memory near the stack pointer is of the calling thread's stack; `None` where that is the first thread.
#[cold]
pub(super) fn is_own(addr: u64) -> Option<bool> {
    own().map(|(from, len)| addr.wrapping_sub(from) < len)
}

/// Memory that is, or was, the stack of a thread that made transfers.
#[derive(Clone, Debug, Default)]
pub(super) struct Stacks {
    /// First addresses and ends, in order, apart from each other.
    ranges: Vec<(u64, u64)>,
}

impl Stacks {
    pub(super) fn holds(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        self.ranges.iter().any(|r| r.0 <= addr && end <= r.1)
    }

    pub(super) fn touch(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        self.ranges.iter().any(|r| r.0 < end && addr < r.1)
    }

    pub(super) fn add(&mut self, addr: u64, len: u64) {
        let (mut from, mut to) = (addr, addr.saturating_add(len));
        self.ranges.retain(|r| {
            let apart = r.1 < from || to < r.0;
            if !apart {
                from = from.min(r.0);
                to = to.max(r.1);
            }
            apart
        });
        let at = self.ranges.partition_point(|r| r.0 < from);
        self.ranges.insert(at, (from, to));
    }

    /// The parts of ranges (addresses and lengths) that are of no stack.
    pub(super) fn without(&self, pieces: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        if self.ranges.is_empty() {
            return pieces;
        }
        let mut rest = Vec::with_capacity(pieces.len());
        for (addr, len) in pieces {
            let (mut from, end) = (addr, addr.saturating_add(len));
            for (first, last) in &self.ranges {
                if *last <= from || end <= *first {
                    continue;
                }
                if from < *first {
                    rest.push((from, first - from));
                }
                from = (*last).min(end);
            }
            if from < end {
                rest.push((from, end - from));
            }
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_cut_out() {
        let mut s = Stacks::default();
        assert_eq!(s.without(vec![(0, 100)]), [(0, 100)]);
        s.add(40, 10);
        s.add(20, 10);
        s.add(70, 30);
        assert_eq!(
            s.without(vec![(0, 100), (25, 20), (110, 5)]),
            [(0, 20), (30, 10), (50, 20), (30, 10), (110, 5)]
        );
        assert!(s.touch(29, 1) && !s.touch(30, 10) && s.holds(70, 30) && !s.holds(69, 2));
        s.add(28, 14);
        assert_eq!(s.ranges, [(20, 50), (70, 100)]);
        assert_eq!(s.without(vec![(20, 30)]), []);
    }

    #[test]
    fn a_thread_finds_its_stack() {
        let found = std::thread::spawn(|| {
            let here = 0u8;
            let addr = (&raw const here).addr() as u64;
            let (from, len) = own().unwrap();
            assert!(from <= addr && addr - from < len);
            assert_eq!(own(), Some((from, len)));
            assert!(is_near(addr));
            assert_eq!((is_own(addr), is_own(from - 1)), (Some(true), Some(false)));
        });
        found.join().unwrap();
    }
}
