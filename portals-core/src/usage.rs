//! How many objects of each kind there are, were at most, and have been made (status registers 6 to
//! 28).

use serde::{Deserialize, Serialize};

/// Objects of one kind over the life of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// Made so far.
    pub made: u64,
    /// Most at one time.
    pub most: u64,
    /// Now.
    pub current: u64,
}

impl Gauge {
    /// Gone again.
    pub const fn freed(&self) -> u64 {
        self.made.saturating_sub(self.current)
    }

    /// One was made, and with it there are `current`. The field is set only when it is read, so
    /// that frees cost nothing.
    #[inline]
    pub(crate) fn count(&mut self, current: usize) {
        self.made += 1;
        self.most = self.most.max(current as u64);
    }

    pub(crate) fn at(self, current: usize) -> Self {
        Self {
            current: current as u64,
            ..self
        }
    }
}

/// Alignments that [`Usage::aligned`] tells apart, bytes.
pub const ALIGNMENTS: [u64; 5] = [128, 64, 32, 16, 8];

/// What an interface holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Portal indexes that have a match entry; `made` counts the times that a list stopped being
    /// empty.
    pub portals: Gauge,
    /// Operations that wait for their END.
    pub messages: Gauge,
    /// Match entries.
    pub mes: Gauge,
    /// Memory descriptors.
    pub mds: Gauge,
    /// Event queues.
    pub eqs: Gauge,
    /// Descriptors made so far whose memory starts at a multiple of [`ALIGNMENTS`]`[i]` bytes and of
    /// no larger one.
    pub aligned: [u64; 5],
}

impl Usage {
    #[inline]
    pub(crate) fn count_start(&mut self, start: u64) {
        // Most memory is aligned as far as is told apart.
        let index = (ALIGNMENTS[0] | start).trailing_zeros();
        let largest = ALIGNMENTS[0].trailing_zeros();
        if let Some(count) = self.aligned.get_mut((largest - index) as usize) {
            *count += 1;
        }
    }
}
