//! What calls of other threads are while the process ends well.
//!
//! The exit closes the interfaces before the process is gone, and threads that the program has not ended still run: a server
//! that waits for events, say. To them nothing has happened yet, as anywhere else where an exit ends threads wherever
//! they are. So a call that fails for that reason does not return; but a look finds nothing, in the time that it may take, since an
//! exit handler of the program may have told its thread to end, and wait for it. One that waits for ever does not return either,
//! but its thread may be cancelled.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cancel::PIECE;
use portals_shim::Wait;

static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread ends the process; exit handlers of the program that follow call on it.
    static MINE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread ends the process from here on.
pub(crate) fn begin() {
    MINE.set(true);
    ENDING.store(true, Ordering::SeqCst);
}

/// Whether another thread ends the process.
#[inline]
pub(crate) fn is_elsewhere() -> bool {
    ENDING.load(Ordering::SeqCst) && !MINE.get()
}

/// Stays until the process is gone.
pub(crate) fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// Takes the time of a look that finds nothing, or of a piece of a wait for ever.
pub(crate) fn wait_out(wait: Wait) {
    match wait {
        Wait::No => std::thread::yield_now(),
        Wait::Nanos(ns) => std::thread::sleep(Duration::from_nanos(ns)),
        Wait::Forever => std::thread::sleep(PIECE),
    }
}
