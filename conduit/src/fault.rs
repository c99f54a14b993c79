//! What a running job cannot survive.

use crate::credits::CreditFault;
use portals_shim::{EventKind, NiFail, RegionError};

/// A condition that ends the job; see `Conduit::fatal`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{call} failed: {error}")]
    Portals {
        call: &'static str,
        error: portals_shim::Error,
    },
    #[error("events of the {queue} queue were lost")]
    Lost { queue: &'static str },
    #[error("{} ({event:?}, {})", end(*.event, *.fail, *.node), code(*.fail))]
    Network {
        event: EventKind,
        fail: NiFail,
        /// The other end, if that is known.
        node: Option<u32>,
    },
    #[error("flow control failed: no request buffer had room for a message of node {node}")]
    CatchBasin { node: u32 },
    #[error("malformed message from node {node}: {what}")]
    Malformed { node: u32, what: &'static str },
    #[error("malformed message from node {node}: {fault}")]
    Credits { node: u32, fault: CreditFault },
    #[error("active message from node {node} to handler {handler}, which is not registered here")]
    Unregistered { node: u32, handler: u8 },
    #[error("node {node} has registered other handlers than this node")]
    Handlers { node: u32 },
    #[error("a handler waits, which none may")]
    WaitInHandler,
    #[error("a handler-safe lock is held, or a no-interrupt section not ended")]
    HslHeld,
    #[error(
        "node {node} has not answered a request of pinning for {seconds} s: it makes no call of the conduit"
    )]
    Unanswered { node: u32, seconds: f64 },
    #[error(
        "memory is not given back for {seconds} s: a peer makes no call of the conduit, or a transfer does not end"
    )]
    NotGivenBack { seconds: f64 },
    #[error("node {node} has no memory of {len} bytes at {addr:#x}, which an operation names")]
    Unmapped { node: u32, addr: u64, len: usize },
    #[error("buffer access: {0}")]
    Region(#[from] RegionError),
}

/// Who has failed.
fn end(event: EventKind, fail: NiFail, node: Option<u32>) -> String {
    match node {
        Some(node) if fail == NiFail::SEGV => {
            format!(
                "this node's own memory could not be read or written, in an operation with node {node}"
            )
        }
        None if fail == NiFail::SEGV => {
            "this node's own memory could not be read or written".to_owned()
        }
        Some(node) if matches!(event, EventKind::PutEnd | EventKind::GetEnd) => {
            format!("a message of node {node} is damaged")
        }
        Some(node) => format!("node {node} cannot be reached"),
        None => "a message of this node failed".to_owned(),
    }
}

/// The event's `ni_fail_type`.
fn code(fail: NiFail) -> String {
    match fail {
        NiFail::FAIL => "PTL_NI_FAIL".to_owned(),
        NiFail::SEGV => "PTL_NI_SEGV".to_owned(),
        NiFail(code) => format!("ni_fail_type {code}"),
    }
}

/// Names the call of a refused interface function.
pub(crate) fn refused(call: &'static str) -> impl FnOnce(portals_shim::Error) -> Fault {
    move |error| Fault::Portals { call, error }
}
