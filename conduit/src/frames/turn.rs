//! A lock for as long as a frame takes to write.

use std::sync::atomic::{AtomicBool, Ordering};

/// Looks before a thread that waits offers its core to others: the holder has a few dozen instructions to go, unless
/// it lost its core.
const LOOKS: u32 = 100;

/// Held by one thread at a time; nobody waits while holding one.
#[derive(Debug, Default)]
pub(super) struct Turn(AtomicBool);

/// Gives the turn back.
#[derive(Debug)]
pub(super) struct Taken<'a>(&'a AtomicBool);

impl Turn {
    #[inline]
    pub(super) fn take(&self) -> Taken<'_> {
        let mut looks = 0;
        while self.0.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        Taken(&self.0)
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
