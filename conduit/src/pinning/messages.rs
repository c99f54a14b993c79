//! Messages of puts and gets: how one starts whose resources are in hand, and what its events end.
//!
//! ```text
//!   short put, unit held ─► ticket, lane ─► PtlPut with the unit's key, if the fabric takes the data ─taken──► its ACK
//!                                                     └─ not now ─► next free chunk ─► PtlPut ─► SEND_END, ACK
//!   get, unit held       ─► ticket, lane, chunk or a hit at home ─► PtlGet with the unit's key ─► REPLY_END
//!   any other            ─► transfer.rs waits for what it needs ─► start_part
//!   last event           ─► unit, chunk, lane and ticket are free
//! ```

use super::lanes::{Lane, offset_of};
use super::transfer::Part;
use super::wire::{Reach, portal_of};
use crate::core::Core;
use crate::fault::{Fault, refused};
use crate::memory::UserMem;
use crate::ops::Key;
use crate::resources::SbUse;
use crate::rma::{Completion, Rma, Started};
use ::firehose::{Grip, Unit};
use portals_shim::{AckRequest, Brief, EventKind, Get, Posted, Put, RemoteKey, Target};

impl Reach {
    const fn key(&self) -> RemoteKey {
        RemoteKey {
            base: self.base,
            len: self.len,
            rkey: self.rkey,
        }
    }
}

impl Core {
    /// Takes an event of a message by a lane.
    pub(crate) fn handle_lane(&mut self, index: usize, event: &Brief) -> Result<(), Fault> {
        let bad = Fault::Malformed {
            node: self.ranks.me(),
            what: "an event of no message of ours",
        };
        let Some(firehoses) = &mut self.pinning.firehoses else {
            return Err(bad);
        };
        let Some(lane) = firehoses.lanes.get_mut(index) else {
            return Err(bad);
        };
        match event.kind {
            EventKind::SendEnd => lane.sent = true,
            EventKind::Ack | EventKind::ReplyEnd if event.mlength == event.rlength => {
                lane.answered = true;
            }
            EventKind::Ack | EventKind::ReplyEnd => {
                let node = lane.node;
                return Err(Fault::Malformed {
                    node,
                    what: "a put or get was answered in part",
                });
            }
            _ => return Ok(()),
        }
        if !lane.answered || !(lane.get || lane.sent) {
            return Ok(());
        }
        let Some(lane) = firehoses.lanes.end(index) else {
            return Err(bad);
        };
        if let (Some(here), Some(home)) = (lane.here, &mut self.pinning.home) {
            home.release(here);
        }
        firehoses.release_there(lane.node, lane.there);
        if let Some(md) = lane.own {
            self.ni
                .md_unlink(md)
                .map_err(refused("PtlMDUnlink of client memory"))?;
        }
        if let Some(chunk) = lane.chunk {
            match self.resources.requests_mut().release(u64::from(chunk)) {
                Some(SbUse::Get { to }) => {
                    to.copy_from(self.resources.requests().region(), chunk as usize)?
                }
                Some(_) => {}
                None => return Err(bad),
            }
        }
        self.resources.give_ticket();
        self.ops.complete(lane.op.index, lane.get).ok_or(bad)
    }

    /// Whether the end of a message by a lane asks nothing of the interface.
    pub(crate) fn lane_is_plain(&self, index: usize) -> bool {
        self.pinning
            .firehoses
            .as_ref()
            .is_some_and(|f| f.lanes.is_plain(index))
    }

    #[inline]
    fn unit_target(&self, node: u32, reach: &Reach, addr: u64) -> Target {
        Target {
            process: self.ranks.process(node),
            pt_index: portal_of(reach.bits),
            ac_index: 0,
            match_bits: reach.bits,
            remote_offset: addr - reach.base,
        }
    }

    /// What a message about `len` bytes at `addr` of `node` needs, if nothing has to be waited for: a ticket, the unit, which
    /// has all of them in one piece, and an operation to count on. `None`, and nothing has happened, otherwise.
    #[inline(always)]
    fn hold_now(
        &mut self,
        node: u32,
        addr: u64,
        len: u64,
        completion: Completion,
    ) -> Option<(Grip, Reach, Key)> {
        let segments = self.attached.as_ref().map(|a| a.segments.as_slice());
        let segment = segments.and_then(|s| s.get(node as usize))?;
        let firehoses = self.pinning.firehoses.as_mut()?;
        let (unit, within) = firehoses.limits.shape.reach(addr, len);
        if segment.offset_of(addr, len).is_none() || within < len || !self.resources.take_tickets(1)
        {
            return None;
        }
        let Some((there, reaches)) = firehoses.holder.hit(node, unit) else {
            self.resources.give_ticket();
            return None;
        };
        let reach = reaches.at(addr).copied();
        let reach = reach.filter(|r| r.offset_of(addr, len).is_some());
        let op = self.slot_of(completion);
        if let (Some(reach), Some(op)) = (reach, op) {
            return Some((there, reach, op));
        }
        self.let_go_now(node, there, op, completion);
        None
    }

    /// Gives back what [`Core::hold_now`] took.
    #[cold]
    fn let_go_now(&mut self, node: u32, there: Grip, op: Option<Key>, completion: Completion) {
        // An operation without messages is complete.
        if let Some(op) = op.filter(|_| completion.has_handle()) {
            self.ops.finish(op);
        }
        if let Some(firehoses) = self.pinning.firehoses.as_mut() {
            firehoses.release_there(node, there);
        }
        self.resources.give_ticket();
    }

    /// Starts an operation to a unit that this rank holds, if nothing has to be waited for; `None`, and nothing has happened,
    /// otherwise.
    #[inline(always)]
    pub(crate) fn start_held(&mut self, op: &Rma) -> Result<Option<Started>, Fault> {
        let Some(memory) = self.own_memory(&op.local) else {
            return Ok(None);
        };
        if op.get {
            self.get_held(op, &memory)
        } else {
            self.put_held(op, &memory)
        }
    }

    /// Starts a put of at most a chunk, which is free.
    fn put_held(&mut self, rma: &Rma, memory: &UserMem) -> Result<Option<Started>, Fault> {
        let (node, dest, len) = (rma.node, rma.addr, memory.len() as u64);
        let Some(chunk) = self.resources.requests().next() else {
            return Ok(None);
        };
        let held = self.hold_now(node, dest, len, rma.completion);
        let Some((there, reach, op)) = held else {
            return Ok(None);
        };
        let lane = Lane {
            sent: true,
            ..Lane::new(node, there, op)
        };
        let Some((index, md)) = self.pinning.take_lane(&lane) else {
            return Err(no_lane(self.ranks.me()));
        };
        let to = self.unit_target(node, &reach, dest);
        // Counted before the message exists: its completion cannot come first.
        self.ops.begin(op, false);
        let key = reach.key();
        let put = |from| {
            let put = Put::new(md, to).region(offset_of(from), len);
            put.ack(AckRequest::Ack).key(&key)
        };
        let posted = self.ni.post_put(put(memory.addr()).at_once().silent());
        if posted.map_err(refused("PtlPutRegion"))? == Posted::Declined {
            self.resources.requests_mut().take(SbUse::Put);
            memory.copy_to(self.resources.requests().region(), chunk as usize)?;
            if let Some(lane) = self
                .pinning
                .firehoses
                .as_mut()
                .and_then(|f| f.lanes.get_mut(index))
            {
                (lane.chunk, lane.sent) = (Some(chunk), false);
            }
            let from = self.resources.requests().region().addr() + u64::from(chunk);
            self.ni
                .post_put(put(from))
                .map_err(refused("PtlPutRegion"))?;
        }
        Ok(Some(Started::Begun(rma.completion.handle(op))))
    }

    /// Starts a get into memory that a chunk stands for, or that is pinned in one piece.
    fn get_held(&mut self, rma: &Rma, memory: &UserMem) -> Result<Option<Started>, Fault> {
        let (node, src, len) = (rma.node, rma.addr, memory.len() as u64);
        let held = self.hold_now(node, src, len, rma.completion);
        let Some((there, reach, op)) = held else {
            return Ok(None);
        };
        let small = self.env.bounces(true, memory.len());
        let chunk = if small {
            self.resources
                .requests_mut()
                .take(SbUse::Get { to: *memory })
        } else {
            None
        };
        let here = match (chunk, &mut self.pinning.home) {
            (None, Some(home)) => home.hit(memory.addr(), len),
            _ => None,
        };
        let landing = match (chunk, here) {
            (Some(at), _) => self.resources.requests().region().addr() + u64::from(at),
            (None, Some(_)) => memory.addr(),
            (None, None) => {
                self.let_go_now(node, there, Some(op), rma.completion);
                return Ok(None);
            }
        };
        let lane = Lane {
            get: true,
            here,
            chunk,
            lending: memory.lending,
            ..Lane::new(node, there, op)
        };
        let Some((_, md)) = self.pinning.take_lane(&lane) else {
            return Err(no_lane(self.ranks.me()));
        };
        let from = self.unit_target(node, &reach, src);
        self.ops.begin(op, true);
        let key = reach.key();
        let get = Get::new(md, from).region(offset_of(landing), len);
        self.ni
            .post_get(get.key(&key))
            .map_err(refused("PtlGetRegion"))?;
        Ok(Some(Started::Begun(rma.completion.handle(op))))
    }

    /// Takes a chunk for a message of `memory`, with the bytes of a put. `None`: they are too many for one, or none is free.
    pub(super) fn bounce(&mut self, get: bool, memory: UserMem) -> Result<Option<u32>, Fault> {
        if !self.env.bounces(get, memory.len()) {
            return Ok(None);
        }
        let whose = if get {
            SbUse::Get { to: memory }
        } else {
            SbUse::Put
        };
        let requests = self.resources.requests_mut();
        let Some(at) = requests.take(whose) else {
            return Ok(None);
        };
        if !get {
            memory.copy_to(requests.region(), at as usize)?;
        }
        Ok(Some(at))
    }

    /// Starts a message of the first bytes of a part, which has a ticket and a unit that is held: all of them from a chunk, or as
    /// many as are pinned `here`; how many.
    pub(super) fn start_part(
        &mut self,
        p: &Part,
        (there, reach): (Grip, &Reach),
        chunk: Option<u32>,
        here: Option<(Unit, u64)>,
    ) -> Result<usize, Fault> {
        let n = here.map_or(p.memory.len(), |(_, n)| n as usize);
        let lane = Lane {
            get: p.get,
            here: here.map(|(unit, _)| unit),
            chunk,
            lending: p.memory.lending,
            ..Lane::new(p.node, there, p.op)
        };
        let memory = p.memory.part(0, n);
        self.start_lane(&lane, reach, p.addr, memory)?;
        Ok(n)
    }

    /// Sends a message whose resources are in hand.
    fn start_lane(
        &mut self,
        lane: &Lane,
        reach: &Reach,
        addr: u64,
        memory: UserMem,
    ) -> Result<(), Fault> {
        let to = self.unit_target(lane.node, reach, addr);
        let missing = no_lane(self.ranks.me());
        let Some(firehoses) = &mut self.pinning.firehoses else {
            return Err(missing);
        };
        let unpinned = (lane.chunk.is_none() && lane.here.is_none()).then_some(memory);
        let md = match unpinned {
            None => firehoses
                .lanes
                .take(lane)
                .map(|(_, md)| md)
                .ok_or(missing)?,
            Some(memory) => firehoses
                .lanes
                .take_over((&self.ni, self.descriptors.queues.safe), lane, memory)
                .ok_or(missing)?
                .map_err(refused("PtlMDBind of client memory"))?,
        };
        self.ops.begin(lane.op, lane.get);
        let from = match lane.chunk {
            Some(at) => self.resources.requests().region().addr() + u64::from(at),
            None => memory.addr(),
        };
        let offset = unpinned.map_or_else(|| offset_of(from), |_| 0);
        let len = memory.len() as u64;
        let key = reach.key();
        if lane.get {
            let get = Get::new(md, to).region(offset, len).key(&key);
            let posted = self.ni.post_get(get);
            posted.map(|_| ()).map_err(refused("PtlGetRegion"))
        } else {
            let put = Put::new(md, to).region(offset, len).key(&key);
            let posted = self.ni.post_put(put.ack(AckRequest::Ack));
            posted.map(|_| ()).map_err(refused("PtlPutRegion"))
        }
    }
}

/// There are as many lanes as tickets.
#[cold]
fn no_lane(node: u32) -> Fault {
    Fault::Malformed {
        node,
        what: "more messages than tickets",
    }
}
