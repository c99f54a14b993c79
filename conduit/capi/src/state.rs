// UNSAFETY: the conduit belongs to one thread at a time, which the type system is told here.
#![expect(unsafe_code, reason = "a conduit behind a lock; see the line above")]
//! The conduit of this process, the lock around it, and how calls fail.
//!
//! ```text
//!  not initialised ──init──► initialised ──attach──► attached ──exit──► ended
//! ```

use conduit::{Conduit, Implicit};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Which threads of a program may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One.
    Seq,
    /// Any, one at a time.
    Parsync,
    /// All.
    Par,
}

/// How far the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Fresh,
    Initialised,
    Attached,
    Ended,
}

struct Held(Conduit);

// SAFETY: a `Held` is reached through `with` alone, which holds LOCK; what the conduit shares without atomics
// (handlers, cells) is touched by the holder only, and the lock orders the holders.
unsafe impl Send for Held {}
// SAFETY: as for Send.
unsafe impl Sync for Held {}

static CONDUIT: OnceLock<Held> = OnceLock::new();
static LOCK: Mutex<()> = Mutex::new(());
/// The thread that holds LOCK, by `thread_id`; 0 when nobody does.
static OWNER: AtomicUsize = AtomicUsize::new(0);
static PHASE: AtomicU8 = AtomicU8::new(Phase::Fresh as u8);
static PAR: AtomicBool = AtomicBool::new(false);
static CHECKED: AtomicBool = AtomicBool::new(false);
static ME: AtomicU32 = AtomicU32::new(0);
static NODES: AtomicU32 = AtomicU32::new(0);
static MAX_SEGMENT: AtomicU64 = AtomicU64::new(0);
/// The thread whose implicit operations the conduit counts; changed under LOCK.
static COUNTING: AtomicUsize = AtomicUsize::new(0);
/// The implicit operations of the others.
static SET_ASIDE: Mutex<BTreeMap<usize, Implicit>> = Mutex::new(BTreeMap::new());

/// What a thread knows of itself.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Handlers that run on it.
    pub(crate) handlers: Cell<u32>,
    /// In a no-interrupt section of its own.
    pub(crate) held: Cell<bool>,
    /// The HSL it took last, an address; they form a list.
    pub(crate) top: Cell<usize>,
    /// When it began to hold one.
    pub(crate) since: Cell<Option<Instant>>,
    /// File (an address) and line of the call it makes.
    at: Cell<(usize, i32)>,
}

thread_local! {
    static THREAD: Thread = const { Thread {
        handlers: Cell::new(0),
        held: Cell::new(false),
        top: Cell::new(0),
        since: Cell::new(None),
        at: Cell::new((0, 0)),
    } };
    static MARK: RefCell<u8> = const { RefCell::new(0) };
}

/// A number of the calling thread, not 0, that no other thread has at this time.
pub(crate) fn thread_id() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

pub(crate) fn thread<R>(f: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(f)
}

pub(crate) fn phase() -> Phase {
    match PHASE.load(Ordering::Acquire) {
        0 => Phase::Fresh,
        1 => Phase::Initialised,
        2 => Phase::Attached,
        _ => Phase::Ended,
    }
}

pub(crate) fn set_phase(phase: Phase) {
    PHASE.store(phase as u8, Ordering::Release);
}

/// The program was compiled with `GASNET_DEBUG`.
pub(crate) fn checked() -> bool {
    CHECKED.load(Ordering::Relaxed)
}

pub(crate) fn is_par() -> bool {
    PAR.load(Ordering::Relaxed)
}

pub(crate) fn me() -> u32 {
    ME.load(Ordering::Relaxed)
}

pub(crate) fn nodes() -> u32 {
    NODES.load(Ordering::Relaxed)
}

/// What the program defined as its largest segment; 0 if it did not.
pub(crate) fn max_segment() -> u64 {
    MAX_SEGMENT.load(Ordering::Relaxed)
}

/// Makes the conduit that of this process; once.
pub(crate) fn install(conduit: Conduit, mode: Mode, checked: bool, max_segment: u64) -> bool {
    let (me, nodes) = (conduit.mynode(), conduit.nodes());
    if CONDUIT.set(Held(conduit)).is_err() {
        return false;
    }
    ME.store(me, Ordering::Relaxed);
    NODES.store(nodes, Ordering::Relaxed);
    MAX_SEGMENT.store(max_segment, Ordering::Relaxed);
    PAR.store(mode == Mode::Par, Ordering::Relaxed);
    CHECKED.store(checked, Ordering::Relaxed);
    COUNTING.store(thread_id(), Ordering::Relaxed);
    set_phase(Phase::Initialised);
    true
}

/// LOCK, held; nothing inside is for a thread that held it already.
struct Locked {
    guard: Option<MutexGuard<'static, ()>>,
}

impl Locked {
    fn now() -> Self {
        if Self::is_mine() {
            return Self { guard: None };
        }
        Self::taken(LOCK.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn within(limit: Duration) -> Option<Self> {
        if Self::is_mine() {
            return Some(Self { guard: None });
        }
        let start = Instant::now();
        loop {
            match LOCK.try_lock() {
                Ok(guard) => return Some(Self::taken(guard)),
                Err(TryLockError::Poisoned(p)) => return Some(Self::taken(p.into_inner())),
                Err(TryLockError::WouldBlock) if start.elapsed() > limit => return None,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    fn is_mine() -> bool {
        OWNER.load(Ordering::Relaxed) == thread_id()
    }

    fn taken(guard: MutexGuard<'static, ()>) -> Self {
        OWNER.store(thread_id(), Ordering::Relaxed);
        Self { guard: Some(guard) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.guard.is_some() {
            OWNER.store(0, Ordering::Relaxed);
        }
    }
}

/// Whether the calling thread holds the lock: it is in a handler, or leaves from within.
pub(crate) fn is_inside() -> bool {
    Locked::is_mine()
}

/// Runs `f` with the conduit, under the lock; `None` before `gasnet_init`. A panic ends the process.
pub(crate) fn with<R>(f: impl FnOnce(&Conduit) -> R) -> Option<R> {
    let held = CONDUIT.get()?;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let _locked = Locked::now();
        f(&held.0)
    }));
    match ran {
        Ok(result) => Some(result),
        Err(_) => fatal("an error within the library"),
    }
}

/// As [`with`] where the lock may be held for ever by a thread that does not go on, and a panic is no result.
pub(crate) fn with_soon<R>(limit: Duration, f: impl FnOnce(&Conduit) -> R) -> Option<R> {
    let held = CONDUIT.get()?;
    catch_unwind(AssertUnwindSafe(|| {
        let _locked = Locked::within(limit)?;
        Some(f(&held.0))
    }))
    .unwrap_or(None)
}

/// As [`with`], where the conduit counts the implicit operations of the calling thread.
pub(crate) fn with_own<R>(f: impl FnOnce(&Conduit) -> R) -> Option<R> {
    with(|conduit| {
        let id = thread_id();
        let counting = COUNTING.load(Ordering::Relaxed);
        if counting != id {
            let mut aside = SET_ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(mut own) = aside.remove(&id).or_else(|| conduit.new_implicit()) else {
                fatal("65535 operations are not synchronised yet");
            };
            conduit.swap_implicit(&mut own);
            aside.insert(counting, own);
            COUNTING.store(id, Ordering::Relaxed);
        }
        f(conduit)
    })
}

/// The conduit for a call that is not possible before `gasnet_attach`: then the process ends.
pub(crate) fn attached<R>(call: &str, f: impl FnOnce(&Conduit) -> R) -> R {
    require(call);
    with(f).unwrap_or_else(|| fatal(call))
}

/// As [`attached`], with the implicit operations of the calling thread.
pub(crate) fn attached_own<R>(call: &str, f: impl FnOnce(&Conduit) -> R) -> R {
    require(call);
    with_own(f).unwrap_or_else(|| fatal(call))
}

fn require(call: &str) {
    if phase() < Phase::Attached {
        fatal(&format!("{call} before gasnet_attach"));
    }
    if checked() {
        crate::lock::may_communicate(call);
    }
}

/// Waits until `ready`, which polls; it has the implicit operations of the calling thread. `all` does the same in one
/// call that may wait in the conduit.
pub(crate) fn wait(
    call: &str,
    mut ready: impl FnMut(&Conduit) -> bool,
    all: impl FnOnce(&Conduit),
) {
    if !is_par() {
        attached_own(call, all);
        return;
    }
    while !attached_own(call, &mut ready) {
        std::thread::yield_now();
    }
}

/// The place of the call being made, if the program was compiled to tell it.
pub(crate) fn place() -> String {
    let (file, line) = thread(|t| t.at.get());
    if file == 0 {
        return String::new();
    }
    let file = std::ptr::with_exposed_provenance::<c_char>(file);
    // SAFETY: `gasneti_here` was promised a string that lives as long as the program.
    let file = unsafe { CStr::from_ptr(file) };
    format!(" at {}:{line}", file.to_string_lossy())
}

/// Ends the process, and so the job, with a line on standard error.
pub(crate) fn fatal(what: &str) -> ! {
    eprintln!(
        "*** FATAL ERROR: GASNet node {}/{}: {what}{}",
        me(),
        nodes(),
        place()
    );
    std::process::abort()
}

/// Says what a refused call of the core API got wrong, where the program was compiled for that.
pub(crate) fn explain(call: &str, why: &dyn std::fmt::Display) {
    if checked() {
        eprintln!(
            "GASNet node {}/{}: {call} returns an error code: {why}{}",
            me(),
            nodes(),
            place()
        );
    }
}

/// Notes where the next call of this thread stands (`GASNET_DEBUG`).
///
/// # Safety
/// `file` is null or a string that lives as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_here(file: *const c_char, line: i32) {
    thread(|t| t.at.set((file.expose_provenance(), line)));
}
