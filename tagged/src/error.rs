//! What can go wrong, by family: opening, a call, a request.

use crate::Status;
use portals_shim::{Error, NiFail};

/// Why tag matching could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No layout has this name.
    #[error("tag mode {name:?} is not one of auto, tag_1, tag_2, full")]
    Mode {
        /// The name given.
        name: String,
    },
    /// Reserved bits leave too few for the communicator.
    #[error("{reserved} reserved bits leave fewer than 8 of {of} for the communicator")]
    FewCommunicators {
        /// Reserved bits.
        reserved: u32,
        /// Bits of the field without them.
        of: u32,
    },
    /// The layout has fewer sources than the job ranks.
    #[error("a job of {ranks} ranks: this tag layout has {max}")]
    TooManyRanks {
        /// Ranks of the job.
        ranks: u64,
        /// Most of the layout.
        max: u64,
    },
    /// An option that cannot be meant.
    #[error("{option} = {value}: {reason}")]
    Option {
        /// Which.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Portals refused.
    #[error("{what}: {error}")]
    Setup {
        /// What was asked of it.
        what: &'static str,
        /// What it said.
        error: Error,
    },
    /// Another rank made other choices.
    #[error(
        "rank {rank} has opened tag matching with other options; mode, format, short, overflow, contexts and thread_grouping \
         are the same everywhere"
    )]
    Differs {
        /// A rank that differs from this one, or knows of two that do.
        rank: u32,
    },
    /// No memory for buffers, or the ranks could not meet.
    #[error("{0}")]
    Start(String),
}

/// Why a call was refused. Nothing has happened then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// A rank outside the communicator.
    #[error("rank {rank} in a communicator of {size}")]
    Rank {
        /// The rank given.
        rank: u32,
        /// Ranks there are.
        size: u32,
    },
    /// A tag that the layout has no room for, or one below 0.
    #[error("tag {tag}: this layout has 0 to {max}")]
    Tag {
        /// The tag given.
        tag: i32,
        /// The largest.
        max: i32,
    },
    /// All communicator ids are in use.
    #[error("all {max} communicator ids are in use")]
    NoCommunicator {
        /// How many there are.
        max: u32,
    },
    /// Too many requests at one time.
    #[error("{max} requests are under way")]
    NoRequest {
        /// How many there may be.
        max: u32,
    },
    /// The request was not made here, or has been completed.
    #[error("not a request that is under way")]
    NotARequest,
    /// A buffer goes beyond its region.
    #[error("{len} bytes at {offset} of a region of {region}")]
    Buffer {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes of the region.
        region: usize,
    },
    /// Portals refused.
    #[error("portals: {0}")]
    Portals(#[from] Error),
    /// Ranks opened tag matching with options that differ where all have to make the same choice.
    #[error("ranks have opened tag matching with different options: rank {rank} says so")]
    Differs {
        /// A rank that differs from this one, or knows of two that do.
        rank: u32,
    },
    /// Events were lost: nothing can be relied on any more.
    #[error("an event queue overflowed")]
    EventsLost,
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The message is longer than the receive, which has its beginning.
    #[error("message of {sent} bytes, receive of {}", .status.len)]
    Truncated {
        /// Of the receive; its length is what has arrived.
        status: Status,
        /// Bytes of the message.
        sent: u64,
    },
    /// The fabric could not carry it.
    #[error("the message to or from rank {rank} was lost by the fabric")]
    Fabric {
        /// The peer, a rank of the job.
        rank: u32,
    },
    /// Memory of this process that the message was to come from, or go to, could not be read, written, or given to the adapter.
    #[error("memory of this process could not be read, written, or given to the adapter")]
    Memory,
    /// The sender had sent more than it may, and the data found no room.
    #[error("rank {rank} sent more than it was allowed to; the message's data is lost")]
    Overrun {
        /// The peer, a rank of the job.
        rank: u32,
    },
    /// The program took it back.
    #[error("cancelled")]
    Cancelled,
}

impl RequestError {
    /// What an event with this failure says of a message to or from `rank`.
    pub(crate) const fn of(fail: NiFail, rank: u32) -> Self {
        match fail {
            NiFail::SEGV => Self::Memory,
            _ => Self::Fabric { rank },
        }
    }
}

/// Why a blocking call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// It was refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The message failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_own_memory_ends_names_no_peer() {
        let own = RequestError::of(NiFail::SEGV, 3);
        assert_eq!(own, RequestError::Memory);
        assert!(
            own.to_string().starts_with("memory of this process"),
            "{own}"
        );
        assert_eq!(
            RequestError::of(NiFail::FAIL, 3),
            RequestError::Fabric { rank: 3 }
        );
    }
}
