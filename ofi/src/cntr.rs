// UNSAFETY: entries get objects of a C caller by pointers.
#![expect(unsafe_code, reason = "entries get objects of a C caller by pointers")]
//! Completion counters.

use crate::abi::{CntrAttr, EVENTS_COMP, Fid, cap, class, errno, wait};
use crate::domain::{Domain, Shared};
use crate::object::{self, Object, object};
use crate::progress::Users;
use crate::ptr::{borrow, entry_int};
use crate::table::Table;
use crate::wait::{Waited, Waits, deadline, do_control};
use ofi_engine::completion::Counter;
use ofi_engine::wait::WaitObject;
use ofi_engine::{Counts, Endpoint, Refused};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A counter, and who makes progress when it is read.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    pub(crate) counter: Arc<Counter>,
    pub(crate) users: Arc<Users>,
}

impl Counting {
    /// The counter goes to each place whose flag is among these.
    pub(crate) fn bind<const N: usize>(&self, flags: u64, places: [(u64, &mut Option<Self>); N]) {
        for (flag, place) in places {
            if flags & flag != 0 {
                *place = Some(self.clone());
            }
        }
    }

    /// What this endpoint does is counted.
    pub(crate) fn serve(&self, endpoint: &Arc<Endpoint>) {
        self.users.add(endpoint);
        endpoint.serve(self.counter.wait_object());
    }
}

/// Who counts what peers do with memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses {
    pub(crate) read: Option<Counting>,
    pub(crate) write: Option<Counting>,
}

impl Accesses {
    /// A counter is bound with these flags.
    pub(crate) fn bind(&mut self, flags: u64, counting: &Counting) {
        let both = [
            (cap::REMOTE_READ, &mut self.read),
            (cap::REMOTE_WRITE, &mut self.write),
        ];
        counting.bind(flags, both);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.read.is_none() && self.write.is_none()
    }

    /// Has an endpoint count what peers do by it with the memory of this key, or of all keys.
    pub(crate) fn count(&self, endpoint: &Arc<Endpoint>, key: Option<u64>) -> Result<(), Refused> {
        if self.is_empty() {
            return Ok(());
        }
        let all = [&self.read, &self.write];
        all.into_iter().flatten().for_each(|c| c.serve(endpoint));
        let counter = |of: &Option<Counting>| of.as_ref().map(|c| Arc::clone(&c.counter));
        let counts = Counts {
            read: counter(&self.read),
            write: counter(&self.write),
        };
        endpoint.count(key, counts)
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct CompletionCounter {
    fid: Fid,
    ops: *const c_void,
    pub(crate) counting: Counting,
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

    /// Endpoints, regions, poll sets and threads that sleep use it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.counting.counter) > 1
    }
}

static CNTR: Table<8> = Table::new(&[
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
        let attr = unsafe { borrow(attr) };
        if attr.as_ref().is_some_and(|attr| attr.events != EVENTS_COMP) {
            return Err(errno::INVAL);
        }
        if attr.as_ref().is_some_and(|attr| attr.flags != 0) {
            return Err(errno::BADFLAGS);
        }
        let wait_obj = attr.map_or(wait::UNSPEC, |attr| attr.wait_obj);
        let (waits, object) = Waits::new(wait_obj, &domain.shared)?;
        let counting = Counting {
            counter: Arc::new(Counter::new(object)),
            users: Arc::default(),
        };
        Ok(CompletionCounter {
            fid,
            ops: CNTR.as_ptr(),
            counting,
            waits,
            _domain: Arc::clone(&domain.shared),
        })
    };
    // SAFETY: the caller was given the domain, and wants the counter there.
    unsafe { object::open(domain, out, context, make) }
}

impl CompletionCounter {
    /// The program's own value.
    pub(crate) const fn context(&self) -> *mut c_void {
        self.fid.context
    }
}

impl Waited for CompletionCounter {
    fn wait_object(&self) -> &WaitObject {
        self.counting.counter.wait_object()
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
        c.counting.users.progress(Duration::ZERO);
        c.counting.counter.done()
    };
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, read) }
}

unsafe extern "C" fn read_failed(cntr: *mut c_void) -> u64 {
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, |c| c.counting.counter.read_failed()) }
}

/// What is done to a counter, and `EINVAL` where there is none.
unsafe fn change(cntr: *mut c_void, what: impl FnOnce(&Counter)) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the counter.
        what(
            &unsafe { object::<CompletionCounter>(cntr) }?
                .counting
                .counter,
        );
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
        // Of a counter without a wait object it may still be asked, as tests of libfabric do: it looks.
        let waits = match cntr.waits {
            Waits::Never => Waits::Looking,
            waits => waits,
        };
        // A counter on which a thread sleeps is used: it does not close.
        let Counting { counter, users } = &cntr.counting.clone();
        // A failure that came between two calls ends the wait too: what is awaited may never come.
        let known = counter.known_failed();
        let until = deadline(timeout);
        users.progress(Duration::ZERO);
        loop {
            if counter.done() >= least {
                return Ok(0);
            }
            if counter.failed() != known {
                counter.read_failed();
                return Err(errno::AVAIL);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(errno::TIMEDOUT);
            }
            let ready = || counter.done() >= least || counter.failed() != known;
            let object = counter.wait_object();
            waits.sleep(users, object, until, ready);
        }
    })
}
