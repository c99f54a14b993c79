//! Where an endpoint can be reached: what only this fabric reads of an address.
//!
//! ```text
//!   0       how connections are made: 1 words on Ethernet, 2 words on InfiniBand, 3 connection manager, 4 iWARP
//!   1..27   where words go: queue pair, key, LID, GID (`mail.rs`)
//!   27..35  token, without which a word counts for nothing
//! ```

use super::super::mail::host_ports;
use fabric_api::address::Address;
use fabric_api::config::FabricKind;
use fabric_api::place::LARGEST_PID;
use portals_core::ProcessId;
use verbs_backend::DatagramAddress;

/// How an endpoint makes connections; both sides must do so alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    Ethernet,
    InfiniBand,
    Manager,
    Iwarp,
}

impl Means {
    const ALL: [Self; 4] = [Self::Ethernet, Self::InfiniBand, Self::Manager, Self::Iwarp];

    const fn code(self) -> u8 {
        self as u8 + 1
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|means| means.code() == code)
    }

    /// Words travel over the host's network.
    const fn is_host(self) -> bool {
        matches!(self, Self::Manager | Self::Iwarp)
    }
}

impl std::fmt::Display for Means {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "RoCE",
            Self::InfiniBand => "InfiniBand",
            Self::Manager => "the connection manager (PORTOLAN_CONNECT=cm)",
            Self::Iwarp => "iWARP",
        })
    }
}

/// Where an endpoint takes words, and what they must carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contact {
    pub(crate) means: Means,
    pub(crate) address: DatagramAddress,
    pub(crate) token: u64,
}

impl Contact {
    const BYTES: usize = 1 + DatagramAddress::BYTES + 8;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.means.code();
        bytes[1..=DatagramAddress::BYTES].copy_from_slice(&self.address.to_bytes());
        bytes[1 + DatagramAddress::BYTES..].copy_from_slice(&self.token.to_be_bytes());
        bytes
    }

    /// What an address says; `None` if it says nothing that makes sense.
    pub(crate) fn of(address: &Address) -> Option<Self> {
        let (means, rest) = address.contact().split_first()?;
        let (place, rest) = rest.split_first_chunk::<{ DatagramAddress::BYTES }>()?;
        let (token, _) = rest.split_first_chunk::<8>()?;
        let contact = Self {
            means: Means::of_code(*means)?,
            address: DatagramAddress::from_bytes(place)?,
            token: u64::from_be_bytes(*token),
        };
        // Bytes that mean nothing are zero, so that an endpoint has one address.
        let whole = contact.to_bytes();
        let same = address.contact().starts_with(&whole)
            && address.contact()[whole.len()..].iter().all(|b| *b == 0);
        let reached = !contact.means.is_host() || host_ports(&contact.address).is_some();
        (same && reached && is_process(address.id())).then_some(contact)
    }

    /// The address of a process with this contact.
    pub(crate) fn address_of(&self, id: ProcessId) -> Option<Address> {
        let address = Address::new(FabricKind::Verbs, id, &self.to_bytes()).ok()?;
        Self::of(&address).map(|_| address)
    }
}

/// Whether an endpoint may have this id.
pub(super) fn is_process(id: ProcessId) -> bool {
    (1..=u32::MAX >> 1).contains(&id.nid) && (1..=LARGEST_PID).contains(&id.pid)
}

/// Says why an endpoint cannot be reached from another one.
pub(super) fn reachable(own: &Address, other: &Address) -> Result<(), String> {
    let read = |address| Contact::of(address).ok_or("its contact makes no sense");
    let (own, other) = (read(own)?, read(other)?);
    if own.means != other.means {
        let (own, other) = (own.means, other.means);
        return Err(format!(
            "it makes connections by {other}, and this one by {own}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs_backend::Gid;

    fn contact(means: Means) -> Contact {
        let address = DatagramAddress {
            qpn: 17,
            qkey: 4791,
            lid: 0,
            gid: Gid([0xfe; 16]),
        };
        Contact {
            means,
            address,
            token: 1 << 63 | 5,
        }
    }

    #[test]
    fn an_address_says_where_words_go_and_what_they_carry() {
        let id = ProcessId::new(0x7fff_ffff, 0xfffe);
        for means in Means::ALL {
            let mut contact = contact(means);
            contact.address.gid = Gid([0x20; 16]);
            let address = contact.address_of(id).unwrap();
            let travelled = Address::from_bytes(&address.to_bytes()).unwrap();
            assert_eq!(Contact::of(&travelled), Some(contact));
            assert_eq!(reachable(&address, &travelled), Ok(()));
        }
    }

    #[test]
    fn bytes_that_are_no_contact_are_refused() {
        let id = ProcessId::new(7, 7);
        let own = contact(Means::Ethernet).address_of(id).unwrap();
        let good = contact(Means::Ethernet).to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = [0; Address::CONTACT];
            bytes[..good.len()].copy_from_slice(&good);
            bytes[at] = byte;
            Address::new(FabricKind::Verbs, id, &bytes).unwrap()
        };
        assert_eq!(reachable(&own, &with(0, 1)), Ok(()));
        // No means, a queue pair of 25 bits, something after the end.
        for (at, byte) in [(0, 0), (0, 5), (1, 1), (Contact::BYTES, 1), (53, 1)] {
            let said = reachable(&own, &with(at, byte));
            assert!(said.is_err(), "byte {at} is {byte}");
        }
        for (nid, pid) in [(0, 7), (1 << 31, 7), (7, 0), (7, 0xffff)] {
            let id = ProcessId::new(nid, pid);
            assert_eq!(contact(Means::Ethernet).address_of(id), None, "{nid} {pid}");
        }
        // No port of a host.
        let mut host = contact(Means::Manager);
        host.address.qkey = 1 << 16;
        assert_eq!(host.address_of(id), None);
    }

    #[test]
    fn who_connects_in_another_way_is_told_so() {
        let id = ProcessId::new(7, 7);
        let own = contact(Means::Ethernet).address_of(id).unwrap();
        let other = contact(Means::InfiniBand).address_of(id).unwrap();
        let why = reachable(&own, &other).unwrap_err();
        assert!(why.contains("InfiniBand") && why.contains("RoCE"), "{why}");
    }
}
