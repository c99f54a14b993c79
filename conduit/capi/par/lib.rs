// UNSAFETY: symbols for C.
#![expect(unsafe_code, reason = "C looks for these symbols by name")]
//! The thread model of `libgasnet-portals-par`: symbols that only programs of this model look for, one pair for each
//! way of having memory reached, with and without `GASNET_DEBUG`.

use gasnet_c::{Build, Mode, Reach};

include!("../symbols.rs");

symbols! { Par:
    gasneti_linked_portals_fast_par_nodebug gasneti_init_portals_fast_par_nodebug Fast false;
    gasneti_linked_portals_fast_par_debug gasneti_init_portals_fast_par_debug Fast true;
    gasneti_linked_portals_large_par_nodebug gasneti_init_portals_large_par_nodebug Large false;
    gasneti_linked_portals_large_par_debug gasneti_init_portals_large_par_debug Large true;
    gasneti_linked_portals_everything_par_nodebug gasneti_init_portals_everything_par_nodebug Everything false;
    gasneti_linked_portals_everything_par_debug gasneti_init_portals_everything_par_debug Everything true;
}
