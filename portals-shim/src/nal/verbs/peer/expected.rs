//! Requests whose answer has not come.

use super::Peer;
use portals_core::{Body, Header};

/// Requests without answer that are remembered before those dropped by the peer are looked for.
const EXPECTED: usize = 256;

/// Whether a message is what a request waits for.
pub(in crate::nal::verbs) fn answers(request: &Body, answer: &Body) -> bool {
    match (request, answer) {
        (
            Body::Put {
                ack_md: Some(asked),
                length,
                ..
            },
            Body::Ack { md, rlength, .. },
        ) => asked == md && length == rlength,
        (
            Body::Get {
                reply_md,
                reply_offset,
                ..
            }
            | Body::GetPut {
                reply_md,
                reply_offset,
                ..
            },
            Body::Reply {
                md, local_offset, ..
            },
        ) => reply_md == md && reply_offset == local_offset,
        _ => false,
    }
}

impl Peer {
    /// Counts a put that has been posted, and remembers it if its ack is awaited.
    #[inline(always)]
    pub(in crate::nal::verbs) fn put_sent(&mut self, put: &Header) {
        self.requests_sent = self.requests_sent.wrapping_add(1);
        if let Body::Put {
            ack_md: Some(_), ..
        } = put.body
        {
            self.expect_answer(put);
        }
    }

    /// Remembers a request whose answer is awaited.
    pub(in crate::nal::verbs) fn expect_answer(&mut self, request: &Header) {
        // Requests that the peer dropped are never answered: their turn has passed long ago.
        while let Some((number, _)) = self.expected.front()
            && self.expected.len() >= EXPECTED
            && self.requests_done_there.wrapping_sub(*number) < 1 << 31
        {
            self.expected.pop_front();
        }
        self.expected.push_back((self.requests_sent, *request));
    }

    /// An answer has come; it is that of the oldest request it fits.
    pub(in crate::nal::verbs) fn answered(&mut self, answer: &Header) {
        let fits = |request: &Header| answers(&request.body, &answer.body);
        // Most often it is the oldest.
        match self.expected.front() {
            None => {}
            Some((_, first)) if fits(first) => drop(self.expected.pop_front()),
            Some(_) => {
                if let Some(at) = self.expected.iter().position(|(_, r)| fits(r)) {
                    self.expected.remove(at);
                }
            }
        }
    }

    /// The peer, which answers nothing any more, has done so many requests in all, the first ones.
    pub(in crate::nal::verbs) fn forget_done(&mut self, done: u32) {
        // It cannot have done more than was sent.
        if self.requests_sent.wrapping_sub(done) < 1 << 31 {
            self.expected
                .retain(|(number, _)| done.wrapping_sub(*number) >= 1 << 31);
        }
    }

    /// No answer to this request will come.
    pub(in crate::nal::verbs) fn forget_expected(&mut self, request: &Header) {
        if let Some(at) = self.expected.iter().rposition(|(_, r)| r == request) {
            self.expected.remove(at);
        }
    }
}
