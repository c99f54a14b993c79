//! The thread that makes progress while a program sleeps on a wait object, or always for a program that wants automatic progress.
//!
//! Only an endpoint whose program sleeps, or wants that, has one. It waits in Portals with the endpoint's lock, and gives the lock to every
//! call that wants it:
//!
//! ```text
//!   a call:      lock taken? ──► wanted + 1 ──► a call of Portals, which ends waits ──► lock ──► wanted - 1
//!   the thread:  waits := true ──► wait in Portals, which asks for `wanted` before it sleeps
//!                yields := true ──► sleep until `wanted` is 0, which the last call tells
//! ```
//!
//! `SeqCst` orders `wanted` and `waits`: the call sees that the thread waits, or the thread sees that the call wants the lock. It
//! orders `wanted` and `yields` likewise.

use super::Endpoint;
use crate::core::Core;
use crate::wait::WaitObject;
use host::own_thread::spawn_own_thread;
use portals_shim::{ClockKind, PollError, Wait};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest wait of the thread in one call of Portals, nanoseconds: one hour.
const LONGEST: u64 = 3_600_000_000_000;
/// How long the thread pauses where Portals refuses to wait.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Calls that want the lock while the thread has it.
    pub(super) wanted: AtomicU32,
    /// The thread waits with the lock.
    waits: AtomicBool,
    /// The thread waits until no call wants the lock.
    pub(super) yields: AtomicBool,
    ended: AtomicBool,
    /// Progress is automatic.
    always: AtomicBool,
    /// What this endpoint's completions may be awaited by.
    objects: Mutex<Vec<Weak<WaitObject>>>,
    duty: Mutex<Duty>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Duty {
    /// Somebody is about to sleep.
    on: bool,
    /// The thread, and the process that has it: a forked child does not.
    thread: Option<(JoinHandle<()>, usize)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    fn is_awaited(&self) -> bool {
        if self.always.load(Ordering::SeqCst) {
            return true;
        }
        let objects = lock(&self.objects);
        let mut there = objects.iter().filter_map(Weak::upgrade);
        there.any(|object| object.is_awaited())
    }
}

impl Endpoint {
    /// The lock, if nobody has it.
    pub(super) fn try_core(&self) -> Option<MutexGuard<'_, Core>> {
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The lock; a thread that waits with it gives it away.
    #[cold]
    pub(super) fn core_of_another(&self) -> MutexGuard<'_, Core> {
        let watch = &self.watch;
        watch.wanted.fetch_add(1, Ordering::SeqCst);
        if watch.waits.load(Ordering::SeqCst) {
            // Whatever it says, it ends the wait.
            let _ = self.portals.interface().status();
        }
        let core = lock(&self.core);
        let last = watch.wanted.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && watch.yields.load(Ordering::SeqCst) {
            // The thread has `duty` from its look at `wanted` until it sleeps, so it is told after that.
            drop(lock(&watch.duty));
            watch.called.notify_one();
        }
        core
    }

    /// Whether the thread makes progress now.
    pub(super) fn is_watched(&self) -> bool {
        self.watch.waits.load(Ordering::SeqCst)
    }

    /// Completions of this endpoint may be awaited by a wait object, from now on and if somebody does so already.
    pub fn serve(self: &Arc<Self>, object: &Arc<WaitObject>) {
        let mut objects = lock(&self.watch.objects);
        objects.retain(|one| one.strong_count() > 0);
        if !objects
            .iter()
            .any(|one| one.as_ptr() == Arc::as_ptr(object))
        {
            objects.push(Arc::downgrade(object));
        }
        drop(objects);
        if object.is_awaited()
            && let Err(error) = self.watch()
        {
            tracing::warn!(%error, "no thread for a wait object");
        }
    }

    /// Makes progress from now on, as long as a wait object is awaited that this endpoint serves. A closed endpoint makes none.
    ///
    /// # Errors
    /// The system has no thread left; on the model time passes by the program's calls alone, and no thread can wait for them.
    pub fn watch(self: &Arc<Self>) -> io::Result<()> {
        if self.portals.interface().clock() == ClockKind::Virtual {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut duty = lock(&self.watch.duty);
        if self.watch.ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        if duty.thread.is_none() {
            let endpoint = Arc::clone(self);
            let thread = spawn_own_thread("portals-wait", move || endpoint.attend())?;
            duty.thread = Some((thread, host::fork::generation()));
        }
        duty.on = true;
        self.watch.called.notify_one();
        Ok(())
    }

    /// Makes progress from now on until the endpoint closes, whatever its program does (`FI_PROGRESS_AUTO`).
    ///
    /// # Errors
    /// Those of [`Endpoint::watch`].
    pub fn watch_always(self: &Arc<Self>) -> io::Result<()> {
        self.watch.always.store(true, Ordering::SeqCst);
        let watched = self.watch();
        if watched.is_err() {
            self.watch.always.store(false, Ordering::SeqCst);
        }
        watched
    }

    /// The thread's life.
    fn attend(&self) {
        let watch = &self.watch;
        let ended = || watch.ended.load(Ordering::SeqCst);
        loop {
            let mut duty = lock(&watch.duty);
            while !duty.on && !ended() {
                let waited = watch.called.wait(duty);
                duty = waited.unwrap_or_else(PoisonError::into_inner);
            }
            duty.on = false;
            drop(duty);
            while !ended() && watch.is_awaited() {
                self.let_others_first();
                if let Err(error) = self.wait_for_completions() {
                    tracing::debug!(?error, "a wait for completions");
                    let duty = lock(&watch.duty);
                    let _ = watch.called.wait_timeout_while(duty, PAUSE, |_| !ended());
                }
            }
            if ended() {
                return;
            }
        }
    }

    /// Sleeps while calls want the lock: a lock is not fair, so the thread could take it from them.
    pub(super) fn let_others_first(&self) {
        let watch = &self.watch;
        let wanted = |_: &mut Duty| {
            watch.wanted.load(Ordering::SeqCst) > 0 && !watch.ended.load(Ordering::SeqCst)
        };
        let duty = lock(&watch.duty);
        watch.yields.store(true, Ordering::SeqCst);
        drop(watch.called.wait_while(duty, wanted));
        watch.yields.store(false, Ordering::SeqCst);
    }

    /// Waits in Portals with the lock, until something has happened or a call wants the lock.
    pub(super) fn wait_for_completions(&self) -> Result<(), PollError> {
        let watch = &self.watch;
        let mut core = lock(&self.core);
        watch.waits.store(true, Ordering::SeqCst);
        let other =
            || watch.wanted.load(Ordering::SeqCst) > 0 || watch.ended.load(Ordering::SeqCst);
        let (_, ended) = core.progress_or(Wait::Nanos(LONGEST), Some(&other));
        watch.waits.store(false, Ordering::SeqCst);
        ended
    }

    /// Ends the thread, if there is one. `false` in a forked child, where the thread may have left the lock taken for ever.
    pub(super) fn end_watch(&self) -> bool {
        self.watch.ended.store(true, Ordering::SeqCst);
        let thread = {
            let mut duty = lock(&self.watch.duty);
            self.watch.called.notify_one();
            duty.thread.take()
        };
        let Some((thread, process)) = thread else {
            return true;
        };
        if process != host::fork::generation() {
            return false;
        }
        // It may wait with the lock.
        drop(self.core_of_another());
        if thread.join().is_err() {
            tracing::error!("the thread for wait objects panicked");
        }
        true
    }
}
