//! Sending.

use super::{Context, MOST_SOURCES, owner, user};
use crate::error::{CallError, RequestError};
use crate::flow::Way;
use crate::header::{HeaderData, MOST_CREDITS};
use crate::request::Kind;
use crate::world::{Begun, Outward};
use crate::{Slice, Status};
use portals_shim::{
    AckRequest, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec, MeHandle, MeSpec,
    THRESHOLD_INFINITE, Target, Unlink,
};

/// A message that has not been handed to Portals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<D> {
    pub(super) to: u32,
    /// Without the sync bit.
    pub(super) bits: u64,
    pub(super) data: D,
    pub(super) sync: bool,
    /// The library's, with a tag below 0.
    pub(super) own: bool,
}

impl<D> Outgoing<D> {
    /// The same of other data, or of data that is elsewhere.
    const fn of<E>(&self, data: E) -> Outgoing<E> {
        Outgoing {
            to: self.to,
            bits: self.bits,
            data,
            sync: self.sync,
            own: self.own,
        }
    }

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

/// How far a send has come that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Started {
    /// It has ended.
    Done,
    /// Events will tell.
    UnderWay,
}

impl Context {
    /// Begins a send.
    #[inline(always)]
    pub(crate) fn send<const FULL: bool>(
        &mut self,
        (cid, to, tag): Outward,
        data: &Slice,
        sync: bool,
    ) -> Begun {
        let place = &*self.place;
        let message = Outgoing {
            to,
            bits: place.layout.message::<FULL>(cid, place.me, tag, false),
            data,
            sync,
            own: tag < 0,
        };
        // The message has the number that its request would get; most need none.
        let slot = self.requests.next()?;
        let short = !sync && data.len as u64 <= self.short;
        if !short || !self.waiting.is_empty() || !self.flow.take_credit(to) {
            return self.send_otherwise(slot, message);
        }
        match self.start_with_credit(slot, &message)? {
            Started::Done => Ok(None),
            Started::UnderWay => self.open().map(Some),
        }
    }

    /// Begins a send that may need to wait, or to be released.
    #[inline(never)]
    fn send_otherwise(&mut self, slot: u32, message: Outgoing<&Slice>) -> Begun {
        let way = self.way(&message);
        if way != Way::Short {
            return self.send_later(slot, &message, way);
        }
        match self.start(slot, &message, way)? {
            Started::Done => Ok(None),
            Started::UnderWay => self.open().map(Some),
        }
    }

    /// Begins a send that needs a request from the start.
    fn send_later(&mut self, slot: u32, message: &Outgoing<&Slice>, way: Way) -> Begun {
        let request = self.open()?;
        if way == Way::Wait {
            if let Some(kind) = self.requests.active(slot) {
                *kind = Kind::Queued(message.of(()));
            }
            self.requests.hold(slot, message.data.clone());
            self.waiting.push(message.lane(), slot);
        } else if let Err(error) = self.start(slot, message, way) {
            self.requests.forget(slot);
            return Err(error);
        }
        Ok(Some(request))
    }

    /// How a message that begins may go; what that needs is taken.
    #[inline]
    fn way(&mut self, message: &Outgoing<&Slice>) -> Way {
        if self.waiting.has(message.lane()) {
            return Way::Wait;
        }
        let short = !message.sync && message.data.len as u64 <= self.short;
        self.flow.take(message.to, short, message.own)
    }

    /// Hands a message to Portals as `way`, which is not to wait, says. After an error nothing has happened, and what
    /// was taken is given back.
    #[inline(never)]
    fn start(
        &mut self,
        slot: u32,
        message: &Outgoing<&Slice>,
        way: Way,
    ) -> Result<Started, CallError> {
        if way == Way::Short {
            return self.start_with_credit(slot, message);
        }
        let done = self
            .target(message.to, 0, message.bits)
            .and_then(|target| self.start_released(slot, message.data, message.to, target));
        if done.is_err() {
            self.flow.untake(message.to, way);
        }
        done
    }

    /// As [`Context::start`] of a message that has its credit.
    #[inline(always)]
    fn start_with_credit(
        &mut self,
        slot: u32,
        message: &Outgoing<&Slice>,
    ) -> Result<Started, CallError> {
        let refused = match self.target(message.to, 0, message.bits) {
            Ok(target) => match self.start_short(slot, message.data, message.to, &target) {
                Ok(started) => return Ok(started),
                Err(refused) => refused,
            },
            Err(refused) => refused,
        };
        self.flow.untake(message.to, Way::Short);
        Err(refused)
    }

    #[inline(always)]
    fn start_short(
        &mut self,
        slot: u32,
        data: &Slice,
        to: u32,
        target: &Target,
    ) -> Result<Started, CallError> {
        let md = self.source(data)?;
        let region = (data.offset as u64, data.len as u64);
        let header = self.with_credits(to, slot);
        let ni = &self.place.ni;
        match ni.put_region_silent(md, region, AckRequest::NoAck, *target, header.pack()) {
            Ok(done) => {
                self.counts.short += 1;
                Ok(if done {
                    Started::Done
                } else {
                    Started::UnderWay
                })
            }
            Err(refused) => Err(self.unsent(to, header, refused)),
        }
    }

    fn start_released(
        &mut self,
        slot: u32,
        data: &Slice,
        to: u32,
        mut target: Target,
    ) -> Result<Started, CallError> {
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
                len: data.len,
                me,
                sent: false,
                released: false,
            };
        }
        self.counts.released += 1;
        Ok(Started::UnderWay)
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
        let header = self.with_credits(to, slot);
        let put = self
            .place
            .ni
            .put(md, AckRequest::Ack, target, header.pack());
        put.map_err(|refused| self.unsent(to, header, refused))
    }

    /// What to send with the credits that are owed to the receiver.
    #[inline(always)]
    fn with_credits(&mut self, to: u32, slot: u32) -> HeaderData {
        HeaderData {
            source: self.place.me,
            operation: slot,
            credits: self.flow.give_back(to, MOST_CREDITS),
        }
    }

    /// It was refused: the credits are owed still.
    #[cold]
    fn unsent(&mut self, to: u32, header: HeaderData, refused: portals_shim::Error) -> CallError {
        self.flow.owe(to, header.credits);
        refused.into()
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
        let Some(Kind::Queued(message)) = self.requests.active(slot) else {
            return true;
        };
        let message = *message;
        let Some(data) = self.requests.held(slot) else {
            return true;
        };
        let (rank, len) = (message.to, data.len);
        let short = !message.sync && len as u64 <= self.short;
        let way = self.flow.take(rank, short, message.own);
        if way == Way::Wait {
            self.requests.hold(slot, data);
            return false;
        }
        if let Some(kind) = self.requests.active(slot) {
            *kind = Kind::Short;
        }
        match self.start(slot, &message.of(&data), way) {
            Ok(Started::Done) => self.requests.end(slot, Ok(Status::sent(len))),
            Ok(Started::UnderWay) => {}
            Err(error) => {
                tracing::debug!("a message to rank {rank} that waited: {error}");
                self.requests.end(slot, Err(RequestError::Fabric { rank }));
            }
        }
        true
    }

    /// Gives credits back in a message of their own.
    pub(super) fn send_credits(&mut self, to: u32) -> Result<(), CallError> {
        let target = self.target(to, 2, 0)?;
        let header = self.with_credits(to, 0);
        let ni = &self.place.ni;
        let put = ni.put(self.silent, AckRequest::NoAck, target, header.pack());
        put.map_err(|refused| self.unsent(to, header, refused))?;
        self.counts.credit_messages += 1;
        Ok(())
    }

    /// The descriptor of the region that data lies in.
    #[inline]
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
        self.another_source(data)
    }

    /// As [`Context::source`], of another region than the last one.
    #[inline(never)]
    fn another_source(&mut self, data: &Slice) -> Result<MdHandle, CallError> {
        let addr = data.region.addr();
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
