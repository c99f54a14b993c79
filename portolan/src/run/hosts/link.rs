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

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run::reap::Exit;
use crate::run::socket::{LineSocket, Received};

/// The form of all this; both sides are one program, but perhaps not of one version.
pub(super) const VERSION: u32 = 2;

/// How long a host may be silent, or take nothing of what is sent to it.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes that may wait for room at a peer. A rank asks one question at a time, so a job has a line for each rank at most.
const MOST: usize = 64 << 20;

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

/// One end of the connection. It never waits for the other one: what finds no room there is kept.
#[derive(Debug)]
pub(super) struct Link {
    socket: LineSocket<TcpStream>,
    /// What the kernel has not taken yet.
    unsent: VecDeque<u8>,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        use rustix::net::sockopt;
        stream.set_nodelay(true)?;
        // A host that vanishes sends nothing; silence of a minute is its end.
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, SILENCE / 3)?;
        sockopt::set_tcp_keepintvl(&stream, SILENCE / 6)?;
        sockopt::set_tcp_keepcnt(&stream, 4)?;
        // While something is under way there are no such questions, and a quarter of an hour would pass without this.
        let silence = u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&stream, silence)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            socket: LineSocket::over(stream),
            unsent: VecDeque::new(),
        })
    }

    /// Sends a message, after those that still wait for room.
    ///
    /// # Errors
    /// The connection has ended; it does if the peer has not read [`MOST`] bytes.
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.unsent, message).map_err(io::Error::other)?;
        self.unsent.push_back(b'\n');
        self.flush()?;
        if self.unsent.len() > MOST {
            self.unsent.clear();
            // Whoever reads from here on finds the end of the connection.
            let _ = self.socket.stream().shutdown(Shutdown::Both);
            return Err(io::Error::other("the other side does not read"));
        }
        Ok(())
    }

    /// Whether something waits for room: [`Link::flush`] is to be called when the socket can be written.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends as much of what waits as there is room for.
    ///
    /// # Errors
    /// The connection has ended, as whoever reads from it finds too; nothing waits any more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.has_unsent() {
            let ended = match self.socket.stream().write(self.unsent.as_slices().0) {
                Ok(0) => ErrorKind::WriteZero.into(),
                Ok(sent) => {
                    self.unsent.drain(..sent);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => error,
            };
            self.unsent.clear();
            return Err(ended);
        }
        Ok(())
    }

    pub(super) fn receive(&mut self) -> Received {
        self.socket.receive()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Understands a line of the other side.
pub(super) fn read<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::net::TcpListener;

    fn pair() -> (Link, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let up = Link::new(client).unwrap();
        (up, Link::new(listener.accept().unwrap().0).unwrap())
    }

    /// What is sent to a peer that reads nothing waits here, and comes whole and in order once it reads.
    #[test]
    fn a_deaf_peer_blocks_nobody_and_misses_nothing() {
        let (mut up, mut down) = pair();
        let line = |rank: u32| Up::Line {
            rank,
            line: "x".repeat(1 << 16),
        };
        let mut sent = 0;
        while sent < 300 {
            up.send(&line(sent)).unwrap();
            sent += 1;
        }
        assert!(up.has_unsent());
        let mut got = Vec::new();
        while got.len() < sent as usize {
            got.extend(down.receive().lines);
            up.flush().unwrap();
        }
        assert!(!up.has_unsent());
        for (rank, text) in (0..).zip(&got) {
            assert_eq!(read::<Up>(text).unwrap(), line(rank));
        }
    }

    #[test]
    fn what_waits_for_a_deaf_peer_is_bounded() {
        let (mut up, _down) = pair();
        let message = Up::Failed {
            reason: "x".repeat(MOST / 4),
        };
        let error = (0..9).find_map(|_| up.send(&message).err()).unwrap();
        assert!(error.to_string().contains("does not read"), "{error}");
        assert!(up.receive().closed && !up.has_unsent());
    }

    #[test]
    fn messages_come_as_they_were_sent() {
        let (mut up, mut down) = pair();
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
