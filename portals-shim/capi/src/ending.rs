//! What calls of other threads are while the process ends well.
//!
//! The exit closes the interfaces before the process is gone, and threads that the program has not ended still run: a server
//! that waits for events, say. To them nothing has happened yet, as anywhere else where an exit ends threads wherever
//! they are. So a call that fails for that reason does not return; but a look that does not wait finds nothing, since an exit handler
//! of the program may have told its thread to end, and wait for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// Before a look says that there is nothing: the thread has nothing else to do.
pub(crate) fn rest() {
    std::thread::sleep(Duration::from_millis(1));
}
