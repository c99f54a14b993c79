//! Waking a rank that sleeps on descriptors: a futex cannot be slept on together with them, a socket can.
//!
//! The word in the rank's block stays what decides whether somebody must be woken (`ring::Bell`); the socket
//! takes the place of the futex only. Its other end is handed to all peers when the memory is.
//!
//! # No wake-up is lost
//!
//! ```text
//!   sleeper                                  waker
//!   empty the socket                         publish a cell
//!   word := 1                                fence
//!   fence                                    word 1? ── exchange it for 0 ── send a byte
//!   look for cells ── none ── sleep until the socket is readable
//! ```
//!
//! * A sleeper that looks before the cell is published has written the word before the waker reads it (the fences),
//!   so a byte follows, and it is sent after the socket was emptied or by a waker that took a word of this sleeper.
//! * Where several threads sleep, one may take another's byte while it arms. It then looks after the waker has
//!   published, handles the cell, and wakes the others of its process as for any other change.
//! * A waker that dies between the exchange and the byte costs [`LONGEST`](super::nap::LONGEST) at most.
//! * Nobody blocks on it: a full socket is readable, so a byte that finds no room is not missed.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most bytes that are taken out at once. A peer that sends without end keeps the rank awake, and no more.
const MOST: usize = 64;

/// What a rank sleeps on.
#[derive(Debug)]
pub struct Alarm {
    read: OwnedFd,
    /// What others have too. Without any the socket would always be readable.
    write: OwnedFd,
}

impl Alarm {
    /// An alarm that nobody has rung.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok(Self { read, write })
    }

    /// The end that peers have.
    pub fn line(&self) -> io::Result<OwnedFd> {
        self.write.try_clone()
    }

    /// What is readable once somebody has rung.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.read.try_clone()
    }

    /// Empties it.
    pub(super) fn silence(&self) {
        let mut bytes = [0; 512];
        for _ in 0..MOST {
            match recv(&self.read, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 512)) | Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
    }
}

/// The ways to wake peers, by number; none where they sleep on their futexes.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<[OwnedFd]>);

impl Lines {
    pub(super) fn new(lines: Vec<OwnedFd>) -> Self {
        Self(lines.into())
    }

    /// Wakes a peer, if it has an alarm. `false`: the futex must do.
    pub(super) fn ring(&self, peer: usize) -> bool {
        let Some(line) = self.0.get(peer) else {
            return false;
        };
        // Fails only when it is full, and then it is readable, or when nobody is there any more.
        let _ = send(line, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(fd: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_ring_makes_it_readable_until_it_is_silenced() {
        let alarm = Alarm::new().unwrap();
        let fd = alarm.descriptor().unwrap();
        let lines = Lines::new(vec![alarm.line().unwrap()]);
        assert!(!is_readable(&fd));
        for rings in [1, 200, 100_000] {
            for _ in 0..rings {
                assert!(lines.ring(0));
            }
            assert!(is_readable(&fd), "{rings}");
            alarm.silence();
            assert!(!is_readable(&fd), "{rings}");
        }
        assert!(!lines.ring(1), "it has none");
        // Nobody reads it any more, which is no signal either.
        drop((alarm, fd));
        assert!(lines.ring(0));
    }
}
