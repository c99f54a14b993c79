// UNSAFETY: symbols for C.
#![expect(unsafe_code, reason = "C looks for these symbols by name")]
//! The thread model of `libgasnet-portals-seq`: symbols that only programs of this model look for.

use gasnet_c::{Mode, init};
use std::ffi::{c_char, c_int};

/// A program that was compiled for this library refers to this.
#[unsafe(no_mangle)]
pub static gasneti_linked_portals_fast_seq_nodebug: c_int = 1;

/// As the one above, for a program that was compiled with `GASNET_DEBUG`.
#[unsafe(no_mangle)]
pub static gasneti_linked_portals_fast_seq_debug: c_int = 1;

/// `gasnet_init`.
///
/// # Safety
/// The pointers are null or those of `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_init_portals_fast_seq_nodebug(
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    max_segment: u64,
) -> c_int {
    init(Mode::Seq, false, max_segment)
}

/// `gasnet_init` of a program that was compiled with `GASNET_DEBUG`.
///
/// # Safety
/// The pointers are null or those of `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_init_portals_fast_seq_debug(
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    max_segment: u64,
) -> c_int {
    init(Mode::Seq, true, max_segment)
}
