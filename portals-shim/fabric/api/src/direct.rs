//! The library in the caller's process, under one lock, and how callers wait for it.
//!
//! ```text
//!   a wait:  poll ─nothing─► spin ─64 polls─► yield ─SPIN─► arm, poll once more ─► sleep
//!                                                            the fabric's alarm, or a call of another
//!                                                            thread that had an effect, ends the sleep
//!   nap:  on a fabric whose peers wake through memory, the sleep is its own (a futex), and there is no attendant
//!   attendant: sleeps on the fabric's bell (connections, events of the device); on the alarm too while
//!              the rank waits outside the fabric, while the fabric says that it is busy, or always with
//!              `PORTOLAN_PROGRESS=thread`
//! ```
//!
//! # Invariants
//!
//! * A thread is on the list of sleepers before its last poll, and whoever changes the library's state looks at the
//!   list after releasing the lock; so a change is seen by that poll, or wakes the sleeper.
//! * Completions that come after the arming ring the alarm; those before it are found by the last poll.

mod bridge;
mod sleepers;
#[cfg(test)]
mod tests;

use crate::call::{Place, PollError, Polled, Taken, Wait};
use crate::library::Library;
use crate::nal::{Attendance, Nal, Nap, Schedule, Waiter};
use host::own_thread::spawn_own_thread;
use portals_core::{EqHandle, Error};
use sleepers::{Sleepers, lock, sleep};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Fruitless polls before each further one offers the core to others first: to a peer, or to the
/// kernel threads that move the data of a software device. Programs that spin on a non-blocking
/// poll need this as much as blocking ones. Where every rank has a core ([`Schedule::looks`]) there are more of them, since
/// the offer, a system call, delays the answer that is about to come.
const SPINS: u32 = 64;
/// Looks of a wait of which one is a poll, and the others look where an answer is likely ([`Look::Likely`](crate::nal::Look)).
const POLL_EVERY: u32 = 4;
/// How long a wait polls before it sleeps, unless `PORTOLAN_SPIN` says (in microseconds). Waking costs some 10 µs:
/// a peer that answers at once should find this side awake.
const SPIN: Duration = Duration::from_micros(200);
/// With a progress thread: how long the program must have made no call before the thread makes progress for it.
const QUIET: Duration = Duration::from_millis(1);

/// How long a wait sleeps on a fabric that cannot wake it.
const BLIND: Duration = Duration::from_millis(10);

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Of a program that waits for events alone.
fn nothing_else() -> bool {
    false
}

/// What a poll found.
#[derive(Clone, Copy, Debug)]
struct Found {
    taken: Taken,
    /// Something arrived or was completed, though perhaps without an event; more of it may be about to come.
    moved: bool,
}

impl Found {
    const NOTHING: Self = Self {
        taken: Taken::Nothing,
        moved: false,
    };

    /// Whether the wait is over.
    fn ends(self) -> bool {
        self.taken != Taken::Nothing
    }
}

#[derive(Debug)]
struct Shared<N> {
    library: Mutex<Library<N>>,
    opened: Instant,
    /// Polls in a row that found nothing.
    fruitless: AtomicU32,
    sleepers: Sleepers,
    waiter: Waiter,
    /// See [`Schedule::looks`].
    looks: AtomicU32,
    /// How long a wait polls before it sleeps, nanoseconds.
    spin: AtomicU64,
    /// That is the user's choice.
    chosen: bool,
    /// The attendant waits for the lock, which a polling program would hardly let it have.
    wanted: AtomicBool,
    /// Calls made, counted only for the progress thread.
    calls: AtomicU64,
    /// Threads that wait outside the fabric.
    outside: AtomicU32,
    ended: AtomicBool,
}

/// The library and the threads that use it.
#[derive(Debug)]
pub struct Direct<N> {
    shared: Arc<Shared<N>>,
    attendant: Mutex<Option<JoinHandle<()>>>,
    /// A forked child has this value and not the thread.
    process: usize,
}

/// Why a fabric has nobody to answer who connects to it.
#[derive(Debug, thiserror::Error)]
#[error(
    "no thread for connections can be started: {0}; the limit of processes (ulimit -u) or that of a container (pids.max) may be reached"
)]
pub struct NoThread(#[from] std::io::Error);

impl<N: Nal + 'static> Direct<N> {
    /// Takes the library, and starts the thread that its fabric needs, if it has descriptors.
    ///
    /// # Errors
    /// The system has no thread for it. Peers that connect would wait for ever.
    pub fn attended(library: Library<N>) -> Result<Self, NoThread> {
        let mut direct = Self::unattended(library);
        if direct.shared.attendance().is_some() {
            let shared = Arc::clone(&direct.shared);
            let thread = spawn_own_thread("portals", move || shared.attend())?;
            direct.attendant = Mutex::new(Some(thread));
        }
        Ok(direct)
    }

    /// Takes the library of a fabric without descriptors, which needs no thread.
    pub fn unattended(library: Library<N>) -> Self {
        let waiter = library.nal.waiter();
        let Schedule { looks, spin, .. } = library.nal.schedule();
        let usual = spin.unwrap_or(SPIN);
        let spin = std::env::var("PORTOLAN_SPIN").ok();
        let spin = spin.and_then(|s| s.trim().parse().ok());
        let shared = Arc::new(Shared {
            library: Mutex::new(library),
            opened: Instant::now(),
            fruitless: AtomicU32::new(0),
            sleepers: Sleepers::default(),
            waiter,
            looks: AtomicU32::new(looks.max(1)),
            spin: AtomicU64::new(nanos(spin.map_or(usual, Duration::from_micros))),
            chosen: spin.is_some(),
            wanted: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            outside: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        });
        Self {
            shared,
            attendant: Mutex::new(None),
            process: host::fork::generation(),
        }
    }
}

impl<N> Direct<N> {
    /// Ends the attendant; the library stays.
    fn dismiss(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        if let Some(attendance) = self.shared.attendance() {
            attendance.bell.ring();
        }
        let thread = lock(&self.attendant).take();
        if let Some(thread) = thread.filter(|_| host::fork::generation() == self.process)
            && thread.join().is_err()
        {
            tracing::error!("the thread for connections panicked");
        }
    }
}

impl<N> Drop for Direct<N> {
    fn drop(&mut self) {
        self.dismiss();
    }
}

impl<N> Shared<N> {
    /// The descriptors that threads sleep on.
    #[inline]
    fn attendance(&self) -> Option<&Attendance> {
        match &self.waiter {
            Waiter::Descriptors(attendance) => Some(attendance),
            Waiter::Poll | Waiter::Memory(_) => None,
        }
    }
}

impl<N: Nal> Shared<N> {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Library<N>> {
        lock(&self.library)
    }

    /// After `polls` polls that found nothing; whether there have been so many that the core was offered to others.
    fn rest(&self, polls: u32) -> bool {
        // Threads that poll at once may lose some of the count, which is no exact one.
        let fruitless = self.fruitless.load(Ordering::Relaxed).saturating_add(polls);
        self.fruitless.store(fruitless, Ordering::Relaxed);
        let long = fruitless > SPINS * self.looks.load(Ordering::Relaxed);
        if long {
            std::thread::yield_now();
        }
        if self.wanted.load(Ordering::Relaxed) {
            self.give_way();
        }
        long
    }

    /// Lets the attendant have the lock.
    #[cold]
    fn give_way(&self) {
        let mut patience = 1000;
        while self.wanted.load(Ordering::Relaxed) && patience > 0 {
            std::thread::yield_now();
            patience -= 1;
        }
    }

    /// A look into one queue; [`Shared::wait`] for programs that poll. Written so that the event is made where the
    /// caller wants it.
    fn look(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        let mut library = self.lock();
        let mut looks = 0;
        let found = loop {
            match library.ni.eq_next(eq) {
                Ok(None) => {}
                Ok(Some((event, dropped))) => {
                    break Ok(Some(Polled {
                        event: *event,
                        dropped,
                        which: 0,
                    }));
                }
                Err(error) => break Err(error),
            }
            looks += 1;
            if looks > 1 || !library.progress() {
                break Ok(None);
            }
        };
        if matches!(found, Ok(Some(_))) {
            library.progress_if_due();
        }
        let moved = library.take_moved();
        drop(library);
        if moved {
            self.wake();
        }
        self.note(matches!(found, Ok(None)) && !moved);
        found
    }

    /// Wakes threads of this process that sleep.
    #[inline]
    fn wake(&self) {
        if self.sleepers.any() {
            self.wake_sleepers();
        }
    }

    #[cold]
    fn wake_sleepers(&self) {
        match &self.waiter {
            Waiter::Memory(nap) => nap.wake(),
            Waiter::Descriptors(_) | Waiter::Poll => self.sleepers.ring(),
        }
    }

    /// A poll, or as many as `looks` while nothing happens, here and elsewhere; wakes others if it changed anything.
    #[inline(always)]
    fn poll<F: Fn() -> bool + ?Sized>(
        &self,
        eqs: &[EqHandle],
        looks: u32,
        other: &F,
        out: &mut impl Place,
    ) -> Result<Found, PollError> {
        let mut library = self.lock();
        let mut found = library.poll(eqs, out);
        let mut moved = library.take_moved();
        // Without progress the queues stay as they are, and a pause would cost more than a look.
        if !moved && matches!(found, Ok(Taken::Nothing)) {
            for look in 1..looks {
                if other() {
                    break;
                }
                let any = if look % POLL_EVERY == 0 {
                    library.progress()
                } else {
                    library.progress_likely()
                };
                if any {
                    found = library.look(eqs, out);
                    moved = library.take_moved();
                    break;
                }
            }
        }
        drop(library);
        if moved {
            self.wake();
        }
        found.map(|taken| Found { taken, moved })
    }

    /// Sleeps ([`Shared::doze`]) on a fabric whose peers wake through memory.
    fn nap(
        &self,
        nap: &dyn Nap,
        eqs: &[EqHandle],
        until: Option<Instant>,
        other: &dyn Fn() -> bool,
        out: &mut impl Place,
    ) -> Result<Found, PollError> {
        self.sleepers.napper(1);
        let mut library = self.lock();
        library.nal.arm();
        let taken = library.poll(eqs, out);
        let moved = library.take_moved();
        drop(library);
        if moved {
            nap.wake();
        } else if matches!(taken, Ok(Taken::Nothing)) && !other() {
            nap.sleep(until);
        }
        self.sleepers.napper(-1);
        taken.map(|taken| Found { taken, moved })
    }

    /// Arms, polls once more, and sleeps if that found nothing.
    fn doze(
        &self,
        eqs: &[EqHandle],
        until: Option<Instant>,
        other: &dyn Fn() -> bool,
        out: &mut impl Place,
    ) -> Result<Found, PollError> {
        if let Waiter::Memory(nap) = &self.waiter {
            return self.nap(nap.as_ref(), eqs, until, other, out);
        }
        let Some((attendance, bell)) = self
            .attendance()
            .and_then(|a| Some((a, self.sleepers.enter()?)))
        else {
            std::thread::yield_now();
            return Ok(Found::NOTHING);
        };
        let mut library = self.lock();
        let armed = library.nal.arm();
        let taken = library.poll(eqs, out);
        let moved = library.take_moved();
        drop(library);
        if moved {
            self.wake();
        }
        if !moved && matches!(taken, Ok(Taken::Nothing)) && !other() {
            // A fabric that cannot ring, because it is gone, is looked at from time to time.
            let longest = if armed.rings {
                [attendance.longest, armed.longest]
                    .into_iter()
                    .flatten()
                    .min()
            } else {
                Some(BLIND)
            };
            let look = longest.map(|longest| Instant::now() + longest);
            let until = [until, look].into_iter().flatten().min();
            let alarm = attendance.alarm.iter().filter(|_| armed.rings);
            sleep(alarm.chain([bell.descriptor()]), until);
        }
        self.sleepers.leave(bell);
        taken.map(|taken| Found { taken, moved })
    }

    /// Takes the first event of the queues, if it is there or comes within the wait; whether there was one.
    #[inline]
    fn wait(&self, eqs: &[EqHandle], wait: Wait, out: &mut impl Place) -> Result<bool, PollError> {
        if wait != Wait::No {
            let taken = self.wait_long(eqs, wait, &nothing_else, out);
            return taken.map(|taken| taken != Taken::Nothing);
        }
        let found = self.poll(eqs, 1, &nothing_else, out);
        self.note(found.is_ok_and(|found| found.taken == Taken::Nothing && !found.moved));
        found.map(|found| found.taken != Taken::Nothing)
    }

    /// Takes an event by `find`, and says whether there is more.
    #[inline]
    fn take<P: Place>(
        &self,
        eqs: &[EqHandle],
        out: &mut P,
        find: impl FnOnce(&mut Library<N>, &[EqHandle], &mut P) -> Result<Taken, PollError>,
    ) -> Result<Taken, PollError> {
        let mut library = self.lock();
        let taken = find(&mut library, eqs, out);
        let moved = library.take_moved();
        drop(library);
        if moved {
            self.wake();
        }
        self.note(matches!(taken, Ok(Taken::Nothing)) && !moved);
        taken
    }

    /// Whether a poll was fruitless says whether this program rests. Where something moved without an event here, more of it
    /// may be about to come.
    #[inline]
    fn note(&self, fruitless: bool) {
        if fruitless {
            self.rest(1);
        } else {
            self.fruitless.store(0, Ordering::Relaxed);
        }
    }

    /// Waits ([`Shared::wait_here`]) in a call of its own, so that polls that do not wait need none of its places.
    #[inline(never)]
    fn wait_long<F: Fn() -> bool + ?Sized>(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        other: &F,
        out: &mut impl Place,
    ) -> Result<Taken, PollError> {
        self.wait_here(eqs, wait, other, out)
    }

    /// Looks of one poll of a wait.
    #[inline]
    fn looks_of_wait(&self) -> u32 {
        match self.spin.load(Ordering::Relaxed) {
            0 => 1,
            _ => self.looks.load(Ordering::Relaxed),
        }
    }

    /// Takes the first event, if it comes within the wait and before `other` says that there is other work.
    #[inline(always)]
    fn wait_here<F: Fn() -> bool + ?Sized>(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        other: &F,
        out: &mut impl Place,
    ) -> Result<Taken, PollError> {
        let longest = match wait {
            Wait::Nanos(ns) => Some(Duration::from_nanos(ns)),
            Wait::No | Wait::Forever => None,
        };
        // From the first look on that finds nothing: what is there needs no time.
        let mut deadline = None;
        let looks = self.looks_of_wait();
        let mut sleep_from = None;
        loop {
            let found = self.poll(eqs, looks, other, out)?;
            if found.ends() || other() {
                self.fruitless.store(0, Ordering::Relaxed);
                return Ok(found.taken);
            }
            // A rank whose memory others write in a row is awake for the next one, though it has no event of them.
            if found.moved {
                sleep_from = None;
            }
            let long = self.rest(looks);
            if !long && longest.is_none() {
                continue;
            }
            let now = Instant::now();
            if deadline.is_none() {
                deadline = longest.and_then(|longest| now.checked_add(longest));
            }
            if deadline.is_some_and(|d| now >= d) {
                return Ok(Taken::Nothing);
            }
            let spin = Duration::from_nanos(self.spin.load(Ordering::Relaxed));
            let from = *sleep_from.get_or_insert(now + spin);
            if now >= from {
                // Nobody can say whether what a wait for ever is for was lost with a peer.
                if longest.is_none()
                    && let Some(which) = self.lock().ni.take_lost(eqs)
                {
                    let error = Error::Fail;
                    return Err(PollError { error, which });
                }
                let found = self.doze(eqs, deadline, &|| other(), out)?;
                if found.ends() || other() {
                    self.fruitless.store(0, Ordering::Relaxed);
                    return Ok(found.taken);
                }
                if found.moved {
                    sleep_from = None;
                }
            }
        }
    }

    /// Learns how long waits poll, which may change with the peers that there are.
    fn settle(&self, schedule: &Schedule) {
        self.looks.store(schedule.looks.max(1), Ordering::Relaxed);
        if !self.chosen {
            let spin = nanos(schedule.spin.unwrap_or(SPIN));
            self.spin.store(spin, Ordering::Relaxed);
        }
    }

    /// The attendant's life.
    fn attend(&self) {
        let Some(attendance) = self.attendance() else {
            return;
        };
        let mut seen = u64::MAX;
        while !self.ended.load(Ordering::SeqCst) {
            attendance.bell.silence();
            let calls = self.calls.load(Ordering::Relaxed);
            let quiet = attendance.thread && calls == seen;
            seen = calls;
            let alone = quiet || self.outside.load(Ordering::SeqCst) > 0;
            self.wanted.store(true, Ordering::Relaxed);
            let mut library = self.lock();
            self.wanted.store(false, Ordering::Relaxed);
            let schedule = library.attend(alone);
            let moved = library.take_moved();
            drop(library);
            self.settle(&schedule);
            if moved {
                self.wake();
            }
            let mut due = schedule.due;
            if schedule.gone || self.ended.load(Ordering::SeqCst) {
                break;
            }
            let listen = alone || schedule.busy;
            if attendance.thread && !listen {
                // The program makes its own progress; look again when it may have stopped.
                let look = Instant::now() + QUIET;
                due = Some(due.map_or(look, |d| d.min(look)));
            }
            if let Some(longest) = attendance.longest.filter(|_| listen) {
                let look = Instant::now() + longest;
                due = Some(due.map_or(look, |d| d.min(look)));
            }
            let alarm = attendance.alarm.iter().filter(|_| listen);
            let fds = attendance.control.iter().chain(alarm);
            sleep(fds.chain([attendance.bell.descriptor()]), due);
        }
    }
}
