// UNSAFETY: the conduit belongs to one thread at a time, which the type system is told here.
#![expect(
    unsafe_code,
    reason = "a conduit that is not `Send` is shared, by the rule that a GASNET_SEQ program calls from one thread"
)]
//! The conduit of this process, the lock around it, and how calls fail.
//!
//! ```text
//!  not initialised ──init──► initialised ──attach──► attached ──exit──► ended
//! ```

use conduit::hsl;
use conduit::trace::Tracer;
use conduit::{
    AmError, AttachError, Conduit, Elsewhere, HandlerEntry, Implicit, Near, OnError, Par,
    ParHandler, SegInfo, is_own_thread, this_thread,
};
use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::crash;
use crate::ptr::{NullArray, StaticText};
use crate::reach::Reach;

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

/// What a program was compiled for.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Threads.
    pub mode: Mode,
    /// Memory.
    pub reach: Reach,
    /// With `GASNET_DEBUG`.
    pub checked: bool,
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

/// The conduit of this process.
#[derive(Debug)]
pub enum Endpoint {
    /// Of `GASNET_SEQ`: no lock.
    Alone(Conduit),
    /// Of the others: threads take turns, by the conduit's own means.
    Shared(Par),
}

/// Both have these calls; those of [`Par`] take the lock only where they need what it guards.
macro_rules! both {
    ($(fn $name:ident($($arg:ident: $t:ty),*) -> $result:ty;)*) => { $(
        #[inline]
        pub(crate) fn $name(&self, $($arg: $t),*) -> $result {
            match self {
                Self::Alone(c) => c.$name($($arg),*),
                Self::Shared(p) => p.$name($($arg),*),
            }
        }
    )* };
}

type Sent = Result<(), AmError>;

impl Endpoint {
    both! {
        fn mynode() -> u32;
        fn segment(node: u32) -> SegInfo;
        fn am_request_short(node: u32, handler: u8, args: &[i32]) -> Sent;
        fn am_request_medium(node: u32, handler: u8, payload: &[u8], args: &[i32]) -> Sent;
        fn am_request_long(node: u32, handler: u8, payload: &[u8], dest: u64, args: &[i32]) -> Sent;
        fn am_request_long_from_segment(
            node: u32, handler: u8, offset: usize, len: usize, dest: u64, args: &[i32]
        ) -> Sent;
        fn am_request_long_async_from_segment(
            node: u32, handler: u8, offset: usize, len: usize, dest: u64, args: &[i32]
        ) -> Sent;
    }
}

struct Held(Endpoint);

// SAFETY: `Shared` is Send and Sync. `Alone` is used by the one thread that a GASNET_SEQ program makes calls from,
// which is that program's promise (specification, threads).
unsafe impl Send for Held {}
// SAFETY: as for Send.
unsafe impl Sync for Held {}

static ENDPOINT: OnceLock<Held> = OnceLock::new();
/// For threads that take memory away and may not use the conduit.
static ELSEWHERE: OnceLock<Elsewhere> = OnceLock::new();
static PHASE: AtomicU8 = AtomicU8::new(Phase::Fresh as u8);
static SHARED: AtomicBool = AtomicBool::new(false);
static REACH: AtomicU8 = AtomicU8::new(Reach::Fast as u8);
static CHECKED: AtomicBool = AtomicBool::new(false);
static ME: AtomicU32 = AtomicU32::new(0);
static NODES: AtomicU32 = AtomicU32::new(0);
static ON_ERROR: OnceLock<OnError> = OnceLock::new();
/// The largest segment of this node, and that which every node may have, bytes.
static SEGMENT_LIMITS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The segments that calls copy to and from without asking the conduit; null in debug builds, where more is looked
/// at, in runs with trace files, and before attach.
static NEAR: AtomicPtr<Near> = AtomicPtr::new(std::ptr::null_mut());
/// The thread whose implicit operations the conduit counts; changed by the thread that has the turn.
static COUNTING: AtomicUsize = AtomicUsize::new(0);
/// The thread that called `gasnet_init`, by a number that no other thread ever has; 0 before.
static OWNER: AtomicU64 = AtomicU64::new(0);
/// The implicit operations of the others.
static SET_ASIDE: Mutex<Vec<(usize, Implicit)>> = Mutex::new(Vec::new());

/// What a thread knows of itself.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Handlers that run on it.
    pub(crate) handlers: Cell<u32>,
    /// The handler that runs innermost, an address of a `Frame`.
    pub(crate) frame: Cell<usize>,
    /// When it began to hold a lock, or a section.
    pub(crate) since: Cell<Option<Instant>>,
    /// File and line of the call it makes.
    at: Cell<(StaticText, i32)>,
}

thread_local! {
    static THREAD: Thread = const { Thread {
        handlers: Cell::new(0),
        frame: Cell::new(0),
        since: Cell::new(None),
        at: Cell::new((StaticText::NONE, 0)),
    } };
    /// Whether the conduit has counted for this thread.
    static MARK: Cell<bool> = const { Cell::new(false) };
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

pub(crate) fn me() -> u32 {
    ME.load(Ordering::Relaxed)
}

pub(crate) fn nodes() -> u32 {
    NODES.load(Ordering::Relaxed)
}

/// The largest segment of this node, and that which every node may have, bytes; 0 before `gasnet_init`.
pub(crate) fn segment_limits() -> (u64, u64) {
    let [local, global] = &SEGMENT_LIMITS;
    (
        local.load(Ordering::Relaxed),
        global.load(Ordering::Relaxed),
    )
}

/// Which memory the program was compiled to reach.
pub(crate) fn reach() -> Reach {
    Reach::of(REACH.load(Ordering::Relaxed))
}

/// Makes the conduit that of this process; once. For `limits` see [`segment_limits`].
pub(crate) fn install(conduit: Conduit, build: Build, limits: (u64, u64)) -> bool {
    let mode = build.mode;
    let (me, nodes) = (conduit.mynode(), conduit.nodes());
    if let Some(t) = conduit.tracer() {
        t.take_places();
    }
    let _ = ELSEWHERE.set(conduit.elsewhere());
    let on_error = conduit.on_error();
    let _ = ON_ERROR.set(on_error);
    crash::watch((me, nodes), on_error.backtrace, |signal| {
        conduit.leaves_alone(signal)
    });
    let endpoint = match mode {
        Mode::Seq => Endpoint::Alone(conduit),
        Mode::Parsync | Mode::Par => {
            // GASNet's rule is looked at in debug builds, and names the call there.
            Endpoint::Shared(Par::share(conduit).tolerate_locks(!build.checked))
        }
    };
    if ENDPOINT.set(Held(endpoint)).is_err() {
        return false;
    }
    ME.store(me, Ordering::Relaxed);
    NODES.store(nodes, Ordering::Relaxed);
    for (limit, place) in [limits.0, limits.1].into_iter().zip(&SEGMENT_LIMITS) {
        place.store(limit, Ordering::Relaxed);
    }
    SHARED.store(mode != Mode::Seq, Ordering::Relaxed);
    REACH.store(build.reach as u8, Ordering::Relaxed);
    CHECKED.store(build.checked, Ordering::Relaxed);
    COUNTING.store(thread_id(), Ordering::Relaxed);
    OWNER.store(this_thread(), Ordering::Relaxed);
    set_phase(Phase::Initialised);
    true
}

/// Attaches; the handlers' indexes. `run` of each is a handler of C and may run on any thread.
///
/// # Safety
/// For a program that was compiled for [`Reach::Everything`]: its puts, gets and Longs name memory that the target's program
/// shares. Memory that was ever named is unmapped by functions of the C library only.
pub(crate) unsafe fn attach<F>(
    handlers: Vec<(u8, F)>,
    size: usize,
) -> Option<Result<Vec<u8>, AttachError>>
where
    F: Fn(&mut conduit::Token<'_>, conduit::Payload<'_>, &[i32]) + Send + 'static,
{
    Some(match held()? {
        Endpoint::Alone(c) => {
            let all = handlers
                .into_iter()
                .map(|(i, run)| HandlerEntry::new(i, run));
            match reach() {
                Reach::Fast => c.attach(all.collect(), size),
                Reach::Large => c.attach_large(all.collect(), size),
                // SAFETY: the condition of this function.
                Reach::Everything => unsafe { c.attach_everything(all.collect()) },
            }
        }
        Endpoint::Shared(p) => {
            let all = handlers.into_iter().map(|(i, run)| ParHandler::new(i, run));
            match reach() {
                Reach::Fast => p.attach(all.collect(), size),
                Reach::Large => p.attach_large(all.collect(), size),
                // SAFETY: the condition of this function.
                Reach::Everything => unsafe { p.attach_everything(all.collect()) },
            }
        }
    })
}

/// Unpins these ranges and makes the system call that takes them away; nothing of them is pinned anew in between. `None`, and
/// the call is not made, where it would have to wait and cannot.
pub(crate) fn take_away<R>(ranges: &[(u64, u64)], call: impl FnOnce() -> R) -> Option<R> {
    if phase() != Phase::Attached {
        return Some(call());
    }
    let own = thread_id() == COUNTING.load(Ordering::Relaxed);
    match held() {
        Some(Endpoint::Alone(c)) if own => c.take_away(ranges, call),
        Some(Endpoint::Shared(p)) if !is_own_thread() => {
            let take_away = || p.take_away(ranges, call);
            can_wait(p).then(take_away).flatten()
        }
        Some(_) => {
            let done = call();
            // What was pinned anew meanwhile is so once more.
            leave_word(ranges);
            Some(done)
        }
        None => Some(call()),
    }
}

/// From here on the program is attached.
pub(crate) fn attach_done(conduit: &Conduit) {
    set_phase(Phase::Attached);
    if !checked() && conduit.tracer().is_none() {
        let near = Box::into_raw(Box::new(conduit.near()));
        NEAR.store(near, Ordering::Release);
    }
}

/// The segments to copy to and from, where a call needs to look at nothing else.
#[inline]
pub(crate) fn near() -> Option<&'static Near> {
    let near = NEAR.load(Ordering::Acquire);
    // SAFETY: null, or the box that `attach_done` leaked, which nothing changes.
    unsafe { near.as_ref() }
}

/// Whether the conduit itself ends the process on this thread, because another rank exited: it has told all.
pub(crate) fn ends_itself() -> bool {
    match held() {
        None => false,
        Some(Endpoint::Alone(c)) => c.has_ended(),
        Some(Endpoint::Shared(p)) => p.is_inside() && p.with(Conduit::has_ended),
    }
}

/// Whether another thread is in the library, or leaves the job.
pub(crate) fn is_elsewhere() -> bool {
    match held() {
        Some(Endpoint::Shared(p)) => !p.is_inside(),
        _ => false,
    }
}

/// Keeps a thread for ever while another one ends the process: it has no part in how that ends.
pub(crate) fn stay_if_another_ends() {
    while phase() == Phase::Ended && is_elsewhere() {
        std::thread::park();
    }
}

/// Leaves the job with a code, as far as that is possible. Returns before `gasnet_init`. Returns also where a signal interrupted
/// a call that uses the conduit's state; then the launcher ends the other ranks.
pub(crate) fn exit(code: i32) {
    match held() {
        Some(Endpoint::Alone(c)) if !c.is_in_use() => c.exit(code),
        Some(Endpoint::Shared(p)) if !p.is_inside() || !p.with(Conduit::is_in_use) => p.exit(code),
        _ => {}
    }
}

/// Runs `f` with the conduit, in turn with other threads; `None` before `gasnet_init`. A panic ends the process, as
/// in every function that C calls.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Conduit) -> R) -> Option<R> {
    Some(match held()? {
        Endpoint::Alone(c) => f(c),
        Endpoint::Shared(p) => p.with(f),
    })
}

/// The conduit of this process, for a Rust program around the C library; `None` before `gasnet_init`. The conduit of a program
/// that was compiled for one thread belongs to the thread that called `gasnet_init`: other threads get `None`, and a reference
/// cannot go to them:
///
/// ```compile_fail,E0277
/// if let Some(endpoint) = gasnet_c::endpoint() {
///     std::thread::spawn(move || matches!(endpoint, gasnet_c::Endpoint::Alone(_)));
/// }
/// ```
#[inline]
pub fn endpoint() -> Option<&'static Endpoint> {
    match held()? {
        Endpoint::Alone(_) if OWNER.load(Ordering::Relaxed) != this_thread() => None,
        endpoint => Some(endpoint),
    }
}

/// The endpoint ([`endpoint`]) on every thread, for calls of C: by GASNet's rule for programs of one thread they are made by one.
#[inline]
pub(crate) fn held() -> Option<&'static Endpoint> {
    ENDPOINT.get().map(|held| &held.0)
}

/// Memory has come to a range, or it is gone: see [`Conduit::renew_mapped`]. Threads that cannot wait for their turn leave word.
pub(crate) fn came(addr: u64, len: u64) {
    if phase() != Phase::Attached || is_own_thread() {
        return;
    }
    let own = thread_id() == COUNTING.load(Ordering::Relaxed);
    match held() {
        Some(Endpoint::Alone(c)) if own => c.renew_mapped(addr, len),
        Some(Endpoint::Shared(p)) if can_wait(p) => p.with(|c| c.renew_mapped(addr, len)),
        _ => leave_word(&[(addr, len)]),
    }
}

/// Ranges that went on a thread that may not use the conduit now.
fn leave_word(ranges: &[(u64, u64)]) {
    if let Some(elsewhere) = ELSEWHERE.get() {
        for (addr, len) in ranges {
            elsewhere.forget(*addr, *len);
        }
    }
}

/// Whether the calling thread may wait for its turn, or has it.
fn can_wait(rank: &Par) -> bool {
    rank.is_inside() || hsl::held() == 0 && !hsl::in_section()
}

/// What writes this rank's trace and statistics, if anything does.
pub(crate) fn tracer() -> Option<Arc<Tracer>> {
    with(|c| c.tracer().cloned()).flatten()
}

/// The conduit counts the implicit operations of the calling thread from here on, until another thread's turn.
pub(crate) fn count_own(conduit: &Conduit) {
    if !SHARED.load(Ordering::Relaxed) {
        return;
    }
    let id = thread_id();
    let counting = COUNTING.load(Ordering::Relaxed);
    if counting != id {
        swap_counts(conduit, counting, id);
    }
    // A thread that has ended may have had the same number.
    if !MARK.replace(true) {
        conduit.abandon_nbi_region();
    }
}

/// The conduit counts for the thread `id`, and no more for `counting`.
fn swap_counts(conduit: &Conduit, counting: usize, id: usize) {
    let mut aside = SET_ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
    let at = aside
        .iter()
        .position(|(of, _)| *of == id)
        .unwrap_or_else(|| {
            let Some(new) = conduit.new_implicit() else {
                fatal("65535 operations are not synchronised yet");
            };
            aside.push((id, new));
            aside.len() - 1
        });
    conduit.swap_implicit(&mut aside[at].1);
    aside[at].0 = counting;
    COUNTING.store(id, Ordering::Relaxed);
}

/// The conduit for a call that is not possible before `gasnet_attach`: then the process ends.
#[inline]
pub(crate) fn attached<R>(call: &str, f: impl FnOnce(&Conduit) -> R) -> R {
    require(call);
    with(f).unwrap_or_else(|| fatal(call))
}

/// Calls `f` with the conduit ([`attached`]), which counts the implicit operations of the calling thread.
#[inline]
pub(crate) fn attached_own<R>(call: &str, f: impl FnOnce(&Conduit) -> R) -> R {
    attached(call, |c| {
        count_own(c);
        f(c)
    })
}

#[inline]
fn require(call: &str) {
    if phase() < Phase::Attached {
        fatal(&format!("{call} before gasnet_attach"));
    }
    if checked() {
        crate::lock::may_communicate(call);
    }
}

/// Waits until `ready`, by the conduit's own wait, in which other threads have their turns. `ready` has the implicit
/// operations of the calling thread.
pub(crate) fn wait(call: &str, mut ready: impl FnMut(&Conduit) -> bool) {
    attached(call, |c| {
        c.block_until(|| {
            crate::coll::progress(c);
            count_own(c);
            ready(c)
        });
    });
}

/// The place of the call being made, if the program was compiled to tell it.
pub(crate) fn place() -> String {
    let (file, line) = thread(|t| t.at.get());
    let Some(file) = file.get() else {
        return String::new();
    };
    format!(" at {}:{line}", file.to_string_lossy())
}

/// Ends the process, and so the job, with a line on standard error.
#[cold]
pub(crate) fn fatal(what: &str) -> ! {
    stay_if_another_ends();
    let line = format!(
        "*** FATAL ERROR: GASNet node {}/{}: {what}{}",
        me(),
        nodes(),
        place()
    );
    conduit::say(format_args!("{line}"));
    if let Some(t) = crate::trace::tracer() {
        t.message_always(&line);
        t.flush();
    }
    if let Some(on_error) = ON_ERROR.get() {
        on_error.act();
    }
    crash::abort()
}

/// The array that a call needs; the process ends where it is null.
pub(crate) fn given<T>(call: &str, array: Result<T, NullArray>) -> T {
    array.unwrap_or_else(|null| fatal(&format!("{call}: NULL for {} elements", null.count)))
}

/// Says what a refused call of the core API got wrong, where the program was compiled for that.
pub(crate) fn explain(call: &str, why: &dyn std::fmt::Display) {
    if checked() {
        conduit::say(format_args!(
            "GASNet node {}/{}: {call} returns an error code: {why}{}",
            me(),
            nodes(),
            place()
        ));
    }
}

/// Notes where the next call of this thread stands (`GASNET_DEBUG`).
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_here(file: StaticText, line: i32) {
    thread(|t| t.at.set((file, line)));
    crate::trace::here(file, line);
}
