//! Wakes a thread through a descriptor.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;

/// A descriptor that other threads make readable.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A bell that nobody has rung.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// Makes it readable.
    pub fn ring(&self) {
        // Fails only when the count is at its limit, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// What becomes readable.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }

    /// Makes it unreadable until it is rung again.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}
