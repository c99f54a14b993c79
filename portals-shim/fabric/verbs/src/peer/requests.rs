//! Requests of this side to a peer: how many were sent, how many are done, and which are still to be answered.
//!
//! # Invariants
//!
//! * All numbers are modulo 2^32. Those that are done are the first ones that were sent, as the peer handles them in their
//!   order: `sent - done` of them are under way, and a peer that says more is not believed.
//! * `framed` is the number of the last request that travelled in a frame, whose data the peer copies when it comes to it.
//! * A request whose answer is awaited is in `expected` under its number until the answer comes, the request fails, or at
//!   least [`EXPECTED`] are remembered and the peer has done it: it was dropped there.
//! * An ack is handed on after the SEND_END of its put (`peer/requests/acks.rs`).

mod acks;

use acks::Acks;
use fabric_api::expected::{Expected, is_done};
use portals_core::{Body, Header};

/// Requests without answer that are remembered before those dropped by the peer are looked for.
const EXPECTED: usize = 256;

/// Requests to one peer.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    sent: u32,
    /// How many the peer says are done.
    done: u32,
    /// How many were sent up to the last one that travelled in a frame.
    framed: u32,
    /// Those whose answer has not come, to be answered with a failure should the peer be given up.
    expected: Expected,
    /// Acks that came before the end of their put.
    acks: Acks,
}

impl Requests {
    /// How many were sent.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// How many the peer says are done.
    #[inline(always)]
    pub(crate) fn done(&self) -> u32 {
        self.done
    }

    /// Whether every request has had its effect at the peer.
    #[inline(always)]
    pub(super) fn are_done(&self) -> bool {
        self.sent == self.done
    }

    /// Whether every request in a frame has.
    #[inline(always)]
    pub(super) fn framed_are_done(&self) -> bool {
        self.done.wrapping_sub(self.framed) < 1 << 31
    }

    /// The peer says that so many are done.
    #[inline(always)]
    pub(super) fn say_done(&mut self, done: u32) {
        // It cannot have done more than was sent.
        if done.wrapping_sub(self.done) <= self.sent.wrapping_sub(self.done) {
            self.done = done;
        }
    }

    /// Counts a put that has been posted, and remembers it if its ack is awaited.
    #[inline(always)]
    pub(crate) fn put_sent(&mut self, put: &Header) {
        self.sent = self.sent.wrapping_add(1);
        if let Body::Put {
            ack_md: Some(_), ..
        } = put.body
        {
            self.expect_answer(put);
        }
    }

    /// Counts a request that leaves, and remembers it if its answer is awaited.
    pub(crate) fn request_sent(&mut self, request: &Header) {
        match request.body {
            Body::Get { .. } | Body::GetPut { .. } => {
                self.sent = self.sent.wrapping_add(1);
                self.expect_answer(request);
            }
            _ => self.put_sent(request),
        }
    }

    /// The request sent last travels in a frame.
    #[inline(always)]
    pub(crate) fn framed(&mut self) {
        self.framed = self.sent;
    }

    /// The request sent last does not leave after all.
    pub(crate) fn take_back(&mut self, request: &Header) {
        self.sent = self.sent.wrapping_sub(1);
        self.expected.forget(request);
    }

    /// A new connection: what is sent again travels in frames.
    pub(super) fn renew(&mut self) {
        self.framed();
    }

    /// Remembers a request whose answer is awaited.
    fn expect_answer(&mut self, request: &Header) {
        // Requests that the peer dropped are never answered: their turn has passed long ago.
        while self.expected.len() >= EXPECTED
            && let Some(number) = self.expected.oldest()
            && is_done(number, self.done)
        {
            self.expected.drop_oldest();
        }
        self.expected.push(self.sent, request);
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self, answer: &Header) {
        self.expected.answered(answer);
    }

    /// A request has failed, whose answer does not come.
    pub(crate) fn failed(&mut self, request: &Header) {
        self.expected.forget(request);
    }

    /// The peer, which answers nothing any more, has done so many requests in all, the first ones.
    pub(crate) fn forget_done(&mut self, done: u32) {
        // It cannot have done more than was sent.
        if is_done(done, self.sent) {
            self.expected.forget_up_to(done);
        }
    }

    /// Those whose answer is awaited, which the owner ends.
    pub(crate) fn give_up(&mut self) -> Expected {
        std::mem::take(&mut self.expected)
    }

    /// How many answers are awaited.
    #[cfg(test)]
    pub(crate) fn awaited(&self) -> usize {
        self.expected.len()
    }

    /// So many have been sent.
    #[cfg(test)]
    pub(crate) fn count_sent(&mut self, sent: u32) {
        self.sent = sent;
    }
}
