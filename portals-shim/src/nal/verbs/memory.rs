//! Registered memory of descriptors, and requests that name it.
// UNSAFETY: registers and names memory by address; the addresses come from MDs, whose makers
// promised that they stay mapped (`RawMemory::new`, or a `Region` kept by its interface).
#![expect(
    unsafe_code,
    reason = "RDMA on descriptors' memory; see the line above"
)]

use crate::region::Region;
use portals_core::{MdHandle, Segment};
use std::collections::BTreeMap;
use verbs_backend::mr::MrError;
use verbs_backend::qp::PostError;
use verbs_backend::{Access, Mr, Pd, Qp, Remote, SendFlags, SendOp};

/// What a registration is for; each is a registration of its own, so that a peer never has a right
/// that its purpose does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// Read by our own requests.
    Local,
    /// Written by our own reads.
    Landing,
    /// Announced: a peer reads it once.
    Source,
    /// Advertised for puts.
    OpenPut,
    /// Advertised for gets.
    OpenGet,
    /// Advertised for both.
    Open,
}

impl Use {
    fn access(self) -> Access {
        match self {
            Self::Local => Access::empty(),
            Self::Landing => Access::LOCAL_WRITE,
            Self::Source | Self::OpenGet => Access::REMOTE_READ,
            Self::OpenPut => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            Self::Open => Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        }
    }
}

/// Registrations, made when first needed and kept until their descriptor is gone.
#[derive(Debug)]
pub(super) struct Registry {
    pd: Pd,
    regions: BTreeMap<(MdHandle, Use), Mr>,
}

impl Registry {
    pub(super) fn new(pd: Pd) -> Self {
        Self {
            pd,
            regions: BTreeMap::new(),
        }
    }

    /// The registration of `md`'s whole memory `region` for `purpose`.
    pub(super) fn of_md(
        &mut self,
        md: MdHandle,
        region: Segment,
        purpose: Use,
    ) -> Result<&Mr, MrError> {
        let key = (md, purpose);
        let fits = |mr: &Mr| mr.covers(region.addr as usize, region.len as usize);
        if !self.regions.get(&key).is_some_and(fits) {
            let address = std::ptr::with_exposed_provenance_mut::<u8>(region.addr as usize);
            // SAFETY: the region is the memory of the live descriptor `md`: its maker promised that
            // it stays mapped until the descriptor is unlinked. `prune` runs before the call that
            // unlinks it returns (`Nal::retire` and `Nal::lists_changed` frame it).
            let mr = unsafe {
                Mr::register_raw(&self.pd, address, region.len as usize, purpose.access())
            }?;
            self.regions.insert(key, mr);
        }
        // The key was there or has just been inserted.
        self.regions.get(&key).ok_or(MrError::Memory {
            length: region.len as usize,
        })
    }

    /// Registers a buffer of our own.
    pub(super) fn of_buffer(&self, buffer: &Region, purpose: Use) -> Result<Mr, MrError> {
        let address = std::ptr::with_exposed_provenance_mut::<u8>(buffer.addr() as usize);
        // SAFETY: the region outlives the registration: `Staged` holds both and drops the
        // registration first.
        unsafe { Mr::register_raw(&self.pd, address, buffer.len(), purpose.access()) }
    }

    /// Drops the registrations of descriptors that `alive` does not know.
    pub(super) fn prune(&mut self, alive: impl Fn(MdHandle) -> bool) {
        self.regions.retain(|(md, _), _| alive(*md));
    }

    /// Registrations held.
    pub(super) fn len(&self) -> usize {
        self.regions.len()
    }
}

/// A contiguous stand-in for memory that cannot be named in one piece.
#[derive(Debug)]
pub(super) struct Staged {
    // Before the region: the adapter loses its access before the memory is unmapped.
    pub(super) mr: Mr,
    pub(super) region: Region,
}

/// One RDMA read or write between descriptor memory and a peer's, in pieces that the port takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) local: Segment,
    pub(super) lkey: u32,
    pub(super) remote: Remote,
    pub(super) read: bool,
}

impl Transfer {
    /// The first piece of at most `most` bytes, and the rest.
    pub(super) fn split(self, most: u64) -> (Self, Option<Self>) {
        if self.local.len <= most {
            return (self, None);
        }
        let mut first = self;
        first.local.len = most;
        let mut rest = self;
        rest.local = Segment {
            addr: self.local.addr + most,
            len: self.local.len - most,
        };
        rest.remote.address = self.remote.address.wrapping_add(most);
        (first, Some(rest))
    }

    /// Posts it, signalled, under `id`.
    pub(super) fn post(&self, qp: &Qp, id: u64) -> Result<(), PostError> {
        let segment = verbs_backend::Segment::new(
            self.local.addr as usize,
            self.local.len as usize,
            self.lkey,
        );
        let Some(segment) = segment else {
            let range = verbs_backend::batch::PushError::Range {
                start: 0,
                end: self.local.len as usize,
            };
            return Err(range.into());
        };
        let op = if self.read {
            SendOp::Read(self.remote)
        } else {
            SendOp::Write(self.remote)
        };
        // SAFETY: the memory belongs to an operation under way (its MD is in use, or waits for it in
        // `Nal::retire`), or to a `Staged` buffer that the operation's record owns until the
        // completion; nobody changes it meanwhile by the rules of the API.
        unsafe { qp.post_raw(id, op, &[segment], SendFlags::SIGNALLED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_transfer() {
        let mut next = Some(Transfer {
            local: Segment {
                addr: 1000,
                len: 25,
            },
            lkey: 1,
            remote: Remote {
                address: 5000,
                rkey: 2,
            },
            read: false,
        });
        let mut pieces = Vec::new();
        while let Some(t) = next {
            let (first, rest) = t.split(10);
            pieces.push((first.local.addr, first.local.len, first.remote.address));
            next = rest;
        }
        assert_eq!(
            pieces,
            [(1000, 10, 5000), (1010, 10, 5010), (1020, 5, 5020)]
        );
    }
}
