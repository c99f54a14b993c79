// UNSAFETY: looks functions of the C library up by their names.
#![expect(unsafe_code, reason = "looks functions up by their names")]
//! The functions of the C library that this one stands in front of, and whether it does.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, of type `F`; found once.
#[derive(Debug)]
pub(super) struct Next<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    of: PhantomData<F>,
}

/// The functions that this library stands in front of, by the names and types that the C library gives them.
macro_rules! functions {
    ($($function:ident $name:literal: $of:ty;)*) => { $(
        pub(super) static $function: Next<$of> = Next {
            name: $name,
            found: AtomicPtr::new(std::ptr::null_mut()),
            of: PhantomData,
        };
    )* };
}

functions! {
    BRK c"brk": unsafe extern "C" fn(*mut c_void) -> c_int;
    SBRK c"sbrk": unsafe extern "C" fn(isize) -> *mut c_void;
    TRIM c"malloc_trim": unsafe extern "C" fn(usize) -> c_int;
    OPT c"mallopt": unsafe extern "C" fn(c_int, c_int) -> c_int;
    CLOSE c"dlclose": unsafe extern "C" fn(*mut c_void) -> c_int;
}

impl<F: Copy> Next<F> {
    /// The first function of this name behind this library; `None` where there is none, as in a program without shared libraries.
    pub(super) fn get(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            found = look_up(libc::RTLD_NEXT, self.name);
            self.found.store(found, Ordering::Release);
        }
        // SAFETY: the C library's function of this name and so of this type, by the table above.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
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
