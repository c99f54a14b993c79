// UNSAFETY: says that an interface's fabric copies memory of its descriptors.
#![expect(unsafe_code, reason = "promises what interfaces keep")]
//! What interfaces promise of the memory that their fabrics touch.
//!
//! An [`Ni`](portals_core::Ni) whose fabric is opened here is made here, and only calls of its interface make descriptors of it, over
//! a region or a [`RawMemory`](fabric_api::region::RawMemory).

use fabric_api::region::Trust;

// SAFETY: no function of this crate hands out an `Ni` or a fabric, and one that takes them takes a `Trust` of its caller.
pub(crate) const TRUST: Trust = unsafe { Trust::new() };
