//! Sending.

use super::{Context, MOST_SOURCES, owner, user};
use crate::error::{CallError, RequestError};
use crate::flow::Way;
use crate::header::{HeaderData, MOST_CREDITS};
use crate::request::{Kind, Request};
use crate::{Slice, Status};
use portals_shim::{
    AckRequest, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec, MeHandle, MeSpec,
    THRESHOLD_INFINITE, Target, Unlink,
};

/// A message that has not been handed to Portals.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(super) to: u32,
    /// Without the sync bit.
    pub(super) bits: u64,
    pub(super) data: Slice,
    pub(super) sync: bool,
    /// The library's, with a tag below 0.
    pub(super) own: bool,
}

impl Outgoing {
    /// What it does not overtake: the program's messages to a peer, or the library's, which no receive of the program
    /// matches.
    const fn lane(&self) -> u32 {
        self.to * 2 + self.own as u32
    }
}

/// Lanes of so many peers.
pub(super) const fn lanes(peers: usize) -> usize {
    peers * 2
}

impl Context {
    /// Begins a send; `bits` are without the sync bit.
    pub(crate) fn send(
        &mut self,
        to: u32,
        bits: u64,
        data: Slice,
        sync: bool,
    ) -> Result<Request, CallError> {
        let message = Outgoing {
            to,
            bits,
            data,
            sync,
            own: self.place.layout.tag(bits) < 0,
        };
        self.begin(|context, slot| {
            let lane = message.lane();
            let kept = if context.waiting.has(lane) {
                Some(message)
            } else {
                context.start(slot, message)?
            };
            if let Some(message) = kept {
                context.waiting.push(lane, slot);
                if let Some(kind) = context.requests.active(slot) {
                    *kind = Kind::Queued(message);
                }
            }
            Ok(())
        })
    }

    /// Hands a message to Portals, or back when it must wait. After an error nothing has happened.
    fn start(&mut self, slot: u32, message: Outgoing) -> Result<Option<Outgoing>, CallError> {
        let Outgoing { to, bits, .. } = message;
        let short = !message.sync && message.data.len as u64 <= self.short;
        let target = self.target(to, 0, bits)?;
        let way = self.flow.take(to, short, message.own);
        let done = match way {
            Way::Wait => return Ok(Some(message)),
            Way::Short => self.start_short(slot, &message.data, to, target),
            Way::Released => self.start_released(slot, &message.data, to, target),
        };
        if let Err(error) = done {
            self.flow.untake(to, way);
            return Err(error);
        }
        Ok(None)
    }

    fn start_short(
        &mut self,
        slot: u32,
        data: &Slice,
        to: u32,
        target: Target,
    ) -> Result<(), CallError> {
        let md = self.source(data)?;
        let region = (data.offset as u64, data.len as u64);
        let done = self.with_credits(to, slot, |context, header| {
            let ni = &context.place.ni;
            ni.put_region_silent(md, region, AckRequest::NoAck, target, header)
        })?;
        self.counts.short += 1;
        if done {
            self.requests.end(slot, Ok(Status::sent(data.len)));
        }
        Ok(())
    }

    fn start_released(
        &mut self,
        slot: u32,
        data: &Slice,
        to: u32,
        mut target: Target,
    ) -> Result<(), CallError> {
        target.match_bits |= self.place.layout.sync_bit();
        let entry = MeSpec {
            match_id: target.process,
            match_bits: u64::from(slot),
            ignore_bits: 0,
            unlink: Unlink::Unlink,
        };
        let after = InsertPosition::After;
        let me = self.place.ni.me_attach(self.portal(1), entry, after)?;
        if let Err(error) = self.put_released(slot, data, to, target, me) {
            let gone = self.place.ni.me_unlink(me);
            if let Err(error) = gone {
                tracing::debug!("the entry of a message that was not sent: {error}");
            }
            return Err(error);
        }
        if let Some(kind) = self.requests.active(slot) {
            *kind = Kind::Released {
                to,
                me,
                sent: false,
                released: false,
            };
        }
        self.counts.released += 1;
        Ok(())
    }

    /// Puts data that can be got back from the entry `me`.
    fn put_released(
        &mut self,
        slot: u32,
        data: &Slice,
        to: u32,
        target: Target,
        me: MeHandle,
    ) -> Result<(), CallError> {
        let md = MdSpec {
            memory: data.memory(),
            threshold: THRESHOLD_INFINITE,
            max_size: 0,
            options: MdOptions::OP_GET | MdOptions::MANAGE_REMOTE | MdOptions::EVENT_START_DISABLE,
            user_ptr: user(owner::RELEASED, slot),
            eq: Some(self.queues[1]),
        };
        let md = self.place.ni.md_attach(me, md, Unlink::Unlink)?;
        self.with_credits(to, slot, |context, header| {
            context.place.ni.put(md, AckRequest::Ack, target, header)
        })
    }

    /// Sends with the credits that are owed to the receiver; they stay owed if it is refused.
    fn with_credits<R>(
        &mut self,
        to: u32,
        slot: u32,
        put: impl FnOnce(&Self, u64) -> Result<R, portals_shim::Error>,
    ) -> Result<R, CallError> {
        let credits = self.flow.give_back(to, MOST_CREDITS);
        let header = HeaderData {
            source: self.place.me,
            operation: slot,
            credits,
        };
        put(self, header.pack()).map_err(|error| {
            self.flow.owe(to, credits);
            error.into()
        })
    }

    /// Starts the sends that waited and may go. One that is refused now ends as failed, and the next has its turn.
    pub(super) fn send_waiting(&mut self) {
        let mut at = 0;
        while let Some(lane) = self.waiting.lane(at) {
            while let Some(slot) = self.waiting.first(lane) {
                if !self.start_waiting(slot) {
                    break;
                }
                self.waiting.pop(lane);
            }
            // A lane without sends has left the list, and another one has its place.
            at += usize::from(self.waiting.has(lane));
        }
    }

    /// Whether a send that waited has had its turn.
    fn start_waiting(&mut self, slot: u32) -> bool {
        let Some(kind @ Kind::Queued(_)) = self.requests.active(slot) else {
            return true;
        };
        let Kind::Queued(message) = std::mem::replace(kind, Kind::Short) else {
            return true;
        };
        let rank = message.to;
        match self.start(slot, message) {
            Ok(None) => true,
            Ok(Some(message)) => {
                if let Some(kind) = self.requests.active(slot) {
                    *kind = Kind::Queued(message);
                }
                false
            }
            Err(error) => {
                tracing::debug!("a message to rank {rank} that waited: {error}");
                self.requests.end(slot, Err(RequestError::Fabric { rank }));
                true
            }
        }
    }

    /// Gives credits back in a message of their own.
    pub(super) fn send_credits(&mut self, to: u32) -> Result<(), CallError> {
        let target = self.target(to, 2, 0)?;
        self.with_credits(to, 0, |context, header| {
            let ni = &context.place.ni;
            ni.put(context.silent, AckRequest::NoAck, target, header)
        })?;
        self.counts.credit_messages += 1;
        Ok(())
    }

    /// The descriptor of the region that data lies in.
    fn source(&mut self, data: &Slice) -> Result<MdHandle, CallError> {
        if data.len == 0 {
            return Ok(self.empty);
        }
        let addr = data.region.addr();
        if let Some((last, md)) = self.last_source
            && last == addr
        {
            return Ok(md);
        }
        let md = match self.sources.get(&addr) {
            Some(md) => *md,
            None => {
                if self.sources.len() >= MOST_SOURCES {
                    self.let_a_source_go();
                }
                let spec = MdSpec {
                    memory: MdMemory::whole(&data.region),
                    threshold: THRESHOLD_INFINITE,
                    max_size: 0,
                    options: MdOptions::EVENT_START_DISABLE,
                    user_ptr: user(owner::SOURCE, 0),
                    eq: Some(self.queues[1]),
                };
                let md = self.place.ni.md_bind(spec, Unlink::Retain)?;
                self.sources.insert(addr, md);
                md
            }
        };
        self.last_source = Some((addr, md));
        Ok(md)
    }

    /// Gives up the descriptor of a region that nothing is under way from.
    fn let_a_source_go(&mut self) {
        let ni = &self.place.ni;
        let idle = self
            .sources
            .iter()
            .find(|(_, md)| ni.md_unlink(**md).is_ok());
        if let Some(addr) = idle.map(|(addr, _)| *addr) {
            self.sources.remove(&addr);
            self.last_source = None;
        }
    }
}
