//! The choice of a protocol: the only place that says which way a put or get goes.

use super::op::{Completion, Rma};
use super::segments::Pinned;
use crate::core::{Core, GET_CHUNK_DATA};
use crate::error::RmaError;
use crate::memory::Source;
use crate::segment::SegInfo;
use portals_shim::MdHandle;

/// Longest put that is copied wherever its memory is, bytes: less than a descriptor, or a wait for the memory, costs.
pub(super) const SHORT: usize = 256;

/// Longest get that is awaited straight into the own segment, bytes: a longer one takes longer than the looks of a call.
pub(super) const AWAITED: usize = 4096;

/// How a put or get goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// There is nothing to move.
    Nothing,
    /// Load and store: the segment is memory of this process. `at`: the offset in the segment.
    Copy { at: u64 },
    /// Buffered copy: the bytes of a put leave from the chunk that is free.
    Bounce { at: u64, chunk: u32 },
    /// RDMA read that its caller waits for, to a place that takes no descriptor.
    Awaited { at: u64, landing: Landing },
    /// One RDMA message to a unit that this rank may hold already.
    Held,
    /// What may have to be waited for.
    General(General),
}

/// The protocols of operations that may have to wait for what they need.
#[derive(Clone, Copy, Debug)]
pub(crate) enum General {
    /// RDMA messages, each of which waits for what it needs.
    Messages { at: u64 },
    /// RDMA messages to units, which are pinned where they are not held, and copies of what cannot be pinned.
    Units,
}

/// Where an awaited get lands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    pub(super) md: MdHandle,
    /// In the descriptor.
    pub(super) offset: usize,
    /// The chunk, if it is one.
    pub(super) chunk: Option<u32>,
}

impl Core {
    /// The segment of `node`.
    #[inline(always)]
    fn segment_of(&self, node: u32) -> Result<&SegInfo, RmaError> {
        let attached = self.attached.as_ref().ok_or(RmaError::NotAttached)?;
        let nodes = self.ranks.count();
        let found = attached.segments.get(node as usize);
        found.ok_or(RmaError::Node { node, nodes })
    }

    /// Where `len` bytes at `addr` are in the segment of `node`. Nothing is nowhere: clients move ranges that may be empty.
    #[inline(always)]
    pub(crate) fn reach(&self, node: u32, addr: u64, len: usize) -> Result<u64, RmaError> {
        let segment = self.segment_of(node)?;
        if len == 0 {
            return Ok(0);
        }
        let found = segment.offset_of(addr, len as u64);
        found.ok_or(RmaError::Remote { node, addr, len })
    }

    /// Whether this rank has a segment, and it is that long.
    #[inline(always)]
    pub(super) fn has_own(&self, offset: usize, len: usize) -> bool {
        let own = self.segment_of(self.ranks.me());
        self.segments.has_segment() && own.is_ok_and(|own| own.contains(offset, len))
    }

    /// Chooses how a put or get goes, now. Nothing has happened after that.
    #[inline(always)]
    pub(crate) fn choose(&self, op: &Rma) -> Result<Protocol, RmaError> {
        let len = op.local.len();
        let at = self.reach(op.node, op.addr, len)?;
        if let Source::Segment { offset, len } = op.local
            && !self.has_own(offset, len)
        {
            return Err(RmaError::Local { offset, len });
        }
        if len == 0 {
            return Ok(Protocol::Nothing);
        }
        if self.segments.pinned() == Pinned::ByUnits {
            let held = if op.get {
                self.env.firehose.rdma_gets
            } else {
                self.env.bounces(false, len) && self.resources.requests().next().is_some()
            };
            return Ok(if held {
                Protocol::Held
            } else {
                Protocol::General(General::Units)
            });
        }
        if self.near(op.node).is_some() {
            return Ok(Protocol::Copy { at });
        }
        let chosen = if op.get {
            self.awaited(op, len)
                .map(|landing| Protocol::Awaited { at, landing })
        } else {
            self.bounced(op, len)
                .map(|chunk| Protocol::Bounce { at, chunk })
        };
        Ok(chosen.unwrap_or(Protocol::General(General::Messages { at })))
    }

    /// The chunk that takes the bytes of a short put. What is in the own segment leaves from there.
    #[inline(always)]
    fn bounced(&self, op: &Rma, len: usize) -> Option<u32> {
        let fits = len <= SHORT && self.env.bounces(false, len) && self.resources.has_ticket();
        let lent = fits && matches!(op.local, Source::User(_));
        self.resources.requests().next().filter(|_| lent)
    }

    /// Where a get lands that its caller waits for.
    #[inline(always)]
    fn awaited(&self, op: &Rma, len: usize) -> Option<Landing> {
        if op.completion != Completion::Blocking || !self.resources.has_ticket() {
            return None;
        }
        let own = match op.local {
            Source::Segment { offset, .. } => Some(offset),
            Source::User(memory) => self.own_offset(memory.addr(), len),
            Source::Empty | Source::Placed { .. } => return None,
        };
        if let Some(offset) = own {
            let rarsrc = self.attached.as_ref().map(|a| a.rarsrc)?;
            return (len <= AWAITED).then_some(Landing {
                md: rarsrc,
                offset,
                chunk: None,
            });
        }
        let chunk = self
            .resources
            .requests()
            .next()
            .filter(|_| self.env.bounces(true, len))?;
        Some(Landing {
            md: self.descriptors.reqsb,
            offset: chunk as usize + GET_CHUNK_DATA,
            chunk: Some(chunk),
        })
    }

    /// Where memory of this process is in the own segment.
    #[inline(always)]
    pub(super) fn own_offset(&self, addr: u64, len: usize) -> Option<usize> {
        let own = self.segment_of(self.ranks.me()).ok()?;
        own.offset_of(addr, len as u64).map(|o| o as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduit::Scope;
    use crate::memory::Source;
    use crate::threads::{self, RankEnd};
    use crate::{BarrierName, Conduit};

    const SIZE: usize = 1 << 16;

    fn name(protocol: &Protocol) -> &'static str {
        match protocol {
            Protocol::Nothing => "nothing",
            Protocol::Copy { .. } => "copy",
            Protocol::Bounce { .. } => "bounce",
            Protocol::Awaited { landing, .. } if landing.chunk.is_some() => "awaited in a chunk",
            Protocol::Awaited { .. } => "awaited in place",
            Protocol::Held => "held",
            Protocol::General(General::Messages { .. }) => "messages",
            Protocol::General(General::Units) => "units",
        }
    }

    /// Whether bytes are of the own segment, which way they go, how their end is known, and how many there are.
    type Case = (bool, bool, Completion, usize);

    /// The protocol of each case to `node`.
    fn chosen(conduit: &Conduit, node: u32, case: Case) -> &'static str {
        let (of_segment, get, completion, len) = case;
        let (addr, memory) = (conduit.segment(node).addr, vec![0; len]);
        conduit.lend(&memory, Scope::Full, |memory| {
            let local = if of_segment {
                Source::Segment { offset: 0, len }
            } else {
                Source::User(memory)
            };
            let op = if get {
                Rma::get(node, addr, local, completion)
            } else {
                Rma::put(node, addr, local, completion)
            };
            name(&conduit.core.borrow().choose(&op).unwrap())
        })
    }

    fn with(attach: impl Fn(&Conduit) + Sync, body: impl Fn(&Conduit) + Sync) {
        let ends = threads::run(2, |conduit| {
            attach(conduit);
            body(conduit);
            conduit.barrier(BarrierName::Anonymous).unwrap();
        });
        assert!(ends.iter().all(|e| *e == RankEnd::Returned(())));
    }

    /// What a segment that is pinned as a whole is reached by.
    #[test]
    fn each_put_and_get_has_one_protocol() {
        use Completion::{Blocking, Explicit, Implicit};
        let whole = |conduit: &Conduit| {
            conduit.attach(vec![], SIZE).unwrap();
        };
        with(whole, |conduit| {
            let (me, peer) = (conduit.mynode(), 1 - conduit.mynode());
            for (case, expected) in [
                ((false, false, Explicit, 0), "nothing"),
                ((false, false, Explicit, 1), "bounce"),
                ((false, false, Blocking, SHORT), "bounce"),
                ((false, false, Implicit, SHORT + 1), "messages"),
                ((false, false, Blocking, SHORT + 1), "messages"),
                ((true, false, Blocking, 8), "messages"),
                ((false, true, Explicit, 8), "messages"),
                ((false, true, Implicit, 8), "messages"),
                ((false, true, Blocking, 8), "awaited in a chunk"),
                ((true, true, Blocking, AWAITED), "awaited in place"),
                ((true, true, Blocking, AWAITED + 1), "messages"),
                ((false, true, Blocking, 1 << 15), "messages"),
            ] {
                assert_eq!(chosen(conduit, peer, case), expected, "{case:?}");
                let here = if case.3 == 0 { "nothing" } else { "copy" };
                assert_eq!(chosen(conduit, me, case), here, "{case:?}");
            }
        });
    }

    /// A short piece of an operation of many is copied as a short put is, and a get never awaited: others of it may be under way.
    #[test]
    fn a_piece_has_the_protocol_of_its_length() {
        let whole = |conduit: &Conduit| {
            conduit.attach(vec![], SIZE).unwrap();
        };
        with(whole, |conduit| {
            let peer = 1 - conduit.mynode();
            let key = conduit.core.borrow_mut().ops.explicit().unwrap();
            let part = Completion::Part(key);
            assert_eq!(chosen(conduit, peer, (false, false, part, SHORT)), "bounce");
            assert_eq!(chosen(conduit, peer, (true, true, part, 8)), "messages");
            assert!(conduit.core.borrow_mut().ops.finish(key));
        });
    }

    /// What a caller gets wrong is said in this order: the rank, its segment, the own one. Nothing is refused of no bytes but
    /// these.
    #[test]
    fn the_first_mistake_is_the_one_that_is_told() {
        let whole = |conduit: &Conduit| {
            conduit.attach(vec![], SIZE).unwrap();
        };
        with(whole, |conduit| {
            let peer = 1 - conduit.mynode();
            let base = conduit.segment(peer).addr;
            let fault = |node, addr, offset, len| {
                let own = Source::Segment { offset, len };
                let op = Rma::put(node, addr, own, Completion::Explicit);
                conduit.core.borrow().choose(&op).unwrap_err()
            };
            let beyond = RmaError::Node { node: 2, nodes: 2 };
            assert_eq!(fault(2, 0, SIZE, 8), beyond);
            assert_eq!(fault(2, 0, 0, 0), beyond);
            let remote = RmaError::Remote {
                node: peer,
                addr: base - 1,
                len: 8,
            };
            assert_eq!(fault(peer, base - 1, SIZE, 8), remote);
            for (offset, len) in [(SIZE, 8), (SIZE + 1, 0), (usize::MAX, 8)] {
                let local = RmaError::Local { offset, len };
                assert_eq!(fault(peer, base, offset, len), local);
            }
        });
    }

    /// What memory is reached by that is pinned by units, held or not.
    #[test]
    fn memory_of_units_has_two_protocols() {
        use Completion::{Blocking, Explicit};
        let large = |conduit: &Conduit| {
            conduit.attach_large(vec![], SIZE).unwrap();
        };
        with(large, |conduit| {
            let peer = 1 - conduit.mynode();
            for (case, expected) in [
                ((false, false, Explicit, 0), "nothing"),
                ((false, false, Explicit, 8), "held"),
                ((true, false, Blocking, 8), "held"),
                ((false, false, Blocking, 1 << 15), "units"),
                ((false, true, Explicit, 8), "held"),
                ((true, true, Blocking, 1 << 15), "held"),
            ] {
                assert_eq!(chosen(conduit, peer, case), expected, "{case:?}");
            }
        });
    }

    /// Without a free chunk or ticket a short put waits, and so goes by messages.
    #[test]
    fn what_would_have_to_wait_goes_by_messages() {
        let whole = |conduit: &Conduit| {
            conduit.attach(vec![], SIZE).unwrap();
        };
        with(whole, |conduit| {
            let peer = 1 - conduit.mynode();
            let put = (false, false, Completion::Explicit, 8);
            let get = (true, true, Completion::Blocking, 8);
            let all = {
                let resources = &mut conduit.core.borrow_mut().resources;
                (0..).take_while(|_| resources.take_tickets(1)).count()
            };
            assert_eq!(chosen(conduit, peer, put), "messages");
            assert_eq!(chosen(conduit, peer, get), "messages");
            for _ in 0..all {
                conduit.core.borrow_mut().resources.give_ticket();
            }
            assert_eq!(chosen(conduit, peer, put), "bounce");
            let mut chunks = Vec::new();
            while let Some(at) = conduit
                .core
                .borrow_mut()
                .resources
                .requests_mut()
                .take(crate::resources::SbUse::Put)
            {
                chunks.push(at);
            }
            assert_eq!(chosen(conduit, peer, put), "messages");
            for at in chunks {
                conduit
                    .core
                    .borrow_mut()
                    .resources
                    .requests_mut()
                    .release(u64::from(at));
            }
        });
    }
}
