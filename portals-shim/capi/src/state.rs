//! What this process has open.
//!
//! ```text
//!  handle ──► thread's own table (no lock, valid while EPOCH stands still) ──► Arc<Open>
//!                 └── EPOCH moved: copied anew from SHARED
//! ```
//!
//! `PtlNIInit`, `PtlNIFini` and `PtlFini` change SHARED and move EPOCH; every other function reads
//! its thread's table. A thread inside a call keeps the interface it works on until it returns: by a count of its
//! own ([`object`]), or by its table, which does not change meanwhile ([`with_object`]).

use portals_shim::core::HandleKind;
use portals_shim::{
    ClockKind, Error, Handle, Interface, ProcessId, Segment, Wait, recv_within, spawn_own_thread,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::time::Duration;

use crate::cancel::Whole;
use crate::condemned::Condemned;
use crate::ending;
use crate::p3rt::Group;
use crate::types::{EQ_EMPTY, Handler};

/// Interface numbers in handles.
const NUMBERS: usize = 7;

/// One open interface.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) interface: Interface,
    /// The value of its `ptl_handle_ni_t`.
    pub(crate) handle: u32,
    /// Which of the two interfaces it is.
    pub(crate) kind: Kind,
    /// Ids of the ranks.
    pub(crate) peers: Vec<ProcessId>,
    pub(crate) group: Mutex<Option<Group>>,
    pub(crate) debug_mask: AtomicU32,
    /// By queue. `any_handler` spares the look-up where no queue has one.
    pub(crate) handlers: RwLock<BTreeMap<u32, Handler>>,
    pub(crate) any_handler: AtomicBool,
    /// The pieces of iovec descriptors, which `PtlMDUpdate` gives back; by descriptor.
    pub(crate) iovecs: Mutex<BTreeMap<u32, Vec<Segment>>>,
    /// Queues that were freed while descriptors named them: no queues any more for the caller, freed
    /// when their last descriptor is gone. `any_condemned` spares the look-up.
    pub(crate) condemned: Mutex<Condemned>,
    pub(crate) any_condemned: AtomicBool,
    /// Automatic unlinks make events only for descriptors that ask for them.
    pub(crate) asked_unlinks: bool,
    /// Any call may come to a system call, also a put and a look that does not wait.
    pub(crate) calls_the_system: bool,
    /// What waits for ever are made of.
    pub(crate) endless: Wait,
}

impl Open {
    /// Makes a [quick](quick_on) call whole, if it may come to a cancellation point.
    #[inline]
    pub(crate) fn whole(&self) -> Option<Whole> {
        self.calls_the_system.then(Whole::begin)
    }

    /// How much of a wait is made at once: see [`cancel`](crate::cancel).
    #[inline]
    pub(crate) fn piece(&self, wait: Wait) -> Wait {
        match wait {
            Wait::Forever => self.endless,
            limited => limited,
        }
    }
}

/// The interfaces there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The fabric of the job.
    Job,
    /// This process alone.
    Own,
}

/// Interfaces a process can have open at one time.
pub(crate) const MAX_INTERFACES: c_int = 2;

type Table = [Option<Arc<Open>>; NUMBERS];

#[derive(Debug)]
pub(crate) struct Shared {
    table: Table,
    /// Interfaces opened so far; numbers are given out in turn, so that handles of one that was
    /// closed do not name objects of its successor.
    opened: u32,
    /// Set before the interface that it is for is opened.
    pub(crate) pending: Option<Group>,
    pub(crate) jid: Option<u32>,
    pub(crate) debug_mask: u32,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    table: [const { None }; NUMBERS],
    opened: 0,
    pending: None,
    jid: None,
    debug_mask: 0,
});
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// 0: not initialised, 1: initialised, 2: a forked child.
static PHASE: AtomicU8 = AtomicU8::new(0);

thread_local! {
    static OWN: RefCell<(u32, Table)> = const { RefCell::new((0, [const { None }; NUMBERS])) };
}

/// Runs the body of an entry: errors become codes, a panic `PTL_FAIL`.
pub(crate) fn entry(body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    let _whole = Whole::begin();
    quick(body)
}

/// Makes a call ([`entry`]) that programs make for each message: it is made whole where its interface [needs](Open::whole) that,
/// as two locked instructions are much here.
fn quick(body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => refused(error),
        Err(_) => refused(Error::Fail),
    }
}

#[cold]
fn refused(error: Error) -> c_int {
    if ending::is_elsewhere() {
        ending::stay();
    }
    error.code()
}

/// Makes a call ([`entry`]) that takes an object's handle: where the interface closes meanwhile, that is the handle of
/// an interface that is closed, `invalid`.
pub(crate) fn entry_on(invalid: Error, body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    entry(|| body().map_err(|error| of_place(error, invalid)))
}

/// Makes a call that takes an object's handle ([`entry_on`]) and that programs make for each message ([`quick`]).
pub(crate) fn quick_on(invalid: Error, body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    quick(|| body().map_err(|error| of_place(error, invalid)))
}

fn of_place(error: Error, invalid: Error) -> Error {
    match error {
        Error::NiInvalid => invalid,
        other => other,
    }
}

/// Makes a look into queues ([`entry_on`]) that waits so long, or for [`Wait::Forever`] a piece of that: see [`ending`].
pub(crate) fn look(wait: Wait, body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
    let body = || match body() {
        Err(_) if ending::is_elsewhere() => {
            ending::wait_out(wait);
            Ok(EQ_EMPTY)
        }
        done => done,
    };
    match wait {
        Wait::No => quick_on(Error::EqInvalid, body),
        _ => entry_on(Error::EqInvalid, body),
    }
}

/// Makes a call ([`entry`]) of a function that returns something else.
pub(crate) fn guarded<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    let _whole = Whole::begin();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

pub(crate) fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`Error::NoInit`] before `PtlInit` and after `PtlFini`.
pub(crate) fn initialised() -> Result<(), Error> {
    if PHASE.load(Ordering::Acquire) == 1 {
        Ok(())
    } else {
        Err(Error::NoInit)
    }
}

/// Fails in a forked child.
pub(crate) fn initialise() -> Result<(), Error> {
    match PHASE.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) | Err(1) => Ok(()),
        Err(_) => Err(Error::Fail),
    }
}

/// Back to the beginning; gives the interfaces to close.
pub(crate) fn finalise() -> Vec<Arc<Open>> {
    if PHASE
        .compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return Vec::new();
    }
    let mut shared = shared();
    shared.pending = None;
    let closing = shared.table.iter_mut().filter_map(Option::take).collect();
    EPOCH.fetch_add(1, Ordering::Release);
    closing
}

pub(crate) fn set_forked() {
    PHASE.store(2, Ordering::Release);
}

pub(crate) fn is_forked() -> bool {
    PHASE.load(Ordering::Acquire) == 2
}

/// The open interface of a kind.
pub(crate) fn of_kind(kind: Kind) -> Option<Arc<Open>> {
    let shared = shared();
    let mut open = shared.table.iter().flatten();
    open.find(|o| o.kind == kind).cloned()
}

/// The number and the handle of the next interface; `None` when all numbers are in use.
pub(crate) fn next_number() -> Option<(u8, u32)> {
    let mut shared = shared();
    for _ in 0..NUMBERS {
        let turn = shared.opened;
        shared.opened = turn.wrapping_add(1);
        let number = turn as usize % NUMBERS;
        if shared.table[number].is_none() {
            // Never zero, so that a handle is not what a cleared structure holds.
            let generation = (turn / NUMBERS as u32) % 0x7ff + 1;
            let number = number as u8;
            return Some((
                number,
                Handle::interface_handle(number).0 | generation << 16,
            ));
        }
    }
    None
}

/// Makes an interface known.
pub(crate) fn insert(number: u8, open: Open) -> Result<Arc<Open>, Error> {
    let mut shared = shared();
    initialised()?;
    let open = Arc::new(open);
    *open.group.lock().unwrap_or_else(PoisonError::into_inner) = shared.pending.take();
    open.debug_mask.store(shared.debug_mask, Ordering::Relaxed);
    shared.table[usize::from(number) % NUMBERS] = Some(Arc::clone(&open));
    EPOCH.fetch_add(1, Ordering::Release);
    Ok(open)
}

/// Forgets an interface, which the caller then closes.
pub(crate) fn remove(handle: u32) -> Result<Arc<Open>, Error> {
    initialised()?;
    let mut shared = shared();
    let slot = shared
        .table
        .iter_mut()
        .find(|slot| slot.as_ref().is_some_and(|o| o.handle == handle))
        .ok_or(Error::NiInvalid)?;
    let open = slot.take().ok_or(Error::NiInvalid)?;
    EPOCH.fetch_add(1, Ordering::Release);
    Ok(open)
}

fn numbered(number: u8) -> Option<Arc<Open>> {
    let number = usize::from(number);
    let seen = OWN.try_with(|own| {
        let mut own = own.try_borrow_mut().ok()?;
        let epoch = EPOCH.load(Ordering::Acquire);
        if own.0 != epoch {
            let shared = shared();
            // Read again under the lock: the table does not change meanwhile.
            *own = (EPOCH.load(Ordering::Acquire), shared.table.clone());
        }
        Some(own.1.get(number)?.clone())
    });
    match seen {
        Ok(Some(open)) => open,
        // The thread is ending and has no table any more.
        _ => shared().table.get(number)?.clone(),
    }
}

/// The interface that an object's handle names, by the bits of its number.
fn of_handle(raw: u32) -> Option<Arc<Open>> {
    numbered(Handle(raw).interface()?)
}

/// The interface of an NI handle.
pub(crate) fn ni(raw: u32) -> Result<Arc<Open>, Error> {
    initialised()?;
    of_handle(raw)
        .filter(|o| o.handle == raw)
        .ok_or(Error::NiInvalid)
}

/// The interface of an object's handle; `invalid` where there is none, or the handle is of another
/// kind.
pub(crate) fn object(raw: u32, kind: HandleKind, invalid: Error) -> Result<Arc<Open>, Error> {
    initialised()?;
    of_handle(raw)
        .filter(|_| Handle(raw).kind() == kind)
        .ok_or(invalid)
}

/// Finds an object ([`object`]), and does `work` on its interface; for the calls that programs make for each message.
pub(crate) fn with_object<R>(
    raw: u32,
    kind: HandleKind,
    invalid: Error,
    work: impl FnOnce(&Open) -> Result<R, Error>,
) -> Result<R, Error> {
    initialised()?;
    let handle = Handle(raw);
    let number = handle.interface().filter(|_| handle.kind() == kind);
    let number = number.ok_or(invalid)?;
    let mut work = Some(work);
    let done = OWN.try_with(|own| {
        let own = own.try_borrow().ok()?;
        if own.0 != EPOCH.load(Ordering::Acquire) {
            return None;
        }
        let open = own.1.get(usize::from(number))?.as_deref()?;
        let work = work.take()?;
        let _whole = open.whole();
        Some(work(open))
    });
    match (done, work) {
        (Ok(Some(done)), _) => done,
        // The table is not there, is old, or has no such interface.
        (_, Some(work)) => {
            let open = numbered(number).ok_or(invalid)?;
            let _whole = open.whole();
            work(&open)
        }
        (_, None) => Err(Error::Fail),
    }
}

/// Where time is virtual a close takes none, and what the chip still reads from this process would be lost: waits until
/// the data of all operations has left, or come.
fn settle(interface: &Interface) -> Result<(), Error> {
    // The longest message, 2 GiB, takes two seconds of the model's time.
    const LONGEST: u64 = 4_000_000_000;
    if interface.clock() == ClockKind::Wall {
        return Ok(());
    }
    let began = interface.now();
    let mut step = 10_000;
    while interface.usage()?.messages.current > 0 && interface.now() - began < LONGEST {
        interface.progress(Wait::Nanos(step))?;
        step *= 2;
    }
    Ok(())
}

/// Closes an interface, of which nothing is under way then. What a broken fabric says while it is left changes nothing for
/// the caller.
pub(crate) fn leave(interface: &Interface) {
    let _ = settle(interface);
    clock_offer::closed(interface);
    let _ = interface.close();
}

/// Closes the interfaces when the process exits: what this rank still owes others has left
/// afterwards.
pub(crate) fn drain() {
    let open = finalise();
    let limit = Duration::from_secs(10);
    if open.is_empty() {
        return;
    }
    // In a thread, since one that was interrupted by the exit may hold the interface for ever.
    let (done, wait) = mpsc::channel();
    let open = Arc::new(open);
    let all = Arc::clone(&open);
    let closing = spawn_own_thread("close", move || {
        all.iter().for_each(|open| leave(&open.interface));
        let _ = done.send(());
    });
    if closing.is_err() {
        // The system has no thread left.
        open.iter().for_each(|open| leave(&open.interface));
        return;
    }
    if recv_within(&wait, limit) == Err(RecvTimeoutError::Timeout) {
        portals_shim::say(format_args!(
            "portals: the interface could not be closed in {limit:?}"
        ));
    }
}
