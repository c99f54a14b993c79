//! What listens for, and makes, the connections of the connection manager.

use crate::mail;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use verbs_backend::cm::{CmError, Listener, Manager};
use verbs_backend::{Device, PortInfo};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const MAGIC: u32 = 0x5054_4c4d;

/// What comes with a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Hello {
    pub(super) magic: U32,
    pub(super) from: U32,
    pub(super) to: U32,
    pub(super) attempt: U32,
    /// Of the process that is asked.
    pub(super) token: U64,
}

const _: () = assert!(size_of::<Hello>() <= verbs_backend::cm::PRIVATE);

/// A request that is what it should be: of which rank, and of which attempt.
pub(super) fn read_hello(bytes: &[u8], own: usize, token: u64) -> Option<(usize, u32)> {
    let (hello, _) = Hello::read_from_prefix(bytes).ok()?;
    let fits =
        hello.magic.get() == MAGIC && hello.to.get() as usize == own && hello.token.get() == token;
    fits.then(|| (hello.from.get() as usize, hello.attempt.get()))
}

/// This process's part of the connection manager.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub(super) manager: Manager,
    pub(super) listener: Listener,
    pub(super) address: IpAddr,
}

impl Joiner {
    /// Listens at an address of the port, which is `wanted` if that is one.
    pub(crate) fn new(
        device: &Device,
        port: &PortInfo,
        wanted: Option<IpAddr>,
    ) -> Result<Self, CmError> {
        let manager = Manager::new()?;
        let address = manager.address(device, port.number, wanted)?;
        let listener = manager.listen(address)?;
        Ok(Self {
            manager,
            listener,
            address,
        })
    }

    /// What carries words to this process.
    pub(crate) fn mail(&self) -> std::io::Result<mail::Mail> {
        mail::Mail::host(self.address, self.listener.port())
    }

    pub(crate) fn events_fd(&self) -> Option<OwnedFd> {
        self.manager.events_fd().try_clone_to_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(to: u32, token: u64) -> Vec<u8> {
        let hello = Hello {
            magic: MAGIC.into(),
            from: 3.into(),
            to: to.into(),
            attempt: 9.into(),
            token: token.into(),
        };
        hello.as_bytes().to_vec()
    }

    #[test]
    fn a_request_is_for_this_process_or_nothing() {
        let mut bytes = hello(5, 77);
        assert_eq!(read_hello(&bytes, 5, 77), Some((3, 9)));
        assert_eq!(read_hello(&bytes, 4, 77), None);
        assert_eq!(read_hello(&bytes, 5, 78), None);
        for end in 0..bytes.len() {
            assert_eq!(read_hello(&bytes[..end], 5, 77), None, "{end} bytes");
        }
        // InfiniBand pads.
        bytes.resize(verbs_backend::cm::PRIVATE, 0);
        assert_eq!(read_hello(&bytes, 5, 77), Some((3, 9)));
        bytes[0] ^= 1;
        assert_eq!(read_hello(&bytes, 5, 77), None);
    }
}
