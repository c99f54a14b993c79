//! Wait objects: how a program sleeps until a queue or a counter has something for it.
//!
//! ```text
//!   producer:  entry ──► queue;  awaited? ──no──► nothing else
//!                                └─yes──► descriptor readable, sleepers woken
//!   sleeper:   awaited := true;  queue empty? ──yes──► sleep
//! ```
//!
//! The producer has a `SeqCst` fence between the two, and what the sleeper does is `SeqCst`: so the producer sees the sleeper, or the
//! sleeper sees the entry. An object that nobody may sleep on costs its producer neither.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Why a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is something.
    Ready,
    /// Somebody has ended it ([`WaitObject::signal`]).
    Signaled,
    /// The time has come.
    TimedOut,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that sleep, or are about to.
    sleepers: u32,
    /// The descriptor is to become readable with the next entry.
    armed: bool,
    /// The descriptor is readable.
    rung: bool,
    /// Signals so far, and how many of them somebody has seen.
    signals: u64,
    told: u64,
}

/// What a program sleeps on. Any thread may call every method.
#[derive(Debug, Default)]
pub struct WaitObject {
    /// Somebody sleeps, or has armed the descriptor; read without the lock.
    awaited: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    descriptor: Option<OwnedFd>,
    /// Nobody may sleep on it.
    sleepless: bool,
}

impl WaitObject {
    /// One with a descriptor for `poll` (`FI_WAIT_FD`).
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn with_descriptor() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self {
            descriptor: Some(eventfd(0, flags)?),
            ..Self::default()
        })
    }

    /// One that nobody may sleep on (`FI_WAIT_NONE`): who does is not woken.
    pub fn sleepless() -> Self {
        Self {
            sleepless: true,
            ..Self::default()
        }
    }

    /// What becomes readable after [`WaitObject::arm`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits for an entry.
    pub fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::SeqCst)
    }

    fn set_awaited(&self, state: &State) {
        let awaited = state.armed || state.sleepers > 0;
        self.awaited.store(awaited, Ordering::SeqCst);
    }

    /// There is something new, which was stored before this call and is seen by a `SeqCst` load.
    #[inline]
    pub fn notify(&self) {
        if self.sleepless {
            return;
        }
        fence(Ordering::SeqCst);
        if self.is_awaited() {
            self.wake(0);
        }
    }

    /// Ends the sleeps of all threads, and makes the descriptor readable. Without a sleeper the next sleep ends at once.
    pub fn signal(&self) {
        self.wake(1);
    }

    #[cold]
    fn wake(&self, signals: u64) {
        let mut state = self.state();
        state.signals += signals;
        if state.armed || signals > 0 {
            state.armed = false;
            self.ring(&mut state);
        }
        self.set_awaited(&state);
        self.changed.notify_all();
    }

    fn ring(&self, state: &mut State) {
        if let Some(fd) = self.descriptor.as_ref().filter(|_| !state.rung) {
            // It counts one at most, so it has room.
            state.rung = rustix::io::write(fd, &1u64.to_ne_bytes()).is_ok();
        }
    }

    /// From now on the next entry makes the descriptor readable. `false`: do not sleep, as there is something to read, or as
    /// somebody has signaled, which is told once.
    pub fn arm(&self, ready: impl Fn() -> bool) -> bool {
        let mut state = self.state();
        // With an entry there nothing changes: a signal is told later, and no system call is made.
        if ready() {
            return false;
        }
        if state.signals > state.told {
            state.told = state.signals;
            return false;
        }
        if std::mem::take(&mut state.rung)
            && let Some(fd) = &self.descriptor
        {
            // Somebody else may have read it already.
            let _ = rustix::io::read(fd, &mut [0; 8]);
        }
        state.armed = true;
        self.set_awaited(&state);
        if ready() {
            // It came meanwhile: whoever brings it may have seen nobody who waits.
            state.armed = false;
            self.ring(&mut state);
            self.set_awaited(&state);
            return false;
        }
        true
    }

    /// Whether somebody has signaled, of which this is told once. For who waits without a sleep.
    pub fn take_signal(&self) -> bool {
        let mut state = self.state();
        let signals = state.signals;
        std::mem::replace(&mut state.told, signals) != signals
    }

    /// The calling thread is about to sleep: from now on entries wake it.
    pub fn enter(&self) -> Sleeper<'_> {
        let mut state = self.state();
        state.sleepers += 1;
        self.set_awaited(&state);
        Sleeper {
            object: self,
            told: state.told,
        }
    }
}

/// A thread that sleeps, or is about to.
#[derive(Debug)]
pub struct Sleeper<'a> {
    object: &'a WaitObject,
    told: u64,
}

impl Sleeper<'_> {
    /// Sleeps until `ready` says that there is something, which is asked after each entry.
    pub fn sleep(self, until: Option<Instant>, ready: impl Fn() -> bool) -> Woken {
        let mut state = self.object.state();
        loop {
            if ready() {
                return Woken::Ready;
            }
            if state.signals > self.told {
                state.told = state.signals;
                return Woken::Signaled;
            }
            let changed = &self.object.changed;
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return Woken::TimedOut,
                Some(left) => {
                    let waited = changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut state = self.object.state();
        state.sleepers -= 1;
        self.object.set_awaited(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    fn is_readable(object: &WaitObject) -> bool {
        let fd = object.descriptor().unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn the_descriptor_is_readable_once_for_each_arming() {
        let object = WaitObject::with_descriptor().unwrap();
        object.notify();
        assert!(!is_readable(&object), "nobody has armed it");
        assert!(!object.is_awaited());
        assert!(!object.arm(|| true));
        assert!(!object.is_awaited() && !is_readable(&object));
        assert!(object.arm(|| false));
        assert!(object.is_awaited() && !is_readable(&object));
        object.notify();
        assert!(is_readable(&object) && !object.is_awaited());
        // What is there stays told until somebody finds nothing.
        assert!(!object.arm(|| true));
        assert!(is_readable(&object));
        assert!(object.arm(|| false));
        assert!(!is_readable(&object));
    }

    #[test]
    fn what_comes_while_it_is_armed_is_not_slept_over() {
        let object = WaitObject::with_descriptor().unwrap();
        let looks = AtomicU64::new(0);
        assert!(!object.arm(|| looks.fetch_add(1, Ordering::SeqCst) > 0));
        assert!(is_readable(&object));
    }

    #[test]
    fn a_signal_ends_the_next_sleep_and_no_other() {
        let object = WaitObject::with_descriptor().unwrap();
        object.signal();
        assert!(is_readable(&object));
        let now = Some(Instant::now());
        assert_eq!(object.enter().sleep(None, || false), Woken::Signaled);
        assert_eq!(object.enter().sleep(now, || false), Woken::TimedOut);
        object.signal();
        assert!(object.take_signal() && !object.take_signal());
        object.signal();
        assert!(!object.arm(|| true), "an entry is there");
        assert!(!object.arm(|| false), "the signal is still news");
        assert!(object.arm(|| false));
        assert!(!is_readable(&object));
    }

    #[test]
    fn a_signal_wakes_every_sleeper() {
        let object = WaitObject::default();
        let asleep = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let sleepers = [(); 3].map(|()| {
                scope.spawn(|| {
                    let sleeper = object.enter();
                    asleep.fetch_add(1, Ordering::SeqCst);
                    sleeper.sleep(None, || false)
                })
            });
            while asleep.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            object.signal();
            for sleeper in sleepers {
                assert_eq!(sleeper.join().unwrap(), Woken::Signaled);
            }
        });
        assert!(!object.is_awaited());
    }

    /// Two threads take turns; each sleeps until the other has made its step.
    #[test]
    fn no_wake_up_is_lost() {
        const ROUNDS: u64 = 20_000;
        let (count, objects) = (AtomicU64::new(0), [(); 2].map(|()| WaitObject::default()));
        let turn = |me: u64| {
            for round in 0..ROUNDS {
                let due = 2 * round + me;
                let ready = || count.load(Ordering::SeqCst) >= due;
                let until = Some(Instant::now() + Duration::from_secs(60));
                let object = &objects[me as usize];
                assert_eq!(object.enter().sleep(until, ready), Woken::Ready, "{round}");
                count.fetch_add(1, Ordering::SeqCst);
                objects[1 - me as usize].notify();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| turn(0));
            scope.spawn(|| turn(1));
        });
        assert_eq!(count.load(Ordering::SeqCst), 2 * ROUNDS);
    }
}
