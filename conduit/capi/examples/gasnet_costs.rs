// UNSAFETY: entries that C calls, with addresses of the caller.
#![expect(
    unsafe_code,
    reason = "C calls these entries, with addresses of its own"
)]
//! GASNet for C in `GASNET_SEQ` and `GASNET_PAR`, with loops of the same operations by the conduit's own calls beside
//! it: a program of C measures both in one process (`tests/c/gasnet_costs.c`).

use gasnet_c::{Build, Endpoint, Mode, Reach, endpoint};
use std::ffi::c_void;

include!("../symbols.rs");

symbols! { Seq:
    gasneti_linked_portals_fast_seq_nodebug gasneti_init_portals_fast_seq_nodebug Fast false;
}
symbols! { Par:
    gasneti_linked_portals_fast_par_nodebug gasneti_init_portals_fast_par_nodebug Fast false;
}

/// Whether all of `times` operations were done; none before `gasnet_init`.
fn all(
    times: usize,
    alone: impl Fn(&conduit::Conduit) -> bool,
    shared: impl Fn(&conduit::Par) -> bool,
) -> bool {
    match endpoint() {
        Some(Endpoint::Alone(c)) => (0..times).all(|_| alone(c)),
        Some(Endpoint::Shared(p)) => (0..times).all(|_| shared(p)),
        None => false,
    }
}

/// Puts, each waited for.
///
/// # Safety
/// `n` bytes at `src` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn costs_put(
    node: u32,
    dest: *mut c_void,
    src: *const u8,
    n: usize,
    times: usize,
) -> bool {
    let to = dest.expose_provenance() as u64;
    // SAFETY: the condition of this function.
    let data = unsafe { std::slice::from_raw_parts(src, n) };
    all(
        times,
        |c| c.put(node, to, data).is_ok(),
        |p| p.put(node, to, data).is_ok(),
    )
}

/// Puts with handles, which are waited for.
///
/// # Safety
/// `n` bytes at `src` are readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn costs_put_nb(
    node: u32,
    dest: *mut c_void,
    src: *const u8,
    n: usize,
    times: usize,
) -> bool {
    let to = dest.expose_provenance() as u64;
    // SAFETY: the condition of this function.
    let data = unsafe { std::slice::from_raw_parts(src, n) };
    let put = |c: &conduit::Conduit| c.put_nb(node, to, data).map(|h| c.wait(h)).is_ok();
    all(times, put, |p| p.with(put))
}

/// Shorts with one argument.
#[unsafe(no_mangle)]
pub extern "C" fn costs_am_short(node: u32, handler: u8, argument: i32, times: usize) -> bool {
    all(
        times,
        |c| c.am_request_short(node, handler, &[argument]).is_ok(),
        |p| p.am_request_short(node, handler, &[argument]).is_ok(),
    )
}
