// UNSAFETY: memory of a C caller, which operations use after the call that named it returned.
#![expect(
    unsafe_code,
    reason = "operations use memory of C callers, by its address"
)]
//! Memory that a call of the extended API names.

use conduit::{Conduit, Handle, Near, RmaError};
use std::ffi::c_void;

use super::{Count, argument};

argument! {
    /// Local memory that a call reads.
    Source(*const c_void): "It is null, or the bytes that the count beside it says are readable and do not change"
}
argument! {
    /// Local memory that a call writes.
    Dest(*mut c_void): "It is null, or the bytes that the count beside it says are writable and not used by others"
}
argument! {
    /// Memory of the node that a call names.
    Remote(*mut c_void): "If the node is the own one, the bytes that the count beside it says may be used by the call"
}

/// Bytes of a put that a trace shows.
const SHOWN: usize = 40;

impl Source {
    /// The bytes.
    #[inline]
    pub(crate) fn of(self, count: Count) -> Outgoing {
        Outgoing {
            addr: self.0.cast(),
            len: count.get(),
        }
    }
}

/// Local memory that an operation reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    addr: *const u8,
    len: usize,
}

impl Outgoing {
    /// Memory of the library that a put reads.
    ///
    /// # Safety
    /// The memory does not change until the put no longer reads it.
    pub(crate) unsafe fn lent(memory: &[u8]) -> Self {
        Self {
            addr: memory.as_ptr(),
            len: memory.len(),
        }
    }

    /// The number that the address is.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.addr.expose_provenance() as u64
    }

    pub(crate) fn is_null(self) -> bool {
        self.addr.is_null()
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// All of it, while the call lasts; none of null.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.first(self.len)
    }

    /// What a trace shows of it.
    pub(crate) fn head(&self) -> &[u8] {
        self.first(self.len.min(SHOWN))
    }

    #[inline]
    fn first(&self, len: usize) -> &[u8] {
        if len == 0 || self.addr.is_null() {
            return &[];
        }
        // SAFETY: `len` is at most all of it, which is readable: `Source::new`.
        unsafe { std::slice::from_raw_parts(self.addr, len) }
    }

    /// [`Near::put_raw`].
    #[inline]
    pub(crate) fn put_near(self, near: &Near, node: u32, to: u64) -> bool {
        // SAFETY: readable, or null: `Source::new`.
        unsafe { near.put_raw(node, to, self.addr, self.len) }
    }

    /// [`Conduit::put_awaited_raw`].
    #[inline]
    pub(crate) fn put_awaited(self, c: &Conduit, node: u32, to: u64) -> Result<Handle, RmaError> {
        // SAFETY: readable and unchanged until the call returns, which waits for the handle: `Source::new`.
        unsafe { c.put_awaited_raw(node, to, self.addr, self.len) }
    }

    /// [`Conduit::put_nb_raw`].
    #[inline]
    pub(crate) fn put_nb(
        self,
        c: &Conduit,
        node: u32,
        to: u64,
        bulk: bool,
    ) -> Result<Handle, RmaError> {
        // SAFETY: readable and unchanged until the specification lets it change: `Source::new`.
        unsafe { c.put_nb_raw(node, to, self.addr, self.len, bulk) }
    }

    /// [`Conduit::put_nbi_raw`].
    #[inline]
    pub(crate) fn put_nbi(
        self,
        c: &Conduit,
        node: u32,
        to: u64,
        bulk: bool,
    ) -> Result<(), RmaError> {
        // SAFETY: readable and unchanged until the specification lets it change: `Source::new`.
        unsafe { c.put_nbi_raw(node, to, self.addr, self.len, bulk) }
    }
}

impl Dest {
    /// The bytes.
    #[inline]
    pub(crate) fn of(self, count: Count) -> Incoming {
        Incoming {
            addr: self.0.cast(),
            len: count.get(),
        }
    }
}

/// Local memory that an operation writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    addr: *mut u8,
    len: usize,
}

impl Incoming {
    /// Memory of the library that a get fills.
    ///
    /// # Safety
    /// The memory stays where it is, and nobody looks at it, until the get is complete.
    pub(crate) unsafe fn lent(memory: &mut [u8]) -> Self {
        Self {
            addr: memory.as_mut_ptr(),
            len: memory.len(),
        }
    }

    /// The number that the address is.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.addr.expose_provenance() as u64
    }

    pub(crate) fn is_null(self) -> bool {
        self.addr.is_null()
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// [`Near::get_raw`].
    #[inline]
    pub(crate) fn get_near(self, near: &Near, node: u32, from: u64) -> bool {
        // SAFETY: writable and not used by others, or null: `Dest::new`.
        unsafe { near.get_raw(self.addr, node, from, self.len) }
    }

    /// [`Conduit::get_awaited_raw`].
    #[inline]
    pub(crate) fn get_awaited(self, c: &Conduit, node: u32, from: u64) -> Result<Handle, RmaError> {
        // SAFETY: not used by others until the call returns, which waits for the handle: `Dest::new`.
        unsafe { c.get_awaited_raw(self.addr, node, from, self.len) }
    }

    /// [`Conduit::get_nb_raw`].
    #[inline]
    pub(crate) fn get_nb(self, c: &Conduit, node: u32, from: u64) -> Result<Handle, RmaError> {
        // SAFETY: not used by others until the operation is synchronised: `Dest::new`, `lent`.
        unsafe { c.get_nb_raw(self.addr, node, from, self.len) }
    }

    /// [`Conduit::get_nbi_raw`].
    #[inline]
    pub(crate) fn get_nbi(self, c: &Conduit, node: u32, from: u64) -> Result<(), RmaError> {
        // SAFETY: not used by others until the operation is synchronised: `Dest::new`.
        unsafe { c.get_nbi_raw(self.addr, node, from, self.len) }
    }
}

impl Remote {
    /// The number that the address is.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The memory, if the call names it of the own node, `me`; null is none.
    #[inline]
    pub(crate) fn own(self, (node, me): (u32, u32), count: Count) -> Option<Own> {
        (node == me && !self.0.is_null()).then_some(Own {
            addr: self.0.cast(),
            len: count.get(),
        })
    }
}

/// Memory of the own node that a call names as a peer's. It may overlap with what is copied from or to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    addr: *mut u8,
    len: usize,
}

impl Own {
    /// Copies from local memory, as much as both have.
    pub(crate) fn put(self, from: Outgoing) {
        let len = self.len.min(from.len);
        // SAFETY: at most all of both, which the call may use: `Remote::new`, `Source::new`.
        unsafe { std::ptr::copy(from.addr, self.addr, len) };
    }

    /// Copies to local memory, as much as both have.
    pub(crate) fn get(self, to: Incoming) {
        let len = self.len.min(to.len);
        // SAFETY: at most all of both, which the call may use: `Remote::new`, `Dest::new`.
        unsafe { std::ptr::copy(self.addr, to.addr, len) };
    }

    /// Stores as much of `data` as there is room for.
    pub(crate) fn write(self, data: &[u8]) {
        self.put(Outgoing {
            addr: data.as_ptr(),
            len: data.len(),
        });
    }

    /// Sets all of it.
    pub(crate) fn fill(self, value: u8) {
        // SAFETY: the call may write it: `Remote::new`.
        unsafe { self.addr.write_bytes(value, self.len) };
    }
}
