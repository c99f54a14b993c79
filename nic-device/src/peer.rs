// UNSAFETY: SO_PEERCRED is asked for by getsockopt: rustix has no answer for a process of another PID namespace.
#![expect(
    unsafe_code,
    reason = "asks the kernel for a socket's peer by getsockopt, which takes a pointer"
)]
//! What the kernel says of who serves a socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What the kernel shows for a user who has no number in the namespace of whoever looks.
const UNMAPPED: u32 = 65534;

/// The effective user of the process at the other end of a Unix socket, at the time when it listened or made the pair.
pub(crate) fn user(socket: impl AsFd) -> io::Result<u32> {
    let mut of = libc::ucred {
        pid: 0,
        uid: UNMAPPED,
        gid: UNMAPPED,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `of`, which has as many and is plain integers.
    let said = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut of).cast(),
            &raw mut len,
        )
    };
    if said == 0 {
        Ok(of.uid)
    } else {
        Err(io::Error::last_os_error())
    }
}
