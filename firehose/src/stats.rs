//! What is counted; part of no decision.

/// Since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units that were in hand when a transfer asked for them.
    pub hits: u64,
    /// Units that had to be asked for, or pinned.
    pub misses: u64,
    /// Units given up for others, or unpinned for want of room.
    pub evictions: u64,
    /// Units pinned.
    pub pins: u64,
    /// Units unpinned.
    pub unpins: u64,
    /// Units whose memory could not be pinned.
    pub refused: u64,
    /// Transfers that had to wait for room.
    pub waits: u64,
    /// Requests sent, or handled.
    pub moves: u64,
}

impl Counts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            pins: self.pins + other.pins,
            unpins: self.unpins + other.unpins,
            refused: self.refused + other.refused,
            waits: self.waits + other.waits,
            moves: self.moves + other.moves,
        }
    }
}
