//! Requests over a connection whose answer has not come.

use super::Peer;
use fabric_api::expected::is_done;
use portals_core::{Body, Header};

/// Requests without answer that are remembered before those dropped by the peer are looked for.
const EXPECTED: usize = 256;

impl Peer {
    /// Counts a put that has been posted, and remembers it if its ack is awaited.
    #[inline(always)]
    pub(crate) fn put_sent(&mut self, put: &Header) {
        self.requests_sent = self.requests_sent.wrapping_add(1);
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
                self.requests_sent = self.requests_sent.wrapping_add(1);
                self.expect_answer(request);
            }
            _ => self.put_sent(request),
        }
    }

    /// Remembers a request whose answer is awaited.
    pub(crate) fn expect_answer(&mut self, request: &Header) {
        // Requests that the peer dropped are never answered: their turn has passed long ago.
        while self.expected.len() >= EXPECTED
            && let Some(number) = self.expected.oldest()
            && is_done(number, self.requests_done_there)
        {
            self.expected.drop_oldest();
        }
        self.expected.push(self.requests_sent, request);
    }

    /// The peer, which answers nothing any more, has done so many requests in all, the first ones.
    pub(crate) fn forget_done(&mut self, done: u32) {
        // It cannot have done more than was sent.
        if is_done(done, self.requests_sent) {
            self.expected.forget_up_to(done);
        }
    }
}
