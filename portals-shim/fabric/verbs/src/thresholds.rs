//! Lengths from which another protocol is better.

use crate::frame::EAGER;

/// Puts of so many bytes and more are written, up to what a frame takes. Below, copying them twice is cheaper than the way
/// that leaves them where they are: measured by `portolan bench pingpong` over SoftRoCE.
pub(crate) const WRITE_FROM: usize = 2048;

/// Whether puts of `len` bytes are written, from `from` bytes on.
#[inline(always)]
pub(crate) const fn written(from: usize, len: usize) -> bool {
    from <= len && len <= EAGER
}
