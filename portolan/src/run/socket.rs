//! The launcher's end of a rank's line: bytes in, lines out, never blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use portals_shim::job::wire::LINE_MAX;

/// A rank's socket and what was read beyond its last line.
#[derive(Debug)]
pub(super) struct LineSocket<S = UnixStream> {
    stream: S,
    inbox: Vec<u8>,
}

/// What one look at a socket gave.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Whole lines, without their ends.
    pub(super) lines: Vec<String>,
    /// The rank closed its end, or the connection failed.
    pub(super) closed: bool,
    /// The rank sent more than [`LINE_MAX`] bytes without a line end.
    pub(super) endless: bool,
}

impl LineSocket {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: Read + Write> LineSocket<S> {
    /// Over a stream that does not block.
    pub(super) fn over(stream: S) -> Self {
        Self {
            stream,
            inbox: Vec::new(),
        }
    }

    pub(super) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Takes what has arrived, at most a few lines' worth, so that one rank cannot hold the launcher.
    pub(super) fn receive(&mut self) -> Received {
        let mut received = Received::default();
        let mut chunk = [0; 4096];
        for _ in 0..32 {
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    received.closed = true;
                    break;
                }
                Ok(got) => self
                    .inbox
                    .extend_from_slice(chunk.get(..got).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    received.closed = true;
                    break;
                }
            }
        }
        while let Some(end) = self.inbox.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).take(end).collect();
            received
                .lines
                .push(String::from_utf8_lossy(&line).into_owned());
        }
        received.endless = self.inbox.len() > LINE_MAX;
        received
    }

    /// Sends one line, end included. A rank asks one question at a time, so its socket always has room
    /// unless the rank floods the launcher and reads nothing.
    pub(super) fn send(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes())
    }
}

impl<S: AsFd> AsFd for LineSocket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_they_arrive() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::new(ours).unwrap();
        theirs.write_all(b"cmd=in").unwrap();
        assert!(socket.receive().lines.is_empty());
        theirs.write_all(b"it a=b\ncmd=x\ncmd=").unwrap();
        let got = socket.receive();
        assert_eq!(got.lines, ["cmd=init a=b", "cmd=x"]);
        assert!(!got.closed);
        drop(theirs);
        assert!(socket.receive().closed);
    }

    #[test]
    fn an_endless_line_is_noticed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut socket = LineSocket::new(ours).unwrap();
        let mut sent = 0;
        while sent <= LINE_MAX {
            sent += (&theirs).write(&[b'x'; 1024]).unwrap();
            assert!(!socket.receive().endless || sent > LINE_MAX);
        }
        assert!(socket.receive().endless);
    }

    #[test]
    fn a_rank_that_reads_nothing_is_an_error_not_a_hang() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut socket = LineSocket::new(ours).unwrap();
        let line = "x".repeat(64 * 1024);
        let error = (0..1000).find_map(|_| socket.send(&line).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
