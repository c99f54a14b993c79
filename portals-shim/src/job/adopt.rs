// UNSAFETY: the launcher names the rank's socket by number in PMI_FD; taking ownership of a bare number
// is unsafe by nature.
#![expect(
    unsafe_code,
    reason = "PMI_FD is a bare descriptor number handed over by the launcher"
)]
//! Taking over the socket that the launcher opened for this rank.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
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

/// Takes ownership of descriptor `fd`, once in the life of the process.
///
/// The number must name an open socket: a stale `PMI_FD` that was inherited through a program which
/// closed it would otherwise let this process talk PMI into one of its own files.
pub(super) fn socket(fd: RawFd) -> Result<OwnedFd, JobError> {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}"))
        .map_err(|source| JobError::NotOpen { fd, source })?;
    if !target
        .as_os_str()
        .as_encoded_bytes()
        .starts_with(b"socket:")
    {
        return Err(JobError::NotASocket {
            fd,
            target: target.display().to_string(),
        });
    }
    once()?;
    // SAFETY: the descriptor is open (its /proc entry was read above) and no other owner exists in this
    // process: the launcher passed it for this call alone, and TAKEN lets one call through.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(owned)
}
