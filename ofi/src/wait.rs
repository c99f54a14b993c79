// UNSAFETY: entries get objects and room for results of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and room for results by pointers"
)]
//! How programs sleep: wait objects of queues and counters, `fi_trywait`, `FI_GETWAIT`.
//!
//! A program has armed a wait object (`fi_trywait`), or sleeps in a call of this provider. Each endpoint that can end the sleep
//! then has a thread: the engine's `endpoint/watch.rs`.
//!
//! On the model time passes only by the program's own calls, so no thread can do that. A sleep there is made of the caller's
//! own looks.

use crate::abi::{control, errno, wait};
use crate::cntr::{CompletionCounter, Counting};
use crate::cq::CompletionQueue;
use crate::domain::Shared;
use crate::eq::EventQueue;
use crate::fabric::Fabric;
use crate::object::{Object, object, object_if};
use crate::progress::{LOOK, OTHERS, SLICE, Users};
use crate::ptr::{Out, Outcome, entry_int, read};
use ofi_engine::wait::{WaitObject, Woken};
use portals_shim::fabric::FabricKind;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How a program may wait for a queue or a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// It may not; it reads.
    Never,
    /// By calls of this provider; a thread makes progress meanwhile.
    Asleep,
    /// By calls of this provider, which make the progress.
    Looking,
}

impl Waits {
    /// What a program asks for, of a queue of this domain, and the wait object for that.
    pub(crate) fn new(wait_obj: c_int, domain: &Shared) -> Outcome<(Self, WaitObject)> {
        let modelled = domain.config.kind() == FabricKind::Seastar;
        match (wait_obj, modelled) {
            (wait::NONE, _) => Ok((Self::Never, WaitObject::sleepless())),
            (wait::UNSPEC | wait::YIELD, true) => Ok((Self::Looking, WaitObject::default())),
            (wait::FD, true) => {
                tracing::warn!(
                    "FI_WAIT_FD is refused: on the model time passes by the program's calls alone"
                );
                Err(errno::NOSYS)
            }
            _ => Ok((Self::Asleep, object_for(wait_obj)?)),
        }
    }

    /// Sleeps until there is something, and at most until then; makes some looks before. A signal ends it too. It may end early
    /// with [`Woken::TimedOut`].
    pub(crate) fn sleep(
        self,
        users: &Users,
        object: &WaitObject,
        until: Option<Instant>,
        ready: impl Fn() -> bool,
    ) -> Woken {
        users.progress(if self == Self::Asleep { LOOK } else { SLICE });
        if ready() {
            return Woken::Ready;
        }
        let others = users.serve_others();
        // The caller's own looks.
        let look = || match object.take_signal() {
            true => Woken::Signaled,
            false => Woken::TimedOut,
        };
        if self != Self::Asleep {
            return look();
        }
        let sleeper = object.enter();
        if let Err(error) = users.watch() {
            tracing::warn!(%error, "no thread for a wait object");
            return look();
        }
        let slice = others.then(|| Instant::now() + OTHERS);
        sleeper.sleep([until, slice].into_iter().flatten().min(), ready)
    }
}

/// A wait object without progress of its own.
pub(crate) fn object_for(wait_obj: c_int) -> Outcome<WaitObject> {
    match wait_obj {
        wait::NONE | wait::UNSPEC | wait::YIELD => Ok(WaitObject::default()),
        wait::FD => WaitObject::with_descriptor().map_err(|error| {
            tracing::warn!(%error, "FI_WAIT_FD");
            errno::NOMEM
        }),
        // Wait sets, and a mutex with a condition variable.
        _ => Err(errno::NOSYS),
    }
}

/// When a wait of so many milliseconds ends; negative ones last.
pub(crate) fn deadline(timeout: c_int) -> Option<Instant> {
    let timeout = u64::try_from(timeout).ok()?;
    Some(Instant::now() + Duration::from_millis(timeout))
}

/// An object that a program may sleep on.
pub(crate) trait Waited: Object {
    /// What it sleeps on.
    fn wait_object(&self) -> &WaitObject;
}

/// `fi_control` of an object that only has a wait object.
pub(crate) unsafe extern "C" fn do_control<T: Waited>(
    fid: *mut c_void,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the object.
        let object = unsafe { object::<T>(fid) }?;
        if command != control::GET_WAIT {
            return Err(errno::NOSYS);
        }
        let descriptor = object.wait_object().descriptor().ok_or(errno::NOSYS)?;
        // SAFETY: the caller wants the descriptor there.
        unsafe { Out::new(arg.cast::<c_int>()) }?.set(descriptor.as_raw_fd());
        Ok(0)
    })
}

/// Whether the program may sleep on this object's descriptor.
///
/// # Safety
/// `fid` is null or an object that the caller was given.
unsafe fn arm(fid: *mut c_void) -> Outcome<bool> {
    let sleeps = |object: &WaitObject| object.descriptor().map(drop).ok_or(errno::INVAL);
    // Whoever does not sleep needs no thread.
    let served = |armed: bool, users: &Users| {
        let served = if armed { users.watch() } else { Ok(()) };
        served.map(|()| armed).map_err(|error| {
            tracing::warn!(%error, "no thread for a wait object");
            errno::NOMEM
        })
    };
    // SAFETY: the condition above.
    if let Some(cq) = unsafe { object_if::<CompletionQueue>(fid) }? {
        sleeps(cq.queue.wait_object())?;
        if cq.queue.is_empty() {
            cq.users.progress(Duration::ZERO);
        }
        return served(cq.queue.arm(), &cq.users);
    }
    // SAFETY: the condition above.
    if let Some(cntr) = unsafe { object_if::<CompletionCounter>(fid) }? {
        let Counting { counter, users } = &cntr.counting;
        sleeps(counter.wait_object())?;
        users.progress(Duration::ZERO);
        return served(counter.arm(), users);
    }
    // SAFETY: the condition above.
    let eq = unsafe { object::<EventQueue>(fid) }?;
    sleeps(eq.events.wait_object())?;
    Ok(eq.events.arm())
}

/// `fi_trywait`
pub(crate) unsafe extern "C" fn trywait(
    fabric: *mut c_void,
    fids: *mut *mut c_void,
    count: c_int,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the fabric.
        unsafe { object::<Fabric>(fabric) }?;
        let count = usize::try_from(count).map_err(|_| errno::INVAL)?;
        for index in 0..count {
            // SAFETY: the caller gives so many objects.
            let fid = unsafe { read(fids.wrapping_add(index)) }.ok_or(errno::INVAL)?;
            // SAFETY: the caller was given the object.
            if !unsafe { arm(fid) }? {
                return Err(errno::AGAIN);
            }
        }
        Ok(0)
    })
}
