//! Requests under way and their ends. No I/O.

use crate::context::{Outgoing, Spot};
use crate::error::{CallError, RequestError};
use crate::unexpected::Id;
use crate::world::Shared;
use crate::{Slice, Status};
use portals_shim::MeHandle;
use std::sync::Arc;

/// A send, receive or fetch under way; used up by [`crate::Comm::wait`], or by a test that says it has ended.
///
/// A receive whose request is dropped before is taken back: nothing is written into its memory any more, and the message goes
/// to another receive. If it has a message already, that is gone; a send goes on.
#[derive(Debug)]
#[must_use = "a receive that nobody waits for is taken back"]
pub struct Request {
    pub(crate) ticket: Ticket,
    /// Where it is; `None` when it is used up, or has ended within its call.
    shared: Option<Arc<Shared>>,
}

impl PartialEq for Request {
    fn eq(&self, other: &Self) -> bool {
        self.ticket == other.ticket
    }
}

impl Eq for Request {}

impl Request {
    #[inline]
    pub(crate) fn new(ticket: Ticket, shared: &Arc<Shared>) -> Self {
        let open = ticket.ended_at_once().is_none();
        Self {
            ticket,
            shared: open.then(|| Arc::clone(shared)),
        }
    }

    /// It is used up.
    #[inline]
    pub(crate) fn spend(mut self) -> Ticket {
        self.shared = None;
        self.ticket
    }
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.abandon(&self.ticket);
        }
    }
}

/// Which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) context: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The slot of requests that have none: sends that ended within their call.
const NO_SLOT: u32 = u32::MAX;

impl Ticket {
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

/// A message that a probe has taken out of the reach of other receives; one that is dropped is in their reach again, where it
/// was.
#[derive(Debug)]
#[must_use = "a message that is not received is put back"]
pub struct Message {
    pub(crate) found: Found,
    /// Where it is; `None` when it has been received.
    shared: Option<Arc<Shared>>,
}

/// Which message, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) context: u16,
    pub(crate) id: Id,
    pub(crate) status: Status,
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.found == other.found
    }
}

impl Eq for Message {}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.put_back(&self.found);
        }
    }
}

impl Message {
    pub(crate) fn new(found: Found, shared: &Arc<Shared>) -> Self {
        Self {
            found,
            shared: Some(Arc::clone(shared)),
        }
    }

    /// It is received.
    pub(crate) fn spend(&mut self) {
        self.shared = None;
    }

    /// What the message is.
    pub const fn status(&self) -> Status {
        self.found.status
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
        /// The receiver has a note of it: it is on its way no more.
        noted: bool,
    },
    /// A match entry waits for the message.
    Posted { spot: Spot, cid: u32 },
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
    /// Of requests that nobody waits for.
    orphans: Vec<u32>,
    /// How many of them were under way at the last look at all.
    under_way: usize,
    /// Looks at one of them, ever.
    #[cfg(test)]
    looks: usize,
    most: u32,
}

/// Orphans that are not worth a look.
const FEW_ORPHANS: usize = 16;

impl Requests {
    pub(crate) const fn new(most: u32) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            orphans: Vec::new(),
            under_way: 0,
            #[cfg(test)]
            looks: 0,
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
            self.bury();
            let full = CallError::NoRequest { max: self.most };
            return self.free.last().copied().ok_or(full);
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
    /// Those of [`Requests::next`].
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

    /// Ends a request that awaits a message ([`Kind::Posted`]), which has been received; where its end is to be
    /// written, and where it was posted. `None` if it is none.
    #[inline(always)]
    pub(crate) fn receipt(&mut self, slot: u32) -> Option<(&mut End, Spot)> {
        let entry = self.slots.get_mut(slot as usize)?;
        match entry.kind {
            Kind::Posted { spot, .. } if entry.phase == Phase::Active => {
                entry.phase = Phase::Ended;
                Some((&mut entry.end, spot))
            }
            _ => None,
        }
    }

    /// Nobody waits for it: it is forgotten when it has ended.
    pub(crate) fn orphan(&mut self, slot: u32) {
        self.orphans.push(slot);
        // A look at all whenever there are twice as many costs each a constant number of looks.
        if self.orphans.len() > 2 * self.under_way + FEW_ORPHANS {
            self.bury();
        }
    }

    /// Forgets those that nobody waits for and that have ended.
    fn bury(&mut self) {
        let mut orphans = std::mem::take(&mut self.orphans);
        #[cfg(test)]
        {
            self.looks += orphans.len();
        }
        orphans.retain(|slot| {
            let ended = self.slots.get(*slot as usize);
            let ended = ended.is_none_or(|entry| entry.phase == Phase::Ended);
            if ended {
                self.forget(*slot);
            }
            !ended
        });
        self.under_way = orphans.len();
        self.orphans = orphans;
    }

    /// Whether the data of a send has to stay, for the fabric to take it or the receiver to get it.
    pub(crate) fn is_sending(&self) -> bool {
        let active = self.slots.iter().filter(|s| s.phase == Phase::Active);
        active
            .map(|s| &s.kind)
            .any(|kind| matches!(kind, Kind::Short | Kind::Queued(_) | Kind::Released { .. }))
    }

    /// Whether a receive of a communicator waits, or a send of it, which `sends` tells of by its match bits.
    pub(crate) fn any_of(&self, cid: u32, sends: impl Fn(u64) -> bool) -> bool {
        let active = self.slots.iter().filter(|s| s.phase == Phase::Active);
        active.map(|s| &s.kind).any(|kind| match kind {
            Kind::Posted { cid: of, .. } => *of == cid,
            Kind::Queued(message) => sends(message.bits),
            _ => false,
        })
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
    pub(crate) fn has_ended(&self, request: &Ticket) -> Result<bool, CallError> {
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
    pub(crate) fn close(&mut self, request: &Ticket) -> Result<&End, CallError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that nobody waits for and that stay under way cost a constant number of looks each, and their slots are used
    /// again when they have ended.
    #[test]
    fn requests_that_are_dropped_cost_no_more_the_more_there_are() {
        const MANY: u32 = 5000;
        let mut requests = Requests::new(2 * MANY);
        for _ in 0..MANY {
            let (slot, _) = requests.open().unwrap();
            requests.orphan(slot);
        }
        let many = MANY as usize;
        assert!(requests.looks < 4 * many, "{} looks", requests.looks);
        for slot in 0..MANY {
            requests.end(slot, Ok(Status::sent(0)));
        }
        for _ in 0..20 * MANY {
            let (slot, _) = requests.open().unwrap();
            requests.end(slot, Ok(Status::sent(0)));
            requests.orphan(slot);
        }
        assert!(requests.slots.len() <= 2 * many);
        assert!(requests.looks < 50 * many, "{} looks", requests.looks);
    }

    #[test]
    fn a_slot_of_a_dropped_request_is_free_when_there_is_no_other() {
        let mut requests = Requests::new(3);
        for _ in 0..3 {
            let (slot, _) = requests.open().unwrap();
            requests.orphan(slot);
        }
        assert_eq!(requests.open(), Err(CallError::NoRequest { max: 3 }));
        requests.end(1, Ok(Status::sent(0)));
        assert_eq!(requests.open().unwrap().0, 1);
        assert!(requests.open().is_err());
    }
}
