//! A connection of the simulation, which never waits on it.

use super::proto::{MAX_DATAGRAM, Reply};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown, recv,
    recvmsg, shutdown,
};
use serde::Serialize;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is on its way.
    Done,
    /// Nobody is there to read it.
    Closed,
    /// There is no room: the other side does not read.
    Full,
}

/// What a look at the socket gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A datagram of so many bytes.
    Datagram(usize),
    /// One that is longer than any that is meant.
    TooLong,
    Nothing,
    Closed,
}

/// One end of a connection. With this value it is closed for everybody who has the socket, such as a forked child.
#[derive(Debug)]
pub(super) struct Line {
    socket: OwnedFd,
}

impl Line {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Says an answer, if there is room for it.
    pub(super) fn say(&self, reply: &Reply) -> Sent {
        self.send(reply)
    }

    /// Says anything, if there is room for it.
    pub(super) fn send(&self, value: &impl Serialize) -> Sent {
        let mut buffer = [0; MAX_DATAGRAM];
        let Ok(bytes) = postcard::to_slice(value, &mut buffer) else {
            return Sent::Closed;
        };
        loop {
            return match rustix::net::send(
                &self.socket,
                bytes,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(_) => Sent::Done,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Sent::Full,
                Err(_) => Sent::Closed,
            };
        }
    }

    /// Says why there will be no answers.
    pub(super) fn refuse(&self, why: &str) {
        self.say(&Reply::refusal(why));
    }

    /// What has been said, if something has.
    pub(super) fn hear(&self, buffer: &mut [u8]) -> Received {
        loop {
            return match recv(
                &self.socket,
                &mut *buffer,
                RecvFlags::DONTWAIT | RecvFlags::TRUNC,
            ) {
                Ok((0, _)) => Received::Closed,
                Ok((_, n)) if n > buffer.len() => Received::TooLong,
                Ok((_, n)) => Received::Datagram(n),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                Err(_) => Received::Closed,
            };
        }
    }

    /// Receives a message ([`Line::hear`]), and the descriptors beside it.
    pub(super) fn hear_with(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Received {
        loop {
            return match receive(self.socket.as_fd(), buffer, fds, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Received::Nothing,
                Err(_) => Received::Closed,
                Ok(received) => received,
            };
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // It may be closed already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// Most descriptors beside a datagram.
pub(super) const FDS: usize = 4;

/// Receives a datagram with the descriptors beside it.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    how: RecvFlags,
) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        how | RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            fds.extend(came);
        }
    }
    Ok(match got.bytes {
        0 => Received::Closed,
        _ if got.flags.contains(ReturnFlags::TRUNC) => Received::TooLong,
        n => Received::Datagram(n),
    })
}
