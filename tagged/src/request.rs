//! Requests under way and their ends. No I/O.

use crate::context::Outgoing;
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

/// What a request does.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Waits for its turn.
    Queued(Outgoing),
    /// Waits until the data may be reused; or a call is still finding out what the request waits for.
    Short,
    /// Waits until the data may be reused and the receiver has released it.
    Released {
        to: u32,
        me: MeHandle,
        sent: bool,
        released: bool,
    },
    /// A match entry waits for the message.
    Posted { me: MeHandle },
    /// Waits for the data of a message that it has taken.
    Arriving { into: Slice },
    /// Gets the data from the sender.
    Fetching { status: Status, sent: u64 },
}

/// How a request ended.
pub(crate) type End = Result<Status, RequestError>;

#[derive(Debug)]
enum State {
    Free,
    Active(Kind),
    Ended(End),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: State,
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

    /// A slot for a new one, and its generation.
    ///
    /// # Errors
    /// [`CallError::NoRequest`] when there are too many.
    pub(crate) fn open(&mut self, kind: Kind) -> Result<(u32, u32), CallError> {
        let full = CallError::NoRequest { max: self.most };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < self.most as usize => {
                self.slots.push(Slot {
                    generation: 0,
                    state: State::Free,
                });
                (self.slots.len() - 1) as u32
            }
            None => return Err(full),
        };
        let entry = self.slots.get_mut(slot as usize).ok_or(full)?;
        entry.state = State::Active(kind);
        Ok((slot, entry.generation))
    }

    /// One that is under way.
    pub(crate) fn active(&mut self, slot: u32) -> Option<&mut Kind> {
        match &mut self.slots.get_mut(slot as usize)?.state {
            State::Active(kind) => Some(kind),
            _ => None,
        }
    }

    /// It ends; nothing if it is not under way.
    pub(crate) fn end(&mut self, slot: u32, end: End) {
        if let Some(entry) = self.slots.get_mut(slot as usize)
            && matches!(entry.state, State::Active(_))
        {
            entry.state = State::Ended(end);
        }
    }

    /// Nobody was told of it.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(entry) = self.slots.get_mut(slot as usize) {
            entry.state = State::Free;
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(slot);
        }
    }

    /// Whether it has ended; `None` for none of ours.
    pub(crate) fn has_ended(&self, request: &Request) -> Option<bool> {
        let entry = self.slots.get(request.slot as usize)?;
        match (&entry.state, entry.generation == request.generation) {
            (State::Active(_), true) => Some(false),
            (State::Ended(_), true) => Some(true),
            _ => None,
        }
    }

    /// The end of one that has ended, which is forgotten.
    pub(crate) fn close(&mut self, request: &Request) -> Option<End> {
        if self.has_ended(request) != Some(true) {
            return None;
        }
        let entry = self.slots.get_mut(request.slot as usize)?;
        let State::Ended(end) = std::mem::replace(&mut entry.state, State::Free) else {
            return None;
        };
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(request.slot);
        Some(end)
    }
}
