//! What a launcher and its agents on other hosts say to each other: an object of JSON in each line.
//!
//! ```text
//!   launcher ── ssh host exec portolan agent ──▶ agent
//!            ── Order, over ssh's input ───────▶          the token is never on a command line
//!            ◀───────────── TCP: Hello ─────────          the token again, and which host it is
//!            ── Welcome, or Refused ───────────▶          without either the agent tries again
//!            ◀───── Line, Closed, Exit, Failed ─
//!            ── Line, Signal, End ─────────────▶
//! ```

use std::io::{self, ErrorKind, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::run::reap::Exit;
use crate::run::socket::{LineSocket, Received};

/// The form of all this; both sides are one program, but perhaps not of one version.
pub(super) const VERSION: u32 = 2;

/// How long a peer may leave no room for what is sent to it.
const PATIENCE: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};

/// What an agent is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) version: u32,
    /// Proves to the launcher that the agent is the one it started.
    pub(super) token: String,
    /// Where the launcher may be reached, beside the address that ssh comes from.
    pub(super) addresses: Vec<String>,
    pub(super) port: u16,
    /// Which of the job's hosts this is.
    pub(super) host: usize,
    pub(super) ranks: Vec<u32>,
    /// Ranks of the job.
    pub(super) size: u32,
    pub(super) folder: String,
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

/// From the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Down {
    /// The agent's hello was a good one.
    Welcome,
    /// It was not: this launcher awaits no such agent.
    Refused,
    /// A line for a rank, its end included.
    Line { rank: u32, line: String },
    /// This signal is for the ranks: `SIGTSTP` stops them, `SIGCONT` has them go on.
    Signal { signal: i32 },
    /// End all ranks that still run, and then yourself.
    End,
}

/// From an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Up {
    Hello {
        version: u32,
        token: String,
        host: usize,
    },
    /// A rank says a line.
    Line { rank: u32, line: String },
    /// A rank says a line that has no end.
    Endless { rank: u32 },
    /// A rank closed its line.
    Closed { rank: u32 },
    /// A rank ended, with a status, by a signal, or in a way that the system does not tell.
    Exit {
        rank: u32,
        status: Option<i32>,
        signal: Option<i32>,
    },
    /// The ranks cannot be started.
    Failed { reason: String },
}

impl Up {
    pub(super) fn exit(rank: u32, exit: Exit) -> Self {
        let (status, signal) = match exit {
            Exit::Status(status) => (Some(status), None),
            Exit::Signal(signal) => (None, Some(signal)),
            Exit::Unknown => (None, None),
        };
        Self::Exit {
            rank,
            status,
            signal,
        }
    }
}

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Link(LineSocket<TcpStream>);

impl Link {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        // A host that vanishes sends nothing; silence of a minute is its end.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(20))?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(10))?;
        rustix::net::sockopt::set_tcp_keepcnt(&stream, 4)?;
        stream.set_nonblocking(true)?;
        Ok(Self(LineSocket::over(stream)))
    }

    /// Sends a message, waiting for room if it must.
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(message).map_err(io::Error::other)?;
        text.push(b'\n');
        let mut rest = &text[..];
        while !rest.is_empty() {
            match self.0.stream().write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(self.0.stream(), PollFlags::OUT)];
                    if poll(&mut fds, Some(&PATIENCE))? == 0 {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn receive(&mut self) -> Received {
        self.0.receive()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Understands a line of the other side.
pub(super) fn read<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn messages_come_as_they_were_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut up = Link::new(client).unwrap();
        let mut down = Link::new(listener.accept().unwrap().0).unwrap();
        let sent = [
            Up::Line {
                rank: 3,
                line: "cmd=put value=\"\\ é\u{1}".into(),
            },
            Up::exit(1, Exit::Signal(9)),
        ];
        for message in &sent {
            up.send(message).unwrap();
        }
        drop(up);
        let mut got = Vec::new();
        loop {
            let mut fds = [PollFd::new(&down, PollFlags::IN)];
            poll(&mut fds, None).unwrap();
            let received = down.receive();
            got.extend(received.lines);
            if received.closed {
                break;
            }
        }
        let got: Vec<Up> = got.iter().map(|l| read(l).unwrap()).collect();
        assert_eq!(got, sent);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for line in [
            "",
            "{}",
            "null",
            "{\"Line\":{}}",
            "{\"Line\":{\"rank\":-1,\"line\":\"\"}}",
            "cmd=init",
        ] {
            assert!(read::<Up>(line).is_err(), "{line:?}");
            assert!(read::<Down>(line).is_err(), "{line:?}");
            assert!(read::<Order>(line).is_err(), "{line:?}");
        }
    }
}
