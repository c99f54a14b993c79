//! What happens when a peer has written what no rank writes.
//!
//! A message that cannot be read is a message that somebody waits for. So it is not passed over: the job ends, and says
//! which rank wrote what. Nothing of it was used: it was copied once, and the copy did not stand its checks.

use host::say;
use launch::end_process;
use std::fmt;

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFault {
    /// The process ends, and with it the job.
    End,
    /// It is counted, for tests that write nonsense.
    Count,
    /// The peer is given up by whoever looks at the count, and all others stay.
    GiveUp,
}

impl OnFault {
    /// Rank `peer` of this memory is waited for, and why.
    #[cold]
    pub(super) fn waits(self, (own, peer): (usize, usize), why: &dyn fmt::Display) {
        match self {
            Self::End => say(format_args!(
                "portals: rank {own} of the ranks that share memory waits for rank {peer} of them, which {why}"
            )),
            Self::Count | Self::GiveUp => tracing::warn!(peer, %why, "waited for"),
        }
    }

    /// Rank `peer` of this memory has written nonsense; `first`: not before.
    #[cold]
    pub(super) fn found(self, (own, peer): (usize, usize), why: &dyn fmt::Display, first: bool) {
        match self {
            Self::End => {
                say(format_args!(
                    "portals: rank {own} of the ranks that share memory ends the job: rank {peer} of them {why}"
                ));
                end_process(1);
            }
            Self::Count | Self::GiveUp if first => tracing::warn!(peer, %why, "not believed"),
            Self::Count | Self::GiveUp => {}
        }
    }
}
