//! What makes up a stream of short puts, in as few steps as it takes: a put that waits for nothing, and the handling of
//! many completions at once.
//!
//! ```text
//!   put:   checks ─► ticket, slot ─► next free chunk of ReqSB ─► PtlPut, no SEND event ─taken──► the chunk stays free
//!                                                                                   └─ not yet ─► lent until SEND_END
//!   wait:  one event of SAFE_EQ by a poll ─► those behind it that end own messages, where they lie
//! ```
//!
//! # Invariants
//!
//! * A put that does not begin here has had no effect, and goes the general way (`putget.rs`), which also waits, and says
//!   what is wrong with it.
//! * The memory of one that does is free when the call returns.

use crate::am::request::Source;
use crate::conduit::Conduit;
use crate::core::{Core, SbUse};
use crate::descriptors::Md;
use crate::extended::Counted;
use crate::fault::{Fault, refused};
use crate::matchbits::RmaBits;
use crate::ops::Handle;
use crate::rma::segments::Pinned;
use crate::tmpmd::UserMem;
use portals_shim::{AckRequest, Brief, Event, EventKind, NiFail, Put};

/// Longest put that is copied wherever its memory is, bytes: less than a descriptor, or a wait for the memory, costs.
const SHORT: usize = 256;

impl Core {
    /// Offset of an address of another rank's segment, if neither a copy reaches it nor memory is pinned for it.
    #[inline]
    pub(crate) fn offset_elsewhere(&self, node: u32, addr: u64, len: usize) -> Option<u64> {
        let at = node as usize;
        let attached = self.attached.as_ref();
        let attached = attached.filter(|_| self.segments.pinned() == Pinned::Whole)?;
        match attached.near.get(at)? {
            Some(_) => None,
            None => attached.segments.get(at)?.offset_of(addr, len as u64),
        }
    }

    /// Where a put of so many bytes goes in the segment of another rank, and the chunk that takes its data, if it is short and
    /// nothing has to be waited for.
    #[inline]
    pub(crate) fn short_put(&self, node: u32, dest: u64, len: usize) -> Option<(u64, u32)> {
        let fits = len > 0 && len <= SHORT && self.env.bounces(false, len);
        let remote = self.offset_elsewhere(node, dest, len)?;
        let chunk = self.reqsb.next()?;
        (fits && self.tickets.any()).then_some((remote, chunk))
    }

    #[inline]
    fn put_at_once(
        &mut self,
        node: u32,
        dest: u64,
        memory: &UserMem,
        counted: Counted,
    ) -> Result<Option<Handle>, Fault> {
        if self.segments.pinned() == Pinned::ByUnits {
            return self.put_held(node, dest, memory, counted);
        }
        let len = memory.len();
        let Some((remote, chunk)) = self.short_put(node, dest, len) else {
            return Ok(None);
        };
        let op = match counted {
            Counted::Explicit => self.ops.explicit(),
            Counted::Implicit => Some(self.ops.implicit()),
        };
        let Some(op) = op else {
            return Ok(None);
        };
        self.tickets.take(1);
        memory.copy_to(self.reqsb.region(), chunk as usize)?;
        let bits = RmaBits {
            get: false,
            local_completion: false,
            op: op.index,
            implicit: counted == Counted::Implicit,
            chunk,
        };
        let to = self.rar_target(node, bits.encode(), remote);
        let put = Put::new(self.descriptors.reqsb, to).region(u64::from(chunk), len as u64);
        // Counted before the message exists: its completion cannot come first.
        self.ops.begin(op, false);
        let posted = self.ni.post_put(put.ack(AckRequest::Ack).silent());
        if !posted.map_err(refused("PtlPutRegion"))?.is_taken() {
            self.reqsb.take(SbUse::Put);
        }
        Ok(Some(Handle((counted == Counted::Explicit).then_some(op))))
    }

    /// Whether the end of a message of this descriptor asks nothing of the interface.
    #[inline]
    fn is_plain(&self, md: Md) -> bool {
        match md {
            Md::RarSrc | Md::ReqSb | Md::RplSb => true,
            Md::Lane(index) => self.lane_is_plain(index),
            _ => false,
        }
    }

    /// Handles completions of own messages that are in SAFE_EQ, from the oldest on and as many as `left` says, which it
    /// counts down if it is no `u32::MAX`.
    pub(crate) fn settle(&mut self, left: &mut u32) -> Result<(), Fault> {
        let (ni, safe) = (self.ni.clone(), self.descriptors.queues.safe);
        let mut handled = Ok(());
        let taken = ni.eq_take_while(safe, &mut |event| {
            let more = *left > 0 && handled.is_ok();
            let Some(md) = settled(event).filter(|md| more && self.is_plain(*md)) else {
                return false;
            };
            if *left != u32::MAX {
                *left -= 1;
            }
            handled = self.handle_own(md, &Brief::new(event, false, 0));
            true
        });
        let call = "PtlEQGet";
        taken.map_err(|error| Fault::Portals { call, error })?;
        handled
    }
}

/// The descriptor of an event that says that an own message is over in part or as a whole.
#[inline]
fn settled(event: &Event) -> Option<Md> {
    let ends = matches!(
        event.kind,
        EventKind::SendEnd | EventKind::Ack | EventKind::ReplyEnd
    );
    Md::decode(event.md.user_ptr).filter(|_| ends && event.ni_fail == NiFail::OK)
}

impl Conduit {
    /// Starts a short put that needs nothing that would have to be waited for, to a segment that is not reached by a copy or
    /// to memory that is pinned for this rank. `None`, and nothing has happened, for any other put.
    pub(crate) fn put_at_once(
        &self,
        node: u32,
        dest: u64,
        memory: &UserMem,
        counted: Counted,
    ) -> Option<Handle> {
        if memory.len() > SHORT || self.handler_depth.get() > 0 {
            return None;
        }
        let put = self
            .core
            .borrow_mut()
            .put_at_once(node, dest, memory, counted);
        self.check("put", put)
    }

    /// Makes a checked get to the own segment at once, if that can be; see [`Conduit::get_at_once`].
    #[inline]
    pub(crate) fn get_segment_at_once(
        &self,
        node: u32,
        src: u64,
        to: &Source,
        counted: Counted,
    ) -> Option<Handle> {
        if self.segments().pinned() == Pinned::Whole {
            return None;
        }
        let memory = self.own_memory(to)?;
        self.get_at_once(node, src, &memory, counted)
    }

    /// Starts a get from memory that is pinned for this rank, if nothing has to be waited for. `None`, and nothing has
    /// happened, for any other get.
    #[inline]
    pub(crate) fn get_at_once(
        &self,
        node: u32,
        src: u64,
        memory: &UserMem,
        counted: Counted,
    ) -> Option<Handle> {
        if self.handler_depth.get() > 0 || self.segments().pinned() == Pinned::Whole {
            return None;
        }
        let get = self.core.borrow_mut().get_held(node, src, memory, counted);
        self.check("get", get)
    }
}
