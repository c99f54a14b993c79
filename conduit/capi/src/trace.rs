// UNSAFETY: entries that C calls, strings and functions of the caller.
#![expect(
    unsafe_code,
    reason = "C calls these entries, with strings and functions of its own"
)]
//! Trace and statistics of C calls, and what `GASNETT_TRACE_*` and `GASNETT_STATS_*` do.
//!
//! The conduit writes (`conduit::trace`). A call that the conduit has a line for, such as a message or a barrier
//! notified, has none here.

use conduit::trace::{Category, Mask, Tracer, Transfer};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::OnceLock;

use crate::{ptr, state};

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

/// A put or memset of `len` bytes to an address of `node`.
///
/// # Safety
/// `src` is null or has `len` readable bytes.
#[inline]
pub(crate) unsafe fn put(name: &'static str, node: u32, dest: u64, src: *const c_void, len: usize) {
    if let Some(t) = tracer() {
        // SAFETY: the condition of this function.
        let data = unsafe { ptr::bytes(src, len.min(40)) };
        t.transfer(&Transfer {
            name,
            node,
            remote: dest,
            local: ptr::address(src),
            len,
            data,
        });
    }
}

/// A get of `len` bytes.
#[inline]
pub(crate) fn get(name: &'static str, dest: *mut c_void, node: u32, src: *mut c_void, len: usize) {
    if let Some(t) = tracer() {
        t.transfer(&Transfer {
            name,
            node,
            remote: ptr::address(src),
            local: ptr::address(dest),
            len,
            data: &[],
        });
    }
}

/// A string of a caller, for as long as the program runs.
///
/// # Safety
/// `text` is null or a string that lives as long as the program.
unsafe fn forever(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the condition of this function.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Says where the next calls of this thread stand, in runs that trace.
///
/// # Safety
/// `file` is null or a string that lives as long as the program.
pub(crate) unsafe fn here(file: *const c_char, line: i32) {
    if tracer().is_some() {
        // SAFETY: the condition of this function.
        let file = unsafe { forever(file) };
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
///
/// # Safety
/// `text` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_trace_text(text: *const c_char, always: c_int) {
    let Some(t) = tracer().filter(|_| !text.is_null()) else {
        return;
    };
    // SAFETY: the condition of this function.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    for line in text.trim_end_matches('\n').lines() {
        if always != 0 {
            t.message_always(line);
        } else {
            t.message(line);
        }
    }
}

/// Writes a line of the program's own statistics.
///
/// # Safety
/// `text` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_stats_text(text: *const c_char) {
    if let Some(t) = tracer().filter(|_| !text.is_null()) {
        // SAFETY: the condition of this function.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        for line in text.trim_end_matches('\n').lines() {
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
///
/// # Safety
/// `mask` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_trace_set_mask(mask: *const c_char, statistics: c_int) {
    let Some(t) = tracer().filter(|_| !mask.is_null()) else {
        return;
    };
    // SAFETY: the condition of this function.
    let mask = Mask::parse(&unsafe { CStr::from_ptr(mask) }.to_string_lossy());
    if statistics != 0 {
        t.set_stats_mask(mask);
    } else {
        t.set_trace_mask(mask);
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
    /// The file that `GASNETT_TRACE_SETSOURCELINE` named last, an address.
    static SOURCE: std::cell::Cell<(usize, u32)> = const { std::cell::Cell::new((0, 0)) };
}

/// `GASNETT_TRACE_SETSOURCELINE`.
///
/// # Safety
/// `file` is null, for the one before, or a string that lives as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_trace_set_line(file: *const c_char, line: u32) {
    if tracer().is_some_and(|t| t.trace_mask().has(Category::N)) && FROZEN.get() == 0 {
        let file = if file.is_null() {
            SOURCE.get().0
        } else {
            file.expose_provenance()
        };
        SOURCE.set((file, line));
        let file = std::ptr::with_exposed_provenance::<c_char>(file);
        // SAFETY: the condition of this function, of this call or an earlier one.
        unsafe { here(file, line.cast_signed()) };
    }
}

/// `GASNETT_TRACE_GETSOURCELINE`.
///
/// # Safety
/// Both may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_trace_get_line(file: *mut *const c_char, line: *mut u32) {
    if tracer().is_none() || file.is_null() || line.is_null() {
        return;
    }
    let (at, number) = SOURCE.get();
    // SAFETY: the condition of this function; not null.
    unsafe { ptr::set(file, 0, std::ptr::with_exposed_provenance(at)) };
    // SAFETY: as above.
    unsafe { ptr::set(line, 0, number) };
}

/// `GASNETT_TRACE_FREEZESOURCELINE`, and with `by` -1 `GASNETT_TRACE_UNFREEZESOURCELINE`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_trace_freeze_line(by: c_int) {
    FROZEN.set(FROZEN.get().saturating_add_signed(by));
}

type Printer = *const c_void;
type Callback = unsafe extern "C" fn(Printer);

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
        // SAFETY: the condition of this function; code stays mapped.
        unsafe { callback(std::ptr::with_exposed_provenance(printer)) };
    });
    1
}
