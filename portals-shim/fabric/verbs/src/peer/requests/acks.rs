//! Acks that wait until the put that they answer has had its SEND_END (rule 27); over datagrams that is `acked_too_soon` in
//! `datagram/receive.rs`.
//!
//! The data of a notified put is at its target, and the target's ack under way, before the adapter here knows that the
//! write is over: that is the word of another queue, which may come later. Until then the memory belongs to the adapter.
//!
//! ```text
//!   WRITE, message (request n) ──────────────────▶ events, ack
//!                              ◀────────────────── ack, "n are done": held while request n has no completion
//!   completion of request n: SEND_END, then the ack
//! ```

use super::Requests;
use fabric_api::expected::is_done;
use portals_core::{Body, Header};
use std::collections::VecDeque;

/// Of one peer.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Notified puts that ask for an ack and have no completion, oldest first: number among the requests, and record.
    open: VecDeque<(u32, u64)>,
    /// Acks, each with how many requests the peer had done when it sent it.
    held: VecDeque<(u32, Header)>,
}

impl Acks {
    fn is_due(&self, done: u32) -> bool {
        self.open.front().is_none_or(|(n, _)| !is_done(*n, done))
    }

    fn must_wait(&self, done: u32) -> bool {
        !self.held.is_empty() || !self.is_due(done)
    }

    fn ended(&mut self, record: u64) {
        if let Some(at) = self.open.iter().position(|(_, id)| *id == record) {
            self.open.remove(at);
        }
    }

    fn next(&mut self) -> Option<Header> {
        let (done, _) = self.held.front()?;
        self.is_due(*done)
            .then(|| self.held.pop_front())?
            .map(|(_, ack)| ack)
    }
}

impl Requests {
    /// The request made next is a notified put with this record.
    #[inline]
    pub(crate) fn write_sent(&mut self, put: &Header, record: u64) {
        if let Body::Put {
            ack_md: Some(_), ..
        } = put.body
        {
            let number = self.sent.wrapping_add(1);
            self.acks.open.push_back((number, record));
        }
    }

    /// Whether an ack that has come has to wait; then it is kept.
    #[inline]
    pub(crate) fn holds(&mut self, ack: &Header) -> bool {
        let done = self.done;
        let holds = self.acks.must_wait(done);
        if holds {
            self.acks.held.push_back((done, *ack));
        }
        holds
    }

    /// The notified put with this record has ended, if it is one.
    #[inline]
    pub(crate) fn write_ended(&mut self, record: u64) {
        self.acks.ended(record);
    }

    /// The next ack that waits no more.
    #[inline]
    pub(crate) fn next_ack(&mut self) -> Option<Header> {
        self.acks.next()
    }

    /// Whether the peer has said that the notified put with this record is done.
    pub(crate) fn says_done(&self, record: u64) -> bool {
        let mut open = self.acks.open.iter();
        open.any(|(n, id)| *id == record && is_done(*n, self.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_testing::message;
    use portals_core::{Ack, MdHandle};

    fn header(length: u64, ack: bool) -> Header {
        let md = MdHandle::from_raw(3);
        let body = if ack {
            Body::Ack(Ack {
                md,
                mlength: length,
                rlength: length,
                offset: 0,
            })
        } else {
            Body::Put {
                length,
                remote_offset: 0,
                hdr_data: 0,
                ac_index: 0,
                ack_md: Some(md),
            }
        };
        message(body)
    }

    fn requests(sent: u32) -> Requests {
        Requests {
            sent,
            done: sent,
            ..Requests::default()
        }
    }

    /// Writes a put of so many bytes, with the record of that number.
    fn write(requests: &mut Requests, length: u64) {
        requests.write_sent(&header(length, false), length);
        requests.put_sent(&header(length, false));
    }

    fn lengths(requests: &mut Requests) -> Vec<u64> {
        let due = std::iter::from_fn(|| requests.next_ack());
        due.map(|ack| match ack.body {
            Body::Ack(Ack { rlength, .. }) => rlength,
            other => panic!("{other:?}"),
        })
        .collect()
    }

    #[test]
    fn an_ack_waits_for_the_puts_that_were_done_when_it_was_sent() {
        // Wherever the numbers begin anew.
        for sent in [0, u32::MAX - 1] {
            let mut requests = requests(sent);
            for length in [10, 11, 12] {
                write(&mut requests, length);
            }
            requests.done = sent.wrapping_add(1);
            assert!(requests.holds(&header(10, true)));
            requests.done = sent.wrapping_add(2);
            assert!(requests.holds(&header(11, true)));
            assert!(lengths(&mut requests).is_empty());
            assert!(requests.says_done(11) && !requests.says_done(12) && !requests.says_done(7));
            requests.write_ended(10);
            assert_eq!(lengths(&mut requests), [10]);
            // One of a message that needs no completion comes behind those that wait.
            requests.put_sent(&header(13, false));
            assert!(requests.holds(&header(13, true)));
            requests.write_ended(11);
            assert_eq!(lengths(&mut requests), [11, 13]);
            assert!(!requests.holds(&header(9, true)), "request 12 is not done");
            requests.done = sent.wrapping_add(4);
            requests.write_ended(12);
            assert!(!requests.holds(&header(12, true)), "its end came first");
        }
    }

    #[test]
    fn a_put_that_asks_for_no_ack_lets_no_ack_wait() {
        let mut requests = requests(5);
        let mut silent = header(10, false);
        if let Body::Put { ack_md, .. } = &mut silent.body {
            *ack_md = None;
        }
        requests.write_sent(&silent, 1);
        requests.put_sent(&silent);
        requests.done = 6;
        assert!(!requests.holds(&header(8, true)));
    }
}
