// UNSAFETY: entries get objects, and bytes and room for them, of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and bytes of a C caller by pointers"
)]
//! Event queues: ends of insertions into address vectors, and what a program writes itself. No connection is made by them.

use crate::abi::{EqAttr, EqErrEntry, Fid, cap, class, errno, wait};
use crate::fabric::{Fabric, InUse};
use crate::object::{self, Object, object};
use crate::ptr::{Out, Outcome, borrow, bytes, entry, kept, write_bytes, write_text};
use crate::table::Table;
use crate::wait::{Waited, deadline, do_control, object_for};
use ofi_engine::wait::{WaitObject, Woken};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// `FI_NOTIFY` and the like.
    Told {
        number: u32,
        bytes: Vec<u8>,
    },
    Failed(Failed),
}

/// What has failed: addresses, as events go from thread to thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    fid: usize,
    context: usize,
    data: u64,
    why: c_int,
}

/// The events of a queue, oldest first. Any thread may call every method.
#[derive(Debug, Default)]
pub(crate) struct Events {
    all: Mutex<VecDeque<Event>>,
    /// How many there are, read without the lock.
    len: AtomicUsize,
    wait: WaitObject,
}

impl Events {
    fn all(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn wait_object(&self) -> &WaitObject {
        &self.wait
    }

    fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    fn push(&self, event: Event) {
        let mut all = self.all();
        all.push_back(event);
        self.len.fetch_add(1, Ordering::SeqCst);
        drop(all);
        self.wait.notify();
    }

    /// Arms the wait object.
    pub(crate) fn arm(&self) -> bool {
        self.wait.arm(|| !self.is_empty())
    }

    /// An event of this object, which says so many bytes as `struct fi_eq_entry` has.
    pub(crate) fn tell(&self, number: u32, fid: *mut c_void, context: *mut c_void, data: u64) {
        let words = [
            fid.expose_provenance() as u64,
            context.expose_provenance() as u64,
            data,
        ];
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.push(Event::Told { number, bytes });
    }

    /// A failure of this object.
    pub(crate) fn fail(&self, fid: *mut c_void, context: *mut c_void, data: u64, why: c_int) {
        self.push(Event::Failed(Failed {
            fid: fid.expose_provenance(),
            context: context.expose_provenance(),
            data,
            why,
        }));
    }

    /// The oldest event, of at most so many bytes; with `peek` it stays.
    fn take(&self, room: usize, peek: bool) -> Outcome<(u32, Vec<u8>)> {
        let mut all = self.all();
        let (number, bytes) = match all.front_mut().ok_or(errno::AGAIN)? {
            Event::Failed(_) => return Err(errno::AVAIL),
            Event::Told { bytes, .. } if bytes.len() > room => return Err(errno::TOOSMALL),
            Event::Told { number, bytes } if peek => return Ok((*number, bytes.clone())),
            Event::Told { number, bytes } => (*number, std::mem::take(bytes)),
        };
        all.pop_front();
        self.len.fetch_sub(1, Ordering::SeqCst);
        Ok((number, bytes))
    }

    /// The oldest event, if it is a failure.
    fn take_failed(&self, peek: bool) -> Option<Failed> {
        let mut all = self.all();
        let Some(Event::Failed(failed)) = all.front().cloned() else {
            return None;
        };
        if !peek {
            all.pop_front();
            self.len.fetch_sub(1, Ordering::SeqCst);
        }
        Some(failed)
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct EventQueue {
    fid: Fid,
    ops: *const c_void,
    pub(crate) events: Arc<Events>,
    /// The program may write events (`FI_WRITE`).
    writable: bool,
    /// The program may wait for events.
    waits: bool,
    _fabric: InUse,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for EventQueue {
    const CLASS: usize = class::EQ;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (2, do_control::<Self> as *const c_void),
    ]);

    /// Address vectors tell it of events, or threads sleep on it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.events) > 1
    }
}

static EQ: Table<5> = Table::new(&[
    (0, read as *const c_void),
    (1, read_failed as *const c_void),
    (2, write as *const c_void),
    (3, wait_read as *const c_void),
    (4, strerror as *const c_void),
]);

/// `fi_eq_open`
pub(crate) unsafe extern "C" fn open(
    fabric: *mut c_void,
    attr: *mut EqAttr,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let make = |fabric: &Fabric, fid| {
        // SAFETY: the caller says there what it wants, if anything.
        let attr = unsafe { borrow(attr) };
        let wait_obj = attr.as_ref().map_or(wait::UNSPEC, |attr| attr.wait_obj);
        let events = Events {
            wait: object_for(wait_obj)?,
            ..Events::default()
        };
        Ok(EventQueue {
            fid,
            ops: EQ.as_ptr(),
            events: Arc::new(events),
            writable: attr.is_some_and(|attr| attr.flags & cap::WRITE != 0),
            waits: wait_obj != wait::NONE,
            _fabric: fabric.in_use(),
        })
    };
    // SAFETY: the caller was given the fabric, and wants the queue there.
    unsafe { object::open(fabric, out, context, make) }
}

impl Waited for EventQueue {
    fn wait_object(&self) -> &WaitObject {
        self.events.wait_object()
    }
}

/// Takes an event to where the caller wants it.
///
/// # Safety
/// `event` is null or may be written, and there is room for `len` bytes at `buf`.
unsafe fn take(
    eq: &EventQueue,
    event: *mut u32,
    (buf, len): (*mut c_void, usize),
    flags: u64,
) -> Outcome {
    // SAFETY: the condition above.
    let number = unsafe { Out::new(event) }?;
    if buf.is_null() && len > 0 {
        return Err(errno::INVAL);
    }
    let (event, bytes) = eq.events.take(len, flags & cap::PEEK != 0)?;
    // SAFETY: it has at most `len` bytes.
    unsafe { write_bytes(buf, &bytes) }?;
    number.set(event);
    Ok(bytes.len() as isize)
}

unsafe extern "C" fn read(
    eq: *mut c_void,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let eq = unsafe { object::<EventQueue>(eq) }?;
        // SAFETY: the caller has room for the event and for so many bytes.
        unsafe { take(eq, event, (buf, len), flags) }
    })
}

unsafe extern "C" fn read_failed(eq: *mut c_void, out: *mut EqErrEntry, flags: u64) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let eq = unsafe { object::<EventQueue>(eq) }?;
        // SAFETY: the caller wants the entry there.
        let out = unsafe { Out::new(out) }?;
        let failed = eq.events.take_failed(flags & cap::PEEK != 0);
        let failed = failed.ok_or(errno::AGAIN)?;
        let room = out.get(|entry| (entry.err_data, entry.err_data_size));
        out.set(EqErrEntry {
            fid: std::ptr::with_exposed_provenance_mut(failed.fid),
            context: std::ptr::with_exposed_provenance_mut(failed.context),
            data: failed.data,
            err: failed.why,
            prov_errno: failed.why,
            err_data: kept(room),
            err_data_size: 0,
        });
        Ok(size_of::<EqErrEntry>() as isize)
    })
}

/// The only failure that is told is that of an address.
unsafe extern "C" fn strerror(
    _eq: *mut c_void,
    _number: c_int,
    _data: *const c_void,
    out: *mut c_char,
    len: usize,
) -> *const c_char {
    let text = c"no endpoint can be reached by this address";
    // SAFETY: there is so much room.
    unsafe { write_text(out, len, text) };
    text.as_ptr()
}

unsafe extern "C" fn write(
    eq: *mut c_void,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let eq = unsafe { object::<EventQueue>(eq) }?;
        if !eq.writable {
            return Err(errno::INVAL);
        }
        // SAFETY: the caller gives so many bytes.
        let bytes = unsafe { bytes(buf, len) }?;
        let number = event;
        eq.events.push(Event::Told { number, bytes });
        Ok(len as isize)
    })
}

unsafe extern "C" fn wait_read(
    eq: *mut c_void,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    entry(|| {
        // SAFETY: the caller was given the queue.
        let eq = unsafe { object::<EventQueue>(eq) }?;
        if !eq.waits {
            return Err(errno::NOSYS);
        }
        // A queue on which a thread sleeps is used: it does not close.
        let _used = Arc::clone(&eq.events);
        let until = deadline(timeout);
        loop {
            // SAFETY: the caller has room for the event and for so many bytes.
            match unsafe { take(eq, event, (buf, len), flags) } {
                Err(errno::AGAIN) => {}
                other => return other,
            }
            let sleeper = eq.events.wait.enter();
            if sleeper.sleep(until, || !eq.events.is_empty()) != Woken::Ready {
                return Err(errno::AGAIN);
            }
        }
    })
}
