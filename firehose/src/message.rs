//! What ranks say to each other.

use crate::Unit;

/// Why memory cannot be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// There is no memory at its addresses, or none that may be written.
    #[error("there is no memory there")]
    Unmapped,
    /// The system lets this process pin no more.
    #[error("the system lets the process pin no more memory")]
    Limit,
    /// Its owner is about to unmap it.
    #[error("its owner is about to unmap it")]
    Going,
}

impl Refusal {
    /// A number for the wire, never 0.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unmapped => 1,
            Self::Limit => 2,
            Self::Going => 3,
        }
    }

    /// Of a number of [`Refusal::code`].
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Unmapped,
            2 => Self::Limit,
            3 => Self::Going,
            _ => return None,
        })
    }
}

/// A unit's key, or why there is none.
pub type Answer<K> = Result<K, Refusal>;

/// A request to the owner: firehoses to attach, and those given up for them, in one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The sender's, for the reply.
    pub number: u32,
    /// Units to pin.
    pub new: Vec<Unit>,
    /// Units that the sender does not use any more.
    pub old: Vec<Unit>,
}

/// The reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moved<K> {
    /// That of the request.
    pub number: u32,
    /// Of each new unit, in the order asked.
    pub answers: Vec<Answer<K>>,
}
