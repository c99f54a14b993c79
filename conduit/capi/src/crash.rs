// UNSAFETY: handlers of signals.
#![expect(
    unsafe_code,
    reason = "installs and is a handler of signals, which may call libc only"
)]
//! Signals that end a program at once: a line that says the rank, a stack trace if asked for, then what the signal does
//! by default, so that the launcher sees it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const FATAL: [(c_int, &str); 5] = [
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
];

static ME: AtomicU32 = AtomicU32::new(0);
static NODES: AtomicU32 = AtomicU32::new(0);
static BACKTRACE: AtomicBool = AtomicBool::new(false);

/// Room for text without allocating.
struct Text {
    bytes: [u8; 160],
    len: usize,
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let room = self.bytes.len() - self.len;
        let n = s.len().min(room);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

extern "C" fn caught(signal: c_int) {
    use std::fmt::Write as _;
    let name = FATAL.iter().find(|f| f.0 == signal).map_or("", |f| f.1);
    let mut text = Text {
        bytes: [0; 160],
        len: 0,
    };
    let (me, nodes) = (ME.load(Ordering::Relaxed), NODES.load(Ordering::Relaxed));
    let _ = writeln!(
        text,
        "*** Caught a fatal signal: {name}({signal}) on node {me}/{nodes}"
    );
    // A child of the node is not the node.
    if !conduit::is_child_of_rank() {
        // SAFETY: the bytes are initialised; writing is allowed in a handler.
        let _ = unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.len) };
    }
    if BACKTRACE.load(Ordering::Relaxed) {
        let mut frames = [std::ptr::null_mut::<c_void>(); 64];
        // SAFETY: room for 64 addresses; the function was called before, so it loads nothing here.
        let n = unsafe { libc::backtrace(frames.as_mut_ptr(), 64) };
        // SAFETY: the addresses that the call above stored.
        unsafe { libc::backtrace_symbols_fd(frames.as_ptr(), n, 2) };
    }
    default(signal);
    // SAFETY: the signal ends the process when this handler returns, or at once.
    let _ = unsafe { libc::raise(signal) };
}

fn default(signal: c_int) {
    // SAFETY: sets the default action.
    let _ = unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Catches fatal signals from here on, but those that are left alone, and those that the program catches itself.
pub(crate) fn watch((me, nodes): (u32, u32), backtrace: bool, left_alone: impl Fn(c_int) -> bool) {
    ME.store(me, Ordering::Relaxed);
    NODES.store(nodes, Ordering::Relaxed);
    BACKTRACE.store(backtrace, Ordering::Relaxed);
    let mut frame = [std::ptr::null_mut::<c_void>()];
    // SAFETY: room for one address. What it needs is loaded now, as a handler may not.
    let _ = unsafe { libc::backtrace(frame.as_mut_ptr(), 1) };
    for (signal, _) in FATAL {
        if left_alone(signal) {
            continue;
        }
        let handler = caught as extern "C" fn(c_int) as *const c_void;
        // SAFETY: a handler that calls only what handlers may.
        let before = unsafe { libc::signal(signal, handler.expose_provenance()) };
        if before != libc::SIG_DFL {
            // SAFETY: the program's own, as it was.
            let _ = unsafe { libc::signal(signal, before) };
        }
    }
}

/// Ends the process with SIGABRT, of which nothing more is said.
pub(crate) fn abort() -> ! {
    default(libc::SIGABRT);
    std::process::abort()
}
