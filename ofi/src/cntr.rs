// UNSAFETY: entries get objects of a C caller by pointers.
#![expect(unsafe_code, reason = "entries get objects of a C caller by pointers")]
//! Completion counters.

use crate::abi::{CntrAttr, Fid, class, errno, wait};
use crate::domain::{Domain, Shared};
use crate::object::{self, Object, object};
use crate::progress::Users;
use crate::ptr::{borrow, entry_int};
use crate::table::Table;
use crate::wait::{Waited, Waits, deadline, do_control};
use ofi_engine::completion::Counter;
use ofi_engine::wait::WaitObject;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
#[repr(C)]
pub(crate) struct CompletionCounter {
    fid: Fid,
    ops: *const c_void,
    pub(crate) counter: Arc<Counter>,
    pub(crate) users: Arc<Users>,
    waits: Waits,
    _domain: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for CompletionCounter {
    const CLASS: usize = class::CNTR;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (2, do_control::<Self> as *const c_void),
    ]);

    /// Endpoints use it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.counter) > 1
    }
}

static CNTR: Table<7> = Table::new(&[
    (0, read as *const c_void),
    (1, read_failed as *const c_void),
    (2, add as *const c_void),
    (3, set as *const c_void),
    (4, wait_for as *const c_void),
    (5, add_failed as *const c_void),
    (6, set_failed as *const c_void),
]);

/// `fi_cntr_open`
pub(crate) unsafe extern "C" fn open(
    domain: *mut c_void,
    attr: *mut CntrAttr,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let make = |domain: &Domain, fid| {
        // SAFETY: the caller says there what it wants, if anything.
        let wait_obj = unsafe { borrow(attr) }.map_or(wait::UNSPEC, |attr| attr.wait_obj);
        let (waits, object) = Waits::new(wait_obj, &domain.shared)?;
        Ok(CompletionCounter {
            fid,
            ops: CNTR.as_ptr(),
            counter: Arc::new(Counter::new(object)),
            users: Arc::default(),
            waits,
            _domain: Arc::clone(&domain.shared),
        })
    };
    // SAFETY: the caller was given the domain, and wants the counter there.
    unsafe { object::open(domain, out, context, make) }
}

impl Waited for CompletionCounter {
    fn wait_object(&self) -> &WaitObject {
        self.counter.wait_object()
    }
}

/// What is done with a counter, of which 0 is told where there is none.
unsafe fn with(cntr: *mut c_void, what: impl FnOnce(&CompletionCounter) -> u64) -> u64 {
    // SAFETY: the caller was given the counter.
    match unsafe { object::<CompletionCounter>(cntr) } {
        Ok(counter) => what(counter),
        Err(_) => 0,
    }
}

unsafe extern "C" fn read(cntr: *mut c_void) -> u64 {
    let read = |c: &CompletionCounter| {
        c.users.progress(Duration::ZERO);
        c.counter.done()
    };
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, read) }
}

unsafe extern "C" fn read_failed(cntr: *mut c_void) -> u64 {
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, |c| c.counter.failed()) }
}

/// What is done to a counter, and `EINVAL` where there is none.
unsafe fn change(cntr: *mut c_void, what: impl FnOnce(&Counter)) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the counter.
        what(&unsafe { object::<CompletionCounter>(cntr) }?.counter);
        Ok(0)
    })
}

unsafe extern "C" fn add(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe { change(cntr, |counter| counter.add(value)) }
}

unsafe extern "C" fn set(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe { change(cntr, |counter| counter.set(value)) }
}

unsafe extern "C" fn add_failed(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe { change(cntr, |counter| counter.add_failed(value)) }
}

unsafe extern "C" fn set_failed(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe { change(cntr, |counter| counter.set_failed(value)) }
}

unsafe extern "C" fn wait_for(cntr: *mut c_void, least: u64, timeout: c_int) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the counter.
        let cntr = unsafe { object::<CompletionCounter>(cntr) }?;
        if cntr.waits == Waits::Never {
            return Err(errno::NOSYS);
        }
        let counter = &cntr.counter;
        let failed = counter.failed();
        let until = deadline(timeout);
        cntr.users.progress(Duration::ZERO);
        loop {
            if counter.done() >= least {
                return Ok(0);
            }
            if counter.failed() != failed {
                return Err(errno::AVAIL);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(errno::TIMEDOUT);
            }
            let ready = || counter.done() >= least || counter.failed() != failed;
            let object = counter.wait_object();
            cntr.waits.sleep(&cntr.users, object, until, ready);
        }
    })
}
