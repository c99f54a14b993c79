//! Datagrams: IP beside the messages.
//!
//! The host gives the firmware receive buffers by writing their quad-byte addresses into the table
//! at [`DATAGRAM_BUFFERS`]; zero is an empty entry. The firmware
//! fills them in the order of the table, zeroes the entry and posts
//! [`DATAGRAM`](super::event::EventType::DATAGRAM) with its index; with every entry empty it drops
//! the datagram and posts [`DATAGRAM_EMPTY`](super::event::EventType::DATAGRAM_EMPTY) once, until a
//! datagram has found a buffer again.

use bitfield::bitfield;

use super::map::{DATAGRAM_BUFFER_COUNT, DATAGRAM_BUFFERS};
use crate::host::RegisterIo;

/// Bytes of the header.
pub const HEADER_LEN: u32 = 4;
/// The type byte: class 2 (datagram), type IP.
pub const TYPE_IP: u8 = 2 << 5;

bitfield! {
    /// The first four bytes of a datagram.
    ///
    /// | bits | field |
    /// |---|---|
    /// | 15..0 | length in quad-bytes less one |
    /// | 19..16 | virtual host of the source |
    /// | 23..20 | virtual host of the target |
    /// | 31..24 | type, [`TYPE_IP`] |
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct DatagramHeader(pub u32);
    impl Debug;
    /// Quad-bytes less one, this header included.
    pub u16, length, set_length: 15, 0;
    /// Virtual host of the source.
    pub u8, source_host, set_source_host: 19, 16;
    /// Virtual host of the target.
    pub u8, target_host, set_target_host: 23, 20;
    /// Class and type.
    pub u8, class, set_class: 31, 24;
}

impl DatagramHeader {
    /// The header of an IP datagram of `length` bytes, itself included; rounded up to quad-bytes.
    #[must_use]
    pub fn ip(length: u32) -> Self {
        let mut header = Self(0);
        header.set_length(length.div_ceil(4).saturating_sub(1).min(0xFFFF) as u16);
        header.set_class(TYPE_IP);
        header
    }
}

/// The address of the table's entry `index` (modulo its entries).
#[must_use]
pub const fn buffer_entry(index: u32) -> u32 {
    DATAGRAM_BUFFERS + 8 * (index % DATAGRAM_BUFFER_COUNT)
}

/// Gives the firmware the buffer at host physical `address`, on a quad-byte, as entry `index`.
/// The high word is written first: the firmware looks for a low word that is not zero.
pub fn give_buffer(io: &mut dyn RegisterIo, index: u32, address: u64) {
    let quad = address >> 2;
    io.write32(buffer_entry(index) + 4, (quad >> 32) as u32);
    io.write32(buffer_entry(index), quad as u32);
}

/// The IPv4 address of a node: 192.168.(nid / 254).(1 + nid % 254).
#[must_use]
pub const fn ip_of(nid: u16) -> [u8; 4] {
    [192, 168, (nid / 254) as u8, 1 + (nid % 254) as u8]
}

/// The node of an IPv4 address; `None` outside the machine's network.
#[must_use]
pub const fn nid_of(ip: [u8; 4]) -> Option<u16> {
    match ip {
        [192, 168, net, host] if host >= 1 && host <= 254 => {
            Some(net as u16 * 254 + (host as u16 - 1))
        }
        _ => None,
    }
}

const _: () = assert!(DATAGRAM_BUFFERS + 8 * DATAGRAM_BUFFER_COUNT <= super::map::HOST_SRAM);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_nodes_convert_both_ways() {
        for nid in [0, 1, 253, 254, 255, 32_767] {
            assert_eq!(nid_of(ip_of(nid)), Some(nid));
        }
        assert_eq!(ip_of(254), [192, 168, 1, 1]);
        assert_eq!(nid_of([192, 168, 0, 255]), None);
        assert_eq!(nid_of([10, 0, 0, 1]), None);
    }

    #[test]
    fn a_header_counts_quad_bytes_less_one() {
        let header = DatagramHeader::ip(4 + 1500);
        assert_eq!((header.length(), header.class()), (375, 0x40));
        assert_eq!(header.0.to_le_bytes()[3], 0x40);
        assert_eq!(DatagramHeader::ip(5).length(), 1);
    }
}
