// UNSAFETY: a function of the C library, in front of its own of the same name, and its list of loaded objects.
#![expect(
    unsafe_code,
    reason = "a function of the C library by its name, and the list of loaded objects"
)]
//! Data of shared objects, which the loader unmaps by calls of its own.

use std::ffi::{c_int, c_void};

use super::next::CLOSE;
use super::{is_watched, take_all_away};
use crate::ptr::Elements;
use crate::state;

const PAGE: u64 = 4096;

/// `dlclose`: which objects go with it is known when they are gone, so nothing of the data of any that may go is pinned before.
/// No other thread is kept out meanwhile, for functions that run at the end of an object may wait for others.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let Some(real) = CLOSE.get() else {
        return -1;
    };
    // SAFETY: the caller's call.
    let call = || unsafe { real(handle) };
    if !is_watched() {
        return call();
    }
    let before = data();
    if take_all_away(&before, || ()).is_none() {
        // It stays where it is, as what `munmap` cannot take away.
        return 0;
    }
    let done = call();
    let after = data();
    for (addr, len) in before.into_iter().filter(|range| !after.contains(range)) {
        state::came(addr, len);
    }
    done
}

/// The data of all objects but the program itself, addresses and lengths.
fn data() -> Vec<(u64, u64)> {
    unsafe extern "C" fn note(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description of an object, which is good up to the end of this call.
        let object = unsafe { &*info };
        // SAFETY: the list of the caller, which waits.
        let found = unsafe { &mut *found.cast::<Found>() };
        if std::mem::replace(&mut found.is_first, false) {
            return 0;
        }
        // SAFETY: the object's headers.
        let parts = unsafe { Elements::new(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
        for part in parts.iter() {
            if part.p_type == libc::PT_LOAD && part.p_flags & libc::PF_W != 0 {
                let from = (object.dlpi_addr + part.p_vaddr) & !(PAGE - 1);
                let end = object.dlpi_addr + part.p_vaddr + part.p_memsz;
                found.ranges.push((from, end.next_multiple_of(PAGE) - from));
            }
        }
        0
    }
    let mut found = Found {
        is_first: true,
        ranges: Vec::new(),
    };
    // SAFETY: the function takes what it is called with, and the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found.ranges
}

struct Found {
    /// The first object is the program.
    is_first: bool,
    ranges: Vec<(u64, u64)>,
}
