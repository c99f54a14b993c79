// UNSAFETY: a table of operations holds functions of different types as pointers, which C calls by their types.
#![expect(
    unsafe_code,
    reason = "functions become entries of tables that C reads"
)]
//! Tables of operations, which begin with their size: entries that are not there say so.

use crate::abi::errno;
use std::ffi::c_void;

/// An operation that this provider does not have.
unsafe extern "C" fn no_such() -> isize {
    -(errno::NOSYS as isize)
}

/// A table of `N` operations.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table<const N: usize> {
    size: usize,
    entries: [*const c_void; N],
}

// SAFETY: a table is never written after it was made, and functions may be called by any thread.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    /// The operations with these numbers; callers of newer versions see by the size which of the others cannot be there.
    pub(crate) const fn new(some: &[(usize, *const c_void)]) -> Self {
        let mut entries = [no_such as *const c_void; N];
        let mut at = 0;
        while at < some.len() {
            let (number, entry) = some[at];
            entries[number] = entry;
            at += 1;
        }
        Self {
            size: size_of::<Self>(),
            entries,
        }
    }

    /// What an object points to.
    pub(crate) const fn as_ptr(&'static self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_size_and_something_everywhere() {
        static TABLE: Table<5> = Table::new(&[(3, no_such as *const c_void)]);
        assert_eq!((TABLE.size, TABLE.entries.len()), (48, 5));
        assert!(TABLE.entries.iter().all(|entry| !entry.is_null()));
        // SAFETY: it takes no arguments.
        assert_eq!(unsafe { no_such() }, -38);
    }
}
