//! Descriptors that a remote NIC may serve without this state machine.
//!
//! A put or get needs the target's processor for three reasons: to find the entry, to account the
//! operation, to post events. A descriptor with an infinite threshold, no event queue, remotely
//! managed, contiguous, and not shadowed by an earlier entry that some message could match instead,
//! needs none of them: its owner can tell peers how to reach the memory. The rule of matching stays
//! the same at the peer, see [`Advert::admits`].
//!
//! A descriptor with an event queue needs it for the events alone. Where it is worth it, a fabric has such a one
//! advertised too ([`Ni::open_to_writes`]): peers write the data of puts, and then notify the owner, who posts the events
//! ([`Ni::notified_put`]).

use crate::handle::{MdHandle, MeHandle};
use crate::md::Md;
use crate::memory::Segment;
use crate::ni::Ni;
use crate::types::{ANY, MdOptions, ProcessId, THRESHOLD_INFINITE};

/// A descriptor fit for one-sided access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advert {
    /// Portal index.
    pub pt_index: u32,
    /// Whom the match entry admits.
    pub match_id: ProcessId,
    /// Match bits of the entry.
    pub match_bits: u64,
    /// Ignore bits of the entry.
    pub ignore_bits: u64,
    /// The entry, for revocation.
    pub me: MeHandle,
    /// The descriptor.
    pub md: MdHandle,
    /// Its memory.
    pub region: Segment,
    /// Puts are accepted.
    pub put: bool,
    /// Gets are accepted.
    pub get: bool,
    /// Puts of this descriptor are acknowledged.
    pub ack: bool,
    /// It has an event queue: its owner is to be told of puts, and gets are not served so.
    pub events: bool,
    /// Which access control indexes let which uid, jid and portal pass is checked by the owner:
    /// bit `n` is set when entry `n` admits every process of the owner's user and job.
    pub ac_mask: u32,
}

impl Advert {
    /// Whether a message of `initiator` with these bits reaches this descriptor (rules 2-5).
    pub const fn admits(
        &self,
        initiator: ProcessId,
        pt_index: u32,
        ac_index: u32,
        bits: u64,
    ) -> bool {
        self.pt_index == pt_index
            && ac_index < 32
            && self.ac_mask & (1 << ac_index) != 0
            && self.match_id.admits(initiator)
            && (self.match_bits ^ bits) & !self.ignore_bits == 0
    }
}

/// Entries that are looked at for each descriptor that may be advertised.
const LOOKED_AT: usize = 4;

/// What a descriptor needs of its own to be advertised; only an update changes it. Nor does any operation make such a one
/// inactive: it has no threshold and no offset of its own.
pub(crate) fn may_be_advertised(md: &Md) -> bool {
    let o = md.shown.options;
    md.shown.threshold == THRESHOLD_INFINITE
        && (md.shown.eq.is_none() || md.is_open())
        && o.contains(MdOptions::MANAGE_REMOTE)
        && !o.intersects(MdOptions::TRUNCATE.union(MdOptions::PINNED))
        && o.intersects(MdOptions::OP_PUT | MdOptions::OP_GET)
        && md.region().is_some()
}

impl Ni {
    /// Has a descriptor with an event queue advertised for puts, until it is updated or gone, if nothing but the queue
    /// is in the way of it; whether it is.
    pub fn open_to_writes(&mut self, md: MdHandle) -> bool {
        let Some(pt_index) = self.md_portal(md) else {
            return false;
        };
        let Some(found) = self.md_mut(md) else {
            return false;
        };
        let wanted = found.shown.eq.is_some() && found.shown.options.contains(MdOptions::OP_PUT);
        if found.is_open() || !wanted || found.region().is_none() {
            return found.is_open();
        }
        found.set_open(true);
        if !may_be_advertised(found) {
            found.set_open(false);
            return false;
        }
        self.joins(pt_index, md);
        self.touch(pt_index);
        true
    }

    /// The descriptors on portal `pt_index` that qualify, head to tail, the first `most` of them. Of the list's entries it looks
    /// at four for each of those, so that a call costs no more however long the list is.
    ///
    /// Conditions: remotely managed, no event queue or opened to writes, infinite threshold, contiguous, no truncation
    /// (an access past the end must reach the next entry), and no earlier entry that overlaps.
    pub fn adverts(&self, pt_index: u32, most: usize) -> alloc::vec::Vec<Advert> {
        let mut out = alloc::vec::Vec::new();
        let ac_mask = self.ac_mask(pt_index);
        let entries = most.saturating_mul(LOOKED_AT);
        for (handle, me) in self.matching.walk(pt_index).take(entries) {
            if out.len() >= most {
                break;
            }
            let Some((md_handle, md)) = me.md.and_then(|h| Some((h, self.md(h)?))) else {
                continue;
            };
            let o = md.shown.options;
            let Some(region) = md.region() else {
                continue;
            };
            let shadowed = || {
                self.matching
                    .walk(pt_index)
                    .take_while(|(h, _)| *h != handle)
                    .any(|(_, earlier)| earlier.overlaps(me))
            };
            if md.active && may_be_advertised(md) && !shadowed() {
                out.push(Advert {
                    pt_index,
                    match_id: me.match_id,
                    match_bits: me.match_bits,
                    ignore_bits: me.ignore_bits,
                    me: handle,
                    md: md_handle,
                    region,
                    put: o.contains(MdOptions::OP_PUT),
                    get: o.contains(MdOptions::OP_GET) && !md.is_open(),
                    events: md.is_open(),
                    ack: !o.contains(MdOptions::ACK_DISABLE),
                    ac_mask,
                });
            }
        }
        out
    }

    /// Access control entries that let every process of the own user and job reach `pt_index`.
    fn ac_mask(&self, pt_index: u32) -> u32 {
        self.ac.iter().take(32).enumerate().fold(0, |mask, (i, e)| {
            let open = e.match_id == ProcessId::ANY
                && (e.uid == ANY || e.uid == self.config.uid)
                && (e.jid == ANY || e.jid == self.config.jid)
                && (e.pt_index == ANY || e.pt_index == pt_index);
            mask | u32::from(open) << i
        })
    }
}
