// UNSAFETY: entries get objects and room for results of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and room for results by pointers"
)]
//! Completion queues.

use crate::abi::{self, Addr, CqAttr, CqErrEntry, Fid, class, errno};
use crate::domain::{Domain, Shared};
use crate::object::{self, Object, object};
use crate::progress::Users;
use crate::ptr::{Out, borrow, entry, entry_int, kept, write_at, write_text};
use crate::table::Table;
use crate::wait::{Waited, Waits, deadline, do_control};
use ofi_engine::completion::{Entry, Failure, HasFailed, Queue};
use ofi_engine::wait::{WaitObject, Woken};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

#[derive(Debug)]
#[repr(C)]
pub(crate) struct CompletionQueue {
    fid: Fid,
    ops: *const c_void,
    pub(crate) queue: Arc<Queue>,
    pub(crate) users: Arc<Users>,
    waits: Waits,
    /// Waits end with as many entries as each of them says (`FI_CQ_COND_THRESHOLD`).
    counts: bool,
    /// Bytes of an entry as this caller reads it.
    each: usize,
    _domain: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for CompletionQueue {
    const CLASS: usize = class::CQ;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (2, do_control::<Self> as *const c_void),
    ]);

    /// Endpoints, poll sets and threads that sleep use it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.queue) > 1
    }
}

static CQ: Table<8> = Table::new(&[
    (0, read_queue as *const c_void),
    (1, read_from as *const c_void),
    (2, read_failed as *const c_void),
    (3, wait_read as *const c_void),
    (4, wait_read_from as *const c_void),
    (5, signal as *const c_void),
    (6, strerror as *const c_void),
]);
/// Bytes of entries, by format: none, context, message, data, tagged. Each is the beginning of the next.
const EACH: [usize; 5] = [0, 8, 24, 40, 48];

/// `fi_cq_open`
pub(crate) unsafe extern "C" fn open(
    domain: *mut c_void,
    attr: *mut CqAttr,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let make = |domain: &Domain, fid| {
        // SAFETY: the caller says there what it wants.
        let attr = unsafe { borrow(attr) }.ok_or(errno::INVAL)?;
        let (waits, object) = Waits::new(attr.wait_obj, &domain.shared)?;
        // Who names no format may have room for the shortest entries alone.
        if attr.format == abi::FORMAT_UNSPEC_CQ {
            attr.format = abi::FORMAT_CONTEXT;
        }
        let format = usize::try_from(attr.format).map_err(|_| errno::INVAL)?;
        let counts = match attr.wait_cond {
            _ if waits == Waits::Never => false,
            abi::COND_NONE => false,
            abi::COND_THRESHOLD => true,
            _ => return Err(errno::INVAL),
        };
        Ok(CompletionQueue {
            fid,
            ops: CQ.as_ptr(),
            queue: Arc::new(Queue::new(object, attr.size)),
            users: Arc::default(),
            waits,
            counts,
            each: *EACH.get(format).ok_or(errno::INVAL)?,
            _domain: Arc::clone(&domain.shared),
        })
    };
    // SAFETY: the caller was given the domain, and wants the queue there.
    unsafe { object::open(domain, out, context, make) }
}

impl Waited for CompletionQueue {
    fn wait_object(&self) -> &WaitObject {
        self.queue.wait_object()
    }
}

/// `fi_cq_signal`
unsafe extern "C" fn signal(cq: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the queue.
        let cq = unsafe { object::<CompletionQueue>(cq) }?;
        if cq.waits == Waits::Never {
            return Err(errno::NOSYS);
        }
        cq.queue.wait_object().signal();
        Ok(0)
    })
}

/// The words of an entry, of which each format has the first ones.
const fn words_of(entry: &Entry) -> [u64; 6] {
    [
        entry.context as u64,
        entry.flags,
        entry.len as u64,
        entry.buf as u64,
        entry.data,
        entry.tag,
    ]
}

impl CompletionQueue {
    /// The program's own value.
    pub(crate) const fn context(&self) -> *mut c_void {
        self.fid.context
    }

    /// Takes what is there; `EAGAIN` if nothing is.
    ///
    /// # Safety
    /// There is room for `count` entries, and for as many sources, or none is wanted.
    unsafe fn take(&self, buf: *mut c_void, count: usize, from: *mut Addr) -> Result<isize, i32> {
        if buf.is_null() && count > 0 {
            return Err(errno::INVAL);
        }
        let mut at = 0;
        let taken = self.queue.take(count, |entry, source| {
            let to = buf.wrapping_byte_add(at * self.each).cast::<u64>();
            for (place, word) in words_of(entry).into_iter().take(self.each / 8).enumerate() {
                // SAFETY: the condition above.
                unsafe { write_at(to, place, word) };
            }
            if !from.is_null() {
                // SAFETY: the condition above.
                unsafe { write_at(from, at, source) };
            }
            at += 1;
        });
        match taken {
            // Of a queue with entries none may be wanted, which is no reason to wait.
            Ok(0) if count > 0 || self.queue.is_empty() => Err(errno::AGAIN),
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
        // Who wants no entry wants progress.
        if count == 0 || cq.queue.is_empty() {
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
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let cq = unsafe { object::<CompletionQueue>(cq) }?;
        if cq.waits == Waits::Never {
            return Err(errno::NOSYS);
        }
        // A queue on which a thread sleeps is used: it does not close.
        let _used = Arc::clone(&cq.queue);
        let until = deadline(timeout);
        // The number is in the pointer. More entries than the caller has room for are not awaited.
        let least = if cq.counts { cond.addr().min(count) } else { 1 };
        let (queue, ready) = (&cq.queue, || cq.queue.satisfies(least));
        if queue.is_empty() {
            cq.users.progress(Duration::ZERO);
        }
        let mut over = false;
        while !over && !ready() {
            over = until.is_some_and(|until| Instant::now() >= until)
                || cq.waits.sleep(&cq.users, queue.wait_object(), until, ready) == Woken::Signaled;
        }
        // SAFETY: the caller has room for so many.
        unsafe { cq.take(buf, count, from) }
    })
}

unsafe extern "C" fn read_failed(cq: *mut c_void, out: *mut CqErrEntry, _flags: u64) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let cq = unsafe { object::<CompletionQueue>(cq) }?;
        // SAFETY: the caller wants the entry there; versions only added to its end.
        let out = unsafe { Out::new(out) }?;
        let failed = cq.queue.take_failed().ok_or(errno::AGAIN)?;
        let room = out.get(|entry| (entry.err_data, entry.err_data_size));
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
            err_data: kept(room),
            err_data_size: 0,
        });
        Ok(1)
    })
}

/// What the failures of operations say.
static TEXTS: LazyLock<Vec<(Failure, CString)>> = LazyLock::new(|| {
    let text = |failure: &Failure| CString::new(failure.to_string()).ok();
    let all = Failure::ALL.iter();
    all.filter_map(|failure| Some((*failure, text(failure)?)))
        .collect()
});

unsafe extern "C" fn strerror(
    _cq: *mut c_void,
    number: c_int,
    _data: *const c_void,
    out: *mut c_char,
    len: usize,
) -> *const c_char {
    let mut texts = TEXTS.iter();
    let text: &CStr = texts
        .find(|(failure, _)| *failure as c_int == number)
        .map_or(c"not a failure of this provider", |(_, text)| text);
    // SAFETY: there is so much room.
    unsafe { write_text(out, len, text) };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_text() {
        for failure in Failure::ALL {
            let mut out = [0; 100];
            let (number, len) = (*failure as c_int, out.len());
            // SAFETY: there is so much room.
            let text = unsafe {
                strerror(
                    std::ptr::null_mut(),
                    number,
                    std::ptr::null(),
                    out.as_mut_ptr(),
                    len,
                )
            };
            // SAFETY: the entry gives a string that stays.
            let text = unsafe { CStr::from_ptr(text) };
            assert_eq!(text.to_str(), Ok(failure.to_string().as_str()));
            let copy: Vec<u8> = out.iter().map(|c| *c as u8).collect();
            assert_eq!(CStr::from_bytes_until_nul(&copy), Ok(text));
        }
    }
}
