//! What waits for room in the ring to one peer: messages of this process, and answers that it owes to the peer.
//!
//! ```text
//!   own requests ──► requests ──┐                          ring to the peer
//!                               ├─ one request for every TURN answers ──►
//!   answers      ──► answers  ──┘
//!                       │
//!                       └─ MOST of them wait: nothing more is taken from the peer (`owes_enough`)
//! ```
//!
//! A peer that asks and does not read would have its answers fill this process's memory. So a rank that owes a peer enough
//! leaves that peer's messages in their ring, where they are the peer's own. Nothing is lost, and other peers notice nothing.
//!
//! # Two ranks that read never wait for each other
//!
//! Were both ends of a pair to owe enough, neither would read, and none of their answers would ever leave. That cannot be.
//! Let the ring have `C` cells. A request makes its target owe two answers at most (ATS and ACK), an answer one (ATS of a
//! long reply, the data of a refused RTS, the ACK of that data), and a chain has three answers at most.
//!
//! * Take the later of the two moments in which an end began to owe anything. Its peer owes `MOST + 2` at most, and the
//!   rings hold `2 C` messages: together no more than `V = MOST + 3 + 4 C` answers are due.
//! * From then on a request leaves only after every [`TURN`] answers, or because it had begun. All that `V` brings about is
//!   at most `3 V` answers and what the requests among them cause, which adds less than `V / 9 + 10` answers.
//! * Both owe `MOST` only if `2 MOST` is at most `V + V / 9 + 10`, which is false for `MOST = 8 C` and 16 cells or more.
//!
//! So one of the two reads whenever it makes progress, and thereby gives the other room for its answers.
//!
//! # Invariants
//!
//! * A message whose first part is in the ring is finished before another one begins.
//! * Requests leave in their order, and answers in theirs; nothing orders the one with the other.

use super::cell::Kind;
use super::peer::{Load, Outgoing};
use portals_core::Body;
use std::collections::VecDeque;

/// Answers that leave between two requests while answers wait: a peer that never stops asking cannot keep requests here.
const TURN: u32 = 64;
/// The answers that wait for a peer when enough do, in rings.
const MOST: usize = 8;
/// Copied bytes that count as one answer more. An exchange of an honest peer has fewer (`max_getput_md`), and so have the places
/// in an RTS.
const COPIED: usize = 256;

/// Of what kind a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// This process began it.
    Request,
    /// The peer has caused it.
    Answer,
}

impl Class {
    fn of(m: &Outgoing) -> Self {
        let body = m.header.as_ref().map(|header| &header.body);
        match (m.kind, body) {
            (Kind::AckToSend | Kind::Resent, _)
            | (_, None | Some(Body::Ack { .. } | Body::Reply { .. })) => Self::Answer,
            (_, Some(Body::Put { .. } | Body::Get { .. } | Body::GetPut { .. })) => Self::Request,
        }
    }
}

/// As how many answers one counts.
fn weight(m: &Outgoing) -> usize {
    let copied = match &m.load {
        Load::Pieces(_) => 0,
        Load::Bytes(bytes) => bytes.len(),
    };
    1 + copied / COPIED
}

/// See the module.
#[derive(Debug)]
pub(super) struct Waiting {
    requests: VecDeque<Outgoing>,
    answers: VecDeque<Outgoing>,
    /// Answers that wait, by [`weight`], and how many are enough.
    owed: usize,
    most: usize,
    /// Answers that have left since a request did, while requests waited.
    since: u32,
}

impl Waiting {
    /// For a peer whose rings have so many cells.
    pub(super) fn new(cells: u32) -> Self {
        Self {
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            owed: 0,
            most: MOST * cells as usize,
            since: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.answers.is_empty()
    }

    /// Whether so many answers wait that nothing more is to be taken from the peer.
    #[inline]
    pub(super) fn owes_enough(&self) -> bool {
        self.owed >= self.most
    }

    /// Whether a message may be written before any that wait.
    #[inline]
    pub(super) fn is_next(&self, m: &Outgoing) -> bool {
        self.is_empty() || self.is_answer_due(m)
    }

    #[cold]
    fn is_answer_due(&self, m: &Outgoing) -> bool {
        self.answers.is_empty() && Class::of(m) == Class::Answer && !self.is_request_due()
    }

    /// Whether the oldest request goes before any answer.
    fn is_request_due(&self) -> bool {
        let request = self.requests.front();
        request.is_some_and(|request| request.is_begun() || self.since >= TURN)
    }

    /// A message waits, of which a part may have been written.
    pub(super) fn push(&mut self, m: Outgoing) {
        match Class::of(&m) {
            Class::Request => self.requests.push_back(m),
            Class::Answer => {
                self.owed += weight(&m);
                self.answers.push_back(m);
            }
        }
    }

    /// Takes the message that is to be written next.
    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        let begun = self.answers.front().is_some_and(Outgoing::is_begun);
        if self.answers.is_empty() || (!begun && self.is_request_due()) {
            return self.requests.pop_front();
        }
        let answer = self.answers.pop_front()?;
        self.owed -= weight(&answer);
        Some(answer)
    }

    /// Not all of what [`Waiting::pop`] gave has been written.
    pub(super) fn put_back(&mut self, m: Outgoing) {
        match Class::of(&m) {
            Class::Request => self.requests.push_front(m),
            Class::Answer => {
                self.owed += weight(&m);
                self.answers.push_front(m);
            }
        }
    }

    /// All of a message has been written.
    #[inline]
    pub(super) fn written(&mut self, m: &Outgoing) {
        if !self.requests.is_empty() {
            self.count(m);
        }
    }

    #[cold]
    fn count(&mut self, m: &Outgoing) {
        self.since = match Class::of(m) {
            Class::Request => 0,
            Class::Answer => self.since.saturating_add(1),
        };
    }

    /// All of them, in the order of their classes.
    pub(super) fn into_all(self) -> impl Iterator<Item = Outgoing> {
        self.requests.into_iter().chain(self.answers)
    }
}

#[cfg(test)]
mod tests;
