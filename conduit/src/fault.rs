//! What a running job cannot survive.

use crate::credits::CreditFault;
use portals_shim::{EventKind, RegionError};

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
    #[error("a message to or from node {node} failed ({event:?})")]
    Network { event: EventKind, node: u32 },
    #[error("flow control failed: no request buffer had room for a message of node {node}")]
    CatchBasin { node: u32 },
    #[error("malformed message from node {node}: {what}")]
    Malformed { node: u32, what: &'static str },
    #[error("malformed message from node {node}: {fault}")]
    Credits { node: u32, fault: CreditFault },
    #[error("active message from node {node} to handler {handler}, which is not registered here")]
    Unregistered { node: u32, handler: u8 },
    #[error("a handler waits, which none may")]
    WaitInHandler,
    #[error("a handler-safe lock is held, or a no-interrupt section not ended")]
    HslHeld,
    #[error("buffer access: {0}")]
    Region(#[from] RegionError),
}

/// Names the call of a refused interface function.
pub(crate) fn refused(call: &'static str) -> impl FnOnce(portals_shim::Error) -> Fault {
    move |error| Fault::Portals { call, error }
}
