// UNSAFETY: memory that a C caller lends is described by pointers.
#![expect(
    unsafe_code,
    reason = "reads descriptions of memory that C callers lend"
)]
//! What the operations have in common: memory that is lent, a peer, data beside a message, flags, a context.

use crate::abi::{Addr, Iovec, cap, errno};
use crate::ptr::{Outcome, buffer, buffers};
use ofi_engine::memory::Buffer;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that a caller lends for an operation: one piece of so many bytes, or so many pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lent {
    Piece(*const c_void, usize),
    Pieces(*const Iovec, usize),
}

impl Lent {
    /// The memory, for the engine.
    ///
    /// # Safety
    /// Until the completion of the operation the memory may be read, and for receives and reads written; pieces are as many as
    /// are named.
    pub(crate) unsafe fn buffer(self) -> Outcome<Buffer> {
        match self {
            // SAFETY: the condition above.
            Self::Piece(p, len) => unsafe { buffer(p, len) },
            // SAFETY: the condition above.
            Self::Pieces(iov, count) => unsafe { buffers(iov, count) },
        }
    }
}

/// A call of an operation, beside its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// By its number in the address vector.
    pub(crate) peer: Addr,
    /// What travels beside a message, or is told of a write.
    pub(crate) data: Option<u64>,
    /// None: those of the endpoint.
    flags: Option<u64>,
    /// None for an operation without a completion.
    pub(crate) context: Option<*mut c_void>,
}

impl Call {
    /// A call with the flags of its endpoint.
    pub(crate) const fn new(peer: Addr, context: *mut c_void) -> Self {
        Self {
            peer,
            data: None,
            flags: None,
            context: Some(context),
        }
    }

    /// A call whose memory is free when it returns, and that has no completion.
    pub(crate) const fn inject(peer: Addr) -> Self {
        Self {
            peer,
            data: None,
            flags: Some(cap::INJECT),
            context: None,
        }
    }

    /// A call that is described by a structure, with flags of its own; these say whether there is data.
    pub(crate) const fn described(peer: Addr, context: *mut c_void, flags: u64, data: u64) -> Self {
        Self {
            peer,
            data: if flags & cap::REMOTE_CQ_DATA != 0 {
                Some(data)
            } else {
                None
            },
            flags: Some(flags),
            context: Some(context),
        }
    }

    /// The same call with data.
    pub(crate) const fn with(self, data: u64) -> Self {
        Self {
            data: Some(data),
            ..self
        }
    }

    /// The flags of the call, or those that its endpoint has; `EBADFLAGS` for what would make another operation of it, and is not
    /// offered.
    pub(crate) fn flags(&self, of_endpoint: &AtomicU64) -> Outcome<u64> {
        let flags = self.flags;
        let flags = flags.unwrap_or_else(|| of_endpoint.load(Ordering::Relaxed));
        match flags & (cap::FENCE | cap::TRIGGER | cap::MULTICAST | cap::VARIABLE_MSG) {
            0 => Ok(flags),
            _ => Err(errno::BADFLAGS),
        }
    }
}
