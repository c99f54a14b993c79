// UNSAFETY: walks a list that the C library makes.
//! The IP addresses of this machine.

#![expect(unsafe_code, reason = "walks a list of the C library")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The list of `getifaddrs(3)`, freed on drop.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by `getifaddrs`, freed only here.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// The addresses of interfaces that are up: those that other machines reach first, of these IPv4 first; link-local ones,
/// which name no machine without their interface, are left out.
pub fn local_addresses() -> Vec<IpAddr> {
    let mut head = std::ptr::null_mut();
    // SAFETY: no precondition; `head` is written.
    if unsafe { libc::getifaddrs(&mut head) } != 0 {
        return Vec::new();
    }
    let list = List(head);
    let mut all = Vec::new();
    let mut at = list.0;
    while !at.is_null() {
        // SAFETY: an entry of the list, which lives as long as `list`.
        let entry = unsafe { at.read() };
        at = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP.cast_unsigned() != 0;
        if let Some(address) = read(entry.ifa_addr).filter(|_| up) {
            all.push(address);
        }
    }
    sort(&mut all);
    all
}

/// Reads an entry's address; `None` for those of other families, and without one.
fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: an entry's address begins with its family.
    let family = unsafe { (*address).sa_family };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of these.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

fn sort(all: &mut Vec<IpAddr>) {
    all.retain(|address| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    });
    all.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_reach_others_come_first() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut all = [
            "::1",
            "127.0.0.1",
            "fe80::1",
            "2001:db8::1",
            "10.9.0.1",
            "10.9.0.2",
        ]
        .map(ip)
        .to_vec();
        sort(&mut all);
        let sorted = ["10.9.0.1", "10.9.0.2", "2001:db8::1", "127.0.0.1", "::1"].map(ip);
        assert_eq!(all, sorted);
    }

    #[test]
    fn this_machine_has_an_address_and_can_use_it() {
        for address in local_addresses() {
            std::net::UdpSocket::bind((address, 0)).unwrap();
        }
    }
}
