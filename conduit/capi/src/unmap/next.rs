// UNSAFETY: looks functions of the C library up by their names.
#![expect(unsafe_code, reason = "looks functions up by their names")]
//! The functions of the C library that this one stands in front of, and whether it does.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library; found once.
#[derive(Debug)]
pub(super) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// The first function of this name behind this library; null where there is none, as in a program without shared libraries.
    pub(super) fn get(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let found = look_up(libc::RTLD_NEXT, self.name);
        self.found.store(found, Ordering::Release);
        found
    }
}

fn look_up(from: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a name that ends with a zero.
    unsafe { libc::dlsym(from, name.as_ptr()) }
}

/// The first address of the object that has what is at an address; null where none has.
fn object_of(addr: *const c_void) -> *mut c_void {
    // SAFETY: plain pointers, for which zeroes are null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; the answer is written to `info`.
    let known = unsafe { libc::dladdr(addr, &raw mut info) };
    if known == 0 {
        std::ptr::null_mut()
    } else {
        info.dli_fbase
    }
}

/// Something of this library that has no name for others.
static HERE: u8 = 0;

/// Whether the functions that the program finds by these names are of this library.
pub(super) fn are_ours(names: &[&CStr]) -> bool {
    let own = object_of((&raw const HERE).cast());
    names.iter().all(|name| {
        let found = look_up(libc::RTLD_DEFAULT, name);
        !found.is_null() && object_of(found) == own
    })
}
