//! What a broken connection left undone, and which of it the peer has had.
//!
//! ```text
//!   frame 7 │ write │ frame 8 │ read │ write │ frame 9        the peer says that it has had 8 frames
//!   └─────── arrived ───────┘ └──── nobody knows ────┘
//! ```
//!
//! # Invariants
//!
//! * Requests are lost in the order of their posting, in which a connection delivers them: up to the last frame that the peer
//!   has had, all have arrived.
//! * `sent` counts the frames ever posted, without those that are posted again. The peer counts the same frames, and takes
//!   each once however often the connection breaks.

use crate::memory::Transfer;
use portals_core::NiFail;
use std::collections::VecDeque;

/// A request that a broken connection left undone, as far as this side knows.
#[derive(Debug)]
pub(crate) enum Lost {
    Frame(Vec<u8>),
    Read {
        transfer: Transfer,
        id: u64,
    },
    Write(u64),
    RelaxedWrite {
        transfer: Transfer,
        id: u64,
    },
    /// A notified put; the frame of its notice.
    WriteImmediate {
        transfer: Transfer,
        id: u64,
        frame: Vec<u8>,
    },
    /// Refused for a reason that a new connection does not mend.
    Refused(u64),
    /// The adapter could not read or write memory of this process.
    Fault(u64),
}

/// What its protocol makes of such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// It has had its effect.
    Done,
    /// It ends with a failure.
    Failed,
    /// It ends with the failure of this process's memory.
    Fault,
    /// It is posted again.
    Again,
}

impl Recovery {
    /// What a request ends with that is not posted again.
    pub(super) const fn fail(self) -> NiFail {
        match self {
            Self::Done => NiFail::OK,
            Self::Fault => NiFail::SEGV,
            Self::Failed | Self::Again => NiFail::FAIL,
        }
    }
}

impl Lost {
    /// The peer counts it.
    fn is_frame(&self) -> bool {
        matches!(self, Self::Frame(_) | Self::WriteImmediate { .. })
    }

    /// Its record; frames have none.
    pub(super) fn id(&self) -> Option<u64> {
        match self {
            Self::Frame(_) => None,
            Self::Read { id, .. }
            | Self::Write(id)
            | Self::RelaxedWrite { id, .. }
            | Self::WriteImmediate { id, .. }
            | Self::Refused(id)
            | Self::Fault(id) => Some(*id),
        }
    }
}

/// Requests that a broken connection left undone, and the number of the next frame.
#[derive(Debug, Default)]
pub(super) struct Undone {
    lost: VecDeque<Lost>,
    sent: u32,
}

impl Undone {
    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lost.len()
    }

    /// The number of the next frame.
    #[inline(always)]
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// A frame was posted.
    #[inline(always)]
    pub(super) fn count_frame(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// The connection has broken before this one, after those that were lost already.
    pub(super) fn push(&mut self, lost: Lost) {
        self.lost.push_back(lost);
    }

    pub(super) fn clear(&mut self) {
        self.lost.clear();
    }

    /// Takes all of them, each with whether it has arrived, by the word of the peer that it has had `received` frames.
    pub(super) fn settle(&mut self, received: u32) -> impl Iterator<Item = (Lost, bool)> + use<> {
        let lost = std::mem::take(&mut self.lost);
        let frames = lost.iter().filter(|lost| lost.is_frame()).count() as u32;
        let first = self.sent.wrapping_sub(frames);
        // A peer cannot have had more than was sent.
        let had = received.wrapping_sub(first);
        let had = if had > frames { 0 } else { had };
        self.sent = first.wrapping_add(had);
        let mut left = had;
        lost.into_iter().map(move |lost| {
            let arrived = left > 0;
            left -= u32::from(arrived && lost.is_frame());
            (lost, arrived)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames and writes, `f` and `w`, of which the connection lost all after so many frames had been posted before.
    fn lost(before: u32, requests: &str) -> Undone {
        let mut undone = Undone {
            sent: before,
            ..Undone::default()
        };
        for request in requests.chars() {
            if request == 'f' {
                undone.count_frame();
                undone.push(Lost::Frame(Vec::new()));
            } else {
                undone.push(Lost::Write(1));
            }
        }
        undone
    }

    /// How many have arrived, which are the first ones, and the number of the next frame.
    fn settled(mut undone: Undone, received: u32) -> (usize, u32) {
        let all: Vec<bool> = undone
            .settle(received)
            .map(|(_, arrived)| arrived)
            .collect();
        let arrived = all.iter().take_while(|arrived| **arrived).count();
        assert!(all[arrived..].iter().all(|arrived| !arrived), "{all:?}");
        assert!(undone.is_empty());
        (arrived, undone.sent())
    }

    #[test]
    fn what_was_posted_before_a_frame_that_arrived_has_arrived() {
        // Wherever the numbers begin anew.
        for before in [0, 6, u32::MAX - 1] {
            let received = |frames: u32| before.wrapping_add(frames);
            let of = |requests, frames| {
                let (arrived, next) = settled(lost(before, requests), received(frames));
                (arrived, next.wrapping_sub(before))
            };
            assert_eq!(of("fwfwwf", 0), (0, 0));
            assert_eq!(of("fwfwwf", 1), (1, 1));
            assert_eq!(of("fwfwwf", 2), (3, 2));
            assert_eq!(of("fwfwwf", 3), (6, 3));
            // Behind the last frame nobody knows.
            assert_eq!(of("wfw", 1), (2, 1));
            assert_eq!(of("ww", 0), (0, 0));
        }
    }

    #[test]
    fn a_peer_that_has_had_more_than_was_sent_is_not_believed() {
        for received in [3, 1 << 31, u32::MAX] {
            assert_eq!(settled(lost(0, "fwf"), received), (0, 0));
        }
        // Nor one that says less than it has said before.
        assert_eq!(settled(lost(9, "fwf"), 8), (0, 9));
    }
}
