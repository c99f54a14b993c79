// UNSAFETY: symbols for C.
#![expect(unsafe_code, reason = "C looks for these symbols by name")]
//! The thread model of `libgasnet-portals-seq`: symbols that only programs of this model look for, one pair for each
//! way of having memory reached, with and without `GASNET_DEBUG`.

use gasnet_c::{Build, Mode, Reach};

include!("../symbols.rs");

symbols! { Seq:
    gasneti_linked_portals_fast_seq_nodebug gasneti_init_portals_fast_seq_nodebug Fast false;
    gasneti_linked_portals_fast_seq_debug gasneti_init_portals_fast_seq_debug Fast true;
    gasneti_linked_portals_large_seq_nodebug gasneti_init_portals_large_seq_nodebug Large false;
    gasneti_linked_portals_large_seq_debug gasneti_init_portals_large_seq_debug Large true;
    gasneti_linked_portals_everything_seq_nodebug gasneti_init_portals_everything_seq_nodebug Everything false;
    gasneti_linked_portals_everything_seq_debug gasneti_init_portals_everything_seq_debug Everything true;
}
