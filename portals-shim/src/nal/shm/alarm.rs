//! Waking a rank that sleeps on descriptors: a futex cannot be slept on together with them, a pipe can.
//!
//! The word in the rank's block stays what decides whether somebody must be woken ([`super::ring::Bell`]); the pipe
//! takes the place of the futex only. A rank that has one says so in its block, and others open it through `/proc`
//! when they first have to wake it.
//!
//! # No wake-up is lost
//!
//! ```text
//!   sleeper                                  waker
//!   empty the pipe                           publish a cell
//!   word := 1                                fence
//!   fence                                    word 1? ── exchange it for 0 ── write a byte
//!   look for cells ── none ── sleep until the pipe is readable
//! ```
//!
//! * A sleeper that looks before the cell is published has written the word before the waker reads it (the fences),
//!   so a byte follows, and it is written after the pipe was emptied or by a waker that took a word of this sleeper.
//! * Where several threads sleep, one may take another's byte while it arms. It then looks after the waker has
//!   published, handles the cell, and wakes the others of its process as for any other change.
//! * A waker that dies between the exchange and the byte, or cannot open the pipe, costs
//!   [`LONGEST`](super::nap::LONGEST) at most.

use rustix::fs::{FileType, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Where others find a rank's pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The descriptor in the rank's process.
    pub(super) fd: i32,
    /// By which others know that they opened the right one.
    pub(super) inode: u64,
}

/// The own pipe.
#[derive(Debug)]
pub(super) struct Alarm {
    read: OwnedFd,
    /// Without a writer it would always be readable.
    _write: OwnedFd,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        Ok(Self {
            read,
            _write: write,
        })
    }

    pub(super) fn place(&self) -> io::Result<Place> {
        Ok(Place {
            fd: self.read.as_raw_fd(),
            inode: rustix::fs::fstat(&self.read)?.st_ino,
        })
    }

    /// What is readable once somebody has rung.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.read.try_clone()
    }

    /// Empties it.
    pub(super) fn silence(&self) {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.read, &mut bytes), Ok(64)) {}
    }
}

/// The way to wake a peer.
#[derive(Debug, Default)]
pub(super) enum Line {
    /// It was not needed yet.
    #[default]
    Unknown,
    /// The peer sleeps on the futex, or its pipe cannot be opened.
    Futex,
    Pipe(OwnedFd),
}

impl Line {
    /// Wakes the peer `pid`, if it has a pipe; `place` is asked once. `false`: the futex must do.
    pub(super) fn ring(&mut self, pid: Option<i32>, place: impl FnOnce() -> Option<Place>) -> bool {
        if let Self::Unknown = self {
            *self = match place().map(|place| open(pid, place)) {
                None => Self::Futex,
                Some(Ok(fd)) => Self::Pipe(fd),
                Some(Err(error)) => {
                    tracing::debug!(%error, "a peer sleeps on a pipe that cannot be opened");
                    Self::Futex
                }
            };
        }
        let Self::Pipe(fd) = self else {
            return false;
        };
        // Fails only when the pipe is full, and then it is readable.
        let _ = rustix::io::write(fd, &[1]);
        true
    }
}

/// Opened for both ways, so that a reader is there while it is written to, whatever becomes of the peer.
fn open(pid: Option<i32>, place: Place) -> io::Result<OwnedFd> {
    let pid = pid.ok_or(io::ErrorKind::Unsupported)?;
    let path = format!("/proc/{pid}/fd/{}", place.fd);
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo || stat.st_ino != place.inode {
        return Err(io::Error::other("it is something else"));
    }
    Ok(fd)
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
        let own = Some(std::process::id().cast_signed());
        let alarm = Alarm::new().unwrap();
        let place = alarm.place().unwrap();
        let fd = alarm.descriptor().unwrap();
        let mut line = Line::default();
        assert!(!is_readable(&fd));
        for rings in [1, 200, 100_000] {
            for _ in 0..rings {
                assert!(line.ring(own, || Some(place)));
            }
            assert!(is_readable(&fd), "{rings}");
            alarm.silence();
            assert!(!is_readable(&fd), "{rings}");
        }
        drop((alarm, fd));
        assert!(line.ring(own, || None), "nobody reads it any more");
    }

    #[test]
    fn what_is_no_pipe_of_the_peer_is_not_written_to() {
        let own = Some(std::process::id().cast_signed());
        let alarm = Alarm::new().unwrap();
        let good = alarm.place().unwrap();
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::empty()).unwrap();
        let inode = rustix::fs::fstat(&memory).unwrap().st_ino;
        let bad = [
            Some(Place { inode: 1, ..good }),
            Some(Place {
                fd: memory.as_raw_fd(),
                inode,
            }),
            Some(Place {
                fd: i32::MAX,
                ..good
            }),
            None,
        ];
        for place in bad {
            assert!(!Line::default().ring(own, || place), "{place:?}");
        }
        assert!(!is_readable(&alarm.descriptor().unwrap()));
        assert_eq!(rustix::fs::fstat(&memory).unwrap().st_size, 0);
    }
}
