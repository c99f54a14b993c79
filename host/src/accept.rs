//! What a failed `accept` means: mostly nothing that ends anything (accept(2), "Error handling").

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::AsFd;

/// Why nobody was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAccepted {
    /// Nobody is there.
    Nobody,
    /// Who was there has gone, or a signal has come: the next one may be there.
    Next,
    /// Somebody is there and stays there, as the system refuses this process the connection: a pause is due, as
    /// the listening socket stays readable.
    Later(Refused),
}

/// What the system has said of somebody who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub Errno);

impl Refused {
    /// Whether a descriptor or memory is missing, so that it helps to close another one.
    #[must_use]
    pub const fn is_for_want_of_room(self) -> bool {
        matches!(
            self.0,
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Errno::MFILE => write!(f, "this process has no descriptor left (ulimit -n): "),
            Errno::NFILE => write!(f, "this machine has no descriptor left (fs.file-max): "),
            _ => Ok(()),
        }?;
        write!(f, "{}", self.0)
    }
}

impl NotAccepted {
    /// Of what `accept` has said of `listener`.
    pub fn of(errno: Errno, listener: impl AsFd) -> Self {
        let is_there = || {
            let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())) != Ok(0)
        };
        match errno {
            Errno::AGAIN => Self::Nobody,
            // Errors of the network are those of the connection that would have been the next one.
            Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::NONET
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH => Self::Next,
            // The kernel looks for a number first, and says that there is none though nobody is there.
            _ if !is_there() => Self::Nobody,
            errno => Self::Later(Refused(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn what_passes_ends_nothing_and_what_stays_is_said_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let all = [Errno::MFILE, Errno::NOMEM, Errno::PERM, Errno::NOSYS];
        for errno in all {
            assert_eq!(NotAccepted::of(errno, &listener), NotAccepted::Nobody);
        }
        let _waits = UnixStream::connect(&path).unwrap();
        for errno in all {
            let refused = NotAccepted::Later(Refused(errno));
            assert_eq!(NotAccepted::of(errno, &listener), refused);
        }
        for errno in [Errno::INTR, Errno::CONNABORTED, Errno::HOSTUNREACH] {
            assert_eq!(NotAccepted::of(errno, &listener), NotAccepted::Next);
        }
        assert_eq!(
            NotAccepted::of(Errno::AGAIN, &listener),
            NotAccepted::Nobody
        );
        let said = |errno| Refused(errno).to_string();
        assert_eq!(said(Errno::PERM), "Operation not permitted (os error 1)");
        assert_eq!(
            said(Errno::MFILE),
            "this process has no descriptor left (ulimit -n): Too many open files (os error 24)"
        );
        assert!(!Refused(Errno::PERM).is_for_want_of_room());
        assert!(Refused(Errno::MFILE).is_for_want_of_room());
    }
}
