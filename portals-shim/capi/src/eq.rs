// UNSAFETY: entries that C calls: exported symbols and pointers of the caller.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes pointers of the caller"
)]
//! Event queues: `PtlEQ*`.

use portals_shim::core::HandleKind;
use portals_shim::{EqHandle, EqList, Error, EventKind, Handle, Polled, Wait};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::cancel;
use crate::condemned::Condemned;
use crate::me_md;
use crate::ptr::Out;
use crate::state::{self, Open};
use crate::types::{EQ_DROPPED, EQ_EMPTY, EQ_NONE, Handler, OK, PtlEvent, TIME_FOREVER};

pub(crate) fn eq_open(raw: u32) -> Result<Arc<Open>, Error> {
    let open = state::object(raw, HandleKind::Eq, Error::EqInvalid)?;
    if is_condemned(&open, raw) {
        return Err(Error::EqInvalid);
    }
    Ok(open)
}

fn condemned(open: &Open) -> MutexGuard<'_, Condemned> {
    open.condemned
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Whether a queue was freed while descriptors named it.
#[inline]
pub(crate) fn is_condemned(open: &Open, raw: u32) -> bool {
    open.any_condemned.load(Ordering::Acquire) && condemned(open).contains(raw)
}

/// Frees condemned queues that nobody names any more: looks at a few of them, or at all.
fn sweep(open: &Open, all: bool) {
    if open.any_condemned.load(Ordering::Acquire) {
        let mut condemned = condemned(open);
        let retire = |eq: u32| {
            let freed = open.interface.eq_retire(EqHandle::from_raw(eq));
            freed != Err(Error::EqInUse)
        };
        if all {
            condemned.sweep_all(retire);
        } else {
            condemned.sweep(retire);
        }
        open.any_condemned
            .store(!condemned.is_empty(), Ordering::Release);
    }
}

/// Whether a wait for ever is over because a peer was given up.
fn is_lost(open: &Open, eqs: &[EqHandle], wait: Wait) -> bool {
    wait == Wait::Forever && open.interface.take_lost(eqs).is_some()
}

fn handler_of(open: &Open, eq: u32) -> Option<Handler> {
    if !open.any_handler.load(Ordering::Acquire) {
        return None;
    }
    let handlers = open.handlers.read().unwrap_or_else(PoisonError::into_inner);
    handlers.get(&eq).copied()
}

/// A handler runs. The process ends by name where it does not return: an exception of C++, or the end of its thread, would go
/// through frames that have something to put back.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        portals_shim::say(format_args!(
            "portals: an event handler has not returned: it let an exception pass, or ended its thread"
        ));
        std::process::abort();
    }
}

/// Hands an event to the caller, and first to the queue's handler if it has one. The handler runs
/// here, with no lock held, and may call the library.
fn hand_over(open: &Open, eq: u32, polled: &Polled, out: &Out<PtlEvent>) -> c_int {
    if polled.event.kind == EventKind::Unlink {
        me_md::iovecs(open).remove(&polled.event.md_handle.raw());
    }
    out.set(polled.event.into());
    if let Some(handler) = handler_of(open, eq) {
        let running = Running;
        handler(out.as_ptr());
        std::mem::forget(running);
    }
    if polled.dropped { EQ_DROPPED } else { OK }
}

/// `PtlEQAlloc`. A queue for 0 events is `PTL_EQ_NONE`.
///
/// # Safety
/// `eq_handle` is null or may be written; `eq_handler` is null or a function of the program's life.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlEQAlloc(
    ni_handle: u32,
    count: u64,
    eq_handler: Option<Handler>,
    eq_handle: *mut u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(eq_handle) }?;
        let open = state::ni(ni_handle)?;
        if count == 0 {
            out.set(EQ_NONE);
            return Ok(OK);
        }
        sweep(&open, false);
        let mut made = open.interface.eq_alloc(count);
        if made == Err(Error::NoSpace) {
            sweep(&open, true);
            made = open.interface.eq_alloc(count);
        }
        let eq = made?.raw();
        if let Some(handler) = eq_handler {
            let handlers = open.handlers.write();
            let mut handlers = handlers.unwrap_or_else(PoisonError::into_inner);
            handlers.insert(eq, handler);
            open.any_handler.store(true, Ordering::Release);
        }
        out.set(eq);
        Ok(OK)
    })
}

/// `PtlEQFree`. Descriptors may still name the queue: they go on, and their events go nowhere.
#[unsafe(no_mangle)]
pub extern "C" fn PtlEQFree(eq_handle: u32) -> c_int {
    state::entry_on(Error::EqInvalid, || {
        let open = eq_open(eq_handle)?;
        sweep(&open, false);
        match open.interface.eq_retire(EqHandle::from_raw(eq_handle)) {
            Err(Error::EqInUse) => {
                condemned(&open).insert(eq_handle);
                open.any_condemned.store(true, Ordering::Release);
            }
            freed => freed?,
        }
        if open.any_handler.load(Ordering::Acquire) {
            let handlers = open.handlers.write();
            let mut handlers = handlers.unwrap_or_else(PoisonError::into_inner);
            handlers.remove(&eq_handle);
        }
        Ok(OK)
    })
}

/// The next event of one queue; for [`Wait::Forever`] none when a [piece](cancel::PIECE) of the wait is over.
///
/// # Safety
/// `event` is null or may be written.
unsafe fn take(eq: u32, event: *mut PtlEvent, wait: Wait) -> c_int {
    state::look(wait, || {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(event) }?;
        state::with_object(eq, HandleKind::Eq, Error::EqInvalid, |open| {
            if is_condemned(open, eq) {
                return Err(Error::EqInvalid);
            }
            let queue = EqHandle::from_raw(eq);
            // By reference: an event is large.
            match wait {
                Wait::No => match &open.interface.eq_get(queue) {
                    Ok(Some(polled)) => Ok(hand_over(open, eq, polled, &out)),
                    Ok(None) if is_lost(open, &[queue], wait) => Err(Error::Fail),
                    Ok(None) => Ok(EQ_EMPTY),
                    Err(error) => Err(*error),
                },
                wait => match &open.interface.eq_poll(&[queue], open.piece(wait)) {
                    Ok(Some(polled)) => Ok(hand_over(open, eq, polled, &out)),
                    Ok(None) => Ok(EQ_EMPTY),
                    Err(refused) => Err(refused.error),
                },
            }
        })
    })
}

/// `PtlEQGet`
///
/// # Safety
/// `event` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlEQGet(eq_handle: u32, event: *mut PtlEvent) -> c_int {
    // SAFETY: the condition of this function.
    unsafe { take(eq_handle, event, Wait::No) }
}

/// `PtlEQWait`
///
/// # Safety
/// `event` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn PtlEQWait(eq_handle: u32, event: *mut PtlEvent) -> c_int {
    // SAFETY: the condition of this function.
    let wait = || unsafe { take(eq_handle, event, Wait::Forever) };
    // SAFETY: here lives nothing but a number and an address.
    unsafe { cancel::in_pieces(wait) }
}

/// `PtlEQPeek`: the event stays, and no handler is called.
///
/// # Safety
/// `event` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlEQPeek(eq_handle: u32, event: *mut PtlEvent) -> c_int {
    state::look(Wait::No, || {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(event) }?;
        let open = eq_open(eq_handle)?;
        let _whole = open.whole();
        let seen = open.interface.eq_peek(EqHandle::from_raw(eq_handle))?;
        let Some(seen) = seen else {
            return Ok(EQ_EMPTY);
        };
        out.set(seen.event.into());
        Ok(if seen.dropped { EQ_DROPPED } else { OK })
    })
}

/// The wait of `timeout` milliseconds (`ptl_time_t`).
pub(crate) fn wait_of(timeout: c_uint) -> Wait {
    match timeout {
        0 => Wait::No,
        TIME_FOREVER => Wait::Forever,
        ms => Wait::Nanos(u64::from(ms) * 1_000_000),
    }
}

/// `PtlEQPoll`. Where an element is not a queue of the first one's interface its index is stored.
///
/// # Safety
/// `eq_handles` is null or an array of `size` elements, of which those behind the first that is no queue need not be
/// there; `event` and `which_eq` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn PtlEQPoll(
    eq_handles: *const u32,
    size: c_int,
    timeout: c_uint,
    event: *mut PtlEvent,
    which_eq: *mut c_int,
) -> c_int {
    // SAFETY: the condition of this function.
    let look = || unsafe { poll(eq_handles, size, wait_of(timeout), event, which_eq) };
    match timeout {
        // SAFETY: here lives nothing but numbers and addresses.
        TIME_FOREVER => unsafe { cancel::in_pieces(look) },
        _ => look(),
    }
}

/// The next event of several queues; for [`Wait::Forever`] none when a [piece](cancel::PIECE) of the wait is over.
///
/// # Safety
/// That of [`PtlEQPoll`].
unsafe fn poll(
    eq_handles: *const u32,
    size: c_int,
    wait: Wait,
    event: *mut PtlEvent,
    which_eq: *mut c_int,
) -> c_int {
    state::look(wait, || {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(event) }?;
        // SAFETY: the same.
        let which = unsafe { Out::new(which_eq) }?;
        if eq_handles.is_null() {
            return Err(Error::Segv);
        }
        let size = usize::try_from(size).ok().filter(|n| *n > 0);
        let size = size.ok_or(Error::EqInvalid)?;
        // SAFETY: the same; indexes are below `size`, and none is behind that of an element that is no queue.
        let element = |at: usize| unsafe { eq_handles.wrapping_add(at).read_unaligned() };
        let wrong = |at: usize| {
            which.set(c_int::try_from(at).unwrap_or(c_int::MAX));
            Error::EqInvalid
        };
        let first = element(0);
        let open = eq_open(first).map_err(|_| wrong(0))?;
        let _whole = open.whole();
        let number = Handle(first).interface();
        let mut eqs = EqList::new();
        // Not beyond the first that is wrong, behind which there may be no memory.
        for at in 0..size {
            let handle = Handle(element(at));
            if handle.interface() != number || handle.kind() != HandleKind::Eq {
                return Err(wrong(at));
            }
            eqs.try_reserve(1).map_err(|_| Error::NoSpace)?;
            eqs.push(EqHandle(handle));
        }
        match open.interface.eq_poll(&eqs, open.piece(wait)) {
            Ok(Some(polled)) => {
                which.set(c_int::try_from(polled.which).unwrap_or(c_int::MAX));
                let eq = eqs.get(polled.which).map_or(first, |eq| eq.raw());
                Ok(hand_over(&open, eq, &polled, &out))
            }
            Ok(None) if is_lost(&open, &eqs, wait) => Err(Error::Fail),
            Ok(None) => Ok(EQ_EMPTY),
            Err(e) if matches!(e.error, Error::EqInvalid | Error::NiInvalid) => Err(wrong(e.which)),
            Err(e) => Err(e.error),
        }
    })
}
