//! The landings of a peer that are open: where the rest of its messages goes.
//!
//! A peer announces a landing when the data of the one before has left, of requests and of answers, so few of a peer that
//! keeps to that are open for wanted data. One that announces and sends nothing would fill memory, and hold descriptors.
//!
//! # Invariants
//!
//! * At most [`LANDINGS`] are open, of which at most [`UNWANTED`] are for data that nobody wants.
//! * The operation of a landing that was opened comes out once: with [`Landings::finish`] or [`Landings::take`].

use portals_core::{OpId, Segments};
use std::collections::BTreeMap;

/// Messages of a peer whose unwanted data is waited for; of more it is dropped when it comes.
const UNWANTED: usize = 256;
/// Landings of a peer that are open, besides those a few.
const LANDINGS: usize = UNWANTED + 16;

/// Where the rest of a message goes.
#[derive(Debug)]
pub(super) struct Landing {
    /// What ends with it; nothing, if the rest is not wanted.
    pub(super) op: Option<OpId>,
    pub(super) segments: Segments,
    /// Bytes that came with the header, and bytes that the match takes in all.
    pub(super) first: u64,
    pub(super) keep: u64,
}

/// What no peer does that keeps to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("it announces data and sends none")]
    TooMany,
    #[error("it announces two messages under one number")]
    Twice,
}

/// By the peer's numbers.
#[derive(Debug, Default)]
pub(super) struct Landings {
    open: BTreeMap<u32, Landing>,
    unwanted: usize,
}

impl Landings {
    /// Opens a landing of wanted data.
    pub(super) fn open(&mut self, number: u32, landing: Landing) -> Result<(), Refused> {
        self.refusal(number)?;
        self.unwanted += usize::from(landing.op.is_none());
        self.open.insert(number, landing);
        Ok(())
    }

    /// Opens a landing of data that nobody wants; `false` if so many are open that it is dropped when it comes.
    pub(super) fn open_unwanted(&mut self, number: u32) -> Result<bool, Refused> {
        if self.unwanted >= UNWANTED {
            return Ok(false);
        }
        let unwanted = Landing {
            op: None,
            segments: Segments::new(),
            first: 0,
            keep: 0,
        };
        self.open(number, unwanted).map(|()| true)
    }

    fn refusal(&self, number: u32) -> Result<(), Refused> {
        if self.open.contains_key(&number) {
            Err(Refused::Twice)
        } else if self.open.len() >= LANDINGS {
            Err(Refused::TooMany)
        } else {
            Ok(())
        }
    }

    /// The landing of this number, if it is open.
    pub(super) fn get(&self, number: u32) -> Option<&Landing> {
        self.open.get(&number)
    }

    /// All data of a landing has come.
    pub(super) fn finish(&mut self, number: u32) -> Option<Landing> {
        let landing = self.open.remove(&number)?;
        self.unwanted -= usize::from(landing.op.is_none());
        Some(landing)
    }

    /// How many are open for data that nobody wants.
    pub(super) fn unwanted(&self) -> usize {
        self.unwanted
    }

    /// Closes all; gives the operations that end with them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = OpId> + use<> {
        let all = std::mem::take(self);
        all.open.into_values().filter_map(|landing| landing.op)
    }
}

#[cfg(test)]
mod tests;
