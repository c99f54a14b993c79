//! A stack for this command where that of the first thread may not grow (`ulimit -s`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use portals_shim::limit::limit;
use rustix::process::Resource;

/// What suffices for every command, in builds for tests too.
const ENOUGH: u64 = 2 << 20;
/// The stack of the thread that stands in for the first one.
const OWN: usize = 8 << 20;

/// Whether the first thread only waits.
static FIRST_WAITS: AtomicBool = AtomicBool::new(false);

/// Does `work` and ends this process with its status: on the first thread, or on one with a stack of its own.
///
/// A process that this one forks has that thread alone, which does not return to a first thread that is not there.
pub(crate) fn with_enough(work: fn() -> u8) -> u8 {
    let most = limit(Resource::Stack).ok().and_then(|limit| limit.current);
    let Some(most) = most.filter(|most| *most < ENOUGH) else {
        return work();
    };
    FIRST_WAITS.store(true, Ordering::Relaxed);
    let whole = move || -> () { std::process::exit(work().into()) };
    match Builder::new().stack_size(OWN).spawn(whole) {
        Ok(thread) => {
            // It returns by a panic alone, which has been told.
            let _ = thread.join();
            101
        }
        Err(error) => {
            portals_shim::say(format_args!(
                "portolan: the stack is limited to {} KiB, and there is no thread with a larger one: {error}; raise the limit \
                 (ulimit -s)",
                most >> 10
            ));
            1
        }
    }
}

/// Threads of this process that only wait for the one that calls.
pub(crate) fn waiting() -> usize {
    usize::from(FIRST_WAITS.load(Ordering::Relaxed))
}
