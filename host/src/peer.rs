// UNSAFETY: SO_PEERCRED and SO_PEERPIDFD are asked for by getsockopt.
#![expect(
    unsafe_code,
    reason = "asks the kernel for a socket's peer by getsockopt, which takes a pointer"
)]
//! What the kernel says of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Linux 6.5; the same on every architecture that Rust's standard library knows but SPARC and PA-RISC.
const SO_PEERPIDFD: libc::c_int = 77;
/// What the kernel shows for a user who has no number in the namespace of whoever looks.
const UNMAPPED: u32 = crate::ids::NO_USER;

/// The process at the other end, at the time when it connected (or listened, or made the pair).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number in the PID namespace of the caller; none where it has none there. To be shown to people, not to act upon.
    pub pid: Option<i32>,
    /// Its effective user.
    pub uid: u32,
}

/// Why a process is not one of the own user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtherUser {
    /// Its user is another one.
    #[error("it runs as user {theirs}, this process as user {own}")]
    Number {
        /// User that the peer runs as.
        theirs: u32,
        /// User that this process runs as.
        own: u32,
    },
    /// Its user has no number here.
    #[error(
        "it runs as a user who has no number in this process's user namespace, where this one is user {own}"
    )]
    Unmapped {
        /// User that this process runs as.
        own: u32,
    },
    /// Who this process runs as is not known.
    #[error("the system does not say which user this process runs as")]
    Unknown,
}

/// Whether `uid`, of a peer's [`Credentials`], is who this process runs as.
///
/// Where neither has a number in this user namespace they cannot be told apart, and are taken for equal: a secret decides.
pub fn is_own_user(uid: u32) -> Result<(), OtherUser> {
    same_user(uid, crate::ids::user().map_err(|_| OtherUser::Unknown)?)
}

const fn same_user(theirs: u32, own: u32) -> Result<(), OtherUser> {
    if theirs == own {
        Ok(())
    } else if theirs == UNMAPPED {
        Err(OtherUser::Unmapped { own })
    } else {
        Err(OtherUser::Number { theirs, own })
    }
}

impl Credentials {
    /// Who is at the other end of a Unix socket.
    ///
    /// Unlike `rustix::net::sockopt::socket_peercred` this has an answer for a process of another PID namespace.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
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
        if said != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            pid: (of.pid > 0).then_some(of.pid),
            uid: of.uid,
        })
    }
}

/// A pidfd of the process at the other end of a Unix socket, in whatever PID namespace that is.
///
/// Before Linux 6.5 it is opened by number. If the peer has ended and its number belongs to another process already, the
/// pidfd is that one's: it is good for noticing an end, not for a signal.
pub fn pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let socket = socket.as_fd();
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `fd`, which has as many and is an integer.
    let said = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if said == 0 && fd >= 0 {
        // SAFETY: the kernel has just made this descriptor for the caller, and nobody else knows of it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
            let pid = Credentials::of(socket)?.pid.and_then(Pid::from_raw);
            let pid = pid.ok_or(io::ErrorKind::NotFound)?;
            Ok(pidfd_open(pid, PidfdFlags::empty())?)
        }
        error => Err(error),
    }
}

/// Whether the process of a pidfd has ended, waited for or not.
pub fn has_exited(pidfd: impl AsFd) -> bool {
    let at_once = Timespec::default();
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    matches!(poll(&mut fds, Some(&at_once)), Ok(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    #[test]
    fn the_other_end_of_a_pair_is_this_process() {
        let (a, b) = UnixStream::pair().unwrap();
        let own = Credentials {
            pid: Some(std::process::id().cast_signed()),
            uid: crate::ids::user().unwrap(),
        };
        assert_eq!(Credentials::of(&a).unwrap(), own);
        assert_eq!(is_own_user(own.uid), Ok(()));
        drop(a);
        assert_eq!(Credentials::of(&b).unwrap(), own);
        let pidfd = pidfd(&b).unwrap();
        assert!(!has_exited(pidfd));
    }

    #[test]
    fn users_are_compared_by_number_and_one_without_is_said_to_have_none() {
        assert_eq!(same_user(1000, 1000), Ok(()));
        assert_eq!(same_user(UNMAPPED, UNMAPPED), Ok(()));
        let other = same_user(1001, 1000).unwrap_err();
        assert_eq!(
            other.to_string(),
            "it runs as user 1001, this process as user 1000"
        );
        let unmapped = same_user(UNMAPPED, 0).unwrap_err();
        assert!(unmapped.to_string().contains("no number"), "{unmapped}");
    }

    #[test]
    fn a_pidfd_is_that_of_the_process_that_connected_and_tells_of_its_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        let of_child = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert!(!has_exited(&of_child));
        // Who made the pair is this process, whoever has the other end.
        let of_maker = pidfd(&ours).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_exited(&of_child));
        assert!(!has_exited(&of_maker));
    }

    /// Set for the process that is to look at the maker of its standard input from another PID namespace.
    const NAMESPACE: &str = "PORTOLAN_TEST_PEER_OUTSIDE";

    /// It is no other process either that has the number.
    #[test]
    fn a_process_that_has_no_number_here_is_watched() {
        if std::env::var_os(NAMESPACE).is_some() {
            let stdin = std::io::stdin();
            assert_eq!(Credentials::of(&stdin).unwrap().pid, None);
            assert!(!has_exited(pidfd(&stdin).unwrap()));
            println!("watched");
            return;
        }
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(['.', '-']).map(|n| n.parse().unwrap_or(0));
        if (numbers.next(), numbers.next()) < (Some(6), Some(5)) {
            println!("skipped: Linux {release} has no SO_PEERPIDFD");
            return;
        }
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let unshare = Command::new("unshare")
            .args(["--user", "--map-root-user", "--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "peer::tests::a_process_that_has_no_number_here_is_watched",
                "--nocapture",
            ])
            .env(NAMESPACE, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .output();
        let output = match unshare {
            Ok(output) => output,
            Err(error) => return println!("skipped: unshare: {error}"),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if said.starts_with("unshare: ") {
            return println!("skipped: {said}");
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("watched"),
            "{text}{said}"
        );
    }
}
