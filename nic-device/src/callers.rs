//! Whoever has connected and has not agreed on a version yet: no client, and in nobody's way. Listeners (made with `NONBLOCK`)
//! and connections do not block.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use host::accept::NotAccepted;
use nic_model::NodeId;
use rustix::io::Errno;

use crate::chips::Chips;
use crate::proto::Command;
use crate::server::{Endpoint, Outcome};
use crate::socket::{Connection, Received};

/// How long whoever connects may take for its first message, which a client says at once.
const VERSION_WITHIN: Duration = Duration::from_secs(5);
/// Connections without one at one time.
const MOST: usize = 64;
/// How long nobody is let in after the system has refused a connection.
const BREATH: Duration = Duration::from_millis(100);

/// One of them.
struct Caller {
    node: usize,
    since: Instant,
    connection: Connection,
    endpoint: Endpoint,
}

/// A connection whose other end speaks vfio-user.
pub(crate) struct Agreed {
    pub(crate) node: usize,
    pub(crate) connection: Connection,
    pub(crate) endpoint: Endpoint,
}

/// All of them, the oldest first.
#[derive(Default)]
pub(crate) struct Callers {
    callers: Vec<Caller>,
    breath: Option<Instant>,
}

impl Callers {
    /// Their descriptors, in order.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.callers.iter().map(|caller| caller.connection.as_fd())
    }

    /// Whether somebody may be let in now.
    pub(crate) fn accepts(&self) -> bool {
        self.breath.is_none_or(|until| until <= Instant::now())
    }

    /// How long nothing is to be done for them, if they say nothing.
    pub(crate) fn rest(&self) -> Option<Duration> {
        let oldest = self.callers.first().map(|c| c.since + VERSION_WITHIN);
        let breath = self.breath.filter(|_| !self.accepts());
        let until = oldest.into_iter().chain(breath).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// The next who has connected to `listener`.
    pub(crate) fn accept(&mut self, listener: &UnixListener) -> Option<UnixStream> {
        for _ in 0..=MOST {
            let error = match listener.accept() {
                Ok((stream, _)) => {
                    self.breath = None;
                    return Some(stream);
                }
                Err(error) => error,
            };
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
            match NotAccepted::of(errno, listener) {
                NotAccepted::Nobody => return None,
                NotAccepted::Next => {}
                // Room is made by those who have no claim to it. Otherwise somebody else may make some.
                NotAccepted::Later(refused)
                    if refused.is_for_want_of_room() && !self.callers.is_empty() =>
                {
                    self.callers.remove(0);
                }
                NotAccepted::Later(refused) => {
                    if self.breath.is_none() {
                        tracing::warn!(%refused, "a connection is not accepted");
                    }
                    self.breath = Some(Instant::now() + BREATH);
                    return None;
                }
            }
        }
        None
    }

    /// Takes in a connection to the socket of `node`.
    pub(crate) fn push(&mut self, node: usize, connection: Connection) {
        if self.callers.len() >= MOST {
            self.callers.remove(0);
        }
        self.callers.push(Caller {
            node,
            since: Instant::now(),
            connection,
            endpoint: Endpoint::new(NodeId(node as u16)),
        });
    }

    /// Hears the one at `at`; gives it away when it has agreed on a version, and forgets it when it cannot be talked to.
    pub(crate) fn hear(&mut self, at: usize, chips: &mut Chips) -> Option<Agreed> {
        let caller = self.callers.get_mut(at)?;
        let said = match caller.connection.receive() {
            Ok(Received::Partial) => return None,
            Ok(Received::Message(message)) if message.header.command == Command::VERSION => {
                caller.endpoint.handle(chips, message, false)
            }
            _ => Outcome::Close,
        };
        if let Outcome::Reply(bytes) = &said {
            caller.connection.queue(bytes);
        }
        if said == Outcome::Close || caller.connection.flush().is_err() {
            self.callers.remove(at);
            return None;
        }
        if !caller.endpoint.has_agreed() {
            return None;
        }
        let Caller {
            node,
            connection,
            endpoint,
            ..
        } = self.callers.remove(at);
        Some(Agreed {
            node,
            connection,
            endpoint,
        })
    }

    /// Hangs up on those who have taken too long.
    pub(crate) fn lose_patience(&mut self) {
        let now = Instant::now();
        self.callers.retain(|caller| {
            let late = now.saturating_duration_since(caller.since) >= VERSION_WITHIN;
            if late {
                tracing::warn!(
                    "a connection to node {} without a version within {VERSION_WITHIN:?} was closed",
                    caller.node
                );
            }
            !late
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, setrlimit};
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    /// Set for the process that has no descriptor left.
    const FULL: &str = "PORTOLAN_TEST_FULL_DEVICE";

    /// Where there is no descriptor for whoever connects, the socket is not looked at for a while, and nobody is lost.
    #[test]
    fn a_socket_without_descriptors_is_left_alone_for_a_while() {
        if std::env::var_os(FULL).is_none() {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("callers::tests::a_socket_without_descriptors_is_left_alone_for_a_while")
                .env(FULL, "")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout).into_owned()
                + &String::from_utf8_lossy(&child.stderr);
            return assert!(child.status.success(), "{said}");
        }
        let name = format!("portolan-test-callers-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut client = UnixStream::connect_addr(&address).unwrap();
        client.write_all(b"here").unwrap();
        let limit = Rlimit {
            current: Some(100),
            maximum: Some(100),
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let copy = || client.as_fd().try_clone_to_owned().ok();
        let filling: Vec<OwnedFd> = std::iter::from_fn(copy).collect();
        let mut callers = Callers::default();
        assert!(callers.accepts() && callers.accept(&listener).is_none());
        assert!(!callers.accepts());
        assert!(callers.rest().is_some_and(|rest| rest <= BREATH));
        drop(filling);
        while !callers.accepts() {
            std::thread::yield_now();
        }
        let mut said = [0; 4];
        let mut stream = callers.accept(&listener).unwrap();
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"here");
        // Who has been let in stays, although there is no number for another one: there is none.
        let connection = Connection::new(stream).unwrap();
        callers.push(0, connection);
        let _filling: Vec<OwnedFd> = std::iter::from_fn(copy).collect();
        assert!(callers.accept(&listener).is_none());
        assert_eq!(callers.callers.len(), 1);
        assert!(callers.accepts());
    }
}
