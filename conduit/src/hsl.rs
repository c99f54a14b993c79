//! Handler-safe locks and no-interrupt sections.
//!
//! A lock that handlers may take: held only for short pieces of code that neither communicate nor
//! poll, so whoever waits for it in a handler waits for a running thread and nothing else. Messages
//! are handled in polls and never interrupt, so a no-interrupt section delays nothing; it is checked
//! all the same, because a program that breaks its rules breaks elsewhere.
//!
//! In `GASNET_SEQ` there is one client thread: [`Hsl::none`] is no lock at all.

use crate::gate::Gate;
use std::cell::{Cell, RefCell};

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
}

thread_local! {
    /// Addresses of the locks that the thread holds, in order.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static SECTION: Cell<bool> = const { Cell::new(false) };
}

/// Handler-safe locks that the calling thread holds.
pub(crate) fn held() -> usize {
    HELD.with(|h| h.borrow().len())
}

/// Whether the calling thread must not communicate: it holds a lock or is in a section.
pub(crate) fn is_quiet() -> bool {
    held() > 0 || SECTION.get()
}

/// A handler-safe lock (`gasnet_hsl_t`).
///
/// Taken and given back by calls, by one thread, in the order of a stack. Not [`Clone`], and it stays
/// where it is while it is held: a thread knows it by its address.
#[derive(Debug)]
pub struct Hsl {
    gate: Option<Gate>,
}

impl Default for Hsl {
    fn default() -> Self {
        Self::new()
    }
}

impl Hsl {
    /// A lock between threads.
    pub const fn new() -> Self {
        Self {
            gate: Some(Gate::new()),
        }
    }

    /// What stands for a lock where there is one thread: every call succeeds and does nothing.
    pub const fn none() -> Self {
        Self { gate: None }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`HslError::Recursive`].
    pub fn lock(&self) -> Result<(), HslError> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        if gate.is_mine() {
            return Err(HslError::Recursive);
        }
        gate.enter();
        HELD.with(|h| h.borrow_mut().push(self.key()));
        Ok(())
    }

    /// Takes the lock if nobody holds it; whether it did.
    ///
    /// # Errors
    /// [`HslError::Recursive`].
    pub fn try_lock(&self) -> Result<bool, HslError> {
        let Some(gate) = &self.gate else {
            return Ok(true);
        };
        if gate.is_mine() {
            return Err(HslError::Recursive);
        }
        let taken = gate.try_enter();
        if taken {
            HELD.with(|h| h.borrow_mut().push(self.key()));
        }
        Ok(taken)
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// [`HslError::NotHeld`], [`HslError::Order`].
    pub fn unlock(&self) -> Result<(), HslError> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        if !gate.is_mine() {
            return Err(HslError::NotHeld);
        }
        HELD.with(|h| {
            let mut held = h.borrow_mut();
            if held.last() != Some(&self.key()) {
                return Err(HslError::Order);
            }
            held.pop();
            Ok(())
        })?;
        gate.leave();
        Ok(())
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
}
