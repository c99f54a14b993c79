// UNSAFETY: entries get objects by pointers.
#![expect(unsafe_code, reason = "entries get objects of a C caller by pointers")]
//! Event queues, which stay empty: no connection is made by them, and what could tell them of its end is over when its call
//! returns.

use crate::abi::{Fid, class, errno};
use crate::fabric::Fabric;
use crate::object::{self, Object};
use crate::ptr::entry;
use crate::table::Table;
use std::ffi::{c_int, c_void};
use std::time::Duration;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct EventQueue {
    fid: Fid,
    ops: *const c_void,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for EventQueue {
    const CLASS: usize = class::EQ;
    const OPS: &'static Table<6> = &Table::new(&[(0, object::close::<Self> as *const c_void)]);
}

static EQ: Table<5> = Table::new(&[
    (0, read as *const c_void),
    (1, read_failed as *const c_void),
    (3, wait_read as *const c_void),
]);

/// `fi_eq_open`
pub(crate) unsafe extern "C" fn open(
    fabric: *mut c_void,
    _attr: *mut c_void,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller was given the fabric, and wants the queue there.
    unsafe {
        object::open(fabric, out, context, |_: &Fabric, fid| {
            let ops = EQ.as_ptr();
            Ok(EventQueue { fid, ops })
        })
    }
}

unsafe extern "C" fn read(
    _eq: *mut c_void,
    _event: *mut u32,
    _buf: *mut c_void,
    _len: usize,
    _flags: u64,
) -> isize {
    entry(|| Err(errno::AGAIN))
}

unsafe extern "C" fn read_failed(_eq: *mut c_void, _entry: *mut c_void, _flags: u64) -> isize {
    entry(|| Err(errno::AGAIN))
}

unsafe extern "C" fn wait_read(
    _eq: *mut c_void,
    _event: *mut u32,
    _buf: *mut c_void,
    _len: usize,
    timeout: c_int,
    _flags: u64,
) -> isize {
    entry(|| {
        // Nothing will ever come; who waits for ever asks again.
        let most = u64::try_from(timeout).unwrap_or(1000);
        std::thread::sleep(Duration::from_millis(most));
        Err(errno::AGAIN)
    })
}
