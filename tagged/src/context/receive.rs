//! Receiving: from the list of what came before, or by a match entry.

use super::kept::{Like, Plan, Spot};
use super::{Context, owner, user};
use crate::error::{CallError, RequestError};
use crate::layout::Pattern;
use crate::request::{End, Found, Kind, Ticket};
use crate::unexpected::{Arrived, Id, Loss, Place};
use crate::world::Wanted;
use crate::{Slice, Status};
use portals_shim::{
    Error, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec, MeSpec, ProcessId, Unlink,
};

/// One message, whose PUT_END says too that the descriptor is gone.
const RECEIVES: MdOptions = MdOptions::OP_PUT
    .union(MdOptions::TRUNCATE)
    .union(MdOptions::EVENT_START_DISABLE)
    .union(MdOptions::EVENT_AUTO_UNLINK_DISABLE);

impl Context {
    /// Begins a receive.
    #[inline(always)]
    pub(crate) fn receive<const FULL: bool>(
        &mut self,
        (cid, source, tag): Wanted,
        into: &Slice,
    ) -> Result<Ticket, CallError> {
        let pattern = self.place.layout.pattern::<FULL>(cid, source, tag);
        let request = self.open()?;
        match self.take_or_post::<FULL>(request.slot, pattern, source, into) {
            Ok(()) => Ok(request),
            Err(error) => {
                self.requests.forget(request.slot);
                Err(error)
            }
        }
    }

    /// Gives a request a message that has come, or a match entry for one that will.
    #[inline(always)]
    fn take_or_post<const FULL: bool>(
        &mut self,
        slot: u32,
        pattern: Pattern,
        source: Option<u32>,
        into: &Slice,
    ) -> Result<(), CallError> {
        if self.unexpected.is_empty() {
            match self.post(slot, pattern, source, into) {
                Err(CallError::Portals(Error::MdNoUpdate)) => {
                    self.progress::<FULL>()?;
                }
                other => return other,
            }
        }
        self.look_and_post::<FULL>(slot, pattern, source, into)
    }

    /// Takes a message that has come before its receive, or posts the receive; see [`Context::take_or_post`].
    #[inline(never)]
    fn look_and_post<const FULL: bool>(
        &mut self,
        slot: u32,
        pattern: Pattern,
        source: Option<u32>,
        into: &Slice,
    ) -> Result<(), CallError> {
        loop {
            if let Some(id) = self.unexpected.find(pattern, source) {
                self.counts.unexpected += 1;
                self.unexpected.take(id);
                return self.await_taken(slot, id, into);
            }
            match self.post(slot, pattern, source, into) {
                Err(CallError::Portals(Error::MdNoUpdate)) => {
                    self.progress::<FULL>()?;
                }
                other => return other,
            }
        }
    }

    /// Posts a match entry, or renews the one that is kept, unless something is in the queue of unexpected messages.
    #[inline(always)]
    fn post(
        &mut self,
        slot: u32,
        pattern: Pattern,
        source: Option<u32>,
        into: &Slice,
    ) -> Result<(), CallError> {
        let like = Like {
            pattern,
            source,
            addr: if into.len == 0 { 0 } else { into.addr() },
            len: into.len,
        };
        let plan = self.kept.plan(&like);
        if let Plan::Renew(md) = plan {
            let test = Some(self.queues[0]);
            let user = user(owner::POSTED, slot);
            self.place.ni.md_renew(md, 1, user, test)?;
            self.kept.renewed();
            self.counts.posted += 1;
            if let Some(kind) = self.requests.active(slot) {
                *kind = Kind::Posted {
                    spot: Spot::Kept(md),
                    cid: self.place.layout.cid(like.pattern.bits),
                };
            }
            return Ok(());
        }
        self.post_anew(slot, like, plan, into)
    }

    /// Posts a receive that the kept one is not like.
    #[inline(never)]
    fn post_anew(
        &mut self,
        slot: u32,
        like: Like,
        mut plan: Plan,
        into: &Slice,
    ) -> Result<(), CallError> {
        let Like {
            pattern, source, ..
        } = like;
        // None of these is in use: its one operation has ended.
        while let Some(md) = self.kept.take_spent() {
            self.place.ni.md_unlink(md)?;
        }
        if let Plan::LetGo(md) = plan {
            self.place.ni.md_unlink(md)?;
            self.kept.gone(md);
            plan = self.kept.plan(&like);
        }
        let keep = plan == Plan::Keep;
        let match_id = match source {
            Some(source) => self.target(source, 0, 0)?.process,
            None => ProcessId::ANY,
        };
        let spec = MeSpec {
            match_id,
            match_bits: pattern.bits,
            ignore_bits: pattern.ignore,
            unlink: Unlink::Unlink,
        };
        let md = MdSpec {
            memory: into.lent(),
            threshold: 1,
            max_size: 0,
            options: RECEIVES,
            user_ptr: user(owner::POSTED, slot),
            eq: Some(self.queues[1]),
        };
        let (before, test) = (InsertPosition::Before, Some(self.queues[0]));
        let ni = &self.place.ni;
        let unlink = if keep { Unlink::Retain } else { Unlink::Unlink };
        let (me, md) = ni.me_md_post_part(self.marker, &spec, before, &md, unlink, test)?;
        self.counts.posted += 1;
        let spot = self.kept.posted(like, me, keep.then_some(md));
        if let Some(kind) = self.requests.active(slot) {
            *kind = Kind::Posted {
                spot,
                cid: self.place.layout.cid(pattern.bits),
            };
        }
        Ok(())
    }

    /// Begins the receive of a message that is out of the list.
    pub(crate) fn receive_taken(&mut self, id: Id, into: &Slice) -> Result<Ticket, CallError> {
        let request = self.open()?;
        match self.await_taken(request.slot, id, into) {
            Ok(()) => Ok(request),
            Err(error) => {
                self.requests.forget(request.slot);
                Err(error)
            }
        }
    }

    /// Gives a request a message that is out of the list, as soon as it has come.
    fn await_taken(&mut self, slot: u32, id: Id, into: &Slice) -> Result<(), CallError> {
        if let Some(kind) = self.requests.active(slot) {
            *kind = Kind::Arriving;
        }
        self.requests.hold(slot, into.clone());
        let arrived = self.unexpected.get_mut(id);
        let arrived = arrived.ok_or(CallError::NotARequest)?;
        if matches!(arrived.place, Place::Arriving) {
            arrived.taker = Some(slot);
        } else {
            self.deliver(slot, id);
        }
        Ok(())
    }

    /// What a probe finds.
    pub(crate) fn probe(&self, pattern: Pattern, source: Option<u32>) -> Option<Id> {
        self.unexpected.find(pattern, source)
    }

    /// What is known of a message.
    pub(crate) fn status(&mut self, id: Id) -> Option<Status> {
        let layout = self.place.layout;
        let arrived = self.unexpected.get_mut(id)?;
        Some(Status {
            source: arrived.source,
            tag: layout.tag(arrived.bits),
            len: usize::try_from(arrived.length).unwrap_or(usize::MAX),
        })
    }

    /// Takes a message out of the reach of receives.
    pub(crate) fn take(&mut self, id: Id) -> Option<Found> {
        let status = self.status(id)?;
        self.unexpected.take(id);
        Some(Found {
            context: self.number,
            id,
            status,
        })
    }

    /// A message that was taken is not received.
    pub(crate) fn put_back(&mut self, id: Id) {
        self.unexpected.put_back(id);
    }

    /// Whether anything that was begun with a communicator is left, or came for it.
    pub(crate) fn uses(&self, cid: u32) -> bool {
        let layout = self.place.layout;
        let is_of = |bits| layout.cid(bits) == cid;
        self.requests.any_of(cid, is_of) || self.unexpected.any(is_of)
    }

    /// Nobody waits for a request: a receive without a message is taken back, and all else is forgotten when it has ended.
    pub(crate) fn abandon<const FULL: bool>(&mut self, request: &Ticket) {
        if let Err(error) = self.cancel::<FULL>(request) {
            tracing::debug!("a request that nobody waits for: {error}");
        }
        match self.has_ended(request) {
            Ok(true) => {
                let _ = self.requests.close(request);
            }
            Ok(false) => self.requests.orphan(request.slot),
            // It was used up.
            Err(_) => {}
        }
    }

    /// Gives a receive the message it has taken, which has come.
    pub(super) fn deliver(&mut self, slot: u32, id: Id) {
        let Some(arrived) = self.unexpected.remove(id) else {
            return;
        };
        if matches!(arrived.place, Place::AtSender) && !arrived.noted {
            self.flow.unnotable(arrived.source);
        }
        let Some(kind) = self.requests.active(slot) else {
            return;
        };
        let Kind::Arriving = *kind else {
            return;
        };
        *kind = Kind::Short;
        let Some(into) = self.requests.held(slot) else {
            return;
        };
        let moved = usize::try_from(arrived.length)
            .unwrap_or(usize::MAX)
            .min(into.len);
        let status = Status {
            source: arrived.source,
            tag: self.place.layout.tag(arrived.bits),
            len: moved,
        };
        let rank = arrived.source;
        let end = match &arrived.place {
            Place::AtSender => match self.fetch(slot, &arrived, &into, status) {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!("a message of rank {rank}: {error}");
                    Err(RequestError::Fabric { rank })
                }
            },
            Place::Arriving | Place::Lost(Loss::Fabric) => Err(RequestError::Fabric { rank }),
            Place::Lost(Loss::Memory) => Err(RequestError::Memory),
            Place::Lost(Loss::NoRoom) => Err(RequestError::Overrun { rank }),
            Place::Own(bytes) => {
                // Slice and length were checked against the region and the message.
                let _ = into
                    .region
                    .write(into.offset, bytes.get(..moved).unwrap_or_default());
                self.flow.received(rank);
                ended(status, arrived.length)
            }
            Place::Buffer { buffer, offset } => {
                if let Some(from) = self.overflow.get(*buffer as usize) {
                    let _ = into.region.copy_from(into.offset, from, *offset, moved);
                }
                self.flow.received(rank);
                ended(status, arrived.length)
            }
        };
        if let Place::Own(bytes) = arrived.place {
            self.unexpected.spare(bytes);
        }
        self.requests.end(slot, end);
    }

    /// Gets the data from its sender, which learns by it that the message is received.
    fn fetch(
        &mut self,
        slot: u32,
        arrived: &Arrived,
        into: &Slice,
        status: Status,
    ) -> Result<(), CallError> {
        let from = self.target(arrived.source, 1, u64::from(arrived.operation))?;
        let spec = MdSpec {
            memory: into
                .part(status.len)
                .map_or(MdMemory::Empty, |part| part.memory()),
            threshold: 1,
            max_size: 0,
            options: MdOptions::EVENT_START_DISABLE | MdOptions::EVENT_AUTO_UNLINK_DISABLE,
            user_ptr: user(owner::FETCH, slot),
            eq: Some(self.queues[1]),
        };
        let md = self.place.ni.md_bind(spec, Unlink::Unlink)?;
        if let Some(kind) = self.requests.active(slot) {
            *kind = Kind::Fetching {
                status,
                sent: arrived.length,
            };
        }
        self.counts.fetched += 1;
        self.place.ni.get(md, from)?;
        Ok(())
    }

    /// Takes a receive back; `false` when it has its message already.
    pub(crate) fn cancel<const FULL: bool>(&mut self, request: &Ticket) -> Result<bool, CallError> {
        self.progress::<FULL>()?;
        if self.has_ended(request)? {
            return Ok(false);
        }
        let Some(Kind::Posted { spot, .. }) = self.requests.active(request.slot) else {
            return Ok(false);
        };
        let spot = *spot;
        let taken_back = match spot {
            Spot::Kept(md) => self.take_kept_back::<FULL>(request, md)?,
            Spot::Alone(me) | Spot::Behind(me, _) => self.place.ni.me_unlink(me).is_ok(),
        };
        if taken_back {
            self.kept.ended(spot);
            self.requests
                .end(request.slot, Err(RequestError::Cancelled));
        }
        Ok(taken_back)
    }

    /// Takes a receive back that is or was kept, whose descriptor is there with its message and without; whether it had none.
    fn take_kept_back<const FULL: bool>(
        &mut self,
        request: &Ticket,
        md: MdHandle,
    ) -> Result<bool, CallError> {
        if self.place.ni.md_unlink(md).is_err() {
            return Ok(false);
        }
        self.kept.gone(md);
        // If it had one, the event is there.
        while !self.has_ended(request)? {
            if !self.progress::<FULL>()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The end of a receive of a message of `sent` bytes.
pub(super) const fn ended(status: Status, sent: u64) -> End {
    if sent > status.len as u64 {
        Err(RequestError::Truncated { status, sent })
    } else {
        Ok(status)
    }
}
