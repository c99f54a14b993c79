//! A lock that is taken and given back by calls, in the order of asking.
//!
//! It knows which thread holds it, so that misuse is an answer and not a hang. A waiting thread
//! looks for a while and then sleeps.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};
use std::sync::{Condvar, Mutex, PoisonError};

/// Looks before a waiting thread sleeps; the holder of a gate is seldom done sooner.
const LOOKS: u32 = 200;

/// A number for the calling thread, never 0.
pub fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // A thread that is ending has no numbers of its own any more; none waits for it.
    MINE.try_with(|n| *n).unwrap_or(u64::MAX)
}

thread_local! {
    // Without a destructor: a handler of a signal may ask at any time.
    static PASSING: Cell<*const Gate> = const { Cell::new(std::ptr::null()) };
}

/// The calling thread takes a gate, or gives it back, while this lives.
struct Passing {
    before: *const Gate,
}

impl Passing {
    fn new(gate: &Gate) -> Self {
        let before = PASSING.replace(gate);
        // A handler that comes from here on sees it.
        compiler_fence(Ordering::SeqCst);
        Self { before }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        PASSING.set(self.before);
    }
}

/// Asked for by number, held by whose number is called.
///
/// Invariants: `next - called` threads hold or wait; whoever sleeps was counted in `asleep` under the
/// mutex before it looked at `called` once more, and whoever calls the next number looks at `asleep`
/// afterwards, so no call is missed.
#[derive(Debug, Default)]
pub struct Gate {
    next: AtomicU32,
    called: AtomicU32,
    owner: AtomicU64,
    asleep: AtomicU32,
    /// See [`Gate::give_up`].
    given_up: AtomicBool,
    beds: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    /// One that nobody holds.
    pub const fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            called: AtomicU32::new(0),
            owner: AtomicU64::new(0),
            asleep: AtomicU32::new(0),
            given_up: AtomicBool::new(false),
            beds: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Whether the calling thread holds it.
    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether the calling thread is taking it or giving it back. True only in a handler of a signal that has interrupted
    /// that: it must not [enter](Gate::enter), as it would wait for the thread that it has interrupted.
    pub fn is_passing(&self) -> bool {
        std::ptr::eq(PASSING.get(), self)
    }

    /// Whether somebody waits while another holds it.
    pub fn is_wanted(&self) -> bool {
        let called = self.called.load(Ordering::Relaxed);
        self.next.load(Ordering::Relaxed).wrapping_sub(called) > 1
    }

    /// Waits for it; the caller does not hold it. Does not return once it was [given up](Gate::give_up).
    pub fn enter(&self) {
        self.enter_last();
        if self.given_up.load(Ordering::Relaxed) {
            self.give_up();
        }
    }

    /// Enters for a thread that ends the process and never gives the gate back: it returns all the same.
    pub fn enter_last(&self) {
        self.enter_by_way_of(|| ());
    }

    /// `asked` is called when the thread has its number.
    #[inline(always)]
    fn enter_by_way_of(&self, asked: impl FnOnce()) {
        let _passing = Passing::new(self);
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        asked();
        let mut looks = 0;
        while self.called.load(Ordering::SeqCst) != number {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            let mut bed = self.beds.lock().unwrap_or_else(PoisonError::into_inner);
            self.asleep.fetch_add(1, Ordering::SeqCst);
            while self.called.load(Ordering::SeqCst) != number {
                bed = self.wake.wait(bed).unwrap_or_else(PoisonError::into_inner);
            }
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
        self.owner.store(this_thread(), Ordering::Relaxed);
    }

    /// Takes it if nobody holds or waits.
    pub fn try_enter(&self) -> bool {
        let _passing = Passing::new(self);
        let called = self.called.load(Ordering::SeqCst);
        let after = called.wrapping_add(1);
        let taken = self
            .next
            .compare_exchange(called, after, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if taken {
            self.owner.store(this_thread(), Ordering::Relaxed);
        }
        taken
    }

    /// Leaves it, in the middle of what it guards, to the thread that [ends the process](Gate::enter_last), which waits for
    /// it; this thread, and all others that get it, stay here.
    pub fn give_up(&self) -> ! {
        self.given_up.store(true, Ordering::Relaxed);
        self.leave();
        loop {
            std::thread::park();
        }
    }

    /// Gives it to whoever waits longest. `false`, and nothing happens, if the caller does not hold it.
    pub fn leave(&self) -> bool {
        self.leave_by_way_of(|| ())
    }

    /// `left` is called when the gate has no owner, and is not the next one's yet.
    #[inline(always)]
    fn leave_by_way_of(&self, left: impl FnOnce()) -> bool {
        if !self.is_mine() {
            return false;
        }
        let _passing = Passing::new(self);
        self.owner.store(0, Ordering::Relaxed);
        left();
        self.called.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            drop(self.beds.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_at_a_time_and_everybody_comes() {
        let (gate, inside, turns) = (Gate::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for _ in 0..6 {
                s.spawn(|| {
                    for _ in 0..5000 {
                        gate.enter();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        turns.fetch_add(1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        assert!(gate.leave());
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 30_000);
    }

    #[test]
    fn one_that_is_given_up_is_for_the_last() {
        static GATE: Gate = Gate::new();
        static OTHERS: AtomicUsize = AtomicUsize::new(0);
        fn until(asked: u32) {
            while GATE.next.load(Ordering::SeqCst) < asked {
                std::thread::yield_now();
            }
        }
        std::thread::spawn(|| {
            GATE.enter();
            until(5);
            GATE.give_up();
        });
        until(1);
        for _ in 0..3 {
            std::thread::spawn(|| {
                GATE.enter();
                OTHERS.fetch_add(1, Ordering::SeqCst);
            });
        }
        until(4);
        // All of them are before it.
        GATE.enter_last();
        assert!(GATE.is_mine() && !GATE.try_enter());
        assert_eq!(OTHERS.load(Ordering::SeqCst), 0);
    }

    /// What a handler of a signal sees that interrupts a thread at the gate.
    #[test]
    fn a_thread_at_the_gate_is_known_until_it_is_through() {
        let (gate, other) = (Gate::new(), Gate::new());
        let at_the_gate = || {
            assert!(gate.is_passing() && !gate.is_mine() && !other.is_passing());
            other.enter();
            assert!(other.is_mine() && other.leave() && gate.is_passing());
        };
        gate.enter_by_way_of(at_the_gate);
        assert!(gate.is_mine() && !gate.is_passing());
        assert!(gate.leave_by_way_of(at_the_gate));
        assert!(!gate.is_mine() && !gate.is_passing());
        assert!(gate.try_enter() && !gate.is_passing());
    }

    #[test]
    fn it_knows_its_holder() {
        let gate = Gate::new();
        assert!(!gate.leave() && !gate.is_mine());
        assert!(gate.try_enter() && gate.is_mine() && !gate.try_enter());
        std::thread::scope(|s| {
            s.spawn(|| assert!(!gate.is_mine() && !gate.leave() && !gate.try_enter()));
        });
        assert!(gate.leave() && gate.try_enter());
    }
}
