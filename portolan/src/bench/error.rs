//! Why a measurement failed.

use portals_shim::fabric::FabricError;
use portals_shim::job::JobError;
use portals_shim::{Error, EventKind, PollError, RegionError};

/// A failure within a rank of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BenchError {
    /// Tag matching could not be opened.
    #[error(transparent)]
    Tags(#[from] tagged::OpenError),
    /// A tagged message was refused.
    #[error(transparent)]
    Refused(#[from] tagged::CallError),
    /// A tagged message failed.
    #[error(transparent)]
    Tag(#[from] tagged::TagError),
    /// Tagged messages were to be measured without tag matching.
    #[error("tag matching is not open")]
    NoTags,
    /// The fabric could not be opened.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The exchange with the launcher failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A call was refused.
    #[error("{call}")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        #[source]
        source: Error,
    },
    /// Memory could not be had or reached.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A poll was refused.
    #[error("event poll")]
    Poll(#[from] PollError),
    /// An event queue lost events.
    #[error("an event queue overflowed")]
    Dropped,
    /// An operation failed on the fabric.
    #[error("the fabric reports failure {code} in a {kind:?} event")]
    Failed {
        /// The event.
        kind: EventKind,
        /// The fabric's code.
        code: u32,
    },
    /// An event that this measurement does not cause.
    #[error("a {got:?} event where {expected:?} was expected")]
    Event {
        /// What came.
        got: EventKind,
        /// What should have come.
        expected: EventKind,
    },
    /// What arrived is not what was sent.
    #[error("byte {at} of {len} arrived as {got:#04x} instead of {sent:#04x}")]
    Changed {
        /// Where.
        at: usize,
        /// Bytes of the message.
        len: usize,
        /// What arrived.
        got: u8,
        /// What was sent.
        sent: u8,
    },
    /// The conduit did not start.
    #[error(transparent)]
    Init(#[from] conduit::InitError),
    /// The conduit's segment could not be made.
    #[error(transparent)]
    Attach(#[from] conduit::AttachError),
    /// An active message was refused.
    #[error("active message")]
    Am(#[from] conduit::AmError),
    /// A put of the conduit was refused.
    #[error("put")]
    Rma(#[from] conduit::RmaError),
    /// The conduit's barrier failed.
    #[error("barrier")]
    Barrier(#[from] conduit::BarrierError),
    /// A handler found another payload than was sent.
    #[error("a handler got another payload than was sent")]
    Payload,
    /// An active message is to be measured without a conduit.
    #[error("this rank has no conduit")]
    NoConduit,
    /// The results could not be handed over.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The job is too small.
    #[error("{0} ranks; at least 2 are needed")]
    TooFewRanks(usize),
    /// A size that this machine cannot address.
    #[error("a point of {0} is too large")]
    TooLarge(u64),
}
