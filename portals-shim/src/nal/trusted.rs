// UNSAFETY: says that what the fabrics here copy is memory of descriptors.
#![expect(unsafe_code, reason = "promises what the fabrics of this crate keep")]
//! What the fabrics of this crate promise of the memory that they touch.
//!
//! Their segments come from descriptors of an [`Ni`](portals_core::Ni) that the opening of the fabric has made. Interfaces alone
//! make descriptors of that, over a region or a [`RawMemory`](fabric_api::region::RawMemory).

use fabric_api::region::{LocalCopy, Trust};

// SAFETY: no function of this crate that takes an `Ni` or a segment is public, but for the fabric in this process, which takes a
// `Trust` of its caller.
pub(crate) const TRUST: Trust = unsafe { Trust::new() };

/// Copies to and from descriptors' memory.
pub(crate) const MEMORY: LocalCopy = LocalCopy::of(TRUST);
