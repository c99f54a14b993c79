//! How much may be pinned, and for whom.

use crate::Shape;

/// Bytes that may be pinned, and what was asked of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// What the system allows this rank.
    pub pinnable: u64,
    /// Pinned already for other purposes: a segment, buffers.
    pub prepinned: u64,
    /// Memory for all peers together (M), bytes.
    pub m: Option<u64>,
    /// Memory for own transfers and what nobody uses at the moment (MAXVICTIM), bytes.
    pub max_victim: Option<u64>,
    /// Ranks of the job.
    pub nodes: u32,
    /// Whether peers reach memory of this rank at all.
    pub remote: bool,
    /// How memory is cut.
    pub shape: Shape,
    /// Most units that one message asks for.
    pub per_message: u32,
}

/// Wishes that cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Both together are more than there is.
    #[error(
        "GASNET_FIREHOSE_M of {m} bytes and GASNET_FIREHOSE_MAXVICTIM_M of {max_victim} are more than the {pinnable} \
         that this rank may pin"
    )]
    TooMuch {
        /// For peers.
        m: u64,
        /// For itself.
        max_victim: u64,
        /// All there is.
        pinnable: u64,
    },
    /// Not one unit for each peer.
    #[error(
        "GASNET_FIREHOSE_M of {m} bytes gives none of {peers} peers a unit of {unit} bytes: at least {least} bytes are \
         needed"
    )]
    M {
        /// What there is.
        m: u64,
        /// Ranks but this one.
        peers: u32,
        /// Bytes of a unit.
        unit: u64,
        /// What would do.
        least: u64,
    },
    /// Not enough for own transfers.
    #[error(
        "GASNET_FIREHOSE_MAXVICTIM_M of {max_victim} bytes is less than {units} units of {unit} bytes for own transfers"
    )]
    MaxVictim {
        /// What there is.
        max_victim: u64,
        /// Least units.
        units: u32,
        /// Bytes of a unit.
        unit: u64,
    },
}

/// What every rank of a job keeps to; equal on all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How memory is cut.
    pub shape: Shape,
    /// Units that one rank may hold of another.
    pub share: u32,
    /// Units of an owner that are pinned for its own transfers or for nobody.
    pub victims: u32,
    /// Most units that one message asks for.
    pub per_message: u32,
}

/// Own transfers of this many units need not wait for each other.
pub const LEAST_VICTIMS: u32 = 4;

impl Limits {
    /// Divides what may be pinned: a quarter for own transfers, the rest in equal shares for peers, as far as nothing
    /// else was asked.
    ///
    /// # Errors
    /// See [`LimitError`].
    pub fn plan(w: &Wishes) -> Result<Self, LimitError> {
        let free = w.pinnable.saturating_sub(w.prepinned);
        let (m, max_victim) = match (w.m, w.max_victim) {
            (None, None) if w.remote => (free - free / 4, free / 4),
            (None, None) => (0, free),
            (Some(m), None) => (m, free.saturating_sub(m)),
            (None, Some(v)) => (free.saturating_sub(v), v),
            (Some(m), Some(v)) => (m, v),
        };
        if m.checked_add(max_victim).is_none_or(|sum| sum > free) {
            return Err(LimitError::TooMuch {
                m,
                max_victim,
                pinnable: free,
            });
        }
        let unit = w.shape.unit_len();
        let peers = w.nodes.saturating_sub(1);
        let units = |bytes: u64| u32::try_from(bytes / unit).unwrap_or(u32::MAX);
        let share = units(m) / peers.max(1);
        if w.remote && peers > 0 && share == 0 {
            return Err(LimitError::M {
                m,
                peers,
                unit,
                least: unit * u64::from(peers),
            });
        }
        let victims = units(max_victim);
        if victims < LEAST_VICTIMS {
            return Err(LimitError::MaxVictim {
                max_victim,
                units: LEAST_VICTIMS,
                unit,
            });
        }
        Ok(Self {
            shape: w.shape,
            share: if w.remote { share } else { 0 },
            victims,
            per_message: w.per_message,
        })
    }

    /// Most units of a transfer at a peer.
    #[must_use]
    pub const fn most(&self) -> u32 {
        if self.share < self.per_message {
            self.share
        } else {
            self.per_message
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn wishes(m: Option<u64>, max_victim: Option<u64>) -> Wishes {
        Wishes {
            pinnable: 64 * MIB,
            prepinned: 0,
            m,
            max_victim,
            nodes: 5,
            remote: true,
            shape: Shape::Regions { log2: 16 },
            per_message: 64,
        }
    }

    #[test]
    fn a_quarter_is_for_own_transfers() {
        let l = Limits::plan(&wishes(None, None)).unwrap();
        assert_eq!((l.share, l.victims), (48 * 8 / 4, 16 * 8));
        assert_eq!(l.most(), 64);
        let l = Limits::plan(&wishes(Some(16 * MIB), None)).unwrap();
        assert_eq!((l.share, l.victims), (32, 48 * 8));
        assert_eq!(l.most(), 32);
        let l = Limits::plan(&wishes(None, Some(32 * MIB))).unwrap();
        assert_eq!((l.share, l.victims), (64, 32 * 8));
    }

    #[test]
    fn memory_for_own_transfers_alone() {
        let w = Wishes {
            remote: false,
            ..wishes(None, None)
        };
        let l = Limits::plan(&w).unwrap();
        assert_eq!((l.share, l.victims), (0, 64 * 8));
    }

    #[test]
    fn wishes_that_contradict_or_are_too_small_are_named() {
        let text = |w| Limits::plan(&w).unwrap_err().to_string();
        assert_eq!(
            text(wishes(Some(48 * MIB), Some(32 * MIB))),
            "GASNET_FIREHOSE_M of 50331648 bytes and GASNET_FIREHOSE_MAXVICTIM_M of 33554432 are more than the \
             67108864 that this rank may pin"
        );
        assert_eq!(
            text(wishes(Some(3 << 17), None)),
            "GASNET_FIREHOSE_M of 393216 bytes gives none of 4 peers a unit of 131072 bytes: at least 524288 bytes \
             are needed"
        );
        assert_eq!(
            text(wishes(None, Some(1000))),
            "GASNET_FIREHOSE_MAXVICTIM_M of 1000 bytes is less than 4 units of 131072 bytes for own transfers"
        );
        assert_eq!(
            text(wishes(Some(u64::MAX), Some(1))),
            "GASNET_FIREHOSE_M of 18446744073709551615 bytes and GASNET_FIREHOSE_MAXVICTIM_M of 1 are more than the \
             67108864 that this rank may pin"
        );
    }

    #[test]
    fn one_rank_has_no_peers() {
        let w = Wishes {
            nodes: 1,
            ..wishes(None, None)
        };
        assert!(Limits::plan(&w).is_ok());
    }
}
