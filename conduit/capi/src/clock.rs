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
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};
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
/// The interface, and the host's clock when it was installed; set before [`CLOCK`] has a function.
static INSTALLED: OnceLock<(Interface, Instant)> = OnceLock::new();
/// Nanoseconds that the virtual clock was ahead of [`host`] when it ended. No lock: a handler of a signal may interrupt
/// whoever ends it.
static AHEAD: AtomicI64 = AtomicI64::new(RUNNING);
/// The clock has not ended.
const RUNNING: i64 = i64::MIN;

/// Programs read the clock of this conduit from here on, if it is virtual.
pub(crate) fn install(conduit: &Conduit) {
    let installed = || (conduit.interface(), Instant::now());
    if conduit.clock() == ClockKind::Virtual && INSTALLED.set(installed()).is_ok() {
        let now: extern "C" fn() -> u64 = virtual_now;
        CLOCK.now.store(now as *mut (), Ordering::Release);
        clock_offer::opened(&conduit.interface());
    }
}

/// Nanoseconds of the host's clock.
fn host(from: Instant) -> u64 {
    u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The job is over, the simulation is gone, or this is a child of the rank: no call takes virtual time any more, and a
/// program may wait for a time.
pub(crate) fn end() {
    if let Some((interface, from)) = INSTALLED.get() {
        let ahead = interface.now().wrapping_sub(host(*from)).cast_signed();
        // Whoever was first has set it.
        let _ = AHEAD.compare_exchange(RUNNING, ahead, Ordering::Relaxed, Ordering::Relaxed);
        clock_offer::closed(interface);
    }
}

/// The reading after the end; `None` before.
fn after_end(from: Instant) -> Option<u64> {
    let ahead = AHEAD.load(Ordering::Relaxed);
    (ahead != RUNNING).then(|| host(from).wrapping_add_signed(ahead))
}

extern "C" fn virtual_now() -> u64 {
    let Some((interface, from)) = INSTALLED.get() else {
        return 0;
    };
    if conduit::is_child_of_rank() {
        end();
    }
    if let Some(now) = after_end(*from) {
        return now;
    }
    interface.reading().unwrap_or_else(|_| {
        end();
        after_end(*from).unwrap_or_else(|| interface.now())
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
    let Some((interface, from)) = INSTALLED.get() else {
        return;
    };
    let over = || after_end(*from).is_some() || conduit::is_child_of_rank();
    if !over() && interface.compute(nanos).is_err() && !over() {
        state::fatal(
            "gasnett_compute_ns: the simulation has ended, or a handler of a signal interrupted a call",
        );
    }
}
