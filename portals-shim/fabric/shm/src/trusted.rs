// UNSAFETY: says that what the fabric here copies is memory of descriptors.
#![expect(unsafe_code, reason = "promises what the fabric of this crate keeps")]
//! What the fabric of this crate promises of the memory that it touches.
//!
//! Its segments come from descriptors of an [`Ni`](portals_core::Ni) that the opening of the fabric has made. Interfaces alone
//! make descriptors of that, over a region or a [`RawMemory`](fabric_api::region::RawMemory).

use fabric_api::region::{LocalCopy, Trust};

// SAFETY: whoever may hand an `Ni` or a segment to the fabric has a fabric in hand, which is made for one by a `Trust` alone.
pub(crate) const TRUST: Trust = unsafe { Trust::new() };

/// Copies to and from descriptors' memory.
pub(crate) const MEMORY: LocalCopy = LocalCopy::of(TRUST);
