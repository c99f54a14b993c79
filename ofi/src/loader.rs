// UNSAFETY: functions of the libfabric that has loaded this provider are found by their names and called by their types.
#![expect(
    unsafe_code,
    reason = "calls functions of the libfabric in this process by their names"
)]
//! The libfabric that has loaded this provider.
//!
//! It is asked by name, and not linked: each version of the library gives its symbols other versions. A provider that is linked
//! against one of them is not loaded by another.

use crate::abi::{Info, Provider};
use crate::ptr::write_bytes;
use std::ffi::{CStr, c_char, c_int, c_void};

type Version = unsafe extern "C" fn() -> u32;
type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type Define =
    unsafe extern "C" fn(*const Provider, *const c_char, c_int, *const c_char, ...) -> c_int;

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a string; nothing is loaded that is not there already.
    let library = unsafe {
        libc::dlopen(
            c"libfabric.so.1".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_NOLOAD,
        )
    };
    let place = match library.is_null() {
        true => libc::RTLD_DEFAULT,
        false => library,
    };
    // SAFETY: `place` is a library, or all that are loaded, and the name a string.
    let found = unsafe { libc::dlsym(place, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The version of the library; the newest that this provider was tried with where that is not known.
pub(crate) fn version() -> u32 {
    let Some(function) = symbol(c"fi_version") else {
        return 2 << 16 | 6;
    };
    // SAFETY: the library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Version>(function) };
    // SAFETY: it takes nothing.
    unsafe { function() }
}

/// An empty description, with all its parts, of the size that the library's version has.
pub(crate) fn new_info() -> Option<*mut Info> {
    let function = symbol(c"fi_dupinfo")?;
    // SAFETY: the library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, DupInfo>(function) };
    // SAFETY: of nothing it makes an empty one.
    let info = unsafe { function(std::ptr::null()) };
    (!info.is_null()).then_some(info)
}

/// Gives descriptions back.
pub(crate) fn free_info(info: *mut Info) {
    let Some(function) = symbol(c"fi_freeinfo") else {
        return;
    };
    // SAFETY: the library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, FreeInfo>(function) };
    // SAFETY: the descriptions were made by `new_info`, and nobody has them.
    unsafe { function(info) };
}

/// Has `fi_info -e` show the variables of this provider.
pub(crate) fn define(provider: *const Provider) {
    let Some(function) = symbol(c"fi_param_define") else {
        return;
    };
    // SAFETY: the library's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Define>(function) };
    for (name, text) in [
        (
            c"fabric",
            c"The fabric: shm, verbs, seastar, or auto for shm (default: PORTOLAN_FABRIC, or auto)",
        ),
        (
            c"device",
            c"The RDMA device (default: PORTOLAN_DEVICE, or the first that can be used)",
        ),
    ] {
        // SAFETY: the provider is the one that is being registered, and both strings are static. 0 is a string's type.
        unsafe { function(provider, name.as_ptr(), 0, text.as_ptr()) };
    }
}

/// A copy of bytes, which the library frees; null where there is no memory.
pub(crate) fn copy_bytes(bytes: &[u8]) -> *mut c_void {
    // SAFETY: any size may be asked for.
    let copy = unsafe { libc::malloc(bytes.len()) };
    // SAFETY: it is null, or has room for them.
    match unsafe { write_bytes(copy, bytes) } {
        Ok(()) => copy,
        Err(_) => std::ptr::null_mut(),
    }
}

/// A copy of a string, which the library frees.
pub(crate) fn copy(text: &CStr) -> *mut c_char {
    // SAFETY: it is a string.
    unsafe { libc::strdup(text.as_ptr()) }
}
