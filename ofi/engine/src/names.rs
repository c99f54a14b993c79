//! Names of endpoints: a host and a port, by which others find an address (`node` and `service` of `fi_getinfo`).
//!
//! A name is of this machine, and of one user. The endpoint that has it listens on a socket in Linux's abstract name space, and gives its
//! address to whoever connects:
//!
//! ```text
//!   who asks                                      who has the name
//!   connect to portolan-name-UID-IP:PORT ───────► is it of the own user?
//!   is it of the own user? ◄───────────────────── the address, 64 bytes
//! ```
//!
//! Both prove their user by the kernel, as an address is a secret. So another machine, whose users this kernel cannot tell, is given no
//! address. The port is no port of TCP: programs that take one beside it are not disturbed.

use host::accept::NotAccepted;
use host::fork::Unshared;
use host::own_thread::spawn_own_thread;
use host::peer::{Credentials, OtherUser, is_own_user};
use portals_shim::endpoint::Address;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recv, send, shutdown, socket_with,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An address as bytes.
type Bytes = [u8; Address::BYTES];

/// Connections that the kernel keeps until they are answered, if `net.core.somaxconn` permits.
const BACKLOG: i32 = 4096;
/// How long whoever asks waits for an answer, which the other side's thread gives at once.
const PATIENCE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// Within this a name goes that nobody answers for any more.
const GOES_WITHIN: Duration = Duration::from_secs(1);
/// How long the thread pauses where the system refuses a connection.
const PAUSE: Duration = Duration::from_millis(10);

/// Why an endpoint is not found by a host and a port, or cannot be named so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The service is none that can be.
    #[error("the service {service:?} is no number of a port")]
    Service {
        /// As it was given.
        service: String,
    },
    /// No host is named so.
    #[error("no host is named {host:?}")]
    Host {
        /// As it was given.
        host: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The host is another machine, or this one by another network namespace.
    #[error("the host {host:?} is not this machine, within which endpoints have names")]
    Elsewhere {
        /// As it was given.
        host: String,
    },
    /// Another endpoint has the name.
    #[error("another endpoint is named {name}")]
    Taken {
        /// What was asked for.
        name: Name,
    },
    /// Nobody has the name.
    #[error("no endpoint is named {name}")]
    Nobody {
        /// What was asked for.
        name: Name,
    },
    /// Who has it is another user.
    #[error("who is named {name} is another user's")]
    OtherUser {
        /// What was asked for.
        name: Name,
        /// Whose.
        #[source]
        source: OtherUser,
    },
    /// Who has it does not answer, or not by an address.
    #[error("who is named {name} gives no address")]
    Silent {
        /// What was asked for.
        name: Name,
    },
    /// The system refuses a call.
    #[error("a name of an endpoint")]
    System(#[from] io::Error),
}

impl From<Errno> for NameError {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// A host of this machine, and a port.
///
/// ```
/// use ofi_engine::names::Name;
///
/// let name = Name::of_source(Some("127.0.0.1"), Some("7471"), true)?;
/// let name = name.ok_or("a port makes a name")?;
/// assert_eq!(name.to_string(), "127.0.0.1:7471");
/// assert_eq!(Name::from_bytes(&name.to_bytes()), Some(name));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// None: every one of this machine.
    host: Option<IpAddr>,
    port: u16,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Some(host) => SocketAddr::new(host, self.port).fmt(f),
            None => write!(f, "*:{}", self.port),
        }
    }
}

/// The number of a port; 0 is none.
fn port(service: &str) -> Result<Option<u16>, NameError> {
    let port = service.parse().map_err(|_| NameError::Service {
        service: service.to_owned(),
    })?;
    Ok((port != 0).then_some(port))
}

/// The addresses of a host that are this machine's, of which there is at least one.
fn hosts(host: &str, numeric: bool) -> Result<Vec<IpAddr>, NameError> {
    let all = match host.parse::<IpAddr>() {
        Ok(one) => vec![one],
        Err(_) if numeric => return Err(unknown(host, io::ErrorKind::InvalidInput.into())),
        Err(_) => match (host, 0).to_socket_addrs() {
            Ok(all) => all.map(|one| one.ip()).collect(),
            Err(error) => return Err(unknown(host, error)),
        },
    };
    // Only what an interface of this machine has can be bound to.
    let own = |ip: &IpAddr| UdpSocket::bind((*ip, 0)).is_ok();
    let own: Vec<_> = all
        .into_iter()
        .filter(own)
        .map(|ip| ip.to_canonical())
        .collect();
    match own.is_empty() {
        true => Err(NameError::Elsewhere {
            host: host.to_owned(),
        }),
        false => Ok(own),
    }
}

fn unknown(host: &str, source: io::Error) -> NameError {
    NameError::Host {
        host: host.to_owned(),
        source,
    }
}

impl Name {
    /// Bytes of a name.
    pub const BYTES: usize = 1 + 16 + 2;

    /// The name that a program wants for its own endpoint. A host without a port is looked at, and makes no name; a port without a host
    /// is one of every host of this machine. A `numeric` host is an address.
    ///
    /// # Errors
    /// The host is unknown or another machine, or the service is no number.
    pub fn of_source(
        host: Option<&str>,
        service: Option<&str>,
        numeric: bool,
    ) -> Result<Option<Self>, NameError> {
        let port = service.map_or(Ok(None), port)?;
        let hosts = host.map(|host| hosts(host, numeric)).transpose()?;
        let host = hosts.and_then(|all| all.first().copied());
        let host = host.filter(|ip| !ip.is_unspecified());
        Ok(port.map(|port| Self { host, port }))
    }

    /// The names that an endpoint may have which a program means: the exact ones, and that of every host.
    fn of_peer(host: Option<&str>, service: &str, numeric: bool) -> Result<Vec<Self>, NameError> {
        let none = || NameError::Service {
            service: service.to_owned(),
        };
        let port = port(service)?.ok_or_else(none)?;
        let hosts = match host {
            Some(host) => hosts(host, numeric)?,
            None => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        };
        let exact = hosts
            .into_iter()
            .filter(|ip| !ip.is_unspecified())
            .map(Some);
        let all = exact.chain([None]);
        Ok(all.map(|host| Self { host, port }).collect())
    }

    /// The address of the endpoint of this user that a host and a port name. Without a host it is one of this machine.
    ///
    /// # Errors
    /// Nobody has the name, or who has it gives no address within a second.
    pub fn find(host: Option<&str>, service: &str, numeric: bool) -> Result<Bytes, NameError> {
        let mut nobody = None;
        for name in Self::of_peer(host, service, numeric)? {
            match name.ask() {
                Err(NameError::Nobody { .. }) => nobody = nobody.or(Some(name)),
                found => return found,
            }
        }
        let port = port(service)?.unwrap_or_default();
        let name = nobody.unwrap_or(Self { host: None, port });
        Err(NameError::Nobody { name })
    }

    /// The name as bytes.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = 1;
        let host = match self.host {
            None => Ipv6Addr::UNSPECIFIED,
            Some(IpAddr::V4(host)) => host.to_ipv6_mapped(),
            Some(IpAddr::V6(host)) => host,
        };
        bytes[1..17].copy_from_slice(&host.octets());
        bytes[17..].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }

    /// The name that the first bytes are.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&1, bytes) = bytes.split_first()? else {
            return None;
        };
        let (host, bytes) = bytes.split_first_chunk::<16>()?;
        let host = IpAddr::V6(Ipv6Addr::from(*host)).to_canonical();
        let port = u16::from_be_bytes(*bytes.first_chunk()?);
        let host = Some(host).filter(|host| !host.is_unspecified());
        (port != 0).then_some(Self { host, port })
    }

    fn socket(self, more: SocketFlags) -> Result<(OwnedFd, SocketAddrUnix), NameError> {
        let uid = host::ids::user()?;
        let place = format!("portolan-name-{uid}-{self}");
        let address = SocketAddrUnix::new_abstract_name(place.as_bytes())?;
        let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(unix, kind, SocketFlags::CLOEXEC | more, None)?;
        Ok((socket, address))
    }

    /// Gives whoever asks for this name the address, until the value is dropped.
    ///
    /// # Errors
    /// Another endpoint has the name, or there is no thread to answer.
    pub fn publish(self, address: Bytes) -> Result<Published, NameError> {
        let (socket, place) = self.socket(SocketFlags::empty())?;
        let until = Instant::now() + GOES_WITHIN;
        let pause = || {
            std::thread::park_timeout(Duration::from_millis(1));
            Instant::now() < until
        };
        self.take(&socket, &place, pause)?;
        listen(&socket, BACKLOG)?;
        let socket = Arc::new(Unshared::new(socket));
        let listener = Arc::clone(&socket);
        let thread = spawn_own_thread("portals-name", move || answer(&listener, &address))?;
        Ok(Published {
            socket,
            thread: Some(thread),
            generation: host::fork::generation(),
        })
    }

    /// Gives the socket the name. Where somebody has it and does not listen, it is on its way out with a forked child that has not
    /// run yet; so it is tried again until `pause` says no.
    fn take(
        self,
        socket: &OwnedFd,
        place: &SocketAddrUnix,
        mut pause: impl FnMut() -> bool,
    ) -> Result<(), NameError> {
        loop {
            match bind(socket, place) {
                Err(Errno::ADDRINUSE) => {}
                bound => return Ok(bound?),
            }
            let (other, _) = self.socket(SocketFlags::NONBLOCK)?;
            let listens = connect(&other, place) != Err(Errno::CONNREFUSED);
            if listens || !pause() {
                return Err(NameError::Taken { name: self });
            }
        }
    }

    fn ask(self) -> Result<Bytes, NameError> {
        let (socket, place) = self.socket(SocketFlags::NONBLOCK)?;
        loop {
            match connect(&socket, &place) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                // So many ask already that nobody answers.
                Err(Errno::AGAIN) => return Err(NameError::Silent { name: self }),
                Err(Errno::CONNREFUSED) => return Err(NameError::Nobody { name: self }),
                Err(errno) => return Err(errno.into()),
            }
        }
        let listens = Credentials::of(&socket)?;
        is_own_user(listens.uid).map_err(|source| NameError::OtherUser { name: self, source })?;
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        while poll(&mut fds, Some(&PATIENCE)) == Err(Errno::INTR) {}
        let mut bytes = [0; Address::BYTES];
        match recv(&socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, Address::BYTES)) => Ok(bytes),
            Ok(_) | Err(Errno::AGAIN | Errno::CONNRESET) => Err(NameError::Silent { name: self }),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A name under which others find an endpoint; dropped, it is free, at the latest when a child that was forked before has first run.
#[derive(Debug)]
pub struct Published {
    socket: Arc<Unshared>,
    thread: Option<JoinHandle<()>>,
    /// Of the process that has the thread.
    generation: usize,
}

impl Drop for Published {
    fn drop(&mut self) {
        // A forked child has neither the socket nor the thread: its parent keeps the name.
        if self.generation != host::fork::generation() {
            return;
        }
        if let Err(error) = shutdown(&*self.socket, Shutdown::Both) {
            return tracing::warn!(%error, "a name of an endpoint stays");
        }
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Gives everybody of the own user the address, until the socket is shut down. Nobody is waited for: a new connection has room for it.
fn answer(listener: &Unshared, address: &Bytes) {
    let mut told = false;
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                told = false;
                tell(&socket, address);
            }
            // It was shut down.
            Err(Errno::INVAL) => return,
            Err(errno) => match NotAccepted::of(errno, listener) {
                NotAccepted::Next => {}
                // The call waits for nobody where there is no descriptor, and none is there.
                NotAccepted::Nobody => std::thread::park_timeout(PAUSE),
                NotAccepted::Later(refused) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%refused, "who asks for the name of an endpoint is not answered, until that works");
                    }
                    std::thread::park_timeout(PAUSE);
                }
            },
        }
    }
}

fn tell(socket: &OwnedFd, address: &Bytes) {
    let own = Credentials::of(socket).map(|asks| is_own_user(asks.uid));
    if !matches!(own, Ok(Ok(()))) {
        return tracing::debug!(?own, "another user asks for the name of an endpoint");
    }
    if let Err(error) = send(socket, address, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        tracing::debug!(%error, "who asks for the name of an endpoint has left");
    }
}

#[cfg(test)]
mod tests;
