// UNSAFETY: entries that C calls, a function that the program stored, and one left with the C library for the exit.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and a function is left with the C library for the exit"
)]
//! Start, attach, exit, and what a program asks about the job.
//!
//! A program may end with `gasnet_exit`, `exit` or a return from `main`: the last two are `gasnet_exit` with their
//! status. `_exit`, `abort` and signals are for the launcher to notice.

use conduit::{AttachError, Conduit, SegInfo};
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::am::Function;
use crate::ptr::{ArrayMut, Count, Text};
use crate::state::{Build, Phase, phase};
use crate::{am, clock, coll, ending, state};

/// `GASNET_OK` and the error codes.
pub(crate) const OK: c_int = 0;
pub(crate) const NOT_INIT: c_int = 10001;
pub(crate) const RESOURCE: c_int = 10002;
pub(crate) const BAD_ARG: c_int = 10003;
pub(crate) const NOT_READY: c_int = 10004;
pub(crate) const BARRIER_MISMATCH: c_int = 10005;

/// `gasnet_handlerentry_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    index: u8,
    function: Function,
}

impl Entry {
    /// An entry of a table for `gasnet_attach`.
    pub fn new(index: u8, function: Function) -> Self {
        Self { index, function }
    }
}

/// Address of the own segment; `None` before `gasnet_attach`.
pub fn own_segment() -> Option<u64> {
    state::with(|c| c.segment(c.mynode()).addr).filter(|a| *a != 0)
}

/// `gasnet_seginfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    addr: *mut c_void,
    size: usize,
}

/// `gasnet_nodeinfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Node {
    host: u32,
    supernode: u32,
}

/// The process that initialised.
static PROCESS: AtomicU32 = AtomicU32::new(0);

type AttachHook = Option<unsafe extern "C-unwind" fn(base: *mut c_void, size: usize)>;

/// `gasnet_client_attach_hook`: a program may store a function here before it attaches.
#[unsafe(no_mangle)]
pub static gasnet_client_attach_hook: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" {
    fn on_exit(
        function: extern "C" fn(status: c_int, argument: *mut c_void),
        argument: *mut c_void,
    ) -> c_int;
}

/// Says why the process cannot take part.
fn complain(doing: &str, error: &dyn std::error::Error) {
    let who = match phase() {
        Phase::Fresh => "gasnet".to_owned(),
        _ => format!("GASNet node {}/{}", state::me(), state::nodes()),
    };
    conduit::say(format_args!(
        "{who}: {doing}: {}",
        conduit::with_causes(error)
    ));
}

/// `gasnet_init`, for the libraries of the thread models. `max_segment` is what the program defined, or 0.
pub fn init(build: Build, max_segment: u64) -> c_int {
    if phase() != Phase::Fresh {
        return NOT_INIT;
    }
    let started = catch_unwind(|| {
        // A Rust program around the C library may have its own way; then that is used.
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::ERROR)
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_ansi(false)
            .without_time()
            // Where it cannot be said, on a disk that is full, the word about that would panic.
            .log_internal_errors(false)
            .try_init();
        let conduit = match Conduit::init() {
            Ok(conduit) => conduit,
            Err(error) => {
                complain("cannot start", &error);
                return RESOURCE;
            }
        };
        if let Err(error) = conduit.register_extended(coll::handlers()) {
            complain("cannot start", &error);
            return RESOURCE;
        }
        let pins = conduit.keeps_pinned();
        let in_front = crate::unmap::is_in_front();
        let watched = build.reach.is_watched(pins, in_front);
        if !in_front && build.reach.needs_watch(pins) {
            let error = "what the program unmaps does not pass by this library, which came by dlopen or after the C library, \
                         and stays pinned";
            conduit::say(format_args!("GASNet node {}: {error}", conduit.mynode()));
        }
        if watched && in_front {
            // SAFETY: what takes memory away passes `unmap` from here on, as far as it says; `gasnet.md` says what does not.
            unsafe { conduit.promise_to_forget() };
        }
        let local = build.reach.largest_segment(&conduit, max_segment);
        let limits = (local, conduit.least(local));
        if !state::install(conduit, build, limits) {
            return NOT_INIT;
        }
        state::with(clock::install);
        conduit::end_by(ending::end);
        crate::trace::install();
        if watched {
            crate::unmap::watch();
        }
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: `at_exit` is a function of the program's life and takes a null argument; the library is never
        // unloaded (linked with nodelete). Without memory for the registration a return from `main` is noticed by
        // the launcher as the end of a rank.
        let _ = unsafe { on_exit(at_exit, std::ptr::null_mut()) };
        OK
    });
    started.unwrap_or(RESOURCE)
}

extern "C" fn at_exit(status: c_int, _argument: *mut c_void) {
    let now = phase();
    if now == Phase::Fresh || now == Phase::Ended {
        return;
    }
    // A forked child is no rank.
    if conduit::is_child_of_rank() || PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    if state::ends_itself() {
        return;
    }
    ending::enter_handlers();
    leave(status);
}

fn leave(code: c_int) -> ! {
    state::set_phase(Phase::Ended);
    // The process ends with the code, whatever becomes of telling the others: the launcher ends those.
    let _ = catch_unwind(AssertUnwindSafe(|| state::exit(code)));
    clock::end();
    ending::end(code)
}

/// `gasnet_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_exit(code: c_int) -> ! {
    // A child of a rank ends itself alone, and waits for no thread of its parent.
    if phase() == Phase::Fresh || conduit::is_child_of_rank() {
        ending::end(code);
    }
    state::stay_if_another_ends();
    leave(code)
}

/// `gasnet_attach`. The heap offset does not matter: the segment is mapped where nothing is.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_attach(
    table: ArrayMut<Entry>,
    count: Count<c_int>,
    size: usize,
    _min_heap_offset: usize,
) -> c_int {
    let refuse = |code, why: &dyn std::fmt::Display| {
        state::explain("gasnet_attach", why);
        code
    };
    state::stay_if_another_ends();
    match phase() {
        Phase::Initialised => {}
        _ => return refuse(NOT_INIT, &"not initialised, or attached already"),
    }
    let Some(count) = count.checked() else {
        return refuse(BAD_ARG, &"a negative number of handlers");
    };
    if count.get() > 0 && table.is_null() {
        return refuse(BAD_ARG, &"no table of handlers");
    }
    let refusal = state::reach().refusal(size as u64, state::segment_limits().0);
    if let Some(why) = refusal {
        return refuse(BAD_ARG, &why);
    }
    let table = table.of(count);
    let mut entries = Vec::with_capacity(table.len());
    for e in table.iter() {
        let Some(run) = am::handler(e.function) else {
            return refuse(BAD_ARG, &"a handler is NULL");
        };
        entries.push((e.index, run));
    }
    // SAFETY: a program of GASNET_SEGMENT_EVERYTHING shares its memory by being one (specification, segments).
    let attached = unsafe { state::attach(entries, size) };
    if let Some(Ok(_)) = attached {
        state::with(|conduit| {
            let own = conduit.segment(conduit.mynode());
            let hook = gasnet_client_attach_hook.load(Ordering::Acquire);
            // SAFETY: a program stores a function of this type, or nothing.
            let hook = unsafe { std::mem::transmute::<*mut c_void, AttachHook>(hook) };
            if let Some(hook) = hook {
                let own = shown(own);
                let running = am::Running::begin("gasnet_client_attach_hook");
                // SAFETY: the program's function takes the own segment.
                unsafe { hook(own.addr, own.size) };
                running.returned();
            }
            state::attach_done(conduit);
        });
    }
    match attached {
        Some(Ok(indexes)) => {
            for (i, (index, old)) in indexes.into_iter().zip(table.iter()).enumerate() {
                table.set(i, Entry { index, ..old });
            }
            OK
        }
        Some(Err(
            error @ (AttachError::HandlerIndex { .. }
            | AttachError::HandlerTwice { .. }
            | AttachError::HandlersExhausted),
        )) => refuse(BAD_ARG, &conduit::with_causes(&error)),
        // Of the environment or the machine, as what `gasnet_init` says in every build.
        Some(Err(error)) if !state::checked() => {
            complain("gasnet_attach", &error);
            RESOURCE
        }
        Some(Err(error)) => refuse(RESOURCE, &conduit::with_causes(&error)),
        None => NOT_INIT,
    }
}

/// `gasnet_mynode`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_mynode() -> u32 {
    state::me()
}

/// `gasnet_nodes`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_nodes() -> u32 {
    state::nodes()
}

/// `gasnet_getMaxLocalSegmentSize`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxLocalSegmentSize() -> usize {
    usize::try_from(state::segment_limits().0).unwrap_or(usize::MAX)
}

/// `gasnet_getMaxGlobalSegmentSize`: the least of the local ones, which `gasnet_init` has asked all nodes for.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxGlobalSegmentSize() -> usize {
    usize::try_from(state::segment_limits().1).unwrap_or(usize::MAX)
}

/// A segment as the specification has it: in `GASNET_SEGMENT_EVERYTHING` all of the address space.
fn shown(s: SegInfo) -> Segment {
    Segment {
        addr: std::ptr::with_exposed_provenance_mut(s.addr as usize),
        size: state::reach().shown_size(s),
    }
}

/// `gasnet_getSegmentInfo`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getSegmentInfo(table: ArrayMut<Segment>, count: Count<c_int>) -> c_int {
    if phase() < Phase::Attached {
        return NOT_INIT;
    }
    let Some(count) = count.checked().filter(|_| !table.is_null()) else {
        return BAD_ARG;
    };
    let table = table.of(count);
    for (i, node) in (0..state::nodes()).take(table.len()).enumerate() {
        let Some(s) = state::with(|conduit| conduit.segment(node)) else {
            return NOT_INIT;
        };
        table.set(i, shown(s));
    }
    OK
}

/// `gasnet_getNodeInfo`. No memory is shared through GASNet: each rank is a supernode of its own.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getNodeInfo(table: ArrayMut<Node>, count: Count<c_int>) -> c_int {
    if phase() < Phase::Initialised {
        return NOT_INIT;
    }
    let Some(count) = count.checked().filter(|_| !table.is_null()) else {
        return BAD_ARG;
    };
    let table = table.of(count);
    for (i, node) in (0..state::nodes()).take(table.len()).enumerate() {
        let info = Node {
            host: node,
            supernode: node,
        };
        table.set(i, info);
    }
    OK
}

/// `gasnet_getenv`: ranks are started with the environment of their launcher.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getenv(name: Text) -> *mut c_char {
    match name.get() {
        // SAFETY: a string; the result is the C library's.
        Some(name) => unsafe { libc::getenv(name.as_ptr()) },
        None => std::ptr::null_mut(),
    }
}

/// `gasnet_set_waitmode`: a hint; waits leave the processor to others in every mode.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_set_waitmode(mode: c_int) -> c_int {
    if (0..=2).contains(&mode) { OK } else { BAD_ARG }
}

/// `GASNET_GET_THREADINFO`: a value that differs between threads.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_threadinfo() -> *mut c_void {
    std::ptr::without_provenance_mut(state::thread_id())
}

/// `gasnet_ErrorName`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_ErrorName(code: c_int) -> *const c_char {
    let name = match code {
        OK => c"GASNET_OK",
        NOT_INIT => c"GASNET_ERR_NOT_INIT",
        RESOURCE => c"GASNET_ERR_RESOURCE",
        BAD_ARG => c"GASNET_ERR_BAD_ARG",
        NOT_READY => c"GASNET_ERR_NOT_READY",
        BARRIER_MISMATCH => c"GASNET_ERR_BARRIER_MISMATCH",
        _ => c"*unknown*",
    };
    name.as_ptr()
}

/// `gasnet_ErrorDesc`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_ErrorDesc(code: c_int) -> *const c_char {
    let text = match code {
        OK => c"No error",
        NOT_INIT => c"GASNet message layer not initialized",
        RESOURCE => c"Problem with requested resource",
        BAD_ARG => c"Invalid function parameter passed",
        NOT_READY => c"Non-blocking operation not complete",
        BARRIER_MISMATCH => c"Barrier id's mismatched",
        _ => c"no description available",
    };
    text.as_ptr()
}

/// `gasnet_AMPoll`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_AMPoll() -> c_int {
    if phase() < Phase::Attached {
        state::explain("gasnet_AMPoll", &"not attached");
        return NOT_INIT;
    }
    if state::checked() {
        crate::lock::may_communicate("gasnet_AMPoll");
    }
    state::with(|conduit| {
        conduit.poll();
        coll::progress(conduit);
    });
    OK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_works_before_init() {
        assert_eq!(gasnet_AMPoll(), NOT_INIT);
        let mut segment = Segment {
            addr: std::ptr::null_mut(),
            size: 7,
        };
        // SAFETY: of the array below.
        let one = unsafe { Count::new(1) };
        // SAFETY: one entry.
        let table = unsafe { ArrayMut::new(&raw mut segment) };
        assert_eq!(gasnet_getSegmentInfo(table, one), NOT_INIT);
        assert_eq!(segment.size, 7);
        // SAFETY: null.
        let none = unsafe { ArrayMut::new(std::ptr::null_mut()) };
        assert_eq!(gasnet_attach(none, one, 0, 0), NOT_INIT);
        assert_eq!(gasnet_set_waitmode(3), BAD_ARG);
    }
}
