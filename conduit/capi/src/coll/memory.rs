// UNSAFETY: memory and functions of the caller that an operation uses after the call that named them returned.
#![expect(
    unsafe_code,
    reason = "memory and functions of C are used after the call that named them"
)]
//! What a collective operation has of its caller.

use std::ffi::{c_int, c_void};

/// Memory of the caller, lent until the operation is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    addr: *mut u8,
    len: usize,
}

// SAFETY: an address, which only the thread that drives the operations uses, for memory that its owner has lent.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory that nobody looks at.
    pub(crate) const NONE: Self = Self {
        addr: std::ptr::null_mut(),
        len: 0,
    };

    /// # Safety
    /// `len` bytes at `addr` are readable as a source, writable as a destination, until the operation is complete.
    pub(crate) unsafe fn new(addr: *mut c_void, len: usize) -> Self {
        Self {
            addr: addr.cast(),
            len,
        }
    }

    #[cfg(test)]
    pub(crate) fn of(bytes: &mut [u8]) -> Self {
        Self {
            addr: bytes.as_mut_ptr(),
            len: bytes.len(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Block `i` of blocks of `len` bytes; empty if there is no such block.
    pub(crate) fn block(&self, i: usize, len: usize) -> Self {
        let start = i.saturating_mul(len);
        if start.saturating_add(len) > self.len {
            return Self::NONE;
        }
        Self {
            addr: self.addr.wrapping_add(start),
            len,
        }
    }

    pub(crate) fn load(&self) -> Vec<u8> {
        let mut data = vec![0; self.len];
        if self.len > 0 && !self.addr.is_null() {
            // SAFETY: readable by the promise of `new`; the vector has as many bytes.
            unsafe { std::ptr::copy(self.addr, data.as_mut_ptr(), self.len) };
        }
        data
    }

    /// Stores as much of `data` as there is room for.
    pub(crate) fn store(&self, data: &[u8]) {
        let len = data.len().min(self.len);
        if len > 0 && !self.addr.is_null() {
            // SAFETY: writable by the promise of `new`; at most all of both.
            unsafe { std::ptr::copy(data.as_ptr(), self.addr, len) };
        }
    }
}

/// `gasnet_coll_reduce_fn_t`.
pub(crate) type ReduceFn = unsafe extern "C" fn(
    results: *mut c_void,
    result_count: usize,
    left: *const c_void,
    left_count: usize,
    right: *const c_void,
    elem_size: usize,
    flags: c_int,
    arg: c_int,
);

/// How operands are combined.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reduction {
    Client {
        function: ReduceFn,
        elem_size: usize,
        count: usize,
        flags: c_int,
        arg: c_int,
    },
    #[cfg(test)]
    Ours(fn(&[u8], &[u8]) -> Vec<u8>),
}

impl Reduction {
    /// # Safety
    /// `function` combines `count` elements of `elem_size` bytes.
    pub(crate) unsafe fn client(
        function: ReduceFn,
        (elem_size, count): (usize, usize),
        flags: c_int,
        arg: c_int,
    ) -> Self {
        Self::Client {
            function,
            elem_size,
            count,
            flags,
            arg,
        }
    }

    #[cfg(test)]
    pub(crate) fn by(f: fn(&[u8], &[u8]) -> Vec<u8>) -> Self {
        Self::Ours(f)
    }

    /// `left` and `right` combined; `left` where their sizes are not those that were promised.
    pub(crate) fn apply(&self, left: &[u8], right: &[u8]) -> Vec<u8> {
        match *self {
            Self::Client {
                function,
                elem_size,
                count,
                flags,
                arg,
            } => {
                let mut result = left.to_vec();
                let bytes = elem_size.saturating_mul(count);
                if left.len() == bytes && right.len() == bytes {
                    let (to, l, r) = (result.as_mut_ptr(), left.as_ptr(), right.as_ptr());
                    // SAFETY: all three have `count` elements, as the lengths say; the function is one for them.
                    unsafe {
                        function(
                            to.cast(),
                            count,
                            l.cast(),
                            count,
                            r.cast(),
                            elem_size,
                            flags,
                            arg,
                        )
                    };
                }
                result
            }
            #[cfg(test)]
            Self::Ours(f) => f(left, right),
        }
    }
}
