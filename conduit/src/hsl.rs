//! Handler-safe locks and no-interrupt sections.
//!
//! A lock that handlers may take: held only for short pieces of code that neither communicate nor
//! poll, so whoever waits for it in a handler waits for a running thread and nothing else. Messages
//! are handled in polls and never interrupt, so a no-interrupt section delays nothing; it is checked
//! all the same, because a program that breaks its rules breaks elsewhere.
//!
//! A thread may leave the job with locks that it holds (`gasnet_exit`), and then needs the conduit's gate. A handler that
//! waits for such a lock has the gate and would keep it for ever: it gives it up, and never returns.
//!
//! In `GASNET_SEQ` there is one client thread: [`Hsl::none`] is no lock at all.

use portals_shim::gate::{Gate, this_thread};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A rule of handler-safe locks or no-interrupt sections was broken. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HslError {
    /// The thread holds this lock.
    #[error("handler-safe locks are not recursive: this thread holds the lock")]
    Recursive,
    /// The thread does not hold this lock.
    #[error("this thread does not hold the handler-safe lock")]
    NotHeld,
    /// The thread took another one later, and holds it.
    #[error("handler-safe locks are released in the reverse order of taking")]
    Order,
    /// A section within a section.
    #[error("no-interrupt sections do not nest")]
    Nested,
    /// The end of a section without its beginning.
    #[error("no-interrupt section ended that was not begun")]
    NotBegun,
    /// Destroyed while somebody holds it.
    #[error("the handler-safe lock is held")]
    InUse,
}

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static SECTION: Cell<bool> = const { Cell::new(false) };
}

/// Handler-safe locks that the calling thread holds.
pub fn held() -> usize {
    COUNT.get()
}

/// Whether the calling thread is in a no-interrupt section that it began.
pub fn in_section() -> bool {
    SECTION.get()
}

/// Whether the calling thread must not communicate: it holds a lock or is in a section.
pub(crate) fn is_quiet() -> bool {
    held() > 0 || SECTION.get()
}

/// A conduit that a thread leaves the job of.
struct Leaving {
    gate: Weak<Gate>,
    /// The thread waits for the gate, and has not begun.
    waits: bool,
}

static LEAVING: Mutex<Vec<Leaving>> = Mutex::new(Vec::new());
/// There are some, which spares the look.
static ANY_LEAVING: AtomicBool = AtomicBool::new(false);

fn leaving() -> MutexGuard<'static, Vec<Leaving>> {
    LEAVING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on whoever holds the gate gives it up when it waits for a lock.
pub(crate) fn ask_for_way(gate: &Arc<Gate>) {
    let mut leaving = leaving();
    leaving.retain(|l| l.gate.strong_count() > 0);
    let of = Arc::downgrade(gate);
    // One that has begun is not interrupted.
    if !leaving.iter().any(|l| l.gate.ptr_eq(&of)) {
        leaving.push(Leaving {
            gate: of,
            waits: true,
        });
        ANY_LEAVING.store(true, Ordering::Release);
    }
}

/// The calling thread has the gate.
pub(crate) fn has_way(gate: &Arc<Gate>) {
    let of = Arc::downgrade(gate);
    for l in leaving().iter_mut().filter(|l| l.gate.ptr_eq(&of)) {
        l.waits = false;
    }
}

/// Does not return where another thread leaves the job, and waits for the gate that this one holds.
#[inline]
fn make_way() {
    if ANY_LEAVING.load(Ordering::Acquire) {
        give_up_gate();
    }
}

#[cold]
fn give_up_gate() {
    let mine = |l: &Leaving| l.gate.upgrade().filter(|gate| l.waits && gate.is_mine());
    let gate = leaving().iter().find_map(mine);
    if let Some(gate) = gate {
        gate.give_up();
    }
}

/// Of locks that are in use.
const LIVE: u32 = 0x4853_4c31;
/// Of locks that were destroyed.
const DEAD: u32 = 0x4853_4c30;
/// Of what is no lock.
const NONE: u32 = 0x4853_4c32;

/// Looks at a taken lock before the processor is given up.
const LOOKS: u32 = 50;

/// A handler-safe lock (`gasnet_hsl_t`).
///
/// Taken and given back by calls, by one thread, in the order of a stack. Not [`Clone`]. It is a word, and nothing is
/// allocated: C programs have locks in memory of their own, with the layout of this type.
#[repr(C)]
#[derive(Debug)]
pub struct Hsl {
    /// 0: free, 1: taken.
    word: AtomicU32,
    /// [`LIVE`], or another.
    state: AtomicU32,
    owner: AtomicU64,
    /// How many its owner held once it had it.
    depth: AtomicUsize,
}

impl Default for Hsl {
    fn default() -> Self {
        Self::new()
    }
}

impl Hsl {
    const fn with(state: u32) -> Self {
        Self {
            word: AtomicU32::new(0),
            state: AtomicU32::new(state),
            owner: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
        }
    }

    /// A lock between threads.
    pub const fn new() -> Self {
        Self::with(LIVE)
    }

    /// What stands for a lock where there is one thread: every call succeeds and does nothing.
    pub const fn none() -> Self {
        Self::with(NONE)
    }

    /// Makes it a free lock, whatever it was.
    pub fn reset(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        self.depth.store(0, Ordering::Relaxed);
        self.state.store(LIVE, Ordering::Release);
    }

    /// Whether it is a lock that was made and not destroyed.
    pub fn is_live(&self) -> bool {
        self.state.load(Ordering::Acquire) == LIVE
    }

    /// Destroys it.
    ///
    /// # Errors
    /// [`HslError::InUse`].
    pub fn retire(&self) -> Result<(), HslError> {
        if !self.is_free() {
            return Err(HslError::InUse);
        }
        self.state.store(DEAD, Ordering::Release);
        Ok(())
    }

    fn is_none(&self) -> bool {
        self.state.load(Ordering::Relaxed) == NONE
    }

    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == this_thread()
    }

    fn take(&self) -> bool {
        let taken = self.word.load(Ordering::Relaxed) == 0
            && self
                .word
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if taken {
            self.owner.store(this_thread(), Ordering::Relaxed);
            let depth = COUNT.get() + 1;
            COUNT.set(depth);
            self.depth.store(depth, Ordering::Relaxed);
        }
        taken
    }

    /// Waits for the lock: looks for a while, then lets other threads run between looks, as the holder is one of them. In a
    /// handler it does not return once another thread of the rank leaves the job.
    ///
    /// # Errors
    /// [`HslError::Recursive`].
    pub fn lock(&self) -> Result<(), HslError> {
        if self.is_none() {
            return Ok(());
        }
        if self.is_mine() {
            return Err(HslError::Recursive);
        }
        let mut looks = 0;
        while !self.take() {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                make_way();
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Takes the lock if nobody holds it; whether it did.
    ///
    /// # Errors
    /// [`HslError::Recursive`].
    pub fn try_lock(&self) -> Result<bool, HslError> {
        if self.is_none() {
            return Ok(true);
        }
        if self.is_mine() {
            return Err(HslError::Recursive);
        }
        let taken = self.take();
        if !taken {
            make_way();
        }
        Ok(taken)
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// [`HslError::NotHeld`], [`HslError::Order`].
    pub fn unlock(&self) -> Result<(), HslError> {
        let is_last = self.depth.load(Ordering::Relaxed) == held();
        if !self.is_none() && self.is_mine() && !is_last {
            return Err(HslError::Order);
        }
        self.unlock_in_any_order()
    }

    /// Unlocks, in whatever order the thread took its locks.
    ///
    /// # Errors
    /// [`HslError::NotHeld`].
    pub fn unlock_in_any_order(&self) -> Result<(), HslError> {
        if self.is_none() {
            return Ok(());
        }
        if !self.is_mine() {
            return Err(HslError::NotHeld);
        }
        COUNT.set(COUNT.get().saturating_sub(1));
        self.owner.store(0, Ordering::Relaxed);
        self.word.store(0, Ordering::Release);
        Ok(())
    }

    /// Whether nobody holds it at this moment.
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) == 0
    }
}

/// Begins a no-interrupt section of the calling thread (`gasnet_hold_interrupts`). Ignored while it
/// holds a lock, and in handlers, both of which are sections; `in_handler` says so of the caller.
///
/// # Errors
/// [`HslError::Nested`].
pub fn hold_interrupts(in_handler: bool) -> Result<(), HslError> {
    if in_handler || held() > 0 {
        return Ok(());
    }
    if SECTION.replace(true) {
        return Err(HslError::Nested);
    }
    Ok(())
}

/// Ends what [`hold_interrupts`] began (`gasnet_resume_interrupts`), ignored where that is.
///
/// # Errors
/// [`HslError::NotBegun`].
pub fn resume_interrupts(in_handler: bool) -> Result<(), HslError> {
    if in_handler || held() > 0 {
        return Ok(());
    }
    if !SECTION.replace(false) {
        return Err(HslError::NotBegun);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_locks() {
        let (a, b) = (Hsl::new(), Hsl::new());
        a.lock().unwrap();
        assert_eq!(a.lock(), Err(HslError::Recursive));
        assert_eq!(a.try_lock(), Err(HslError::Recursive));
        assert_eq!(b.try_lock(), Ok(true));
        assert_eq!(a.unlock(), Err(HslError::Order));
        assert!(is_quiet() && held() == 2);
        b.unlock().unwrap();
        assert_eq!(b.unlock(), Err(HslError::NotHeld));
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(!is_quiet());
                assert_eq!(a.try_lock(), Ok(false));
                assert_eq!(a.unlock(), Err(HslError::NotHeld));
            });
        });
        a.unlock().unwrap();
        assert!(!is_quiet());
        for lock in [&a, &b] {
            lock.lock().unwrap();
        }
        assert!(!a.is_free());
        a.unlock_in_any_order().unwrap();
        assert!(a.is_free() && held() == 1);
        b.unlock_in_any_order().unwrap();
        assert_eq!(b.unlock_in_any_order(), Err(HslError::NotHeld));
        assert!(!is_quiet());
    }

    #[test]
    fn sections() {
        assert_eq!(resume_interrupts(false), Err(HslError::NotBegun));
        hold_interrupts(false).unwrap();
        assert_eq!(hold_interrupts(false), Err(HslError::Nested));
        assert!(is_quiet());
        hold_interrupts(true).unwrap();
        resume_interrupts(true).unwrap();
        let lock = Hsl::new();
        lock.lock().unwrap();
        hold_interrupts(false).unwrap();
        resume_interrupts(false).unwrap();
        lock.unlock().unwrap();
        resume_interrupts(false).unwrap();
        assert!(!is_quiet());
    }

    #[test]
    fn no_lock_costs_nothing_and_refuses_nothing() {
        static NONE: Hsl = Hsl::none();
        assert_eq!(NONE.lock(), Ok(()));
        assert_eq!(NONE.try_lock(), Ok(true));
        assert_eq!((NONE.unlock(), NONE.unlock()), (Ok(()), Ok(())));
        assert_eq!(held(), 0);
    }

    #[test]
    fn threads_exclude_each_other() {
        static LOCK: Hsl = Hsl::new();
        let count = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..2000 {
                        LOCK.lock().unwrap();
                        // Not one operation: without the lock some would be lost.
                        let n = count.load(std::sync::atomic::Ordering::Relaxed);
                        count.store(n + 1, std::sync::atomic::Ordering::Relaxed);
                        LOCK.unlock().unwrap();
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 8000);
    }

    #[test]
    fn a_lock_is_destroyed_when_nobody_holds_it() {
        let lock = Hsl::new();
        lock.lock().unwrap();
        assert_eq!(lock.retire(), Err(HslError::InUse));
        lock.unlock().unwrap();
        assert!(lock.is_live());
        lock.retire().unwrap();
        assert!(!lock.is_live());
        lock.reset();
        assert!(lock.is_live() && lock.try_lock() == Ok(true));
        lock.unlock().unwrap();
    }
}
