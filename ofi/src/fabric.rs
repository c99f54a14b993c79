// UNSAFETY: entries get objects by pointers.
#![expect(unsafe_code, reason = "entries get objects of a C caller by pointers")]
//! Fabrics and event queues: the first are names, the second stay empty, as no connection is made by them.

use crate::abi::{Fid, Info, class, errno};
use crate::domain;
use crate::ptr::{Object, Out, entry, entry_int, give, object, take};
use crate::table::Table;
use std::ffi::{c_int, c_void};
use std::time::Duration;

#[derive(Debug)]
#[repr(C)]
struct Fabric {
    fid: Fid,
    ops: *const c_void,
    api_version: u32,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for Fabric {
    const CLASS: usize = class::FABRIC;
}

#[derive(Debug)]
#[repr(C)]
struct EventQueue {
    fid: Fid,
    ops: *const c_void,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for EventQueue {
    const CLASS: usize = class::EQ;
}

static FABRIC_FID: Table<6> = Table::new(&[(0, close as *const c_void)]);
static FABRIC: Table<6> = Table::new(&[
    (0, domain::open as *const c_void),
    (2, open_eq as *const c_void),
    (5, domain::open_with_flags as *const c_void),
]);
static EQ_FID: Table<6> = Table::new(&[(0, close_eq as *const c_void)]);
static EQ: Table<5> = Table::new(&[
    (0, eq_read as *const c_void),
    (1, eq_readerr as *const c_void),
    (3, eq_sread as *const c_void),
]);

/// `fi_fabric`
pub(crate) unsafe extern "C" fn open(
    _attr: *mut c_void,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller wants the fabric there.
        let out = unsafe { Out::new(out) }?;
        let fid = Fid {
            class: class::FABRIC,
            context,
            ops: FABRIC_FID.as_ptr(),
        };
        let ops = FABRIC.as_ptr();
        let fabric = Fabric {
            fid,
            ops,
            api_version: 0,
        };
        give(fabric, &out);
        Ok(0)
    })
}

unsafe extern "C" fn close(fid: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller closes what it was given, and uses it no more.
        unsafe { take::<Fabric>(fid) }?;
        Ok(0)
    })
}

unsafe extern "C" fn open_eq(
    fabric: *mut c_void,
    _attr: *mut c_void,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the fabric.
        unsafe { object::<Fabric>(fabric) }?;
        // SAFETY: the caller wants the queue there.
        let out = unsafe { Out::new(out) }?;
        let fid = Fid {
            class: class::EQ,
            context,
            ops: EQ_FID.as_ptr(),
        };
        let ops = EQ.as_ptr();
        give(EventQueue { fid, ops }, &out);
        Ok(0)
    })
}

unsafe extern "C" fn close_eq(fid: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller closes what it was given, and uses it no more.
        unsafe { take::<EventQueue>(fid) }?;
        Ok(0)
    })
}

unsafe extern "C" fn eq_read(
    _eq: *mut c_void,
    _event: *mut u32,
    _buf: *mut c_void,
    _len: usize,
    _flags: u64,
) -> isize {
    entry(|| Err(errno::AGAIN))
}

unsafe extern "C" fn eq_readerr(_eq: *mut c_void, _entry: *mut c_void, _flags: u64) -> isize {
    entry(|| Err(errno::AGAIN))
}

unsafe extern "C" fn eq_sread(
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

/// What the opening of a domain asks of a fabric.
///
/// # Safety
/// As for [`object`].
pub(crate) unsafe fn is_fabric(fabric: *const c_void, info: *const Info) -> Result<(), i32> {
    // SAFETY: the condition above.
    unsafe { object::<Fabric>(fabric) }?;
    if info.is_null() {
        Err(errno::INVAL)
    } else {
        Ok(())
    }
}
