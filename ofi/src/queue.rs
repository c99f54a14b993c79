// UNSAFETY: entries get objects and room for results of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and room for results by pointers"
)]
//! Completion queues and counters. Whoever reads one makes progress for the endpoints that use it.

use crate::abi::{
    Addr, CntrAttr, CqAttr, CqErrEntry, Fid, WAIT_NONE, WAIT_UNSPEC, WAIT_YIELD, class, errno,
};
use crate::domain::{Domain, Shared};
use crate::ptr::{
    Object, Out, borrow, entry, entry_int, give, object, take, write_at, write_bytes,
};
use crate::table::Table;
use ofi_engine::Endpoint;
use ofi_engine::completion::{Counter, Entry, HasFailed, Queue};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a wait looks at one endpoint where several use a queue.
const SLICE: Duration = Duration::from_millis(1);

/// Endpoints that make progress when somebody reads.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<Vec<Weak<Endpoint>>>);

impl Users {
    pub(crate) fn add(&self, endpoint: &Arc<Endpoint>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|e| e.strong_count() > 0);
        if !all.iter().any(|e| e.as_ptr() == Arc::as_ptr(endpoint)) {
            all.push(Arc::downgrade(endpoint));
        }
    }

    /// Progress for all, so long for the first of them if nothing happens.
    fn progress(&self, wait: Duration) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = all.len() == 1;
        let mut any = false;
        for endpoint in all.iter().filter_map(Weak::upgrade) {
            any |= endpoint.progress(if alone { wait } else { Duration::ZERO });
        }
        drop(all);
        if !alone && !any && !wait.is_zero() {
            std::thread::yield_now();
        }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct CompletionQueue {
    fid: Fid,
    ops: *const c_void,
    pub(crate) queue: Arc<Queue>,
    pub(crate) users: Arc<Users>,
    /// Bytes of an entry as this caller reads it.
    each: usize,
    _domain: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for CompletionQueue {
    const CLASS: usize = class::CQ;
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct CompletionCounter {
    fid: Fid,
    ops: *const c_void,
    pub(crate) counter: Arc<Counter>,
    pub(crate) users: Arc<Users>,
    _domain: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for CompletionCounter {
    const CLASS: usize = class::CNTR;
}

static CQ_FID: Table<6> = Table::new(&[(0, close as *const c_void)]);
static CQ: Table<7> = Table::new(&[
    (0, read_queue as *const c_void),
    (1, read_from as *const c_void),
    (2, read_failed as *const c_void),
    (3, wait_read as *const c_void),
    (4, wait_read_from as *const c_void),
    (6, strerror as *const c_void),
]);
static CNTR_FID: Table<6> = Table::new(&[(0, close_counter as *const c_void)]);
static CNTR: Table<7> = Table::new(&[
    (0, counter_read as *const c_void),
    (1, counter_failed as *const c_void),
    (2, counter_add as *const c_void),
    (3, counter_set as *const c_void),
    (4, counter_wait as *const c_void),
    (5, counter_add_failed as *const c_void),
    (6, counter_set_failed as *const c_void),
]);

/// Bytes of entries, by format: context, message, data, tagged. Each is the beginning of the next.
const EACH: [usize; 5] = [48, 8, 24, 40, 48];

/// `fi_cq_open`
pub(crate) unsafe extern "C" fn open(
    domain: *mut c_void,
    attr: *mut CqAttr,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the domain.
        let domain = unsafe { object::<Domain>(domain) }?;
        // SAFETY: the caller wants the queue there.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: the caller says there what it wants.
        let attr = unsafe { borrow(attr) }.ok_or(errno::INVAL)?;
        if !matches!(attr.wait_obj, WAIT_NONE | WAIT_UNSPEC | WAIT_YIELD) {
            return Err(errno::NOSYS);
        }
        let format = usize::try_from(attr.format).map_err(|_| errno::INVAL)?;
        let each = *EACH.get(format).ok_or(errno::INVAL)?;
        let fid = Fid {
            class: class::CQ,
            context,
            ops: CQ_FID.as_ptr(),
        };
        let queue = CompletionQueue {
            fid,
            ops: CQ.as_ptr(),
            queue: Arc::default(),
            users: Arc::default(),
            each,
            _domain: Arc::clone(&domain.shared),
        };
        give(queue, &out);
        Ok(0)
    })
}

unsafe extern "C" fn close(fid: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the queue.
        let queue = unsafe { object::<CompletionQueue>(fid) }?;
        // Endpoints use it.
        if Arc::strong_count(&queue.queue) > 1 {
            return Err(errno::BUSY);
        }
        // SAFETY: the caller closes what it was given, and uses it no more.
        unsafe { take::<CompletionQueue>(fid) }?;
        Ok(0)
    })
}

/// An entry as bytes.
fn bytes_of(entry: &Entry) -> [u8; 48] {
    let words = [
        entry.context as u64,
        entry.flags,
        entry.len as u64,
        entry.buf as u64,
        entry.data,
        entry.tag,
    ];
    let mut bytes = [0; 48];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

impl CompletionQueue {
    /// Takes what is there; `EAGAIN` if nothing is.
    ///
    /// # Safety
    /// There is room for `count` entries, and for as many sources, or none is wanted.
    unsafe fn take(&self, buf: *mut c_void, count: usize, from: *mut Addr) -> Result<isize, i32> {
        let mut at = 0;
        let mut failed = Ok(());
        let taken = self.queue.take(count, |entry, source| {
            let to = buf.wrapping_byte_add(at * self.each);
            let bytes = bytes_of(entry);
            if !buf.is_null() {
                // SAFETY: the condition above.
                failed = failed.and(unsafe { write_bytes(to, &bytes[..self.each]) });
            }
            if !from.is_null() {
                // SAFETY: the condition above.
                unsafe { write_at(from, at, source) };
            }
            at += 1;
        });
        failed?;
        match taken {
            Ok(0) => Err(errno::AGAIN),
            Ok(count) => Ok(count as isize),
            Err(HasFailed) => Err(errno::AVAIL),
        }
    }
}

unsafe extern "C" fn read_queue(cq: *mut c_void, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the same arguments.
    unsafe { read_from(cq, buf, count, std::ptr::null_mut()) }
}

unsafe extern "C" fn read_from(
    cq: *mut c_void,
    buf: *mut c_void,
    count: usize,
    from: *mut Addr,
) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let cq = unsafe { object::<CompletionQueue>(cq) }?;
        if cq.queue.is_empty() {
            cq.users.progress(Duration::ZERO);
        }
        // SAFETY: the caller has room for so many.
        unsafe { cq.take(buf, count, from) }
    })
}

unsafe extern "C" fn wait_read(
    cq: *mut c_void,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: the same arguments.
    unsafe { wait_read_from(cq, buf, count, std::ptr::null_mut(), cond, timeout) }
}

unsafe extern "C" fn wait_read_from(
    cq: *mut c_void,
    buf: *mut c_void,
    count: usize,
    from: *mut Addr,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let cq = unsafe { object::<CompletionQueue>(cq) }?;
        let until = u64::try_from(timeout).ok();
        let until = until.map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            // SAFETY: the caller has room for so many.
            match unsafe { cq.take(buf, count, from) } {
                Err(errno::AGAIN) => {}
                other => return other,
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(errno::AGAIN);
            }
            cq.users.progress(SLICE);
        }
    })
}

unsafe extern "C" fn read_failed(cq: *mut c_void, out: *mut CqErrEntry, _flags: u64) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let cq = unsafe { object::<CompletionQueue>(cq) }?;
        // SAFETY: the caller wants the entry there; versions only added to its end.
        let out = unsafe { Out::new(out) }?;
        let failed = cq.queue.take_failed().ok_or(errno::AGAIN)?;
        let why = failed.why as c_int;
        out.set(CqErrEntry {
            context: failed.entry.context,
            flags: failed.entry.flags,
            len: failed.entry.len,
            buf: failed.entry.buf,
            data: failed.entry.data,
            tag: failed.entry.tag,
            olen: failed.missing,
            err: why,
            prov_errno: why,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
        });
        Ok(1)
    })
}

unsafe extern "C" fn strerror(
    _cq: *mut c_void,
    number: c_int,
    _data: *const c_void,
    out: *mut c_char,
    len: usize,
) -> *const c_char {
    let text: &'static CStr = match number {
        113 => c"the peer cannot be reached, or has ended",
        125 => c"the receive was cancelled",
        265 => c"the message is longer than the receive",
        42 => c"no message is there",
        129 => c"no memory has this key at the peer, or it may not be accessed so",
        _ => c"the fabric has failed",
    };
    let bytes = text.to_bytes_with_nul();
    if !out.is_null() && len >= bytes.len() {
        // SAFETY: there is so much room.
        let _ = unsafe { write_bytes(out.cast(), bytes) };
    }
    text.as_ptr()
}

/// `fi_cntr_open`
pub(crate) unsafe extern "C" fn open_counter(
    domain: *mut c_void,
    attr: *mut CntrAttr,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the domain.
        let domain = unsafe { object::<Domain>(domain) }?;
        // SAFETY: the caller wants the counter there.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: the caller says there what it wants, if anything.
        if let Some(attr) = unsafe { borrow(attr) }
            && !matches!(attr.wait_obj, WAIT_NONE | WAIT_UNSPEC | WAIT_YIELD)
        {
            return Err(errno::NOSYS);
        }
        let fid = Fid {
            class: class::CNTR,
            context,
            ops: CNTR_FID.as_ptr(),
        };
        let counter = CompletionCounter {
            fid,
            ops: CNTR.as_ptr(),
            counter: Arc::default(),
            users: Arc::default(),
            _domain: Arc::clone(&domain.shared),
        };
        give(counter, &out);
        Ok(0)
    })
}

unsafe extern "C" fn close_counter(fid: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the counter.
        let counter = unsafe { object::<CompletionCounter>(fid) }?;
        // Endpoints use it.
        if Arc::strong_count(&counter.counter) > 1 {
            return Err(errno::BUSY);
        }
        // SAFETY: the caller closes what it was given, and uses it no more.
        unsafe { take::<CompletionCounter>(fid) }?;
        Ok(0)
    })
}

/// What is done with a counter, of which 0 is told where there is none.
unsafe fn with(cntr: *mut c_void, what: impl FnOnce(&CompletionCounter) -> u64) -> u64 {
    // SAFETY: the caller was given the counter.
    match unsafe { object::<CompletionCounter>(cntr) } {
        Ok(counter) => what(counter),
        Err(_) => 0,
    }
}

unsafe extern "C" fn counter_read(cntr: *mut c_void) -> u64 {
    let read = |c: &CompletionCounter| {
        c.users.progress(Duration::ZERO);
        c.counter.done.load(Ordering::Acquire)
    };
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, read) }
}

unsafe extern "C" fn counter_failed(cntr: *mut c_void) -> u64 {
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, |c| c.counter.failed.load(Ordering::Acquire)) }
}

unsafe extern "C" fn counter_add(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, |c| c.counter.done.fetch_add(value, Ordering::AcqRel)) };
    0
}

unsafe extern "C" fn counter_set(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, |c| c.counter.done.swap(value, Ordering::AcqRel)) };
    0
}

unsafe extern "C" fn counter_add_failed(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe {
        with(cntr, |c| {
            c.counter.failed.fetch_add(value, Ordering::AcqRel)
        })
    };
    0
}

unsafe extern "C" fn counter_set_failed(cntr: *mut c_void, value: u64) -> c_int {
    // SAFETY: the caller was given the counter.
    unsafe { with(cntr, |c| c.counter.failed.swap(value, Ordering::AcqRel)) };
    0
}

unsafe extern "C" fn counter_wait(cntr: *mut c_void, least: u64, timeout: c_int) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the counter.
        let counter = unsafe { object::<CompletionCounter>(cntr) }?;
        let failed = counter.counter.failed.load(Ordering::Acquire);
        let until = u64::try_from(timeout).ok();
        let until = until.map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            counter.users.progress(Duration::ZERO);
            if counter.counter.done.load(Ordering::Acquire) >= least {
                return Ok(0);
            }
            if counter.counter.failed.load(Ordering::Acquire) != failed {
                return Err(errno::AVAIL);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(errno::TIMEDOUT);
            }
            counter.users.progress(SLICE);
        }
    })
}
