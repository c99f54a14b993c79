// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "C calls these entries")]
//! The credits of this node as the portals-conduit shows them to programs that measure flow control.
//!
//! Any time after `gasnet_init`, also in handlers and while an HSL is held: they send nothing and wait for nothing but the
//! thread's turn. A node that does not exist ends the process, as in the extended API.

use conduit::PeerCredits;
use std::ffi::c_int;

use crate::state::{self, Phase, phase};

/// A count as C has it.
fn count(n: u64) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

/// What is counted between this node and another.
fn of(call: &str, node: u32, what: impl FnOnce(PeerCredits) -> u64) -> c_int {
    require(call);
    let credits = state::with(|c| c.credits(node)).flatten();
    match credits {
        Some(credits) => count(what(credits)),
        None => state::fatal(&format!("{call}: there is no node {node}")),
    }
}

fn require(call: &str) {
    if phase() < Phase::Initialised {
        state::fatal(&format!("{call} before gasnet_init"));
    }
}

/// `gasnet_send_credits`: credits that a node lends this one, those in use included.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_send_credits(node: u32) -> c_int {
    of("gasnet_send_credits", node, |c| u64::from(c.send))
}

/// `gasnet_credit_stalls`: requests to a node that had to wait for credits, since the start.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_credit_stalls(node: u32) -> c_int {
    of("gasnet_credit_stalls", node, |c| c.stalls)
}

/// `gasnet_banked_credits`: credits that this node has left to lend.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_banked_credits() -> c_int {
    require("gasnet_banked_credits");
    count(state::with(conduit::Conduit::banked_credits).unwrap_or(0))
}

/// `gasnet_revoked_credits`: credits that a node gave back to this one, which had asked for them, since the start.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_revoked_credits(node: u32) -> c_int {
    of("gasnet_revoked_credits", node, |c| c.recovered)
}
