//! What waits to be posted to one peer: requests of this side, and answers that the peer has caused.
//!
//! ```text
//!   own requests ──► requests ──┐
//!                               ├─ one request for every TURN answers ──(room, credit)──► posted
//!   answers      ──► answers  ──┘
//! ```
//!
//! Nothing orders answers with requests (rule 24 orders what is matched), so an answer does not wait for what this side asks:
//! an ATS behind 10,000 requests would keep the peer's memory for as long.
//!
//! # Invariants
//!
//! * Requests leave in their order, and answers in theirs. A read of the data of an RTS is an answer; reads of the peer's
//!   advertised memory, and writes, are requests.
//! * A frame leaves with a credit; what takes none does not wait for one, unless it is behind what does.
//! * `owed` is the number of frames in `answers`, and of those that are promised. While it is `much`, a request that takes a credit
//!   leaves only after TURN answers, whether answers wait or are promised (`credits.rs`).
//! * A withdrawal is confirmed by an answer, which is made when no request before it moves data (`withdrawal.rs`).

use crate::frame;
use crate::memory::Transfer;
use std::collections::VecDeque;
use verbs_backend::Remote;

/// Answers that leave between two requests while both wait: a peer that never stops asking cannot keep requests here.
pub(super) const TURN: u32 = 64;

/// What waits to be posted.
#[derive(Debug)]
pub(super) enum Queued {
    Frame {
        bytes: Vec<u8>,
    },
    Transfer {
        transfer: Transfer,
        id: u64,
    },
    Inline {
        data: Vec<u8>,
        remote: Remote,
        id: u64,
    },
}

impl Queued {
    /// The peer has caused it.
    fn is_answer(&self) -> bool {
        match self {
            Self::Frame { bytes } => frame::is_answer(bytes),
            Self::Transfer { transfer, .. } => transfer.announced,
            Self::Inline { .. } => false,
        }
    }

    fn is_frame(&self) -> bool {
        matches!(self, Self::Frame { .. })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Waiting {
    requests: VecDeque<Queued>,
    answers: VecDeque<Queued>,
    /// Frames among the answers, and frames that what is under way will add to them.
    owed: usize,
    promised: usize,
    /// When so much is owed, requests wait for answers.
    much: usize,
    /// All that waits.
    len: usize,
    /// Answers that have left since a request did, while requests waited.
    since: u32,
    /// Requests that have left, modulo 2^32.
    left: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            owed: 0,
            promised: 0,
            much: usize::MAX,
            len: 0,
            since: 0,
            left: 0,
        }
    }
}

impl Waiting {
    /// Whether nothing need wait: nothing does, and little is owed.
    #[inline(always)]
    pub(super) fn is_clear(&self) -> bool {
        self.len == 0 && !self.is_much_owed()
    }

    /// Whether requests wait for answers.
    #[inline(always)]
    pub(super) fn is_much_owed(&self) -> bool {
        self.owed >= self.much
    }

    /// When so much is owed, requests wait for answers.
    pub(super) fn set_much(&mut self, much: usize) {
        self.much = much;
    }

    /// What is under way will bring so many answers, at most.
    pub(super) fn promise(&mut self, answers: usize) {
        self.promised += answers;
        self.owed += answers;
    }

    /// It has ended; what it brings is sent now.
    pub(super) fn keep(&mut self, answers: usize) {
        let kept = answers.min(self.promised);
        self.promised -= kept;
        self.owed -= kept;
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frames that the peer has caused, and those that are promised.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// All of it, requests first.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.requests.iter().chain(&self.answers)
    }

    /// Whether a request among it moves data by the adapters alone.
    pub(super) fn moves_data(&self) -> bool {
        self.requests.iter().any(|request| !request.is_frame())
    }

    /// Requests that have left when all those that wait now will have.
    pub(super) fn all_left(&self) -> u32 {
        self.left.wrapping_add(self.requests.len() as u32)
    }

    /// Requests that have left, modulo 2^32.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    pub(super) fn push_back(&mut self, item: Queued) {
        self.count(&item);
        match item.is_answer() {
            true => self.answers.push_back(item),
            false => self.requests.push_back(item),
        }
    }

    /// What comes before all others of its kind: it was taken by [`Waiting::pop`], or had been posted.
    pub(super) fn push_front(&mut self, item: Queued) {
        self.count(&item);
        if item.is_answer() {
            self.answers.push_front(item);
        } else {
            self.left = self.left.wrapping_sub(1);
            self.requests.push_front(item);
        }
    }

    fn count(&mut self, item: &Queued) {
        self.len += 1;
        self.owed += usize::from(item.is_frame() && item.is_answer());
    }

    /// Takes what is to be posted next, with a credit or without.
    pub(super) fn pop(&mut self, credit: bool) -> Option<Queued> {
        let may = |item: &Queued| credit || !item.is_frame();
        let request = self.requests.front().is_some_and(may);
        let answer = self.answers.front().is_some_and(may);
        if answer && !(request && self.since >= TURN) {
            let answer = self.answers.pop_front()?;
            self.since = match self.requests.is_empty() {
                true => 0,
                false => self.since.saturating_add(1),
            };
            self.owed -= usize::from(answer.is_frame());
            self.len -= 1;
            return Some(answer);
        }
        // What causes answers waits while many are owed.
        let next = self.requests.front();
        let waits = self.is_much_owed() && self.since < TURN && next.is_some_and(Queued::is_frame);
        if !request || waits {
            return None;
        }
        (self.since, self.left) = (0, self.left.wrapping_add(1));
        self.len -= 1;
        self.requests.pop_front()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All of it, requests first.
    pub(super) fn take(&mut self) -> VecDeque<Queued> {
        let mut all = std::mem::take(&mut self.requests);
        all.append(&mut self.answers);
        (self.owed, self.len) = (self.promised, 0);
        all
    }
}

impl Extend<Queued> for Waiting {
    fn extend<T: IntoIterator<Item = Queued>>(&mut self, items: T) {
        items.into_iter().for_each(|item| self.push_back(item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, SLOT, Writer};
    use fabric_testing::message;
    use portals_core::{Ack, Body, MdHandle};

    fn frame(kind: Kind, body: impl FnOnce(&mut Writer<'_>)) -> Queued {
        let mut bytes = vec![0; SLOT];
        let mut writer = Writer::new(&mut bytes, kind, false);
        body(&mut writer);
        let len = writer.len();
        bytes.truncate(len);
        Queued::Frame { bytes }
    }

    fn bodies() -> [(Body, bool); 5] {
        let (length, remote_offset, hdr_data, ac_index) = (8, 16, 3, 0);
        let (md, reply_md) = (MdHandle::from_raw(1), MdHandle::from_raw(2));
        let ack_md = Some(md);
        [
            (
                Body::Put {
                    length,
                    remote_offset,
                    hdr_data,
                    ac_index,
                    ack_md,
                },
                false,
            ),
            (
                Body::Get {
                    length,
                    remote_offset,
                    ac_index,
                    reply_md,
                    reply_offset: 0,
                },
                false,
            ),
            (
                Body::GetPut {
                    length,
                    remote_offset,
                    hdr_data,
                    ac_index,
                    reply_md,
                    reply_offset: 0,
                },
                false,
            ),
            (
                Body::Ack(Ack {
                    md,
                    offset: 0,
                    rlength: 8,
                    mlength: 8,
                }),
                true,
            ),
            (
                Body::Reply {
                    md,
                    local_offset: 0,
                    rlength: 8,
                    mlength: 8,
                },
                true,
            ),
        ]
    }

    /// Of every message, with its data and with word of where that is.
    #[test]
    fn what_the_peer_has_caused_is_an_answer() {
        for (body, is) in bodies() {
            let header = message(body);
            let eager = frame(Kind::Message, |w| w.header(&header, 8));
            let rts = frame(Kind::ReadyToSend, |w| {
                w.token(1);
                w.place(Remote {
                    address: 5,
                    rkey: 6,
                });
                w.header(&header, 0);
            });
            assert_eq!((eager.is_answer(), rts.is_answer()), (is, is), "{body:?}");
        }
        for (kind, is) in [
            (Kind::AckToSend, true),
            (Kind::Withdrawn, true),
            (Kind::ReadResponse, true),
            (Kind::ReadRequest, false),
            (Kind::Advertise, false),
            (Kind::Greeting, false),
        ] {
            let frame = frame(kind, |w| w.token(3));
            assert_eq!(frame.is_answer(), is, "{kind:?}");
        }
    }

    fn answer() -> Queued {
        frame(Kind::AckToSend, |w| w.token(1))
    }

    fn request() -> Queued {
        frame(Kind::ReadRequest, |w| w.token(1))
    }

    fn read(announced: bool) -> Queued {
        let (address, rkey) = (0, 0);
        let transfer = Transfer {
            local: portals_core::Segment { addr: 0, len: 8 },
            lkey: 0,
            remote: Remote { address, rkey },
            read: true,
            again: false,
            announced,
        };
        Queued::Transfer { transfer, id: 1 }
    }

    /// What leaves, with a credit or without: `q` and `a` are frames of requests and answers, `Q` and `A` reads.
    fn order(waiting: &mut Waiting, credit: bool) -> String {
        let next = std::iter::from_fn(|| waiting.pop(credit));
        next.map(|item| match (item.is_answer(), item.is_frame()) {
            (false, true) => 'q',
            (true, true) => 'a',
            (false, false) => 'Q',
            (true, false) => 'A',
        })
        .collect()
    }

    #[test]
    fn answers_leave_first_and_keep_no_request_here() {
        let mut waiting = Waiting::default();
        (0..3).for_each(|_| waiting.push_back(request()));
        (0..130).for_each(|_| waiting.push_back(answer()));
        let turn = "a".repeat(64);
        assert_eq!(order(&mut waiting, true), format!("{turn}q{turn}qaaq"));
        // Answers that left while no request waited give no turn to a later one.
        (0..100).for_each(|_| waiting.push_back(answer()));
        assert_eq!(order(&mut waiting, true).len(), 100);
        waiting.push_back(request());
        waiting.push_back(answer());
        assert_eq!(order(&mut waiting, true), "aq");
    }

    #[test]
    fn what_takes_no_credit_does_not_wait_for_one() {
        let mut waiting = Waiting::default();
        for item in [request(), read(false), read(true), answer(), read(true)] {
            waiting.push_back(item);
        }
        assert_eq!(
            order(&mut waiting, false),
            "A",
            "the others are behind frames"
        );
        assert_eq!(order(&mut waiting, true), "aAqQ");
        waiting.push_back(read(false));
        waiting.push_back(answer());
        assert_eq!(order(&mut waiting, false), "Q");
        assert_eq!((waiting.owed(), waiting.is_empty()), (1, false));
    }

    #[test]
    fn requests_that_take_credits_wait_while_much_is_owed() {
        let mut waiting = Waiting::default();
        waiting.set_much(3);
        waiting.push_back(read(false));
        waiting.push_back(request());
        waiting.promise(3);
        assert_eq!(order(&mut waiting, true), "Q");
        waiting.keep(1);
        assert_eq!(order(&mut waiting, true), "q");
        assert!(waiting.is_clear());
        waiting.promise(1);
        assert!(waiting.is_empty() && !waiting.is_clear());
        // Answers leave, and give it its turn.
        waiting.push_back(request());
        (0..64).for_each(|_| waiting.push_back(answer()));
        assert_eq!(order(&mut waiting, true), "a".repeat(64) + "q");
    }

    #[test]
    fn requests_are_numbered_as_they_leave() {
        let mut waiting = Waiting::default();
        for item in [request(), answer(), read(false)] {
            waiting.push_back(item);
        }
        assert!(waiting.moves_data());
        let all = waiting.all_left();
        assert_eq!(all.wrapping_sub(waiting.left()), 2);
        let taken = [waiting.pop(true), waiting.pop(true)];
        let [Some(first), Some(second)] = taken else {
            panic!("{taken:?}");
        };
        assert!(first.is_answer() && !second.is_answer());
        waiting.push_front(second);
        assert_eq!(all.wrapping_sub(waiting.left()), 2);
        // What had been posted before comes before, and so must leave too.
        waiting.push_front(request());
        assert_eq!(
            (waiting.all_left(), all.wrapping_sub(waiting.left())),
            (all, 3)
        );
        assert_eq!(order(&mut waiting, true), "qqQ");
        assert_eq!(waiting.left(), all);
    }

    #[test]
    fn answers_are_counted_wherever_they_come_and_go() {
        let mut waiting = Waiting::default();
        waiting.push_back(request());
        waiting.push_back(answer());
        waiting.push_front(answer());
        waiting.push_back(read(true));
        assert_eq!((waiting.iter().count(), waiting.owed()), (4, 2));
        assert!(waiting.pop(true).is_some_and(|item| item.is_answer()));
        assert_eq!(waiting.owed(), 1);
        let taken = waiting.take();
        assert_eq!((waiting.is_empty(), waiting.owed()), (true, 0));
        waiting.promise(2);
        waiting.extend(taken);
        assert_eq!(waiting.owed(), 3);
        assert_eq!(waiting.take().len(), 3);
        assert_eq!(waiting.owed(), 2, "what is promised stays so");
        waiting.keep(2);
        waiting.keep(1);
        assert_eq!(waiting.owed(), 0);
        waiting.push_back(answer());
        waiting.clear();
        assert_eq!((waiting.is_empty(), waiting.owed()), (true, 0));
    }
}
