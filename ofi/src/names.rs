// UNSAFETY: a C caller has names of hosts and ports, and addresses, by pointers.
#![expect(
    unsafe_code,
    reason = "reads names and addresses of a C caller by pointers"
)]
//! Who an endpoint is to be and whom it means to reach, by a host and a port or by addresses (`fi_getinfo`).

use crate::abi::{Info, cap, errno};
use crate::info::no;
use crate::ptr::{Outcome, bytes, string};
use ofi_engine::ProcessId;
use ofi_engine::names::{Name, NameError};
use portals_shim::endpoint::Address;
use portals_shim::fabric::FabricKind;
use std::ffi::c_char;

/// What the source address of an endpoint has before the name, if it has one.
const HEAD: usize = Address::BYTES - Address::CONTACT;

/// The source address of an endpoint that is not open yet: it says the fabric and the name that a program has asked for. The endpoint has
/// its own address from its opening on (`fi_getname`).
pub(crate) fn unopened(kind: FabricKind, name: Option<Name>) -> Outcome<[u8; Address::BYTES]> {
    let name = name.map(Name::to_bytes);
    let contact = name.as_ref().map_or(&[][..], |name| &name[..]);
    let address = Address::new(kind, ProcessId::new(0, 0), contact);
    address
        .map(|address| address.to_bytes())
        .map_err(|_| errno::OTHER)
}

/// The fabric and the name of an address that [`unopened`] has made.
pub(crate) fn of_unopened(bytes: &[u8]) -> Option<(FabricKind, Option<Name>)> {
    let (head, contact) = bytes.split_at_checked(HEAD)?;
    let is = |kind: &FabricKind| unopened(*kind, None).is_ok_and(|one| one[..HEAD] == *head);
    let kind = FabricKind::ALL.into_iter().find(is)?;
    let whole = [Address::BYTES, Address::len_on(kind)].contains(&bytes.len());
    whole.then(|| (kind, Name::from_bytes(contact)))
}

/// The ends of what a program means to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    /// The name of its own endpoint.
    pub(crate) source: Option<Name>,
    /// The peer that it means to reach.
    pub(crate) peer: Option<Address>,
    /// The fabric that both are on, if one is said.
    pub(crate) kind: Option<FabricKind>,
}

/// What `fi_getinfo` is asked for beside its hints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) node: *const c_char,
    pub(crate) service: *const c_char,
    pub(crate) flags: u64,
}

impl Asked {
    const fn is_source(&self) -> bool {
        self.flags & cap::SOURCE != 0
    }

    const fn is_anything(&self) -> bool {
        !self.node.is_null() || !self.service.is_null()
    }
}

/// Says why a host and a port are of no use.
fn unnamed(why: &NameError) -> i32 {
    let cause = std::error::Error::source(why).map(ToString::to_string);
    tracing::debug!(%why, cause, "fi_getinfo: node and service");
    errno::NODATA
}

impl Ends {
    /// By a host and a port, and by the hints where those say nothing; `kind` is the fabric that the hints name.
    ///
    /// # Safety
    /// Names are null or strings, and the hints' addresses null or of the lengths that they say.
    pub(crate) unsafe fn of(
        asked: Asked,
        hints: Option<&Info>,
        kind: Option<FabricKind>,
    ) -> Outcome<Self> {
        let mut ends = Self {
            kind,
            ..Self::default()
        };
        // SAFETY: the condition above.
        let node = unsafe { string(asked.node) };
        // SAFETY: the condition above.
        let service = unsafe { string(asked.service) };
        let (node, service) = (node.as_deref(), service.as_deref());
        let numeric = asked.flags & cap::NUMERICHOST != 0;
        let is_peer = asked.is_anything() && !asked.is_source();
        if asked.is_source() {
            let name = Name::of_source(node, service, numeric);
            ends.source = name.map_err(|why| unnamed(&why))?;
        } else if is_peer {
            let service = service.ok_or_else(|| no("a peer is named by its port, too"))?;
            let found = Name::find(node, service, numeric).map_err(|why| unnamed(&why))?;
            ends.reach(&found)?;
        }
        let Some(hints) = hints else {
            return Ok(ends);
        };
        if !asked.is_source() && !hints.src_addr.is_null() {
            // SAFETY: the condition above.
            let own = unsafe { bytes(hints.src_addr, hints.src_addrlen) }?;
            ends.be(&own)?;
        }
        if !is_peer && !hints.dest_addr.is_null() {
            // SAFETY: the condition above.
            let peer = unsafe { bytes(hints.dest_addr, hints.dest_addrlen) }?;
            ends.reach(&peer)?;
        }
        Ok(ends)
    }

    /// Both ends are on this fabric.
    fn on(&mut self, kind: FabricKind) -> Outcome<()> {
        match self.kind.replace(kind) {
            Some(other) if other != kind => Err(no("an address of another domain")),
            _ => Ok(()),
        }
    }

    /// An address that a program has of an earlier description, or of an endpoint: the own one, whose fabric and name are meant.
    fn be(&mut self, bytes: &[u8]) -> Outcome<()> {
        let unopened = of_unopened(bytes);
        let opened = || {
            Address::from_bytes(bytes)
                .ok()
                .map(|own| (own.kind(), None))
        };
        let (kind, name) = unopened
            .or_else(opened)
            .ok_or_else(|| no("a source that is no address of this provider"))?;
        self.source = name;
        self.on(kind)
    }

    fn reach(&mut self, bytes: &[u8]) -> Outcome<()> {
        let peer = Address::from_bytes(bytes).map_err(|_| no("a peer that nobody is"))?;
        self.peer = Some(peer);
        self.on(peer.kind())
    }
}
