//! What a peer advertises, and where in its memory an operation goes.

use crate::frame::RemoteMd;
use crate::proto::op::{Kind, Op};
use fabric_api::call::RemoteKey;
use portals_core::MdHandle;
use verbs_backend::Remote;

/// Where an operation goes in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) remote: Remote,
    /// The descriptor sends acks.
    pub(crate) acks: bool,
    /// The owner posts events of it, and is notified of what is written, by this handle.
    pub(crate) events: Option<MdHandle>,
}

/// What a peer advertises, by portal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adverts(Vec<Vec<RemoteMd>>);

impl Adverts {
    #[inline]
    pub(crate) fn of(&self, portal: u32) -> &[RemoteMd] {
        self.0.get(portal as usize).map_or(&[], Vec::as_slice)
    }

    /// Replaces what was known of a portal, which the frame's reader has found to exist.
    pub(crate) fn set(&mut self, portal: u32, list: Vec<RemoteMd>) {
        let at = portal as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Vec::new);
        }
        self.0[at] = list;
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The memory that is advertised for a put or get.
    #[inline(always)]
    pub(crate) fn find(&self, op: &Op) -> Option<Reach> {
        let list = self.of(op.pt_index);
        let end = op.offset.checked_add(op.len).filter(|_| op.len > 0)?;
        let takes = |md: &RemoteMd| {
            md.admits(op.source, op.ac_index, op.match_bits)
                && match op.kind {
                    Kind::Put => md.put,
                    Kind::Get => md.get,
                    Kind::Message => false,
                }
                && end <= md.length
        };
        // The first one mostly does: no call for it.
        let found = match list {
            [first, ..] if takes(first) => first,
            _ => list.iter().find(|md| takes(md))?,
        };
        Some(Reach {
            remote: Remote {
                address: found.start.address + op.offset,
                rkey: found.start.rkey,
            },
            acks: found.ack,
            events: found.events,
        })
    }
}

/// Where a put or get reaches memory whose key its owner has given.
#[inline]
pub(crate) fn by_key(key: &RemoteKey, op: &Op) -> Option<Reach> {
    let end = op.offset.checked_add(op.len)?;
    let fits = op.kind != Kind::Message && op.len > 0 && end <= key.len;
    fits.then_some(Reach {
        remote: Remote {
            address: key.base + op.offset,
            rkey: key.rkey,
        },
        acks: true,
        events: None,
    })
}
