//! The interfaces of this process whose time is virtual, and what its threads read of it.
//!
//! A thread that has made a call of such an interface reads virtual time. Others, such as a launcher's, read the host's clock: when
//! they read is not the same in two runs, and a loop of theirs would take the rank's time.

use crate::bypass;
use crate::timeline::Timeline;
use host::fork::Own;
use portals_shim::{Caller, ClockKind, Interface};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Instant;

/// What a thread is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The host's clock is its clock.
    Host,
    /// Nanoseconds.
    Virtual(u64),
}

/// What this process has open, and its time. A forked child has none open.
#[derive(Debug)]
struct Process {
    open: Vec<Interface>,
    timeline: Timeline,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            timeline: Timeline::from(LAST.load(Ordering::Relaxed), host()),
        }
    }
}

static PROCESS: Own<Mutex<Process>> = Own::unset();

/// What was read last. A signal handler that has interrupted its own thread here reads it, and a forked child begins with it.
static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread has read virtual time, and goes on reading it when the interfaces have closed.
    static HAS_READ: Cell<bool> = const { Cell::new(false) };
}

/// Attempts at the lock, before a thread concludes that it holds the lock itself: its code here is a signal handler that has interrupted it.
const TRIES: u32 = 10_000;

/// Runs `f` with the lock, under which nobody waits for anything. `None`: a signal handler runs this that has interrupted the lock's holder.
fn with<R>(f: impl FnOnce(&mut Process) -> R) -> Option<R> {
    for _ in 0..TRIES {
        match PROCESS.get().try_lock() {
            Ok(mut process) => return Some(f(&mut process)),
            Err(TryLockError::Poisoned(poisoned)) => return Some(f(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// Nanoseconds of the host's clock since the first reading.
fn host() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let elapsed = FIRST.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// An interface has opened. Any thread may call this.
pub fn opened(interface: &Interface) {
    if interface.clock() == ClockKind::Virtual
        && with(|process| process.open.push(interface.clone())).is_some()
    {
        bypass::offer();
    }
}

/// An interface closes. Any thread may call this.
pub fn closed(interface: &Interface) {
    if interface.clock() == ClockKind::Virtual {
        let id = interface.id();
        with(|process| process.open.retain(|open| open.id() != id));
    }
}

/// The interface of which the calling thread reads the time; an error is what it reads without one.
fn mine() -> Result<Interface, Reading> {
    let found = with(|process| {
        // The one that a call has returned from last stands for the process.
        let latest = process.open.iter().max_by_key(|open| open.now());
        match latest {
            Some(interface) if interface.caller() == Caller::Stranger => Err(Reading::Host),
            Some(interface) => Ok(interface.clone()),
            None if HAS_READ.get() => Err(said(process.timeline.host_at(host()))),
            None => Err(Reading::Host),
        }
    });
    found.unwrap_or_else(|| Err(Reading::Virtual(LAST.load(Ordering::Relaxed))))
}

fn said(time: u64) -> Reading {
    Reading::Virtual(LAST.fetch_max(time, Ordering::Relaxed).max(time))
}

/// What the calling thread reads.
pub(crate) fn read() -> Reading {
    let interface = match mine() {
        Ok(interface) => interface,
        Err(reading) => return reading,
    };
    HAS_READ.set(true);
    // Without the lock: it may be a call. Where the simulation has ended nothing advances the clock any more.
    let now = interface.reading();
    let time = with(|process| match now {
        Ok(now) => process.timeline.virtual_at(now, host()),
        Err(_) => process.timeline.host_at(host()),
    });
    said(time.unwrap_or(0))
}

/// The calling thread sleeps for so long in virtual time; `false`: it is to sleep by the host's clock.
pub(crate) fn sleep(nanos: u64) -> bool {
    mine().is_ok_and(|interface| interface.compute(nanos).is_ok())
}
