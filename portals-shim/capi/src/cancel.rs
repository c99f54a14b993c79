// UNSAFETY: functions of the C library that the libc crate does not declare.
#![expect(
    unsafe_code,
    reason = "calls pthread_setcancelstate and pthread_testcancel"
)]
//! Cancellation points (pthreads(7)): waits for ever are, no other entry is.
//!
//! A thread that is cancelled inside of an entry, where the library writes to a device or sleeps, say, would be unwound through frames
//! of Rust that hold something, which ends the process. It is cancelled at the first cancellation point after the call instead. A
//! wait for ever may have no end, so it is made of waits of [`PIECE`], between which its thread may be cancelled; not on the
//! model, where pieces of virtual time would be events of their own.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::time::Duration;

use crate::types::EQ_EMPTY;

/// A part of a wait for ever.
pub(crate) const PIECE: Duration = Duration::from_millis(250);

/// `PTHREAD_CANCEL_DISABLE` of Linux's C libraries.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Waits for ever by waits of a [`PIECE`], which give `EQ_EMPTY`. It does not return to a thread that is cancelled.
///
/// # Safety
/// Nothing that is dropped lives in `wait`, or in the frames between here and the program.
#[inline(always)]
pub(crate) unsafe fn in_pieces(wait: impl Fn() -> c_int) -> c_int {
    loop {
        let code = wait();
        if code != EQ_EMPTY {
            return code;
        }
        // SAFETY: it unwinds, if at all, through frames in which nothing is dropped, by the condition of this function.
        unsafe { pthread_testcancel() };
    }
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
