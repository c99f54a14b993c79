//! How the process ends once its job has ended.

use std::sync::OnceLock;

static END: OnceLock<fn(i32) -> !> = OnceLock::new();

/// Has this process ended by `end`, which is given the exit status, whenever its job has; before, and where this is never
/// called, by [`std::process::exit`], which runs the exit handlers of the program. Once: later calls do nothing.
pub fn end_by(end: fn(i32) -> !) {
    let _ = END.set(end);
}

/// Ends this process, whose job has ended, with this status.
pub fn end_process(code: i32) -> ! {
    match END.get() {
        Some(end) => end(code),
        None => std::process::exit(code),
    }
}
