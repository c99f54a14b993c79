//! The ring between one sender and one receiver, and the bell that wakes a sleeping rank: who may touch which
//! cell, and nothing else. Memory, formats and system calls are elsewhere, so that the same code runs on shared
//! memory and under loom.
//!
//! ```text
//!             consumed          next of the producer
//!                 │                  │
//!   cells  ·  ·  [4][5][6][7][8][9]  ·  ·  ·          position p lies in cell p mod cells
//!                          │
//!                  next of the consumer               its `ready` word says p + 1 once it is written
//! ```
//!
//! # Invariants
//!
//! * Only the producer writes cells and `ready` words, only the consumer writes `consumed`.
//! * The producer writes a cell only when `consumed` has passed the position that lay in it before.
//! * A cell is written completely before its `ready` word says so: a producer that dies has published all of a
//!   message or nothing of it. Nobody ever waits for a lock of a process that is gone, because there is none.
//! * Positions are 32-bit numbers that wrap; a ring has a power of two of cells, at most 2^30.
//! * A word that the other side could not have written by these rules is [`Corrupt`]: it is counted, and the last
//!   good value stays in force.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};

/// A 32-bit word that both sides see.
pub(super) trait Word {
    /// Loads; what the other side did before its store is seen.
    fn acquire(&self) -> u32;
    /// Stores; what was done before is seen by whoever loads this.
    fn release(&self, value: u32);
    /// Stores and gives what was there.
    fn exchange(&self, value: u32) -> u32;
    /// Orders all that this thread did before against all that it does after, for every thread that does the same.
    fn fence();
    /// The same against threads that have the kernel put a fence into this one.
    fn light_fence();
}

/// How what a rank writes and then reads is ordered with a peer that is about to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Each has a fence.
    Both,
    /// The sleeper has the kernel put one into the other too.
    Sleeper,
}

impl Order {
    #[inline]
    fn fence<W: Word>(self) {
        match self {
            Self::Both => W::fence(),
            Self::Sleeper => W::light_fence(),
        }
    }
}

impl Word for AtomicU32 {
    #[inline]
    fn acquire(&self) -> u32 {
        self.load(Ordering::Acquire)
    }
    #[inline]
    fn release(&self, value: u32) {
        self.store(value, Ordering::Release);
    }
    #[inline]
    fn exchange(&self, value: u32) -> u32 {
        self.swap(value, Ordering::AcqRel)
    }
    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
    #[inline]
    fn light_fence() {
        compiler_fence(Ordering::SeqCst);
    }
}

/// Where the words of a ring are.
pub(super) trait Words {
    type Word: Word;
    /// The word of the cell at `index`, which is below the number of cells.
    fn ready(&self, index: u32) -> &Self::Word;
    /// How far the consumer is.
    fn consumed(&self) -> &Self::Word;
    /// 1 while the producer waits for room.
    fn starved(&self) -> &Self::Word;
}

/// The other side's word says what it cannot mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reader claims to be at {claimed}, which is not within {from}..={to}")]
pub(super) struct Corrupt {
    pub(super) claimed: u32,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct Producer {
    mask: u32,
    /// The next position to write.
    next: u32,
    /// The last good value of `consumed`.
    seen: u32,
}

impl Producer {
    /// The end of an unused ring of `cells` cells, a power of two.
    pub(super) fn new(cells: u32) -> Self {
        Self {
            mask: cells - 1,
            next: 0,
            seen: 0,
        }
    }

    /// How far the consumer is, looked at anew.
    #[inline]
    pub(super) fn look(&mut self, words: &impl Words) -> Result<u32, Corrupt> {
        let claimed = words.consumed().acquire();
        // Between the last good value and what was written, going up.
        if claimed.wrapping_sub(self.seen) <= self.next.wrapping_sub(self.seen) {
            self.seen = claimed;
            Ok(claimed)
        } else {
            Err(Corrupt {
                claimed,
                from: self.seen,
                to: self.next,
            })
        }
    }

    /// The cell to write next, if one is known to be free without looking at the consumer's word.
    #[inline]
    pub(super) fn room(&self) -> Option<u32> {
        (self.next.wrapping_sub(self.seen) <= self.mask).then_some(self.next & self.mask)
    }

    /// The cell that will be written after so many others, if it is known to be free.
    #[inline]
    pub(super) fn room_after(&self, others: u32) -> Option<u32> {
        let then = self.next.wrapping_add(others);
        (then.wrapping_sub(self.seen) <= self.mask).then_some(then & self.mask)
    }

    /// The cell that [`Producer::room`] gave has been written.
    #[inline]
    pub(super) fn publish(&mut self, words: &impl Words) {
        self.publish_in(words.ready(self.next & self.mask));
    }

    /// Publishes the next cell, whose word is at hand.
    #[inline]
    pub(super) fn publish_in(&mut self, ready: &impl Word) {
        self.next = self.next.wrapping_add(1);
        ready.release(self.next);
    }

    /// The position after the last one that was published.
    pub(super) fn position(&self) -> u32 {
        self.next
    }

    /// How far the consumer was when it was last looked at.
    pub(super) fn seen(&self) -> u32 {
        self.seen
    }

    /// From now on the consumer rings when it makes room; look once more before sleeping.
    pub(super) fn starve<W: Words>(words: &W) {
        words.starved().release(1);
        W::Word::fence();
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Consumer {
    mask: u32,
    /// The next position to read.
    next: u32,
    /// What `consumed` says.
    told: u32,
    /// `next` when the producer was last asked whether it waits.
    asked: u32,
}

impl Consumer {
    /// The end of an unused ring of `cells` cells, a power of two.
    pub(super) fn new(cells: u32) -> Self {
        Self {
            mask: cells - 1,
            next: 0,
            told: 0,
            asked: 0,
        }
    }

    /// The oldest cell that has been written and not released.
    #[inline]
    pub(super) fn ready(&self, words: &impl Words) -> Option<u32> {
        let at = self.next & self.mask;
        is_written(words.ready(at), self.next).then_some(at)
    }

    /// Whether the word of the cell that is read next makes sense.
    pub(super) fn is_possible(&self, words: &impl Words) -> bool {
        let ready = words.ready(self.next & self.mask);
        is_possible(ready, self.next, self.mask + 1)
    }

    /// The cell that [`Consumer::ready`] gave is no longer needed.
    #[inline]
    pub(super) fn release(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// All that was released has been given back, and the producer asked whether it waits: that comes last.
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.asked == self.next
    }

    /// Lets the producer have what was released. `true`: it waits for that and must be woken.
    ///
    /// Whether it waits is asked when a quarter of the ring has been given back since the last time, or with
    /// `idle`, when there was nothing to consume; a producer that waits has filled the ring, so one of the two
    /// comes.
    #[inline]
    pub(super) fn tell<W: Words>(&mut self, words: &W, idle: bool, order: Order) -> bool {
        if self.told != self.next {
            self.told = self.next;
            words.consumed().release(self.next);
        }
        let given = self.next.wrapping_sub(self.asked);
        if given == 0 || (!idle && given <= self.mask / 4) {
            return false;
        }
        self.asked = self.next;
        order.fence::<W::Word>();
        words.starved().acquire() == 1 && words.starved().exchange(0) == 1
    }
}

/// Whether the word of the cell that is read next at `position` is one that its writer can have written: for it, for the
/// one that lay there before, or none yet.
pub(super) fn is_possible(ready: &impl Word, position: u32, cells: u32) -> bool {
    let next = position.wrapping_add(1);
    [next, next.wrapping_sub(cells), 0].contains(&ready.acquire())
}

/// Whether the cell that is read next has a word that its writer cannot have written. Another thread may take frames meanwhile:
/// it tells the writer so, which then writes what belongs to a later position. So a word counts only if the position is the same
/// after the look. `is_possible` is [`is_possible`] of the word at a position, which it reads with acquire order.
pub(super) fn is_spoiled(position: impl Fn() -> u32, is_possible: impl Fn(u32) -> bool) -> bool {
    let looked_at = position();
    !is_possible(looked_at) && position() == looked_at
}

/// Whether the cell of `position`, which has this word, has been written.
#[inline]
pub(super) fn is_written(ready: &impl Word, position: u32) -> bool {
    ready.acquire() == position.wrapping_add(1)
}

/// A [`Producer`] that any thread may reach, and one uses at a time: without that frames are lost, and nothing else.
#[derive(Debug)]
pub(super) struct SharedProducer {
    mask: u32,
    next: AtomicU32,
    seen: AtomicU32,
}

impl SharedProducer {
    /// One of a ring with so many cells; see [`Producer::new`].
    pub(super) fn new(cells: u32) -> Self {
        Self {
            mask: cells - 1,
            next: AtomicU32::new(0),
            seen: AtomicU32::new(0),
        }
    }

    /// Looks at it, or uses a copy of it.
    #[inline]
    pub(super) fn get(&self) -> Producer {
        Producer {
            mask: self.mask,
            next: self.next.load(Ordering::Relaxed),
            seen: self.seen.load(Ordering::Relaxed),
        }
    }

    /// What became of the copy.
    #[inline]
    pub(super) fn set(&self, end: &Producer) {
        self.next.store(end.next, Ordering::Relaxed);
        self.seen.store(end.seen, Ordering::Relaxed);
    }
}

/// A [`Consumer`] that one thread uses at a time, while any may look whether there is something.
#[derive(Debug)]
pub(super) struct SharedConsumer {
    mask: u32,
    next: AtomicU32,
    told: AtomicU32,
    asked: AtomicU32,
}

impl SharedConsumer {
    /// One of a ring with so many cells; see [`Consumer::new`].
    pub(super) fn new(cells: u32) -> Self {
        Self {
            mask: cells - 1,
            next: AtomicU32::new(0),
            told: AtomicU32::new(0),
            asked: AtomicU32::new(0),
        }
    }

    /// The position that is read next.
    #[inline]
    pub(super) fn position(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// The cell at that position is no longer needed.
    #[inline]
    pub(super) fn release(&self) {
        let next = self.position().wrapping_add(1);
        self.next.store(next, Ordering::Relaxed);
    }

    /// Whether all that was released has been given back; see [`Consumer::is_told`].
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == self.position()
    }

    /// A copy of it.
    #[inline]
    pub(super) fn get(&self) -> Consumer {
        Consumer {
            mask: self.mask,
            next: self.next.load(Ordering::Relaxed),
            told: self.told.load(Ordering::Relaxed),
            asked: self.asked.load(Ordering::Relaxed),
        }
    }

    /// What became of the copy.
    #[inline]
    pub(super) fn set(&self, end: &Consumer) {
        self.next.store(end.next, Ordering::Relaxed);
        self.told.store(end.told, Ordering::Relaxed);
        self.asked.store(end.asked, Ordering::Relaxed);
    }
}

/// The word that a rank sleeps on: 1 while somebody sleeps or is about to.
///
/// A sleeper sets it, looks for work once more, and sleeps while it is still set. Whoever makes work looks at it
/// afterwards. Between the two writes and the two reads stands a fence on each side, so one of the two sees the
/// other. A fence waits until what was written is out, which is most of the price of a short message: where the
/// kernel can, the sleeper has it put the fence into the running threads of all others ([`Order::Sleeper`]).
#[derive(Debug)]
pub(super) struct Bell;

impl Bell {
    /// To be followed by a last look for work, and then by a sleep while the word is 1.
    pub(super) fn prepare<W: Word>(word: &W) {
        word.release(1);
        W::fence();
    }

    /// Work was made. `true`: all sleepers must be woken.
    #[inline]
    pub(super) fn is_due<W: Word>(word: &W, order: Order) -> bool {
        order.fence::<W>();
        word.acquire() == 1 && word.exchange(0) == 1
    }
}

#[cfg(test)]
mod tests;
