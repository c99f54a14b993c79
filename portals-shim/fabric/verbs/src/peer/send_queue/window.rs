//! The window of a send queue: what is posted and not completed, and a place for the bytes of each request.
//!
//! ```text
//!   places:  │ oldest … │ posted last │ next │ one ahead … │
//!            └──── flying ───────────┘
//! ```
//!
//! # Invariants
//!
//! * At most `depth` requests fly, marks among them, in the order of their posting, in which they complete. What is no mark is
//!   posted only while fewer than `room` fly.
//! * The places are used in turn, so that a request keeps its bytes until it has completed: that of a request just taken is used
//!   again only `depth` posts after its own.
//! * `flown` counts what was ever posted, modulo 2^32, and so numbers the requests: the oldest one has number `flown` less what flies.
//! * `quiet` frames fly after the last request that makes a completion. They end with the completion of a later request, or
//!   with one of their own if they fail.

use super::{COPY, PLAIN};
use crate::memory::Transfer;
use crate::watch::Watch;
use std::collections::VecDeque;
use std::time::Instant;
use verbs_backend::SendFlags;

/// Short frames in a row without a completion, at most; of shallow send queues a quarter.
pub(super) const QUIET: usize = 16;

/// A request that is posted and not completed.
#[derive(Debug)]
pub(super) enum Flying {
    /// A frame of so many bytes that the post copied; kept in its place for the case that it must be sent again. A silent
    /// one makes no completion on success.
    Small {
        len: usize,
        silent: bool,
    },
    /// A frame in a buffer, which comes back with the completion.
    Buffered(usize),
    Credit,
    /// Nothing, but a completion for the silent ones before it.
    Mark,
    /// A read, which may be made again.
    Read {
        transfer: Transfer,
        id: u64,
    },
    /// A write of relaxed order, which may be made again as long as the message after it has not come. A silent one makes no
    /// completion on success.
    RelaxedWrite {
        transfer: Transfer,
        id: u64,
        silent: bool,
    },
    /// A notified put and its message in one request; its notice of so many bytes is kept in
    /// its place.
    WriteImmediate {
        transfer: Transfer,
        id: u64,
        len: usize,
    },
    /// A write, which may not: the peer may have changed the memory since. Silent as above.
    Write {
        id: u64,
        len: u64,
        silent: bool,
    },
}

impl Flying {
    /// Bytes of data that it moves.
    fn len(&self) -> u64 {
        match self {
            Self::Small { len, .. } | Self::Buffered(len) => *len as u64,
            Self::Credit | Self::Mark => 0,
            Self::Read { transfer, .. }
            | Self::RelaxedWrite { transfer, .. }
            | Self::WriteImmediate { transfer, .. } => transfer.local.len,
            Self::Write { len, .. } => *len,
        }
    }
}

/// What is posted and not completed.
#[derive(Debug)]
pub(super) struct Window {
    flying: VecDeque<Flying>,
    /// Requests posted ever, modulo 2^32.
    flown: u32,
    /// Silent frames that fly after the last request that makes a completion.
    quiet: usize,
    /// A place for each request under way, used in turn: a frame that the post copies is written there.
    copies: Vec<[u8; COPY]>,
    /// The place of the next request.
    next: usize,
    depth: usize,
    /// Requests under way besides marks: as many, or one less where marks need their own place.
    room: usize,
    /// How long the oldest request has been under way.
    watch: Option<Watch>,
}

impl Window {
    /// Of a queue pair that is still to come.
    pub(super) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        Self {
            flying: VecDeque::new(),
            flown: 0,
            quiet: 0,
            copies: Vec::new(),
            next: 0,
            depth,
            room: depth,
            watch: None,
        }
    }

    /// There is a queue pair: requests get their places.
    pub(super) fn open(&mut self) {
        self.copies.resize(self.depth, [0; COPY]);
    }

    /// From here on there is always a place for a mark.
    pub(super) fn keep_place_for_mark(&mut self) {
        self.room = self.depth.saturating_sub(1);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.flying.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// Not even a mark can be posted.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.flying.len() >= self.depth
    }

    /// So many requests more can be posted, which are no marks.
    #[inline]
    pub(super) fn fits(&self, more: usize) -> bool {
        self.flying.len() + more <= self.room
    }

    /// Requests up to the last one that makes a completion.
    #[inline]
    pub(super) fn loud(&self) -> usize {
        // A completion of a request that is not under way has taken frames too many.
        self.flying.len().saturating_sub(self.quiet)
    }

    /// Silent frames after it.
    #[inline]
    pub(super) fn quiet(&self) -> usize {
        self.quiet
    }

    /// Requests that were ever posted, modulo 2^32.
    #[inline]
    pub(super) fn flown(&self) -> u32 {
        self.flown
    }

    /// The number of the oldest request under way, modulo 2^32.
    #[inline]
    pub(super) fn oldest(&self) -> u32 {
        self.flown.wrapping_sub(self.flying.len() as u32)
    }

    /// The id of a request without a record that is posted after `ahead` others.
    #[inline]
    pub(super) fn plain(&self, ahead: u32) -> u64 {
        PLAIN | u64::from(self.flown.wrapping_add(ahead))
    }

    /// How a short frame is posted next, and whether it is silent.
    #[inline]
    pub(super) fn unsignalled(&self) -> (SendFlags, bool) {
        if self.quiet < QUIET.min(self.depth / 4) {
            (SendFlags::empty(), true)
        } else {
            (SendFlags::SIGNALLED, false)
        }
    }

    /// A request was posted.
    #[inline(always)]
    pub(super) fn push(&mut self, flying: Flying) {
        self.quiet = match flying {
            Flying::Small { silent: true, .. } => self.quiet + 1,
            _ => 0,
        };
        self.flying.push_back(flying);
        self.flown = self.flown.wrapping_add(1);
        self.next += 1;
        if self.next >= self.depth {
            self.next = 0;
        }
    }

    /// The oldest request.
    #[inline]
    pub(super) fn front(&self) -> Option<&Flying> {
        self.flying.front()
    }

    /// All of them, the oldest one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Flying> {
        self.flying.iter()
    }

    /// Takes the oldest request, which has ended, well or not.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Flying> {
        let flying = self.flying.pop_front();
        // Silent ones that failed do make completions.
        self.quiet = self.quiet.min(self.flying.len());
        flying
    }

    /// Takes the silent frames that fly first, which were done before the request `completed`.
    #[inline]
    fn frames_done(&mut self, completed: u64) {
        while let Some(Flying::Small { silent: true, .. }) = self.flying.front() {
            if completed == PLAIN | u64::from(self.oldest()) {
                break;
            }
            self.flying.pop_front();
        }
    }

    /// The oldest request, if it is that of the record `completed`, which has succeeded, or a silent one before it.
    #[inline]
    pub(super) fn done_up_to(&mut self, completed: u64) -> Option<u64> {
        self.frames_done(completed);
        match self.flying.front() {
            Some(Flying::Write { id, silent, .. } | Flying::RelaxedWrite { id, silent, .. })
                if *silent || *id == completed =>
            {
                let id = *id;
                self.flying.pop_front();
                Some(id)
            }
            Some(Flying::Read { id, .. } | Flying::WriteImmediate { id, .. })
                if *id == completed =>
            {
                self.flying.pop_front();
                Some(completed)
            }
            _ => None,
        }
    }

    /// The oldest request, if it is a silent one that was done before the request `id`, which has completed.
    #[inline]
    pub(super) fn done_silently(&mut self, completed: u64) -> Option<u64> {
        self.frames_done(completed);
        match self.flying.front() {
            Some(
                Flying::Write {
                    id, silent: true, ..
                }
                | Flying::RelaxedWrite {
                    id, silent: true, ..
                },
            ) if *id != completed => {
                let id = *id;
                self.flying.pop_front();
                Some(id)
            }
            _ => None,
        }
    }

    /// Whether the oldest request has been under way for longer than an adapter takes that has not forgotten it.
    pub(super) fn has_forgotten(&mut self, now: Instant) -> bool {
        let Some(oldest) = self.flying.front() else {
            self.watch = None;
            return false;
        };
        let (watch, forgotten) = Watch::look(self.watch, self.oldest(), oldest.len(), now);
        self.watch = Some(watch);
        forgotten
    }

    /// The place of the next request.
    #[inline(always)]
    pub(super) fn place(&self) -> Option<&[u8; COPY]> {
        self.copies.get(self.next)
    }

    /// The place of the next request.
    #[inline(always)]
    pub(super) fn place_mut(&mut self) -> Option<&mut [u8; COPY]> {
        self.copies.get_mut(self.next)
    }

    /// The place of the request after `ahead` others.
    #[inline]
    pub(super) fn ahead(&self, ahead: usize) -> Option<&[u8; COPY]> {
        self.copies.get(self.at(ahead))
    }

    /// The place of the request after `ahead` others.
    #[inline]
    pub(super) fn ahead_mut(&mut self, ahead: usize) -> Option<&mut [u8; COPY]> {
        let at = self.at(ahead);
        self.copies.get_mut(at)
    }

    #[inline(always)]
    fn at(&self, ahead: usize) -> usize {
        let at = self.next + ahead;
        if at < self.depth { at } else { at - self.depth }
    }

    /// The first `len` bytes in the place of the request that was popped last.
    pub(super) fn bytes_of_popped(&self, len: usize) -> Option<&[u8]> {
        self.copies
            .get(self.back(self.flying.len() + 1))?
            .get(..len)
    }

    /// The first `len` bytes in the place of the oldest request.
    pub(super) fn bytes_of_oldest(&self, len: usize) -> Option<&[u8]> {
        self.copies.get(self.back(self.flying.len()))?.get(..len)
    }

    /// The place that was the next one so many requests ago.
    fn back(&self, back: usize) -> usize {
        (self.next + self.depth).saturating_sub(back) % self.depth.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is posted and completes, each request finds the bytes that were written for it.
    #[test]
    fn a_request_keeps_its_bytes_until_it_has_completed() {
        for depth in [1, 2, 3, 16] {
            let mut rng = fastrand::Rng::with_seed(7);
            let mut window = Window::new(depth);
            window.open();
            let (mut posted, mut done) = (0_u32, 0_u32);
            for _ in 0..5_000 {
                if window.fits(1) && rng.bool() {
                    let ahead = usize::from(window.fits(2));
                    window.ahead_mut(ahead).unwrap().fill(0xee);
                    let place = window.place_mut().unwrap();
                    place[..4].copy_from_slice(&posted.to_le_bytes());
                    window.push(Flying::Small {
                        len: 4,
                        silent: false,
                    });
                    posted += 1;
                } else if !window.is_empty() {
                    let oldest = window.bytes_of_oldest(4).unwrap();
                    assert_eq!(oldest, done.to_le_bytes(), "depth {depth}");
                    assert_eq!(window.oldest(), done);
                    assert!(window.pop().is_some());
                    let popped = window.bytes_of_popped(4).unwrap();
                    assert_eq!(popped, done.to_le_bytes(), "depth {depth}");
                    done += 1;
                }
                assert_eq!(window.len() as u32, posted - done);
                assert_eq!(window.is_full(), posted - done == depth);
            }
            assert!(done > 1_000, "{done}");
        }
    }

    #[test]
    fn a_mark_finds_its_place_where_one_is_kept() {
        let mut window = Window::new(4);
        window.keep_place_for_mark();
        assert!(window.fits(3) && !window.fits(4));
        for number in 0..3 {
            assert_eq!(window.plain(1), PLAIN | (number + 1));
            window.push(Flying::Credit);
        }
        assert!(!window.fits(1) && !window.is_full());
        window.push(Flying::Mark);
        assert!(window.is_full());
    }
}
