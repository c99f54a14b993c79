// UNSAFETY: a function of the C library that the libc crate does not declare.
#![expect(unsafe_code, reason = "calls pthread_setcancelstate")]
//! No entry is a cancellation point (pthreads(7)).
//!
//! A thread that is cancelled inside of one, where the library writes to a device or sleeps, say, would be unwound through frames of
//! Rust, which ends the process. It is cancelled at the first cancellation point after the call instead.

use std::ffi::c_int;
use std::marker::PhantomData;

/// `PTHREAD_CANCEL_DISABLE` of Linux's C libraries.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While it lives this thread is not cancelled.
#[derive(Debug)]
pub(crate) struct Whole {
    before: c_int,
    /// The state is the thread's.
    _here: PhantomData<*const ()>,
}

impl Whole {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut before = DISABLE;
        // SAFETY: takes a number and where an integer may be written.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self {
            before,
            _here: PhantomData,
        }
    }
}

impl Drop for Whole {
    #[inline]
    fn drop(&mut self) {
        let mut disabled = DISABLE;
        // SAFETY: as above; the state is one that the C library gave.
        unsafe { pthread_setcancelstate(self.before, &raw mut disabled) };
    }
}
