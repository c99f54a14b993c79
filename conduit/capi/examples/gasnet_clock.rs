// UNSAFETY: symbols for C.
#![expect(unsafe_code, reason = "C looks for these symbols by name")]
//! GASNet for C in `GASNET_SEQ` and `GASNET_PAR`, with the clock of the conduit itself beside it: a program of C compares it with the
//! clock of its header (`tests/c/gasnet_clock.c`).

use conduit::{ClockKind, Conduit};
use gasnet_c::{Build, Endpoint, Mode, Reach, endpoint};

include!("../symbols.rs");

symbols! { Seq:
    gasneti_linked_portals_fast_seq_nodebug gasneti_init_portals_fast_seq_nodebug Fast false;
}
symbols! { Par:
    gasneti_linked_portals_fast_par_nodebug gasneti_init_portals_fast_par_nodebug Fast false;
}

fn with<R>(f: impl FnOnce(&Conduit) -> R) -> Option<R> {
    Some(match endpoint()? {
        Endpoint::Alone(c) => f(c),
        Endpoint::Shared(p) => p.with(f),
    })
}

/// Nanoseconds; 0 before `gasnet_init`.
#[unsafe(no_mangle)]
pub extern "C" fn conduit_now() -> u64 {
    with(Conduit::now).unwrap_or(0)
}

/// Whether those are virtual.
#[unsafe(no_mangle)]
pub extern "C" fn conduit_is_virtual() -> bool {
    with(Conduit::clock) == Some(ClockKind::Virtual)
}
