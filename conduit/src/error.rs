//! Why a call was refused, one enum for each family of calls.

use crate::credits::PlanError;
use crate::env::EnvError;
use crate::exchange::ExchangeError;
use portals_shim::RegionError;
use portals_shim::fabric::FabricError;
use portals_shim::job::JobError;

/// Why the conduit did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The job could not be joined.
    #[error("cannot join the job")]
    Job(#[from] JobError),
    /// The fabric could not be opened.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A variable of the environment has a bad value.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// Credits that cannot work.
    #[error(transparent)]
    Credits(#[from] PlanError),
    /// The exchange with the other ranks failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Memory for buffers could not be had.
    #[error("no memory for message buffers")]
    Memory(#[from] RegionError),
    /// The interface refused an object the conduit is made of.
    #[error("cannot set up {what}: {error}")]
    Setup {
        /// The object.
        what: &'static str,
        /// The interface's answer.
        error: portals_shim::Error,
    },
    /// More ranks than the message formats can name.
    #[error("{nodes} ranks; at most {max} are supported")]
    TooManyNodes {
        /// Ranks of the job.
        nodes: u32,
        /// Largest job.
        max: u32,
    },
}

/// Why `attach` was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// What may be pinned does not suffice, or variables contradict each other.
    #[error(transparent)]
    Firehose(::firehose::LimitError),
    /// It was done before.
    #[error("attach was called before")]
    Attached,
    /// The conduit is shared by threads, whose handlers must be able to run on any of them.
    #[error("a conduit of several threads is attached by Par::attach")]
    Shared,
    /// A handler index that clients may not use.
    #[error("handler index {index} is not 0 or 128 to 255")]
    HandlerIndex {
        /// The index.
        index: u8,
    },
    /// Two handlers on one index.
    #[error("handler index {index} is used twice")]
    HandlerTwice {
        /// The index.
        index: u8,
    },
    /// More handlers than indexes.
    #[error("no handler index from 128 to 255 is free")]
    HandlersExhausted,
    /// The segment could not be opened to the peers.
    #[error(
        "cannot pin a segment of {size} bytes: {left} may be pinned, and it is twice; raise PORTOLAN_MEMLOCK, or \
         \"ulimit -l\" where that is not set"
    )]
    Pin {
        /// Bytes wanted.
        size: usize,
        /// What may be pinned, bytes.
        left: u64,
    },
    /// The segment could not be mapped.
    #[error("cannot map a segment of {size} bytes")]
    Segment {
        /// Bytes wanted.
        size: usize,
        /// Cause.
        #[source]
        source: RegionError,
    },
    /// The interface refused a descriptor of the segment.
    #[error("cannot set up {what}: {error}")]
    Setup {
        /// The object.
        what: &'static str,
        /// The interface's answer.
        error: portals_shim::Error,
    },
}

/// Why an active message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AmError {
    /// Before `attach`.
    #[error("not attached")]
    NotAttached,
    /// No such rank.
    #[error("node index too high: {node} of {nodes}")]
    Node {
        /// The rank given.
        node: u32,
        /// Ranks of the job.
        nodes: u32,
    },
    /// Too many arguments.
    #[error("{count} arguments; at most {max} fit", max = crate::am::limits::MAX_ARGS)]
    Args {
        /// Arguments given.
        count: usize,
    },
    /// Too much payload.
    #[error("nbytes too large: {len}, at most {max}")]
    Payload {
        /// Bytes given.
        len: usize,
        /// Largest payload of this kind of message.
        max: usize,
    },
    /// The destination of a Long is not within the segment of its node.
    #[error("destination address out of segment range: {len} bytes at {addr:#x} of node {node}")]
    Destination {
        /// Destination rank.
        node: u32,
        /// Address given.
        addr: u64,
        /// Bytes.
        len: usize,
    },
    /// The source of a Long is not within the own segment.
    #[error("{len} bytes at offset {offset} are not within the own segment")]
    Source {
        /// Offset in the own segment.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// A request from within a handler.
    #[error("handlers may not send requests")]
    InHandler,
    /// A second reply to one request.
    #[error("this request has been replied to")]
    Replied,
    /// A reply to a reply.
    #[error("only request handlers may reply")]
    NotARequest,
}

/// Why a put or get was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RmaError {
    /// Before `attach`.
    #[error("not attached")]
    NotAttached,
    /// No such rank.
    #[error("node index too high: {node} of {nodes}")]
    Node {
        /// The rank given.
        node: u32,
        /// Ranks of the job.
        nodes: u32,
    },
    /// The remote range is not within the segment of its node.
    #[error("{len} bytes at {addr:#x} are not within the segment of node {node}")]
    Remote {
        /// Remote rank.
        node: u32,
        /// Address given.
        addr: u64,
        /// Bytes.
        len: usize,
    },
    /// The local range is not within the own segment.
    #[error("{len} bytes at offset {offset} are not within the own segment")]
    Local {
        /// Offset in the own segment.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// No local memory was given: a null pointer.
    #[error("no local memory for {len} bytes")]
    Null {
        /// Bytes.
        len: usize,
    },
    /// In a job without segments: the remote rank has no memory there, or none that may be written. The job ends instead if
    /// that is found out after a call that need not wait has returned.
    #[error("node {node} has no memory of {len} bytes at {addr:#x}")]
    Unmapped {
        /// Remote rank.
        node: u32,
        /// Address given.
        addr: u64,
        /// Bytes.
        len: usize,
    },
    /// 65535 operations are waiting to be synchronised, and more than a thousand of them are access regions, or blocking calls
    /// of as many threads.
    #[error("65535 operations are not synchronised yet")]
    TooManyOperations,
    /// From within a handler.
    #[error("handlers may not put or get")]
    InHandler,
    /// An access region within an access region, or an end without a begin.
    #[error("nbi access regions do not nest, and end only what began")]
    AccessRegion,
}

/// What a barrier call found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// Before `attach`.
    #[error("not attached")]
    NotAttached,
    /// The ranks do not agree on the barrier's name. The barrier is complete all the same.
    #[error("barrier names do not match")]
    Mismatch,
    /// A second notify before the wait.
    #[error("barrier notified twice")]
    Notified,
    /// A wait or try before the notify.
    #[error("barrier not notified")]
    NotNotified,
    /// From within a handler.
    #[error("handlers may not call barriers")]
    InHandler,
}
