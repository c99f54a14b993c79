//! Standard descriptors that are closed.
//!
//! The system gives the lowest free number to what is opened next. In a process that was started with descriptor 0, 1 or 2
//! closed that would be a socket, a device or memory of this library, and what the program prints would land there.

use std::os::fd::{AsRawFd as _, IntoRawFd as _};

use rustix::fs::{Mode, OFlags, open};

/// Opens `/dev/null` at those of the descriptors 0, 1 and 2 that are closed; they are the process's from then on. To be
/// called before anything is opened.
pub fn occupy() {
    let null = || open("/dev/null", OFlags::RDWR, Mode::empty());
    // Where there is none, what can be neither read nor written.
    let root = |_| open("/", OFlags::PATH, Mode::empty());
    while let Ok(fd) = null().or_else(root) {
        if fd.as_raw_fd() > libc::STDERR_FILENO {
            return;
        }
        let _ = fd.into_raw_fd();
    }
}
