//! Messages over a stream socket, with descriptors beside them.
//!
//! Exactly one message is read at a time, header first, so that descriptors that arrive belong to
//! the message being read.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::FromBytes;

use crate::error::DeviceError;
use crate::proto::{HEADER_LEN, Header, MAX_FDS, MAX_MESSAGE};

/// A whole message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// What a look at the socket gave.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message),
    /// Not all of it is there yet.
    Partial,
    Closed,
}

/// One end of a connection; never blocks by itself.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: UnixStream,
    inbox: Vec<u8>,
    filled: usize,
    fds: Vec<OwnedFd>,
    outbox: Vec<u8>,
    sent: usize,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    pub(crate) fn new(socket: UnixStream) -> std::io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            inbox: vec![0; HEADER_LEN],
            filled: 0,
            fds: Vec::new(),
            outbox: Vec::new(),
            sent: 0,
        })
    }

    /// Reads what is there of the next message.
    pub(crate) fn receive(&mut self) -> Result<Received, DeviceError> {
        loop {
            if self.filled == self.inbox.len() {
                let header = Header::read_from_prefix(&self.inbox)
                    .map(|(header, _)| header)
                    .map_err(|_| DeviceError::Protocol("a header is missing".to_owned()))?;
                let size = header.size.get() as usize;
                if !(HEADER_LEN..=MAX_MESSAGE).contains(&size) {
                    return Err(DeviceError::Protocol(format!(
                        "a message of {size} bytes, not {HEADER_LEN} to {MAX_MESSAGE}"
                    )));
                }
                if size == self.filled {
                    let bytes = std::mem::replace(&mut self.inbox, vec![0; HEADER_LEN]);
                    self.filled = 0;
                    return Ok(Received::Message(Message {
                        header,
                        body: bytes[HEADER_LEN..].to_vec(),
                        fds: std::mem::take(&mut self.fds),
                    }));
                }
                self.inbox.resize(size, 0);
            }
            match self.fill() {
                Ok(0) => return Ok(Received::Closed),
                Ok(n) => self.filled += n,
                Err(Errno::AGAIN) => return Ok(Received::Partial),
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(Received::Closed),
                Err(e) => return Err(DeviceError::system("receive a message")(e)),
            }
        }
    }

    fn fill(&mut self) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.inbox[self.filled..])];
        let got = recvmsg(
            &self.socket,
            &mut parts,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                let room = MAX_FDS.saturating_sub(self.fds.len());
                self.fds.extend(fds.take(room));
            }
        }
        Ok(got.bytes)
    }

    /// Sends a message when the other side takes it; see [`Connection::flush`].
    pub(crate) fn queue(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Whether something queued has not been taken.
    pub(crate) fn is_backed_up(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends what is queued, as far as the other side takes it.
    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        while self.sent < self.outbox.len() {
            match self.push(&self.outbox[self.sent..], &[]) {
                Ok(n) => self.sent += n,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(DeviceError::Closed),
                Err(e) => return Err(DeviceError::system("send a message")(e)),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(())
    }

    fn push(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::INVAL);
        }
        sendmsg(
            &self.socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    }

    /// Sends a message with `fds` beside it, waiting until `until` for room.
    pub(crate) fn send(
        &mut self,
        bytes: &[u8],
        mut fds: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<(), DeviceError> {
        let until = Instant::now() + patience;
        let mut sent = 0;
        while sent < bytes.len() {
            match self.push(&bytes[sent..], fds) {
                Ok(n) => {
                    sent += n;
                    fds = &[];
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until, patience)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(DeviceError::Closed),
                Err(e) => return Err(DeviceError::system("send a message")(e)),
            }
        }
        Ok(())
    }

    /// The next message, waiting up to `patience` for it.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Message, DeviceError> {
        let until = Instant::now() + patience;
        loop {
            match self.receive()? {
                Received::Message(message) => return Ok(message),
                Received::Partial => self.wait(PollFlags::IN, until, patience)?,
                Received::Closed => return Err(DeviceError::Closed),
            }
        }
    }

    fn wait(
        &self,
        for_what: PollFlags,
        until: Instant,
        patience: Duration,
    ) -> Result<(), DeviceError> {
        let left = until.saturating_duration_since(Instant::now());
        match poll(
            &mut [PollFd::new(&self.socket, for_what)],
            Some(&timespec(left)),
        ) {
            Ok(0) => Err(DeviceError::Silent {
                seconds: patience.as_secs(),
            }),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(DeviceError::system("wait for the other side")(e)),
        }
    }
}

/// A duration as the system takes it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().cast_signed(),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
