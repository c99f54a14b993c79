//! The sockets of an endpoint: one that listens, one for each peer, and one descriptor that is readable when any of them is.

use crate::door::{network, receive, send_now, seqpacket};
use host::accept::{NotAccepted, Refused};
use host::peer::{Credentials, is_own_user};
use host::secret::Secret;
use portals_core::ProcessId;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, bind, connect, listen};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Connections that the kernel keeps until they are accepted, if `net.core.somaxconn` permits.
const BACKLOG: i32 = 4096;
/// Sockets that are looked at in one go.
const ROUND: usize = 32;

/// Where an endpoint listens, and the secret that a peer must know. With its process id it is all of an address, of 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contact {
    /// The socket is named after it: who has no address of the endpoint can see the name, and nothing by it.
    id: ProcessId,
    pub(super) secret: Secret,
    /// 24 bits of what tells the kernel and its layout of memory from others, and of the network namespace. They are there for a better
    /// message: who is elsewhere finds no socket in any case.
    pub(super) machine: u32,
    pub(super) network: u32,
}

/// 24 bits of a number; 0 of 0 alone.
const fn short(number: u64) -> u32 {
    let folded = (number ^ number >> 24 ^ number >> 48) as u32 & 0x00ff_ffff;
    if folded == 0 && number != 0 {
        1
    } else {
        folded
    }
}

impl Contact {
    pub(super) const BYTES: usize = Secret::LEN + 3 + 3;

    /// A new one of this process, whose secret nobody can guess.
    pub(super) fn new(id: ProcessId, machine: u64) -> io::Result<Self> {
        Ok(Self {
            id,
            secret: Secret::new()?,
            machine: short(machine),
            network: short(network()),
        })
    }

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut b = [0; Self::BYTES];
        b[..16].copy_from_slice(self.secret.bytes());
        b[16..19].copy_from_slice(&self.machine.to_le_bytes()[..3]);
        b[19..].copy_from_slice(&self.network.to_le_bytes()[..3]);
        b
    }

    /// Of the first bytes, and of the process id beside them.
    pub(super) fn from_bytes(id: ProcessId, b: &[u8]) -> Option<Self> {
        let (secret, b) = b.split_first_chunk()?;
        let ([a, b, c], rest) = b.split_first_chunk()?;
        let [d, e, f] = rest.first_chunk()?;
        Some(Self {
            id,
            secret: Secret::from_bytes(*secret),
            machine: u32::from_le_bytes([*a, *b, *c, 0]),
            network: u32::from_le_bytes([*d, *e, *f, 0]),
        })
    }

    fn address(&self) -> rustix::io::Result<SocketAddrUnix> {
        let ProcessId { nid, pid } = self.id;
        SocketAddrUnix::new_abstract_name(
            format!("portolan-endpoint-{nid:08x}{pid:08x}").as_bytes(),
        )
    }

    /// A socket that listens there.
    pub(super) fn listen(&self) -> rustix::io::Result<OwnedFd> {
        let socket = seqpacket()?;
        bind(&socket, &self.address()?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Connects to the endpoint that listens there; never waits.
    pub(super) fn connect(&self) -> Result<OwnedFd, ConnectError> {
        let socket = seqpacket().map_err(ConnectError::of)?;
        let address = self.address().map_err(ConnectError::of)?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                // The queue of the other side is full.
                Err(Errno::AGAIN) => return Err(ConnectError::Full),
                Err(Errno::CONNREFUSED) => return Err(ConnectError::Gone),
                Err(errno) => return Err(ConnectError::of(errno)),
            }
        }
        // Otherwise another user would be told the secret.
        let listens = Credentials::of(&socket).map_err(|e| ConnectError::Other(e.to_string()))?;
        is_own_user(listens.uid).map_err(|e| ConnectError::Other(e.to_string()))?;
        Ok(socket)
    }
}

/// Why an endpoint cannot be connected to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectError {
    /// Its queue of connections is full.
    Full,
    /// Nobody listens there any more.
    Gone,
    /// For this reason.
    Other(String),
}

impl ConnectError {
    fn of(errno: Errno) -> Self {
        Self::Other(errno.to_string())
    }
}

/// A connection of the own user's, if one waits.
///
/// # Errors
/// One waits and goes on waiting, as the system refuses it.
pub(super) fn accept(listener: impl AsFd) -> Result<Option<OwnedFd>, Refused> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    for _ in 0..ROUND {
        match accept_with(&listener, flags) {
            Ok(socket) => match Credentials::of(&socket).map(|c| is_own_user(c.uid)) {
                Ok(Ok(())) => return Ok(Some(socket)),
                Ok(Err(error)) => tracing::debug!(%error, "a connection of another user"),
                Err(error) => tracing::debug!(%error, "a connection of another user"),
            },
            Err(errno) => match NotAccepted::of(errno, &listener) {
                NotAccepted::Nobody => return Ok(None),
                NotAccepted::Next => {}
                NotAccepted::Later(refused) => return Err(refused),
            },
        }
    }
    Ok(None)
}

/// What a socket has.
#[derive(Debug)]
pub(super) enum Received {
    Nothing,
    /// A message of so many bytes, and the descriptors beside it.
    Message(usize, Vec<OwnedFd>),
    /// Nobody is at the other end any more.
    Closed,
}

/// Takes the message that is there, if one is.
pub(super) fn try_receive(socket: &OwnedFd, bytes: &mut [u8]) -> Received {
    loop {
        return match receive(socket, bytes) {
            Ok((0, _)) => Received::Closed,
            Ok((len, files)) => Received::Message(len, files),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Received::Nothing,
            Err(error) => {
                tracing::debug!(%error, "a peer's socket");
                Received::Closed
            }
        };
    }
}

/// Sends a message with descriptors; never waits. There is no room at a peer that does not read.
pub(super) fn try_send(to: &OwnedFd, bytes: &[u8], files: &[OwnedFd]) -> Result<(), String> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    send_now(to, bytes, &files).map_err(|errno| errno.to_string())
}

/// Descriptors, of which one tells which are readable.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new() -> rustix::io::Result<Self> {
        epoll::create(CreateFlags::CLOEXEC).map(Self)
    }

    /// A socket that is watched until it is closed; `token` tells it from others.
    pub(super) fn add(&self, socket: impl AsFd, token: u64) -> rustix::io::Result<()> {
        epoll::add(&self.0, socket, EventData::new_u64(token), EventFlags::IN)
    }

    /// No longer watches a socket, of which others may have a descriptor.
    pub(super) fn remove(&self, socket: impl AsFd) {
        if let Err(error) = epoll::delete(&self.0, socket) {
            tracing::debug!(%error, "a socket that was not watched");
        }
    }

    /// The tokens of some that are readable.
    pub(super) fn readable(&self) -> Vec<u64> {
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; ROUND];
        let now = rustix::event::Timespec::default();
        match epoll::wait(&self.0, &mut events[..], Some(&now)) {
            Ok(count) => {
                let events = events.iter().take(count);
                events.map(|event| event.data.u64()).collect()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Readable when one of the descriptors is.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ProcessId = ProcessId::new(7, 8);

    #[test]
    fn a_contact_travels_as_bytes_and_two_differ() {
        let [a, b] = [1, 1].map(|machine| Contact::new(ID, machine).unwrap());
        let again = Contact::from_bytes(ID, &a.to_bytes()).unwrap();
        assert_eq!(
            (again.id, again.machine, again.network),
            (a.id, a.machine, a.network)
        );
        assert!(again.secret.is(a.secret.bytes()));
        assert!(!a.secret.is(b.secret.bytes()));
        assert!(Contact::from_bytes(ID, &a.to_bytes()[1..]).is_none());
        assert_eq!(
            (short(0), short(1 << 24 | 1), short(0x1234_5678)),
            (0, 1, 0x34_566a)
        );
    }

    #[test]
    fn a_watch_tells_of_messages_and_connections() {
        let contact = Contact::new(ProcessId::new(7, std::process::id()), 1).unwrap();
        assert_eq!(contact.connect().unwrap_err(), ConnectError::Gone);
        let listener = contact.listen().unwrap();
        let watch = Watch::new().unwrap();
        watch.add(&listener, 0).unwrap();
        assert!(watch.readable().is_empty() && accept(&listener).unwrap().is_none());
        let one = contact.connect().unwrap();
        assert_eq!(watch.readable(), [0]);
        let other = accept(&listener).unwrap().unwrap();
        watch.add(&other, 5).unwrap();
        assert!(watch.readable().is_empty());
        try_send(&one, b"word", &[]).unwrap();
        assert_eq!(watch.readable(), [5]);
        let mut bytes = [0; 16];
        assert!(
            matches!(try_receive(&other, &mut bytes), Received::Message(4, files) if files.is_empty())
        );
        assert!(matches!(try_receive(&other, &mut bytes), Received::Nothing));
        // What other tests start has copies of all descriptors until its program begins.
        let begun = std::time::Instant::now();
        let until = |tokens: &[u64]| {
            while watch.readable() != tokens {
                assert!(begun.elapsed().as_secs() < 60, "{tokens:?}");
                std::thread::yield_now();
            }
        };
        drop(one);
        until(&[5]);
        assert!(matches!(try_receive(&other, &mut bytes), Received::Closed));
        drop(other);
        until(&[]);
    }
}
