//! Bytes over the socket to the launcher.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::JobError;

/// The connected socket. Reading and writing take no lock: who reads is the caller's business.
#[derive(Debug)]
pub(super) struct Stream {
    socket: OwnedFd,
}

impl Stream {
    pub(super) fn new(socket: OwnedFd) -> Result<Self, JobError> {
        // Programs the rank starts must not inherit its line to the launcher.
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(|errno| {
            JobError::Io {
                doing: "set close-on-exec",
                source: errno.into(),
            }
        })?;
        Ok(Self { socket })
    }

    /// Sends all of `bytes`.
    pub(super) fn post(&self, bytes: &[u8], doing: &'static str) -> Result<(), JobError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // Without NOSIGNAL a C program would die of SIGPIPE where the launcher is gone.
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    return Err(JobError::LauncherGone { doing });
                }
                Err(errno) => {
                    return Err(JobError::Io {
                        doing,
                        source: errno.into(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Waits for bytes and appends them to `inbox`.
    pub(super) fn fill(&self, inbox: &mut Vec<u8>, doing: &'static str) -> Result<(), JobError> {
        let mut chunk = [0; 4096];
        loop {
            match rustix::net::recv(&self.socket, &mut chunk[..], RecvFlags::empty()) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(JobError::LauncherGone { doing }),
                Ok((got, _)) => {
                    inbox.extend_from_slice(chunk.get(..got).unwrap_or_default());
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(JobError::Io {
                        doing,
                        source: errno.into(),
                    });
                }
            }
        }
    }
}
