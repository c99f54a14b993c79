// UNSAFETY: memory and functions of the caller that an operation uses after the call that named them returned.
#![expect(
    unsafe_code,
    reason = "memory and functions of C are used after the call that named them"
)]
//! What a collective operation has of its caller.

use std::ffi::{c_int, c_void};

use crate::ptr::{Count, Elements, argument};

argument! {
    /// Memory of a collective operation, or a list of such memory.
    Buffer(*mut c_void): "It is null, or the bytes that the call says are readable or writable until the operation is complete; a list has \
                          an element for each image"
}

impl Buffer {
    /// The bytes.
    pub(crate) fn of(self, count: Count) -> Result<Memory, NoMemory> {
        let len = count.get();
        if len > isize::MAX as usize {
            return Err(NoMemory::TooLong { len });
        }
        if len > 0 && self.0.is_null() {
            return Err(NoMemory::Null { len });
        }
        Ok(Memory {
            addr: self.0.cast(),
            len,
        })
    }

    /// Element `index` of a list, that of an image; null of null.
    pub(crate) fn element(self, index: usize) -> Self {
        if self.0.is_null() {
            return self;
        }
        // SAFETY: a list has an element for each image: `new`.
        let list = unsafe { Elements::<Self>::new(self.0.cast_const().cast(), index + 1) };
        list.get(index).unwrap_or(self)
    }
}

/// There is no memory of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoMemory {
    Null { len: usize },
    TooLong { len: usize },
}

impl std::fmt::Display for NoMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null { len } => write!(f, "no local memory for {len} bytes"),
            Self::TooLong { len } => write!(f, "no memory has {len} bytes"),
        }
    }
}

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

    /// Memory of the library.
    ///
    /// # Safety
    /// The elements stay where they are, and nobody uses them, until the operation is complete.
    pub(crate) unsafe fn lent<T>(elements: &mut [T]) -> Self {
        Self {
            addr: elements.as_mut_ptr().cast(),
            len: size_of_val(elements),
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
            // SAFETY: readable by the promise of `Buffer::new`; the vector has as many bytes.
            unsafe { std::ptr::copy(self.addr, data.as_mut_ptr(), self.len) };
        }
        data
    }

    /// Stores as much of `data` as there is room for.
    pub(crate) fn store(&self, data: &[u8]) {
        let len = data.len().min(self.len);
        if len > 0 && !self.addr.is_null() {
            // SAFETY: writable by the promise of `Buffer::new`; at most all of both.
            unsafe { std::ptr::copy(data.as_ptr(), self.addr, len) };
        }
    }
}

/// `gasnet_coll_reduce_fn_t`.
pub(crate) type ReduceFn = unsafe extern "C-unwind" fn(
    results: *mut c_void,
    result_count: usize,
    left: *const c_void,
    left_count: usize,
    right: *const c_void,
    elem_size: usize,
    flags: c_int,
    arg: c_int,
);

/// `gasnet_coll_fn_entry_t`: a function that combines as many elements as it is called for, of the size that it is called with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FunctionEntry {
    function: Option<ReduceFn>,
    flags: u32,
}

impl FunctionEntry {
    /// Whether there is a function.
    pub(crate) fn is_some(&self) -> bool {
        self.function.is_some()
    }

    /// Combines `count` elements of `elem_size` bytes; `None` without a function.
    pub(crate) fn reduction(
        self,
        (elem_size, count): (usize, usize),
        arg: c_int,
    ) -> Option<Reduction> {
        Some(Reduction::Client {
            function: self.function?,
            elem_size,
            count,
            flags: self.flags as c_int,
            arg,
        })
    }
}

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
    #[cfg(test)]
    pub(crate) fn by(f: fn(&[u8], &[u8]) -> Vec<u8>) -> Self {
        Self::Ours(f)
    }

    /// `left` and `right` combined; `left` where their sizes are not those that were promised, or there are no bytes.
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
                if bytes > 0 && left.len() == bytes && right.len() == bytes {
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
