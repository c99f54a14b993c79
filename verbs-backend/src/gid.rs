//! Global identifiers: the addresses of ports, and which of a port's several ones reaches other machines.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use verbs_sys as sys;

/// A 128-bit port address, in network byte order. On RoCE v2 it is an IPv6 address, or an IPv4 address mapped
/// into one.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IPv6 address of the same bytes.
    pub fn address(self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    /// The IPv4 address, if it is a mapped one.
    pub fn ipv4(self) -> Option<Ipv4Addr> {
        self.address().to_ipv4_mapped()
    }

    /// All zero: an empty slot of the table.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 16]
    }

    /// Valid on its own link only (`fe80::/10`).
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// What a table entry's packets look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1: an Ethernet type of its own, never routed.
    RoceV1,
    /// RoCE version 2: UDP over IP.
    RoceV2,
    /// A code that this crate does not know.
    Other(u32),
}

impl GidType {
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            sys::IBV_GID_TYPE_IB => Self::InfiniBand,
            sys::IBV_GID_TYPE_ROCE_V1 => Self::RoceV1,
            sys::IBV_GID_TYPE_ROCE_V2 => Self::RoceV2,
            other => Self::Other(other),
        }
    }
}

/// One entry of a port's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Place in the table, which queue pairs name.
    pub index: u8,
    /// The address.
    pub gid: Gid,
    /// The kind of packets.
    pub kind: GidType,
}

impl GidEntry {
    /// Order of preference, highest first: addresses that routers carry before those of one link, IPv4 before
    /// IPv6 (the usual set-up of RoCE networks), version 2 before version 1.
    fn preference(&self) -> (bool, bool, bool) {
        let version_2 = !matches!(self.kind, GidType::RoceV1);
        (
            version_2,
            !self.gid.is_link_local(),
            self.gid.ipv4().is_some(),
        )
    }
}

/// The entry that reaches most peers: a routable RoCE v2 address if there is one; of equals the first.
pub fn choose(entries: &[GidEntry]) -> Option<GidEntry> {
    entries
        .iter()
        .filter(|entry| !entry.gid.is_empty())
        .max_by_key(|entry| (entry.preference(), std::cmp::Reverse(entry.index)))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, address: &str, kind: GidType) -> GidEntry {
        let gid = Gid(address.parse::<Ipv6Addr>().unwrap().octets());
        GidEntry { index, gid, kind }
    }

    #[test]
    fn the_routable_v2_address_wins() {
        use GidType::{InfiniBand, RoceV1, RoceV2};
        let table = [
            entry(0, "fe80::1", RoceV1),
            entry(1, "fe80::1", RoceV2),
            entry(2, "::ffff:10.9.0.1", RoceV1),
            entry(3, "2001:db8::1", RoceV2),
            entry(4, "::ffff:10.9.0.1", RoceV2),
            entry(5, "::ffff:10.9.0.2", RoceV2),
            entry(6, "::", RoceV2),
        ];
        let chosen = |table: &[GidEntry]| choose(table).map(|e| e.index);
        assert_eq!(chosen(&table), Some(4));
        assert_eq!(chosen(&table[..4]), Some(3));
        assert_eq!(chosen(&table[..3]), Some(1));
        assert_eq!(chosen(&table[..1]), Some(0));
        assert_eq!(chosen(&table[6..]), None);
        assert_eq!(chosen(&[entry(0, "fe80::2", InfiniBand)]), Some(0));
    }

    #[test]
    fn text_form() {
        assert_eq!(
            entry(0, "::ffff:10.9.0.1", GidType::RoceV2).gid.to_string(),
            "::ffff:10.9.0.1"
        );
    }
}
