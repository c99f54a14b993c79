// UNSAFETY: entries that C calls, and a function of the caller.
#![expect(
    unsafe_code,
    reason = "C calls these entries, with a function of its own"
)]
//! Trace and statistics of C calls, and what `GASNETT_TRACE_*` and `GASNETT_STATS_*` do.
//!
//! The conduit writes (`conduit::trace`). A call that the conduit has a line for, such as a message or a barrier
//! notified, has none here.

use conduit::trace::{Category, Mask, Tracer, Transfer};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::OnceLock;

use crate::am::Running;
use crate::ptr::{Incoming, Out, Outgoing, StaticText, Text};
use crate::state;

/// Set once, before a program is attached.
static TRACER: OnceLock<Arc<Tracer>> = OnceLock::new();

/// Looks once whether this run has files.
pub(crate) fn install() {
    if let Some(t) = state::tracer() {
        let _ = TRACER.set(t);
    }
}

/// What writes, if anything does: one load and a branch where nothing does.
#[inline]
pub(crate) fn tracer() -> Option<&'static Arc<Tracer>> {
    TRACER.get()
}

/// When a wait begins.
#[inline]
pub(crate) fn start() -> Option<u64> {
    tracer().map(|t| t.now())
}

/// A wait that began at `since` ends.
#[inline]
pub(crate) fn waited(name: &'static str, since: Option<u64>) {
    if let (Some(t), Some(since)) = (tracer(), since) {
        t.waited(name, since);
    }
}

/// A look that does not wait.
#[inline]
pub(crate) fn tried(name: &'static str, done: bool) {
    if let Some(t) = tracer() {
        t.event(name, false, u64::from(done));
    }
}

/// An operation of many pieces, or a collective one, by the name of its call; `bytes` is asked if it is written.
#[inline]
pub(crate) fn call(call: &str, bytes: impl FnOnce() -> usize) {
    if let Some(t) = tracer() {
        let name = call.trim_start_matches("gasnet_");
        let name = match name.strip_prefix("coll_") {
            // The forms of a collective operation are one event.
            Some(kind) => {
                let kind = kind.trim_end_matches("_nb").trim_end_matches('M');
                format!("coll_{kind}")
            }
            None => name.to_owned(),
        };
        t.event(&name.to_uppercase(), false, bytes() as u64);
    }
}

/// A put to an address of `node`.
#[inline]
pub(crate) fn put(name: &'static str, node: u32, dest: u64, src: Outgoing) {
    if let Some(t) = tracer() {
        t.transfer(&Transfer {
            name,
            node,
            remote: dest,
            local: src.address(),
            len: src.len(),
            data: src.head(),
        });
    }
}

/// A memset of `len` bytes at an address of `node`.
#[inline]
pub(crate) fn memset(name: &'static str, node: u32, dest: u64, len: usize) {
    if let Some(t) = tracer() {
        t.transfer(&Transfer {
            name,
            node,
            remote: dest,
            local: 0,
            len,
            data: &[],
        });
    }
}

/// A get from an address of `node`.
#[inline]
pub(crate) fn get(name: &'static str, dest: Incoming, node: u32, src: u64) {
    if let Some(t) = tracer() {
        t.transfer(&Transfer {
            name,
            node,
            remote: src,
            local: dest.address(),
            len: dest.len(),
            data: &[],
        });
    }
}

/// Says where the next calls of this thread stand, in runs that trace.
pub(crate) fn here(file: StaticText, line: i32) {
    if tracer().is_some() {
        let file = file.get().and_then(|f| f.to_str().ok());
        // Without a file the one before counts.
        let file = file.or_else(|| Tracer::place().map(|p| p.0));
        Tracer::set_place(file.map(|f| (f, line.cast_unsigned())));
    }
}

/// `GASNETT_TRACE_ENABLED`: whether a category, a letter, is traced.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_enabled(letter: c_char) -> c_int {
    // A `char` of C has a sign on some machines and none on others.
    let letter = char::from(u8::from_ne_bytes(letter.to_ne_bytes()));
    c_int::from(tracer().is_some_and(|t| t.trace_mask().to_string().contains(letter)))
}

/// Writes a message of the program; `always` whatever the mask.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_text(text: Text, always: c_int) {
    if let (Some(t), Some(text)) = (tracer(), text.get()) {
        for line in text.to_string_lossy().trim_end_matches('\n').lines() {
            if always != 0 {
                t.message_always(line);
            } else {
                t.message(line);
            }
        }
    }
}

/// Writes a line of the program's own statistics.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_stats_text(text: Text) {
    if let (Some(t), Some(text)) = (tracer(), text.get()) {
        for line in text.to_string_lossy().trim_end_matches('\n').lines() {
            t.plain(line, true);
        }
    }
}

fn mask_text(mask: Mask) -> *const c_char {
    thread_local! {
        static TEXT: RefCell<CString> = RefCell::default();
    }
    // Letters have no zero among them. The text is this thread's until it asks again.
    let text = CString::new(mask.to_string()).unwrap_or_default();
    TEXT.with(|kept| {
        *kept.borrow_mut() = text;
        kept.borrow().as_ptr()
    })
}

/// `GASNETT_TRACE_GETMASK`; `statistics`: `GASNETT_STATS_GETMASK`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_mask(statistics: c_int) -> *const c_char {
    mask_text(tracer().map_or(Mask::default(), |t| {
        if statistics != 0 {
            t.stats_mask()
        } else {
            t.trace_mask()
        }
    }))
}

/// `GASNETT_TRACE_SETMASK`; `statistics`: `GASNETT_STATS_SETMASK`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_set_mask(mask: Text, statistics: c_int) {
    if let (Some(t), Some(mask)) = (tracer(), mask.get()) {
        let mask = Mask::parse(&mask.to_string_lossy());
        if statistics != 0 {
            t.set_stats_mask(mask);
        } else {
            t.set_trace_mask(mask);
        }
    }
}

/// `GASNETT_TRACE_GET_TRACELOCAL`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_local() -> c_int {
    c_int::from(tracer().is_some_and(|t| t.traces_local()))
}

/// `GASNETT_TRACE_SET_TRACELOCAL`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_set_local(yes: c_int) {
    if let Some(t) = tracer() {
        t.set_traces_local(yes != 0);
    }
}

thread_local! {
    /// How often this thread froze its source line.
    static FROZEN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    /// The file and line that `GASNETT_TRACE_SETSOURCELINE` named last.
    static SOURCE: std::cell::Cell<(StaticText, u32)> = const { std::cell::Cell::new((StaticText::NONE, 0)) };
}

/// `GASNETT_TRACE_SETSOURCELINE`: without a file, of the one before.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_set_line(file: StaticText, line: u32) {
    if tracer().is_some_and(|t| t.trace_mask().has(Category::N)) && FROZEN.get() == 0 {
        let file = if file.is_null() { SOURCE.get().0 } else { file };
        SOURCE.set((file, line));
        here(file, line.cast_signed());
    }
}

/// `GASNETT_TRACE_GETSOURCELINE`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_get_line(file: Out<*const c_char>, line: Out<u32>) {
    if tracer().is_none() || file.is_null() || line.is_null() {
        return;
    }
    let (at, number) = SOURCE.get();
    file.set(at.as_ptr());
    line.set(number);
}

/// `GASNETT_TRACE_FREEZESOURCELINE`, and with `by` -1 `GASNETT_TRACE_UNFREEZESOURCELINE`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_freeze_line(by: c_int) {
    FROZEN.set(FROZEN.get().saturating_add_signed(by));
}

type Printer = *const c_void;
type Callback = unsafe extern "C-unwind" fn(Printer);

/// `GASNETT_STATS_INIT`: `callback` is called with `printer`, a function of the program, when the files end.
///
/// # Safety
/// `callback` is null or a function that takes `printer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_stats_at_end(
    callback: Option<Callback>,
    printer: Printer,
) -> c_int {
    let (Some(t), Some(callback)) = (tracer(), callback) else {
        return 0;
    };
    let printer = printer.expose_provenance();
    t.at_end(move || {
        let running = Running::begin("a function of GASNETT_STATS_INIT");
        // SAFETY: the condition of this function; code stays mapped.
        unsafe { callback(std::ptr::with_exposed_provenance(printer)) };
        running.returned();
    });
    1
}
