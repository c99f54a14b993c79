//! The rings of a rank.
//!
//! # Invariants
//!
//! * A peer writes one ring of `open` at most, and none of `left`.
//! * There is a `nap` only while there are rings in `open`.

use super::slots::{Reader, WORDS};
use std::time::{Duration, Instant};
use verbs_backend::Mr;

/// Rings of a rank unless `PORTOLAN_RINGS` says: each costs every poll a look.
pub(crate) const MOST: u32 = 8;
/// Short frames without a sleep in between that make a peer an active one, which gets a ring.
pub(crate) const ACTIVE: u32 = 32;
/// Times that one call looks at the rings.
const WATCHES: u32 = 8;
/// The first sleep while a peer has not left its ring; doubled from one to the next.
const FIRST_NAP: Duration = Duration::from_millis(1);
const LAST_NAP: Duration = Duration::from_millis(16);

/// A ring, and the peer that writes it.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) rank: usize,
    /// The peer has been asked to leave it.
    pub(super) asked: bool,
    // Before the memory: the adapter loses its access before the memory is unmapped.
    pub(super) mr: Mr,
    pub(super) reader: Reader,
}

/// The rings of a rank.
#[derive(Debug)]
pub(crate) struct Rings {
    /// Most that there may be.
    pub(super) limit: usize,
    /// Those that a peer may write.
    pub(super) open: Vec<Ring>,
    /// Those that their peers have left, for the next time.
    pub(super) left: Vec<Ring>,
    /// Where a frame is copied to; none while one is being handled.
    pub(super) copy: Option<Box<[u64; WORDS]>>,
    /// Times that the rank was about to sleep, modulo 2^32.
    pub(super) sleeps: u32,
    /// Polls since the completion queue was looked at.
    pub(super) rows: u32,
    /// The next sleep, and when it ends, while a peer has not answered.
    nap: Option<(Duration, Instant)>,
}

impl Rings {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            open: Vec::new(),
            left: Vec::new(),
            copy: None,
            sleeps: 0,
            rows: 0,
            nap: None,
        }
    }

    /// There are some to be looked at.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether something is in the slot of a ring that is read next.
    #[inline(always)]
    pub(super) fn is_full(&self, at: usize) -> bool {
        self.open.get(at).is_some_and(|r| r.reader.is_full())
    }

    /// Whether something is in a slot that is read next, after a few looks at them all: a look is shorter than the way to it.
    #[inline(always)]
    pub(crate) fn watch(&self) -> bool {
        (0..WATCHES).any(|_| self.open.iter().any(|r| r.reader.is_full()))
    }

    /// The longest that a thread may sleep now.
    pub(crate) fn nap(&self) -> Option<Duration> {
        self.nap.map(|(nap, _)| nap)
    }

    /// When somebody has to look, who sleeps.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.nap.map(|(_, at)| at)
    }

    /// The rank is about to sleep: says whom to ask to leave, and sets the time of the sleep.
    pub(super) fn sleep(&mut self) -> Vec<usize> {
        self.sleeps = self.sleeps.wrapping_add(1);
        let mut ask = Vec::new();
        for ring in &mut self.open {
            if !std::mem::replace(&mut ring.asked, true) {
                ask.push(ring.rank);
            }
        }
        let nap = match self.nap {
            Some((nap, _)) if ask.is_empty() => (nap * 2).min(LAST_NAP),
            _ => FIRST_NAP,
        };
        self.nap = self.any().then(|| (nap, Instant::now() + nap));
        ask
    }

    /// Somebody has looked.
    pub(crate) fn looked(&mut self, now: Instant) {
        if let Some((_, at)) = &mut self.nap
            && *at <= now
        {
            *at = now + LAST_NAP;
        }
    }

    /// Peers that were asked to leave before an earlier sleep.
    pub(super) fn late(&self) -> Vec<usize> {
        let asked = self.open.iter().filter(|r| r.asked);
        asked.map(|r| r.rank).collect()
    }

    pub(super) fn of(&self, rank: usize) -> Option<usize> {
        self.open.iter().position(|r| r.rank == rank)
    }

    /// Takes a ring out of those that are looked at.
    pub(super) fn close(&mut self, rank: usize) -> Option<Ring> {
        let ring = self.open.swap_remove(self.of(rank)?);
        if !self.any() {
            self.nap = None;
        }
        Some(ring)
    }

    /// Rings that peers may write, and those that they have left.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.open.len(), self.left.len())
    }

    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.left.clear();
        self.nap = None;
    }
}
