//! Requests to a peer whose answer has not come: if the peer is given up, each of them fails.

use portals_core::{Ack, Body, Header};
use std::collections::VecDeque;

/// Requests that wait, oldest first, each with its number among what was sent to the peer, modulo 2^32.
#[derive(Debug, Default)]
pub struct Expected {
    all: VecDeque<(u32, Header)>,
}

impl Expected {
    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of the oldest.
    pub fn oldest(&self) -> Option<u32> {
        self.all.front().map(|(number, _)| *number)
    }

    /// Forgets the oldest.
    pub fn drop_oldest(&mut self) {
        self.all.pop_front();
    }

    /// A request leaves, as the message of this number.
    pub fn push(&mut self, number: u32, request: &Header) {
        self.all.push_back((number, *request));
    }

    /// An answer has come; it is that of the oldest request it fits.
    pub fn answered(&mut self, answer: &Header) {
        let fits = |request: &Header| answers(&request.body, &answer.body);
        // Most often it is the oldest.
        match self.all.front() {
            None => {}
            Some((_, first)) if fits(first) => self.drop_oldest(),
            Some(_) => {
                if let Some(at) = self.all.iter().position(|(_, r)| fits(r)) {
                    self.all.remove(at);
                }
            }
        }
    }

    /// No answer to this request will come.
    pub fn forget(&mut self, request: &Header) {
        if let Some(at) = self.all.iter().rposition(|(_, r)| r == request) {
            self.all.remove(at);
        }
    }

    /// What the peer, which has closed, has done is answered no more: it was dropped, or its target refused to acknowledge it.
    pub fn forget_up_to(&mut self, done: u32) {
        self.all.retain(|(number, _)| !is_done(*number, done));
    }

    /// The requests, oldest first.
    pub fn into_requests(self) -> impl Iterator<Item = Header> {
        self.all.into_iter().map(|(_, request)| request)
    }
}

/// Whether a number is among the first `done`.
pub fn is_done(number: u32, done: u32) -> bool {
    done.wrapping_sub(number) < 1 << 31
}

/// Whether a request waits for an answer.
pub const fn is_request(body: &Body) -> bool {
    match body {
        Body::Put { ack_md, .. } => ack_md.is_some(),
        Body::Get { .. } | Body::GetPut { .. } => true,
        Body::Ack { .. } | Body::Reply { .. } => false,
    }
}

/// Whether a message is what a request waits for.
fn answers(request: &Body, answer: &Body) -> bool {
    match (request, answer) {
        (
            Body::Put {
                ack_md: Some(asked),
                length,
                ..
            },
            Body::Ack(Ack { md, rlength, .. }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_testing::message;
    use portals_core::MdHandle;

    fn get(reply_offset: u64) -> Header {
        message(Body::Get {
            length: 8,
            remote_offset: 0,
            ac_index: 0,
            reply_md: MdHandle::from_raw(1),
            reply_offset,
        })
    }

    fn reply(local_offset: u64) -> Header {
        message(Body::Reply {
            md: MdHandle::from_raw(1),
            local_offset,
            rlength: 8,
            mlength: 8,
        })
    }

    /// Numbers and offsets 0 to 3, of which the numbers go round.
    fn four() -> Expected {
        let mut all = Expected::default();
        for at in 0..4u32 {
            all.push((u32::MAX - 1).wrapping_add(at), &get(at.into()));
        }
        all
    }

    fn rest(all: Expected) -> Vec<Body> {
        all.into_requests().map(|h| h.body).collect()
    }

    fn bodies(offsets: &[u64]) -> Vec<Body> {
        offsets.iter().map(|at| get(*at).body).collect()
    }

    #[test]
    fn an_answer_ends_the_oldest_request_it_fits() {
        let mut all = four();
        for answer in [2, 0, 7] {
            all.answered(&reply(answer));
        }
        all.forget(&get(3));
        assert_eq!((all.len(), all.oldest()), (1, Some(u32::MAX)));
        assert_eq!(rest(all), bodies(&[1]));
    }

    #[test]
    fn what_was_done_is_forgotten_wherever_the_numbers_begin_anew() {
        for (done, left) in [
            (u32::MAX - 2, &[0, 1, 2, 3][..]),
            (u32::MAX, &[2, 3]),
            (0, &[3]),
            (9, &[]),
        ] {
            let mut all = four();
            all.forget_up_to(done);
            assert_eq!(rest(all), bodies(left), "{done}");
        }
    }
}
