//! Waiting for descriptors until a time.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Sleeps until one of `fds` is readable, or at its end, or `until` has come, or a signal has; gives for each of
/// `fds` whether it is.
pub(super) fn readable(fds: &[BorrowedFd<'_>], until: Option<Instant>) -> io::Result<Vec<bool>> {
    ready(fds, &[], until)
}

/// Sleeps ([`readable`]) until one of `writable` has room, too; gives of `fds` first, and then of `writable`, whether each is ready.
pub(super) fn ready(
    fds: &[BorrowedFd<'_>],
    writable: &[BorrowedFd<'_>],
    until: Option<Instant>,
) -> io::Result<Vec<bool>> {
    let asked = fds.iter().map(|fd| (fd, PollFlags::IN));
    let asked = asked.chain(writable.iter().map(|fd| (fd, PollFlags::OUT)));
    let mut fds: Vec<PollFd<'_>> = asked
        .map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, flags))
        .collect();
    let timeout = until.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        Timespec {
            // Longer than i64 seconds never comes.
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn words_and_ends_are_seen_and_a_time_ends_the_wait() {
        let (silent, _kept) = UnixStream::pair().unwrap();
        let (speaking, mut peer) = UnixStream::pair().unwrap();
        let (ended, _) = UnixStream::pair().unwrap();
        peer.write_all(b"x").unwrap();
        let fds = [silent.as_fd(), speaking.as_fd(), ended.as_fd()];
        assert_eq!(readable(&fds, None).unwrap(), [false, true, true]);
        assert_eq!(readable(&fds[..1], Some(Instant::now())).unwrap(), [false]);
        let room = ready(&fds[..1], &fds[1..2], None).unwrap();
        assert_eq!(room, [false, true]);
    }
}
