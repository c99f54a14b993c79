// UNSAFETY: the functions behind those of this library are found by their names, and called by their types.
#![expect(unsafe_code, reason = "finds functions by their names")]
//! The functions of the C library behind those that this library has.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of type `F` that the next library has under this name.
#[derive(Debug)]
pub(crate) struct Real<F> {
    name: &'static CStr,
    /// The version of its symbol that programs of today are linked with, where there are several.
    version: Option<&'static CStr>,
    at: AtomicPtr<c_void>,
    of: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// # Safety
    /// `F` is the type of a function, and that of the one that the C library has under this name and version.
    pub(crate) const unsafe fn new(name: &'static CStr, version: Option<&'static CStr>) -> Self {
        Self {
            name,
            version,
            at: AtomicPtr::new(null_mut()),
            of: PhantomData,
        }
    }

    fn find(&self) -> *mut c_void {
        let versioned = self.version.map(|version| {
            // SAFETY: both are strings.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) }
        });
        match versioned.filter(|at| !at.is_null()) {
            Some(at) => at,
            // SAFETY: the name is a string.
            None => unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) },
        }
    }

    /// The function; `None` where the C library has none.
    #[inline]
    pub(crate) fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            at = self.find();
            self.at.store(at, Ordering::Relaxed);
        }
        if at.is_null() {
            return None;
        }
        // SAFETY: it is such a function, as was promised when this was made.
        Some(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&at) })
    }
}

/// Says to the caller of a function that the C library does not have it.
pub(crate) fn absent() -> libc::c_int {
    // SAFETY: it has no condition.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the place is this thread's own.
    unsafe { errno.write(libc::ENOSYS) };
    -1
}
