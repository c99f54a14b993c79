// UNSAFETY: the launcher names the rank's socket by number in PMI_FD; borrowing a bare number is unsafe by nature.
#![expect(
    unsafe_code,
    reason = "PMI_FD is a bare descriptor number handed over by the launcher"
)]
//! The socket that the launcher opened for this rank.
//!
//! # Invariants
//!
//! * The descriptor that the launcher passed stays the process's: an MPI library beside this one speaks over it too, and
//!   closes it when it has finalized. This library uses a duplicate.
//! * Neither is inherited by programs that the rank starts.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::JobError;

/// Whether this process has already taken its place in its job.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Lets the first caller in the life of the process through.
pub(super) fn once() -> Result<(), JobError> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(JobError::AlreadyJoined);
    }
    Ok(())
}

/// The descriptor that `PMI_FD` names.
#[derive(Debug)]
pub(super) struct Inherited {
    fd: RawFd,
    /// The socket, as the system names it.
    socket: PathBuf,
}

impl Inherited {
    fn read(fd: RawFd) -> std::io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{fd}"))
    }

    /// Whether somebody in this process has closed it: a library that has left the job over it.
    pub(super) fn is_closed(&self) -> bool {
        Self::read(self.fd).map_or(true, |now| now != self.socket)
    }
}

/// Duplicates descriptor `fd`, once in the life of the process.
///
/// The number must name an open socket: a stale `PMI_FD` that was inherited through a program which
/// closed it would otherwise let this process talk PMI into one of its own files.
pub(super) fn socket(fd: RawFd) -> Result<(OwnedFd, Inherited), JobError> {
    let not_open = |source| JobError::NotOpen { fd, source };
    let socket = Inherited::read(fd).map_err(not_open)?;
    if !socket
        .as_os_str()
        .as_encoded_bytes()
        .starts_with(b"socket:")
    {
        return Err(JobError::NotASocket {
            fd,
            target: socket.display().to_string(),
        });
    }
    once()?;
    // SAFETY: the descriptor is open (its /proc entry was read above), and who closes it does so when it leaves the job,
    // which is not while this library joins.
    let lent = unsafe { BorrowedFd::borrow_raw(fd) };
    let own = lent.try_clone_to_owned().map_err(not_open)?;
    rustix::io::fcntl_setfd(lent, rustix::io::FdFlags::CLOEXEC)
        .map_err(|errno| not_open(errno.into()))?;
    Ok((own, Inherited { fd, socket }))
}
