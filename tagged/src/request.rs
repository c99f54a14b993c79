//! Requests under way and their ends. No I/O.

use crate::context::{Outgoing, Spot};
use crate::error::{CallError, RequestError};
use crate::unexpected::Id;
use crate::{Slice, Status};
use portals_shim::MeHandle;

/// A send, receive or fetch under way; used up by [`crate::Comm::wait`], or by a test that says it has ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request has ended only when somebody has waited for it"]
pub struct Request {
    pub(crate) context: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The slot of requests that have none: sends that ended within their call.
const NO_SLOT: u32 = u32::MAX;

impl Request {
    /// Of a send of so many bytes that ended within its call, and needs no slot: fewer than 2^32, as all such sends have.
    pub(crate) const fn sent(context: u16, len: usize) -> Self {
        Self {
            context,
            slot: NO_SLOT,
            generation: len as u32,
        }
    }

    /// The end of a request that had it from the start.
    #[inline(always)]
    pub(crate) const fn ended_at_once(&self) -> Option<Status> {
        if self.slot == NO_SLOT {
            Some(Status::sent(self.generation as usize))
        } else {
            None
        }
    }
}

/// A message that a probe has taken out of the reach of other receives.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the message stays until it is received"]
pub struct Message {
    pub(crate) context: u16,
    pub(crate) id: Id,
    pub(crate) status: Status,
}

impl Message {
    /// What the message is.
    pub const fn status(&self) -> Status {
        self.status
    }
}

/// What a request does. What it holds of the program's memory meanwhile is apart ([`Requests::hold`]).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Waits for its turn; holds its data.
    Queued(Outgoing<()>),
    /// Waits until the data may be reused; or a call is still finding out what the request waits for.
    Short,
    /// Waits until the data may be reused and the receiver has released it.
    Released {
        to: u32,
        len: usize,
        me: MeHandle,
        sent: bool,
        released: bool,
    },
    /// A match entry waits for the message.
    Posted { spot: Spot },
    /// Waits for the data of a message that it has taken; holds the place for it.
    Arriving,
    /// Gets the data from the sender.
    Fetching { status: Status, sent: u64 },
}

/// How a request ended.
pub(crate) type End = Result<Status, RequestError>;

/// Where a request is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Active,
    Ended,
}

/// What belongs to another phase is old, and stays where it is.
#[derive(Debug)]
struct Slot {
    generation: u32,
    phase: Phase,
    kind: Kind,
    end: End,
    held: Option<Slice>,
}

/// The requests of a context.
#[derive(Debug)]
pub(crate) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    most: u32,
}

impl Requests {
    pub(crate) const fn new(most: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            most,
        }
    }

    /// The slot that the next request gets.
    ///
    /// # Errors
    /// [`CallError::NoRequest`] when there are too many.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<u32, CallError> {
        match self.free.last() {
            Some(slot) => Ok(*slot),
            None => self.grow(),
        }
    }

    #[cold]
    fn grow(&mut self) -> Result<u32, CallError> {
        let slot = self.slots.len() as u32;
        if slot >= self.most {
            return Err(CallError::NoRequest { max: self.most });
        }
        self.slots.push(Slot {
            generation: 0,
            phase: Phase::Free,
            kind: Kind::Short,
            end: Ok(Status::sent(0)),
            held: None,
        });
        self.free.push(slot);
        Ok(slot)
    }

    /// A slot for a new one, of which nothing is known yet, and its generation.
    ///
    /// # Errors
    /// As [`Requests::next`].
    #[inline(always)]
    pub(crate) fn open(&mut self) -> Result<(u32, u32), CallError> {
        let slot = self.next()?;
        self.free.pop();
        let full = CallError::NoRequest { max: self.most };
        let entry = self.slots.get_mut(slot as usize).ok_or(full)?;
        entry.phase = Phase::Active;
        entry.kind = Kind::Short;
        Ok((slot, entry.generation))
    }

    /// One that is under way.
    #[inline]
    pub(crate) fn active(&mut self, slot: u32) -> Option<&mut Kind> {
        let entry = self.slots.get_mut(slot as usize)?;
        (entry.phase == Phase::Active).then_some(&mut entry.kind)
    }

    /// Memory for one that is under way.
    pub(crate) fn hold(&mut self, slot: u32, memory: Slice) {
        if let Some(entry) = self.slots.get_mut(slot as usize)
            && entry.phase == Phase::Active
        {
            entry.held = Some(memory);
        }
    }

    /// Its memory, which it does not hold any more.
    pub(crate) fn held(&mut self, slot: u32) -> Option<Slice> {
        self.slots.get_mut(slot as usize)?.held.take()
    }

    /// It ends; nothing if it is not under way.
    pub(crate) fn end(&mut self, slot: u32, end: End) {
        if let Some(entry) = self.slots.get_mut(slot as usize)
            && entry.phase == Phase::Active
        {
            entry.phase = Phase::Ended;
            entry.end = end;
            entry.held = None;
        }
    }

    /// As [`Requests::end`] of one that awaits a message ([`Kind::Posted`]), which has been received; where its end is to be
    /// written, and where it was posted. `None` if it is none.
    #[inline(always)]
    pub(crate) fn receipt(&mut self, slot: u32) -> Option<(&mut End, Spot)> {
        let entry = self.slots.get_mut(slot as usize)?;
        match entry.kind {
            Kind::Posted { spot } if entry.phase == Phase::Active => {
                entry.phase = Phase::Ended;
                Some((&mut entry.end, spot))
            }
            _ => None,
        }
    }

    /// Nobody was told of it.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            entry.phase = Phase::Free;
            entry.generation = entry.generation.wrapping_add(1);
            entry.held = None;
            self.free.push(slot);
        }
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// [`CallError::NotARequest`] for none of ours.
    #[inline]
    pub(crate) fn has_ended(&self, request: &Request) -> Result<bool, CallError> {
        if request.ended_at_once().is_some() {
            return Ok(true);
        }
        match self.slots.get(request.slot as usize) {
            Some(entry) if entry.generation == request.generation && entry.phase != Phase::Free => {
                Ok(entry.phase == Phase::Ended)
            }
            _ => Err(CallError::NotARequest),
        }
    }

    /// The end of one that has ended, which is forgotten.
    ///
    /// # Errors
    /// [`CallError::NotARequest`] for none of ours, and for one that is under way.
    #[inline]
    pub(crate) fn close(&mut self, request: &Request) -> Result<&End, CallError> {
        match self.slots.get_mut(request.slot as usize) {
            Some(entry)
                if entry.generation == request.generation && entry.phase == Phase::Ended =>
            {
                entry.phase = Phase::Free;
                entry.generation = entry.generation.wrapping_add(1);
                self.free.push(request.slot);
                Ok(&entry.end)
            }
            _ => Err(CallError::NotARequest),
        }
    }
}
