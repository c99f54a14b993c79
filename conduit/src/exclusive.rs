//! State that one call at a time works on.
//!
//! A call finds it in use if a signal handler made it, or a function that the conduit called while it held its state. GASNet
//! forbids both. Such a call ends the job and is named; it does not panic, for the program may not unwind.

use crate::exchange::Exchange;
use std::cell::{BorrowError, BorrowMutError, Ref, RefCell, RefMut};
use std::fmt;
use std::sync::Arc;

/// What is said of a call within another.
pub(crate) const WITHIN: &str = "a call of GASNet within another one, as in a handler of the system's signals, where none is allowed";

/// A value and the job that ends where two calls work on it at one time.
pub(crate) struct Exclusive<T> {
    value: RefCell<T>,
    job: Arc<dyn Exchange>,
}

impl<T: fmt::Debug> fmt::Debug for Exclusive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T, job: Arc<dyn Exchange>) -> Self {
        let value = RefCell::new(value);
        Self { value, job }
    }

    #[inline(always)]
    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        match self.value.try_borrow() {
            Ok(value) => value,
            Err(_) => self.refuse(),
        }
    }

    #[inline(always)]
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, T> {
        match self.value.try_borrow_mut() {
            Ok(value) => value,
            Err(_) => self.refuse(),
        }
    }

    pub(crate) fn try_borrow(&self) -> Result<Ref<'_, T>, BorrowError> {
        self.value.try_borrow()
    }

    pub(crate) fn try_borrow_mut(&self) -> Result<RefMut<'_, T>, BorrowMutError> {
        self.value.try_borrow_mut()
    }

    /// Ends the job: a call was made within another one.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self) -> ! {
        self.job.abort_at_once(WITHIN)
    }
}
