//! What a message needs before it may leave: a ticket, and a chunk of a send buffer.
//!
//! # Invariants
//!
//! * Messages that are under way, and those that the reserve is for, are never more than there are tickets: their events fit in
//!   the queue.
//! * Whoever polls requests holds a full reserve, so a handler's reply never waits for what other requests hold.

use crate::chunks::Chunks;
use crate::memory::UserMem;
use crate::rma::temporary::TmpMds;
use crate::tickets::Tickets;
use portals_shim::Region;

/// What a chunk of the request send buffer is lent to.
#[derive(Debug)]
pub(crate) enum SbUse {
    /// A request to this node, until its reply was handled.
    Request { to: u32 },
    /// Data of a put, until it is sent.
    Put,
    /// Room for a get, until it was copied to the client.
    Get { to: UserMem },
}

/// A Long reply that is not packed sends two messages.
const REPLY_TICKETS: u32 = 2;

/// What is needed to answer one request, taken before requests are polled.
#[derive(Debug, Default)]
struct Reserve {
    /// Send tickets, of [`REPLY_TICKETS`].
    tickets: u32,
    tmpmd: bool,
    chunk: Option<u32>,
}

impl Reserve {
    fn is_full(&self) -> bool {
        self.tickets == REPLY_TICKETS && self.tmpmd && self.chunk.is_some()
    }
}

/// Tickets, the send buffers of requests and replies, and the reserve for a reply.
#[derive(Debug)]
pub(crate) struct Resources {
    tickets: Tickets,
    requests: Chunks<SbUse>,
    replies: Chunks<()>,
    reserve: Reserve,
}

impl Resources {
    /// So many messages may be under way, which leave from these buffers.
    pub(crate) fn new(messages: u32, requests: Chunks<SbUse>, replies: Chunks<()>) -> Self {
        Self {
            tickets: Tickets::new(messages),
            requests,
            replies,
            reserve: Reserve::default(),
        }
    }

    /// Takes tickets for `n` messages, or none.
    #[inline(always)]
    pub(crate) fn take_tickets(&mut self, n: u32) -> bool {
        self.tickets.take(n)
    }

    /// A message has ended, or did not begin.
    #[inline(always)]
    pub(crate) fn give_ticket(&mut self) {
        self.tickets.give(1);
    }

    /// Whether a message may begin.
    #[inline(always)]
    pub(crate) fn has_ticket(&self) -> bool {
        self.tickets.any()
    }

    /// The send buffer of requests, puts and gets.
    #[inline(always)]
    pub(crate) fn requests(&self) -> &Chunks<SbUse> {
        &self.requests
    }

    /// The same, to take chunks and give them back.
    #[inline(always)]
    pub(crate) fn requests_mut(&mut self) -> &mut Chunks<SbUse> {
        &mut self.requests
    }

    /// The memory that replies leave from.
    #[inline(always)]
    pub(crate) fn reply_memory(&self) -> &Region {
        self.replies.region()
    }

    /// A reply's chunk is free; `None` if it was.
    #[inline]
    pub(crate) fn give_reply_chunk(&mut self, offset: u64) -> Option<()> {
        self.replies.release(offset)
    }

    /// Takes what a reply needs, as far as it is there; whether all of it is.
    #[inline]
    pub(crate) fn stock_reserve(&mut self, tmpmds: &mut TmpMds) -> bool {
        self.reserve.is_full() || self.restock(tmpmds)
    }

    #[inline(never)]
    fn restock(&mut self, tmpmds: &mut TmpMds) -> bool {
        let r = &mut self.reserve;
        while r.tickets < REPLY_TICKETS && self.tickets.take(1) {
            r.tickets += 1;
        }
        if !r.tmpmd {
            r.tmpmd = tmpmds.may_bind();
        }
        if r.chunk.is_none() {
            r.chunk = self.replies.take(());
        }
        r.is_full()
    }

    /// Takes a chunk and tickets for the `messages` of a reply from the reserve, and with `tmpmd` its temporary descriptor; `None`
    /// if the reserve has not got them.
    #[inline]
    pub(crate) fn take_for_reply(&mut self, messages: u32, tmpmd: bool) -> Option<u32> {
        let rest = self.reserve.tickets.checked_sub(messages)?;
        let chunk = self.reserve.chunk.take()?;
        self.reserve.tickets = rest;
        if tmpmd {
            self.reserve.tmpmd = false;
        }
        Some(chunk)
    }

    /// A reply's header message is gone already: its chunk and its ticket are for the next reply.
    #[inline]
    pub(crate) fn give_to_reserve(&mut self, chunk: u32) {
        self.reserve.tickets += 1;
        self.reserve.chunk = Some(chunk);
    }

    /// Messages that have a ticket.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> u32 {
        self.tickets.out() - self.reserve.tickets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(messages: u32) -> (Resources, TmpMds) {
        let (requests, replies) = (Chunks::new(1).unwrap(), Chunks::new(1).unwrap());
        (Resources::new(messages, requests, replies), TmpMds::new(1))
    }

    #[test]
    fn a_full_reserve_answers_one_request() {
        let (mut s, mut tmpmds) = resources(3);
        assert!(s.stock_reserve(&mut tmpmds) && s.stock_reserve(&mut tmpmds));
        assert_eq!((s.under_way(), s.take_tickets(2)), (0, false));
        assert!(!tmpmds.may_bind(), "the reserve has it");
        assert_eq!(s.take_for_reply(2, true), Some(0));
        assert_eq!(s.take_for_reply(1, false), None);
        assert!(!s.stock_reserve(&mut tmpmds), "all is under way");
    }

    #[test]
    fn a_reply_that_is_gone_leaves_its_chunk_and_ticket() {
        let (mut s, mut tmpmds) = resources(2);
        assert!(s.stock_reserve(&mut tmpmds));
        let chunk = s.take_for_reply(1, false).unwrap();
        assert!(!s.stock_reserve(&mut tmpmds));
        s.give_to_reserve(chunk);
        assert!(s.stock_reserve(&mut tmpmds));
    }

    #[test]
    fn what_a_reply_held_comes_back_by_its_events() {
        let (mut s, mut tmpmds) = resources(2);
        assert!(s.stock_reserve(&mut tmpmds));
        let chunk = s.take_for_reply(1, false).unwrap();
        s.give_ticket();
        assert_eq!(s.give_reply_chunk(u64::from(chunk)), Some(()));
        assert_eq!(s.give_reply_chunk(u64::from(chunk)), None);
        assert!(s.stock_reserve(&mut tmpmds));
    }

    #[test]
    fn tickets_for_two_messages_are_taken_together() {
        let (mut s, _) = resources(1);
        assert!(!s.take_tickets(2) && s.has_ticket());
        assert!(s.take_tickets(1) && !s.has_ticket());
    }
}
