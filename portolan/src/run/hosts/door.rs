//! Where agents come in: one listening socket for each address of this machine that hosts need, open until the last of
//! them has come.
//!
//! Anybody who reaches such an address may connect. What is said first must be the hello of an agent with the job's
//! secret, within [`PROOF`]; whoever says anything else, or nothing, is dropped. Strangers delay nobody: all connections
//! are read as words come, and where there are too many, one of those that have said nothing has to go.

use std::io;
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket,
};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use host::accept::NotAccepted;
use rustix::io::Errno;

use super::link::Link;
use crate::run::socket::Received;

/// How long a connection has to prove that it is an agent's.
const PROOF: Duration = Duration::from_secs(5);
/// How many may try at a time.
const STRANGERS: usize = 64;
/// Connections that are taken at a time, before the rest of the job has its turn.
const ROUND: usize = 16;
/// How long no connection is taken after the system has refused one.
const PAUSE: Duration = Duration::from_millis(50);

/// Where the agent of a host finds the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// Beside the one that ssh comes from.
    pub(super) names: Vec<String>,
    pub(super) port: u16,
}

/// A connection that has not said whose it is.
#[derive(Debug)]
struct Stranger {
    link: Link,
    from: IpAddr,
    since: Instant,
}

/// The listening sockets, and who has come through them.
#[derive(Debug, Default)]
pub(super) struct Doors {
    listeners: Vec<(IpAddr, TcpListener)>,
    strangers: Vec<Stranger>,
    pause: Option<Instant>,
    /// Whether it was said that a connection was refused.
    told: bool,
}

impl Doors {
    /// Opens a door for the agent of `host`: at `wanted`, or else at the address from which this machine reaches it.
    /// Where neither is one of this machine's, as the name is known to ssh alone or `wanted` is that of a machine in
    /// between, the door is at all addresses.
    pub(super) fn open(&mut self, host: &str, wanted: Option<&str>) -> io::Result<Address> {
        let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
        let at = match wanted {
            Some(wanted) => first_address(wanted),
            None => address_towards(name),
        };
        let own = at.and_then(|at| self.listen(at).ok().map(|port| (at, port)));
        let names = wanted.map(str::to_owned);
        match own {
            Some((at, port)) => Ok(Address {
                names: vec![names.unwrap_or_else(|| at.to_string())],
                port,
            }),
            None => Ok(Address {
                names: names.map_or_else(own_name, |name| vec![name]),
                port: self.listen_everywhere()?,
            }),
        }
    }

    /// Shuts all: nobody else is awaited.
    pub(super) fn shut(&mut self) {
        self.listeners.clear();
        self.strangers.clear();
    }

    /// What becomes readable when [`Self::meet`] has something to do.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let open = self.pause.is_none();
        let listeners = self.listeners.iter().filter(move |_| open);
        let listeners = listeners.map(|(_, listener)| listener.as_fd());
        listeners.chain(self.strangers.iter().map(|s| s.link.as_fd()))
    }

    /// When it has something to do though nothing comes.
    pub(super) fn wake(&self) -> Option<Instant> {
        let proofs = self.strangers.iter().map(|s| s.since + PROOF);
        proofs.chain(self.pause).min()
    }

    /// Lets in who has come, and hands each that has said a line to `hear`. Drops who is silent for too long.
    pub(super) fn meet(&mut self, mut hear: impl FnMut(Link, Received)) {
        let now = Instant::now();
        if self.pause.is_some_and(|until| now >= until) {
            self.pause = None;
        }
        self.listen_to_strangers(&mut hear);
        self.strangers.retain(|s| now < s.since + PROOF);
        for at in 0..self.listeners.len() {
            // Strangers may come as fast as they are dropped, and others wait for this process too.
            for _ in 0..ROUND {
                if self.pause.is_some() || !self.accept(at, &mut hear) {
                    break;
                }
            }
        }
    }

    /// Takes one connection; whether there may be more.
    fn accept(&mut self, at: usize, hear: &mut impl FnMut(Link, Received)) -> bool {
        let Some((_, listener)) = self.listeners.get(at) else {
            return false;
        };
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
                match NotAccepted::of(errno, listener) {
                    NotAccepted::Nobody => return false,
                    NotAccepted::Next => return true,
                    NotAccepted::Later(refused) => {
                        // The connection stays where it is.
                        if !std::mem::replace(&mut self.told, true) {
                            portals_shim::say(format_args!(
                                "portolan run: the connection of a host cannot be taken: {refused}; it is tried again"
                            ));
                        }
                        if refused.is_for_want_of_room() {
                            self.make_room();
                        }
                        self.pause = Some(Instant::now() + PAUSE);
                        return false;
                    }
                }
            }
        };
        if self.strangers.len() >= STRANGERS {
            self.listen_to_strangers(hear);
        }
        if self.strangers.len() >= STRANGERS {
            self.make_room();
        }
        match Link::new(stream) {
            Ok(mut link) => {
                // An agent's hello mostly comes with its connection.
                let received = link.receive();
                let stranger = Stranger {
                    link,
                    from: address.ip(),
                    since: Instant::now(),
                };
                self.sort(stranger, received, hear);
            }
            Err(error) => tracing::debug!(%error, "a connection cannot be used"),
        }
        true
    }

    fn listen_to_strangers(&mut self, hear: &mut impl FnMut(Link, Received)) {
        for mut stranger in std::mem::take(&mut self.strangers) {
            let received = stranger.link.receive();
            self.sort(stranger, received, hear);
        }
    }

    fn sort(&mut self, stranger: Stranger, got: Received, hear: &mut impl FnMut(Link, Received)) {
        if !got.lines.is_empty() {
            hear(stranger.link, got);
        } else if !got.closed && !got.endless {
            self.strangers.push(stranger);
        }
    }

    /// Drops the oldest connection from the address that has most.
    fn make_room(&mut self) {
        let from = |ip: IpAddr| self.strangers.iter().filter(|s| s.from == ip).count();
        let most = self.strangers.iter().map(|s| (from(s.from), s.from)).max();
        let Some((_, most)) = most else { return };
        let oldest = self.strangers.iter().position(|s| s.from == most);
        if let Some(oldest) = oldest {
            let gone = self.strangers.remove(oldest);
            tracing::warn!(from = %gone.from, "too many connections at a time");
        }
    }

    fn listen(&mut self, at: IpAddr) -> io::Result<u16> {
        let known = self.listeners.iter().find(|(ip, _)| *ip == at);
        if let Some((_, listener)) = known {
            return Ok(listener.local_addr()?.port());
        }
        let listener = TcpListener::bind((at, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        self.listeners.push((at, listener));
        Ok(port)
    }

    fn listen_everywhere(&mut self) -> io::Result<u16> {
        self.listen(Ipv6Addr::UNSPECIFIED.into())
            .or_else(|_| self.listen(Ipv4Addr::UNSPECIFIED.into()))
    }
}

fn first_address(name: &str) -> Option<IpAddr> {
    let mut found = (name, 0).to_socket_addrs().ok()?;
    found.next().map(|address| address.ip())
}

/// The address of this machine that packets to `host` come from. None is sent.
fn address_towards(host: &str) -> Option<IpAddr> {
    const SSH: u16 = 22;
    let found = (host, SSH).to_socket_addrs().ok()?;
    found.filter_map(|there| own_address(there).ok()).next()
}

fn own_address(there: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match there {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(there)?;
    Ok(socket.local_addr()?.ip())
}

fn own_name() -> Vec<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    (!name.is_empty())
        .then(|| name.to_owned())
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    #[test]
    fn a_door_is_only_where_it_is_needed() {
        let mut doors = Doors::default();
        let first = doors.open("127.0.0.1", None).unwrap();
        assert_eq!(first.names, ["127.0.0.1"]);
        assert_eq!(doors.open("user@127.0.0.1", None).unwrap(), first);
        let wanted = doors.open("no.such.host.invalid", Some("127.0.0.1"));
        assert_eq!(wanted.unwrap(), first);
        assert_eq!(doors.listeners.len(), 1);
        let local = doors.listeners[0].1.local_addr().unwrap();
        assert_eq!(
            local,
            ("127.0.0.1".parse::<IpAddr>().unwrap(), first.port).into()
        );
        // Not an address of this machine (RFC 5737), and a name that nobody knows (RFC 6761).
        let everywhere = doors.open("no.such.host.invalid", None).unwrap();
        let forwarded = doors.open("127.0.0.1", Some("192.0.2.1")).unwrap();
        assert_eq!(forwarded.names, ["192.0.2.1"]);
        assert_eq!(forwarded.port, everywhere.port);
        assert!(doors.listeners[1].0.is_unspecified());
    }

    #[test]
    fn who_speaks_is_heard_however_many_are_silent() {
        let mut doors = Doors::default();
        let door = doors.open("127.0.0.1", None).unwrap();
        let knock = || TcpStream::connect(("127.0.0.1", door.port)).unwrap();
        let mut silent = Vec::new();
        let mut heard = Vec::new();
        for round in 0..10 {
            silent.extend((0..20).map(|_| knock()));
            // Half a line, and a line.
            let mut half = knock();
            half.write_all(b"half").unwrap();
            silent.push(half);
            let mut agent = knock();
            agent
                .write_all(format!("hello {round}\n").as_bytes())
                .unwrap();
            while heard.len() <= round {
                let fds: Vec<_> = doors.fds().collect();
                crate::run::wait::readable(&fds, doors.wake()).unwrap();
                doors.meet(|_, received| heard.extend(received.lines));
            }
            assert!(doors.strangers.len() <= STRANGERS);
        }
        assert_eq!(heard[9], "hello 9");
        // The first of the silent had to go.
        assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
        doors.shut();
        assert_eq!(doors.fds().count(), 0);
        assert!(TcpStream::connect(("127.0.0.1", door.port)).is_err());
    }

    #[test]
    fn of_many_who_come_a_few_are_met_at_a_time() {
        let mut doors = Doors::default();
        let door = doors.open("127.0.0.1", None).unwrap();
        let knock = || TcpStream::connect(("127.0.0.1", door.port)).unwrap();
        let came: Vec<TcpStream> = (0..3 * ROUND).map(|_| knock()).collect();
        for met in 1..=3 {
            doors.meet(|_, _| panic!("nobody spoke"));
            assert_eq!(doors.strangers.len(), met * ROUND);
        }
        drop(came);
    }

    #[test]
    fn who_is_silent_for_too_long_is_dropped() {
        let mut doors = Doors::default();
        let door = doors.open("127.0.0.1", None).unwrap();
        let mut silent = TcpStream::connect(("127.0.0.1", door.port)).unwrap();
        crate::run::wait::readable(&doors.fds().collect::<Vec<_>>(), None).unwrap();
        doors.meet(|_, _| panic!("nobody spoke"));
        assert_eq!(doors.strangers.len(), 1);
        assert!(doors.wake().unwrap() > Instant::now());
        doors.strangers[0].since -= PROOF;
        assert!(doors.wake().unwrap() <= Instant::now());
        doors.meet(|_, _| panic!("nobody spoke"));
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    }

    /// Set for the process that has no descriptor left.
    const FULL: &str = "PORTOLAN_TEST_FULL_LAUNCHER";

    /// A door without a descriptor for whoever comes is left alone for a while, and loses nobody.
    #[test]
    fn a_door_without_descriptors_loses_nobody() {
        use rustix::process::{Resource, Rlimit, setrlimit};
        if std::env::var_os(FULL).is_none() {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("run::hosts::door::tests::a_door_without_descriptors_loses_nobody")
                .env(FULL, "")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout).into_owned()
                + &String::from_utf8_lossy(&child.stderr);
            return assert!(child.status.success(), "{said}");
        }
        let mut doors = Doors::default();
        let door = doors.open("127.0.0.1", None).unwrap();
        let mut agent = TcpStream::connect(("127.0.0.1", door.port)).unwrap();
        agent.write_all(b"hello\n").unwrap();
        let limit = Rlimit {
            current: Some(100),
            maximum: Some(100),
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let filling: Vec<_> = std::iter::from_fn(|| agent.try_clone().ok()).collect();
        doors.meet(|_, _| panic!("there is no descriptor"));
        assert_eq!(doors.fds().count(), 0, "or whoever waits spins");
        assert!(doors.wake().is_some());
        drop(filling);
        let mut heard = Vec::new();
        while heard.is_empty() {
            let fds: Vec<_> = doors.fds().collect();
            crate::run::wait::readable(&fds, doors.wake()).unwrap();
            doors.meet(|_, received| heard.extend(received.lines));
        }
        assert_eq!(heard, ["hello"]);
        // Who has been let in stays, although there is no number for another one: there is none.
        let _silent = TcpStream::connect(("127.0.0.1", door.port)).unwrap();
        while doors.strangers.is_empty() {
            let fds: Vec<_> = doors.fds().collect();
            crate::run::wait::readable(&fds, doors.wake()).unwrap();
            doors.meet(|_, _| panic!("nobody spoke"));
        }
        let _filling: Vec<_> = std::iter::from_fn(|| agent.try_clone().ok()).collect();
        doors.meet(|_, _| panic!("nobody spoke"));
        assert_eq!(doors.strangers.len(), 1);
        assert!(doors.pause.is_none());
    }
}
