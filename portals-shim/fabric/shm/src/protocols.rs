//! Which protocol carries a message, and the table of them.
//!
//! | protocol | file | when |
//! |---|---|---|
//! | `rma copy` | `onesided.rs` | the peer shows the descriptor, and nothing of ours is under way there |
//! | `short` | `peer.rs` (`write_short`) | a put that fits the short form of a cell |
//! | `eager cell` | `peer.rs` (`write`) | fits a cell beside the whole header |
//! | `eager bulk` | `peer.rs` (`write`), `bulk.rs` | two copies by the processor are quicker than one by the kernel |
//! | `rndv zcopy` | `send.rs` (`rts`), `receive.rs` (`handle_rts`) | longer, and the kernel copies between the two |
//! | `eager parts` | `peer.rs` (`write`), `receive.rs` (`more`) | longer, and it does not |

use super::cell::{INLINE, PIECES, SHORT};
use fabric_api::protocol::{Operation, Protocols, Reached};

/// Longest data that goes through a ring where the kernel would copy it too, bytes. Below, two copies by the
/// processor are faster than one by the kernel, which looks up both address spaces.
pub(super) const EAGER: u64 = 8192;

/// How a message that the peer's library matches is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Cell,
    Bulk,
    Rendezvous,
    Parts,
}

/// The protocol of data of `len` bytes in so many pieces; `attaches`: the kernel copies between the two processes.
#[inline(always)]
pub(super) const fn choose(len: u64, pieces: usize, attaches: bool) -> Protocol {
    if len <= INLINE as u64 {
        Protocol::Cell
    } else if len <= EAGER {
        Protocol::Bulk
    } else if pieces <= PIECES && attaches {
        Protocol::Rendezvous
    } else {
        Protocol::Parts
    }
}

const fn said(protocol: Protocol) -> (&'static str, &'static str) {
    match protocol {
        Protocol::Cell => ("eager cell", "it fits a cell of the ring"),
        Protocol::Bulk => (
            "eager bulk",
            "two copies are quicker than one by the kernel",
        ),
        Protocol::Rendezvous => ("rndv zcopy", "the target has the kernel copy it, once"),
        Protocol::Parts => (
            "eager parts",
            "the kernel does not copy between the processes",
        ),
    }
}

/// The protocols between ranks that share memory. `attaches`: the kernel copies between their processes (`process_vm_readv`);
/// data in more than 9 pieces goes as where it does not.
pub fn protocols(attaches: bool) -> Protocols {
    let kernel = if attaches { "copies" } else { "does not copy" };
    let mut all = Protocols::new(
        "shm",
        format!("ranks of one machine; the kernel {kernel} between their processes"),
    );
    let message = |len| said(choose(len, 1, attaches));
    let put = |len| match len {
        len if len <= SHORT as u64 => ("short", "header and data fit one cell in the short form"),
        len => message(len),
    };
    let direct = |len| match len {
        0 => put(0),
        _ if attaches => (
            "rma copy",
            "this process copies to or from the shown memory",
        ),
        _ => (
            "rma copy",
            "this process copies, where the memory was made to be shared; else as matched",
        ),
    };
    all.add((Operation::Put, Reached::Direct), direct);
    all.add((Operation::Put, Reached::Matched), put);
    all.add((Operation::Get, Reached::Direct), |len| match len {
        0 => message(0),
        len => direct(len),
    });
    // The answer is a message of the target.
    all.add((Operation::Get, Reached::Matched), message);
    all
}
