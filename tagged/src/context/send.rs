//! Sending.

use super::{Context, MOST_SOURCES, owner, user};
use crate::error::{CallError, RequestError};
use crate::flow::Way;
use crate::header::{HeaderData, MOST_CREDITS, Word};
use crate::request::Kind;
use crate::world::{Begun, Outward};
use crate::{Slice, Status};
use portals_shim::{
    AckRequest, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec, MeHandle, MeSpec, Put,
    THRESHOLD_INFINITE, Target, Unlink, WeakRegion,
};

/// A message that has not been handed to Portals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<D> {
    pub(super) to: u32,
    /// Without the sync bit.
    pub(crate) bits: u64,
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

/// Ranks beside `rank` in a binomial tree of so many.
fn beside(rank: u32, size: u32) -> impl Iterator<Item = u32> {
    let parent = (rank > 0).then(|| rank & (rank - 1));
    let bits = (0..32).map(|n| 1_u32 << n);
    let children = bits
        .take_while(move |bit| rank & bit == 0)
        .filter_map(move |bit| rank.checked_add(bit).filter(|child| *child < size));
    parent.into_iter().chain(children)
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

    /// Starts a message that has its credit.
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
        let put = Put::new(md, *target).region(data.offset as u64, data.len as u64);
        let header = self.with_credits(to, slot);
        let put = put.hdr_data(header.pack()).silent();
        match self.place.ni.post_put(put) {
            Ok(posted) => {
                self.counts.short += 1;
                Ok(if posted.is_taken() {
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
                noted: false,
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
        self.send_word(to, Word::Credits)?;
        self.counts.credit_messages += 1;
        Ok(())
    }

    /// Tells the senders of messages that wait here, and whose data they keep, that there is a note of them.
    pub(super) fn send_notes(&mut self) -> Result<(), CallError> {
        // Beyond that, senders wait until something is received.
        while self.unexpected.held() < self.unexpected_bytes {
            let Some(peer) = self.flow.note() else {
                break;
            };
            while let Some((id, slot)) = self.unexpected.take_notable(peer) {
                self.flow.unnotable(peer);
                if let Err(error) = self.send_word(peer, Word::Note(slot)) {
                    if let Some(arrived) = self.unexpected.get_mut(id) {
                        arrived.noted = false;
                    }
                    self.unexpected.notable(id);
                    self.flow.notable(peer);
                    return Err(error);
                }
                self.counts.notes += 1;
            }
        }
        Ok(())
    }

    /// Sends a message of the library's own, with the credits that are due.
    fn send_word(&mut self, to: u32, word: Word) -> Result<(), CallError> {
        let target = self.target(to, 2, word.pack())?;
        let header = self.with_credits(to, 0);
        let ni = &self.place.ni;
        let put = ni.put(self.silent, AckRequest::NoAck, target, header.pack());
        put.map_err(|refused| self.unsent(to, header, refused))
    }

    /// Greets the ranks beside this one in the tree of all: two that have other options than each other learn of it.
    pub(crate) fn greet(&mut self) -> Result<(), CallError> {
        self.tell(Word::Hello(self.options))
    }

    fn tell(&mut self, word: Word) -> Result<(), CallError> {
        let size = self.place.peers.len() as u32;
        for to in beside(self.place.me, size) {
            self.send_word(to, word)?;
        }
        Ok(())
    }

    /// A rank has other options, or knows of one that has: no call goes any more, and the others are told.
    #[cold]
    pub(super) fn refuse(&mut self, rank: u32) -> Result<(), CallError> {
        if self.refused_by.replace(rank).is_none() {
            self.flow.refuse();
            self.tell(Word::Refused)?;
        }
        Err(CallError::Differs { rank })
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

    /// The descriptor of another region than the last one; see [`Context::source`].
    #[inline(never)]
    fn another_source(&mut self, data: &Slice) -> Result<MdHandle, CallError> {
        let addr = data.region.addr();
        let md = match self.sources.get(&addr) {
            Some((md, _)) => *md,
            None => {
                self.let_sources_go();
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
                self.sources.insert(addr, (md, data.region.downgrade()));
                md
            }
        };
        self.last_source = Some((addr, md));
        Ok(md)
    }

    /// Gives up the descriptors of regions that nobody else has, unless something is under way from them.
    fn let_sources_go(&mut self) {
        let ni = &self.place.ni;
        let keep = |md, region: &WeakRegion| region.owners() > 1 || ni.md_unlink(md).is_err();
        self.sources.retain(|_, (md, region)| keep(*md, region));
        self.last_source = None;
    }

    /// Gives up the descriptor of a region that nothing is under way from.
    fn let_a_source_go(&mut self) {
        let ni = &self.place.ni;
        let idle = self
            .sources
            .iter()
            .find(|(_, (md, _))| ni.md_unlink(*md).is_ok());
        if let Some(addr) = idle.map(|(addr, _)| *addr) {
            self.sources.remove(&addr);
            self.last_source = None;
        }
    }
}
