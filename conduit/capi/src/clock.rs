// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "C calls these entries")]
//! The clock of `gasnett_ticks_now` where time is virtual, and computing that takes a stated time.
//!
//! Elsewhere a program reads the host's clock in its own code, and asks here once where [`VirtualClock`] is.
//!
//! | | the clock of a rank on the model |
//! |---|---|
//! | before `gasnet_init` returns | the host's |
//! | then | that of the interface |
//! | after the job, and in a forked child | goes on from its last reading at the host's pace |

use conduit::{ClockKind, Conduit, Interface};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;

use crate::state;

/// `gasneti_virtual_clock_t`: a function that reads the virtual clock, nanoseconds; null where the clock is the host's.
#[repr(C)]
#[derive(Debug)]
pub struct VirtualClock {
    now: AtomicPtr<()>,
}

static CLOCK: VirtualClock = VirtualClock {
    now: AtomicPtr::new(std::ptr::null_mut()),
};
/// Set before [`CLOCK`] has a function.
static INTERFACE: OnceLock<Interface> = OnceLock::new();
/// The last virtual reading, and when that was.
static END: OnceLock<(u64, Instant)> = OnceLock::new();

/// Programs read the clock of this conduit from here on, if it is virtual.
pub(crate) fn install(conduit: &Conduit) {
    if conduit.clock() == ClockKind::Virtual && INTERFACE.set(conduit.interface()).is_ok() {
        let now: extern "C" fn() -> u64 = virtual_now;
        CLOCK.now.store(now as *mut (), Ordering::Release);
    }
}

/// The job is over, the simulation is gone, or this is a child of the rank: no call takes virtual time any more, and a program may wait for a time.
pub(crate) fn end() {
    if let Some(interface) = INTERFACE.get() {
        END.get_or_init(|| (interface.now(), Instant::now()));
    }
}

/// The reading after the end; `None` before.
fn after_end() -> Option<u64> {
    let (last, at) = END.get()?;
    let since = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Some(last.saturating_add(since))
}

extern "C" fn virtual_now() -> u64 {
    let Some(interface) = INTERFACE.get() else {
        return 0;
    };
    if conduit::is_child_of_rank() {
        end();
    }
    if let Some(now) = after_end() {
        return now;
    }
    interface.reading().unwrap_or_else(|_| {
        end();
        after_end().unwrap_or_else(|| interface.now())
    })
}

/// Where the header looks for the virtual clock; the same place for the life of the process.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_virtual_clock() -> &'static VirtualClock {
    &CLOCK
}

/// `gasnett_compute_ns`. The process ends where the simulation has ended, or in a handler of a signal that has interrupted a call.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_compute_ns(nanos: u64) {
    let Some(interface) = INTERFACE.get() else {
        return;
    };
    let over = || END.get().is_some() || conduit::is_child_of_rank();
    if !over() && interface.compute(nanos).is_err() && !over() {
        state::fatal(
            "gasnett_compute_ns: the simulation has ended, or a handler of a signal interrupted a call",
        );
    }
}
