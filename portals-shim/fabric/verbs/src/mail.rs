//! What carries the words of a handshake: datagrams of the adapter, or of the host's network.
//!
//! | | adapter | host |
//! |---|---|---|
//! | used | connections made by words alone | connections made by the connection manager (`cm.rs`) |
//! | address | queue pair, key, port | IP address; the numbers are the ports of the socket and of the manager's listener |
//!
//! Both lose, repeat and reorder what they carry, and take what anybody sends: what a word must have to count is said in
//! `handshake.rs`.

use super::endpoint::WORD;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use verbs_backend::{Completion, Cq, DatagramAddress, Datagrams, Destination, Gid};

/// Bytes of the longest word.
pub(super) const LONGEST: usize = WORD;

/// Where words for a peer go.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Adapter(Destination),
    Host(SocketAddr),
}

/// Sends and takes words.
#[derive(Debug)]
pub(super) enum Mail {
    Adapter {
        datagrams: Box<Datagrams>,
        cq: Cq,
        /// The queue pair has failed.
        down: bool,
    },
    Host {
        socket: UdpSocket,
        address: DatagramAddress,
    },
}

/// The host's part of an address: where it takes words and requests of the connection manager.
pub(super) fn host_address(ip: IpAddr, words: u16, requests: u16) -> DatagramAddress {
    let ip = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    DatagramAddress {
        qpn: words.into(),
        qkey: requests.into(),
        lid: 0,
        gid: Gid(ip.octets()),
    }
}

/// What [`host_address`] was made of, as two addresses; `None` if it is none.
pub(super) fn host_ports(address: &DatagramAddress) -> Option<(SocketAddr, SocketAddr)> {
    let ip = Ipv6Addr::from(address.gid.0);
    let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
    let port = |number: u32| u16::try_from(number).ok().filter(|port| *port > 0);
    let (words, requests) = (port(address.qpn)?, port(address.qkey)?);
    let usable = !ip.is_unspecified() && !ip.is_multicast();
    usable.then(|| (SocketAddr::new(ip, words), SocketAddr::new(ip, requests)))
}

impl Mail {
    pub(super) fn adapter(datagrams: Datagrams, cq: Cq) -> Self {
        Self::Adapter {
            datagrams: Box::new(datagrams),
            cq,
            down: false,
        }
    }

    /// Takes words at an address of this host, whose connection manager takes requests at the port `requests`.
    pub(super) fn host(ip: IpAddr, requests: u16) -> io::Result<Self> {
        let socket = UdpSocket::bind((ip, 0))?;
        socket.set_nonblocking(true)?;
        let address = host_address(ip, socket.local_addr()?.port(), requests);
        Ok(Self::Host { socket, address })
    }

    /// Where others send to.
    pub(super) fn address(&self) -> DatagramAddress {
        match self {
            Self::Adapter { datagrams, .. } => datagrams.address(),
            Self::Host { address, .. } => *address,
        }
    }

    /// Makes an address usable.
    pub(super) fn resolve(&self, to: &DatagramAddress) -> Result<Way, String> {
        match self {
            Self::Adapter { datagrams, .. } => {
                let way = datagrams.resolve(to).map_err(|e| e.to_string())?;
                Ok(Way::Adapter(way))
            }
            Self::Host { .. } => host_ports(to)
                .map(|(words, _)| Way::Host(words))
                .ok_or_else(|| format!("{} {} {} is no address", to.gid, to.qpn, to.qkey)),
        }
    }

    /// Sends a word, which may get lost.
    pub(super) fn send(&mut self, to: &Way, word: &[u8]) -> Result<(), String> {
        match (self, to) {
            (
                Self::Adapter {
                    datagrams, down, ..
                },
                Way::Adapter(to),
            ) => match datagrams.send(to, word) {
                Ok(_) => Ok(()),
                Err(error) => {
                    *down = true;
                    Err(error.to_string())
                }
            },
            (Self::Host { socket, .. }, Way::Host(to)) => {
                let sent = socket.send_to(word, to);
                sent.map(|_| ()).map_err(|e| e.to_string())
            }
            _ => Err("an address of another kind".to_owned()),
        }
    }

    /// Words that have not left yet.
    pub(super) fn outstanding(&self) -> usize {
        match self {
            Self::Adapter { datagrams, .. } => datagrams.outstanding(),
            Self::Host { .. } => 0,
        }
    }

    /// What becomes readable when words come.
    pub(super) fn events_fd(&self) -> Option<OwnedFd> {
        match self {
            Self::Adapter { cq, .. } => cq.event_fd().ok()?.try_clone_to_owned().ok(),
            Self::Host { socket, .. } => socket.as_fd().try_clone_to_owned().ok(),
        }
    }

    /// Has the next word make an event; words that have come before may make none.
    pub(super) fn arm(&self) -> bool {
        let Self::Adapter { cq, .. } = self else {
            return false;
        };
        if let Err(error) = cq.drain_events() {
            tracing::debug!(%error, "event of datagrams");
        }
        cq.arm(false).is_ok()
    }

    /// Takes some of the words that have come; says whether there may be more.
    pub(super) fn take(&mut self, words: &mut Vec<Vec<u8>>) -> bool {
        match self {
            Self::Adapter {
                datagrams,
                cq,
                down,
            } => {
                let mut slots = [Completion::EMPTY; 16];
                let done = match cq.poll(&mut slots) {
                    Ok(done) => done.len(),
                    Err(error) => {
                        tracing::error!(%error, "completion queue of datagrams failed");
                        return false;
                    }
                };
                for completion in &slots[..done] {
                    let handled = datagrams.handle(completion, |bytes| {
                        let end = bytes.len().min(LONGEST);
                        words.extend(bytes.get(..end).map(<[u8]>::to_vec));
                    });
                    if let Err(error) = handled {
                        tracing::debug!(%error, "datagram lost");
                        *down = true;
                    }
                }
                done > 0
            }
            Self::Host { socket, .. } => {
                let mut bytes = [0; LONGEST];
                for _ in 0..16 {
                    match socket.recv_from(&mut bytes) {
                        Ok((len, _)) => words.extend(bytes.get(..len).map(<[u8]>::to_vec)),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                        // What a network tells of an earlier word.
                        Err(error) => tracing::debug!(%error, "datagram lost"),
                    }
                }
                true
            }
        }
    }

    /// Nothing can be sent until [`Mail::recover`].
    pub(super) fn is_down(&self) -> bool {
        matches!(self, Self::Adapter { down: true, .. })
    }

    pub(super) fn recover(&mut self) {
        if let Self::Adapter {
            datagrams, down, ..
        } = self
            && *down
        {
            match datagrams.recover() {
                Ok(()) => *down = false,
                Err(error) => tracing::debug!(%error, "no datagrams yet"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_hosts_survive_the_wire_and_others_are_none() {
        for ip in ["10.9.0.1", "2001:db8::7"] {
            let ip: IpAddr = ip.parse().unwrap();
            let address = host_address(ip, 7, 65_535);
            let again = DatagramAddress::from_bytes(&address.to_bytes()).unwrap();
            let ports = host_ports(&again).unwrap();
            assert_eq!(ports, (SocketAddr::new(ip, 7), SocketAddr::new(ip, 65_535)));
            for (qpn, qkey) in [(0, 1), (1, 0), (65_536, 1), (1, 65_536)] {
                assert_eq!(
                    host_ports(&DatagramAddress {
                        qpn,
                        qkey,
                        ..address
                    }),
                    None
                );
            }
        }
        for ip in ["0.0.0.0", "::", "224.0.0.1"] {
            let address = host_address(ip.parse().unwrap(), 7, 8);
            assert_eq!(host_ports(&address), None, "{ip}");
        }
    }

    #[test]
    fn words_go_between_hosts_whole_and_long_ones_are_cut() {
        let ip: IpAddr = "127.0.0.1".parse().unwrap();
        let mut one = Mail::host(ip, 1).unwrap();
        let mut other = Mail::host(ip, 2).unwrap();
        let way = one.resolve(&other.address()).unwrap();
        one.send(&way, b"short").unwrap();
        one.send(&way, &[3; 2 * LONGEST]).unwrap();
        let mut words = Vec::new();
        while words.len() < 2 {
            other.take(&mut words);
        }
        assert_eq!(words, [b"short".to_vec(), vec![3; LONGEST]]);
        assert!(!other.take(&mut words) && words.len() == 2);
        assert!(!one.is_down() && one.outstanding() == 0);
    }
}
