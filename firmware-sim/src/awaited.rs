//! Requests whose answer has not come, kept by whoever holds the Portals state of a process: the
//! kernel of a node or its firmware.
//!
//! # Invariants
//!
//! * A request ends once: with its answer, or with a failure when it is given up. A target may have
//!   taken a request that was given up, and answers it; that answer ends nothing.
//! * So a request that was given up is remembered until an answer to it has come. An answer is for the
//!   first of these that there is:
//!
//!   | | request | agrees in |
//!   |---|---|---|
//!   | 1 | awaited | target, portal, bits, descriptor, length, offset |
//!   | 2 | given up | the same |
//!   | 3 | awaited | all but the offset: a target that manages its offsets answers with its own |
//!   | 4 | given up | all but the offset |
//!   | 5 | awaited | descriptor |
//!
//!   Of equals it is for the oldest. Where one of two equal requests was given up, the first answer ends
//!   the other, and a second one ends nothing: as many end as are made.
//! * An answer comes again where its target has given it up. The initiator may have it, and its request has
//!   ended; so it is for none of 3 to 5 if it is like one that has come, and for none of 5. What it ends
//!   counts as given up: the other copy may be on its way.
//! * A send ends before the answer to it. So of a node that has failed only those requests are given up
//!   whose send has ended; the others when it ends, well or not.
//! * Of each node the last `MOST` requests of either kind are remembered, of answers the last `COME`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use portals_core::{Body, Header, OpId};

use crate::answer::{Likeness, answers, likeness};
use crate::header;

/// Most requests that are remembered of one node, and most of those given up; the oldest have been
/// dropped by their target.
const MOST: usize = 8192;

/// A request that awaits an ack or a reply.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Whose it is, as an index among the processes of a node.
    pub process: usize,
    /// What it says.
    pub header: Header,
    /// The send that ends before the answer.
    pub op: Option<OpId>,
}

/// What an answer is for.
#[derive(Debug, Clone, Copy)]
pub enum Answered {
    /// This request, which is not awaited any more.
    Request(Request),
    /// A request that has ended, given up or answered: the answer is thrown away.
    Over,
    /// Nothing that is remembered.
    Unknown,
}

/// The requests to one node, oldest first.
#[derive(Debug, Default)]
struct Requests {
    awaited: VecDeque<Request>,
    given_up: VecDeque<Request>,
}

/// What awaits answers.
#[derive(Debug, Default)]
pub struct Awaited {
    nodes: BTreeMap<u32, Requests>,
    /// Digests of the last answers that have come, oldest first.
    come: VecDeque<u64>,
}

/// Most answers that are remembered.
const COME: usize = 4096;

/// An answer in few bits, the same each time that it comes.
fn digest(answer: &Header) -> u64 {
    let (bytes, length) = header::encode(answer);
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes[..length]);
    hasher.finish()
}

/// Whether anything will answer `request`.
fn awaits(request: &Body) -> bool {
    match request {
        Body::Put { ack_md, .. } => ack_md.is_some(),
        Body::Get { .. } | Body::GetPut { .. } => true,
        Body::Ack { .. } | Body::Reply { .. } => false,
    }
}

/// Adds one behind the others, of which the oldest makes room.
fn push<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() >= most {
        all.pop_front();
    }
    all.push_back(one);
}

/// The oldest request that `is_it`.
fn take(requests: &mut VecDeque<Request>, is_it: impl FnMut(&Request) -> bool) -> Option<Request> {
    let at = requests.iter().position(is_it)?;
    requests.remove(at)
}

impl Awaited {
    /// A message is sent to `node`; remembered if it awaits an answer.
    pub fn asked(&mut self, node: u32, process: usize, header: &Header, op: Option<OpId>) {
        if awaits(&header.body) {
            let request = Request {
                process,
                header: *header,
                op,
            };
            push(
                &mut self.nodes.entry(node).or_default().awaited,
                request,
                MOST,
            );
        }
    }

    /// An answer of `node` has come, with the flags of its packet: what it is for. One that has failed
    /// has the offset that was asked for.
    pub fn answered(&mut self, node: u32, process: usize, answer: &Header, flags: u8) -> Answered {
        let failed = flags & header::FAILED != 0;
        let again = flags & header::AGAIN != 0;
        let answered = self.find(node, process, answer, failed, again);
        if let (Answered::Request(request), true) = (answered, again) {
            push(
                &mut self.nodes.entry(node).or_default().given_up,
                request,
                MOST,
            );
        }
        if !again {
            push(&mut self.come, digest(answer), COME);
        }
        answered
    }

    fn find(
        &mut self,
        node: u32,
        process: usize,
        answer: &Header,
        failed: bool,
        again: bool,
    ) -> Answered {
        let nothing = if again {
            Answered::Over
        } else {
            Answered::Unknown
        };
        let Some(Requests { awaited, given_up }) = self.nodes.get_mut(&node) else {
            return nothing;
        };
        let like = |least: Likeness| {
            move |r: &Request| r.process == process && likeness(answer, &r.header) >= Some(least)
        };
        for least in [Likeness::Exact, Likeness::ButOffset] {
            if let Some(request) = take(awaited, like(least)) {
                return Answered::Request(request);
            }
            if take(given_up, like(least)).is_some() {
                return Answered::Over;
            }
            if failed || again && self.come.contains(&digest(answer)) {
                return nothing;
            }
        }
        let fits = |r: &Request| r.process == process && answers(&answer.body, &r.header.body);
        match take(awaited, |r| !again && fits(r)) {
            Some(request) => Answered::Request(request),
            None => nothing,
        }
    }

    fn remove(&mut self, node: u32, process: usize, header: &Header) -> Option<Request> {
        let requests = self.nodes.get_mut(&node)?;
        let is_it = |r: &Request| r.process == process && r.header == *header;
        take(&mut requests.awaited, is_it)
    }

    /// This request will not be sent.
    pub fn withdrawn(&mut self, node: u32, process: usize, header: &Header) {
        self.remove(node, process, header);
    }

    /// This request is given up; whether it was awaited. An answer to it may come all the same.
    pub fn forget(&mut self, node: u32, process: usize, header: &Header) -> bool {
        let request = self.remove(node, process, header);
        if let (Some(request), Some(requests)) = (request, self.nodes.get_mut(&node)) {
            push(&mut requests.given_up, request, MOST);
        }
        request.is_some()
    }

    /// Takes over all that `from` remembers, for `process`.
    pub fn inherit(&mut self, process: usize, from: &mut Self) {
        for come in from.come.drain(..) {
            push(&mut self.come, come, COME);
        }
        for (node, requests) in std::mem::take(&mut from.nodes) {
            let own = self.nodes.entry(node).or_default();
            for request in requests.awaited {
                push(&mut own.awaited, Request { process, ..request }, MOST);
            }
            for request in requests.given_up {
                push(&mut own.given_up, Request { process, ..request }, MOST);
            }
        }
    }

    /// Nothing is awaited any more of the requests to `node` that `are_meant`: those that are over by this, and those that
    /// are when their send has ended, which [`Awaited::forget`] then takes.
    pub fn abandon(
        &mut self,
        node: u32,
        are_meant: impl Fn(&Request) -> bool,
        is_being_sent: impl Fn(&Request) -> bool,
    ) -> (Vec<Request>, Vec<Request>) {
        let Some(requests) = self.nodes.get(&node) else {
            return (Vec::new(), Vec::new());
        };
        let meant = requests.awaited.iter().copied().filter(are_meant);
        let (sending, over): (Vec<_>, Vec<_>) = meant.partition(is_being_sent);
        for request in &over {
            self.forget(node, request.process, &request.header);
        }
        (over, sending)
    }

    /// `node` has failed: everything that was awaited of it is given up, but what `is_being_sent` yet.
    pub fn lost(&mut self, node: u32, is_being_sent: impl Fn(&Request) -> bool) -> Vec<Request> {
        let Some(requests) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        let all = std::mem::take(&mut requests.awaited);
        // An operation's number is used again: of the same, the last is the one that is sent.
        let mut sends = BTreeSet::new();
        let (mut lost, mut kept) = (Vec::new(), VecDeque::new());
        for request in all.into_iter().rev() {
            if is_being_sent(&request) && sends.insert((request.process, request.op)) {
                kept.push_front(request);
            } else {
                lost.push(request);
            }
        }
        lost.reverse();
        requests.awaited = kept;
        for request in &lost {
            push(&mut requests.given_up, *request, MOST);
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::refusal;
    use portals_core::{Ack, MdHandle, ProcessId};

    fn put(md: Option<u32>, bits: u64) -> Header {
        Header {
            target: ProcessId::new(2, 5),
            source: ProcessId::new(1, 5),
            uid: 0,
            jid: 0,
            pt_index: 4,
            match_bits: bits,
            body: Body::Put {
                length: 8,
                remote_offset: 16,
                hdr_data: 0,
                ac_index: 0,
                ack_md: md.map(MdHandle::from_raw),
            },
        }
    }

    /// The bits of the request that has ended.
    fn ended(answered: Answered) -> Option<u64> {
        match answered {
            Answered::Request(request) => Some(request.header.match_bits),
            Answered::Over | Answered::Unknown => None,
        }
    }

    /// The ack of a target that manages its offsets.
    fn ack_at(request: &Header, offset: u64) -> Header {
        let mut ack = refusal(request).unwrap();
        let Body::Ack(Ack { offset: at, .. }) = &mut ack.body else {
            panic!("not an ack");
        };
        *at = offset;
        ack
    }

    #[test]
    fn an_answer_takes_the_oldest_request_of_its_descriptor() {
        let mut awaited = Awaited::default();
        awaited.asked(2, 0, &put(None, 0), None);
        for bits in 1..4 {
            awaited.asked(2, 0, &put(Some(7), bits), None);
        }
        let answer = refusal(&put(Some(7), 1)).unwrap();
        assert_eq!(
            (answer.target, answer.source),
            (put(None, 0).source, put(None, 0).target)
        );
        assert!(
            matches!(
                awaited.answered(2, 1, &answer, header::FAILED),
                Answered::Unknown
            ),
            "another process's"
        );
        assert!(
            matches!(
                awaited.answered(3, 0, &answer, header::FAILED),
                Answered::Unknown
            ),
            "another node's"
        );
        assert_eq!(
            ended(awaited.answered(2, 0, &answer, header::FAILED)),
            Some(1)
        );
        assert!(awaited.forget(2, 0, &put(Some(7), 3)));
        assert!(!awaited.forget(2, 0, &put(Some(7), 3)));
        let left = awaited.lost(2, |_| false);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].header.match_bits, 2);
        assert!(awaited.lost(2, |_| false).is_empty());
        assert!(refusal(&put(None, 0)).is_none());
    }

    /// A request that its target dropped is never answered; the next of the same bytes is.
    #[test]
    fn an_answer_names_its_request_by_target_and_bits() {
        let mut awaited = Awaited::default();
        awaited.asked(2, 0, &put(Some(7), 1), None);
        awaited.asked(2, 0, &put(Some(7), 2), None);
        let answer = refusal(&put(Some(7), 2)).unwrap();
        assert_eq!(ended(awaited.answered(2, 0, &answer, 0)), Some(2));
    }

    #[test]
    fn an_answer_to_a_request_that_was_given_up_ends_no_other() {
        let mut awaited = Awaited::default();
        for bits in 1..4 {
            awaited.asked(2, 0, &put(Some(7), bits), None);
        }
        assert!(awaited.forget(2, 0, &put(Some(7), 1)));
        let late = ack_at(&put(Some(7), 1), 16);
        let answered = awaited.answered(2, 0, &late, 0);
        assert!(matches!(answered, Answered::Over), "{answered:?}");
        for bits in 2..4 {
            let answer = ack_at(&put(Some(7), bits), 16);
            assert_eq!(ended(awaited.answered(2, 0, &answer, 0)), Some(bits));
        }
        assert!(awaited.lost(2, |_| false).is_empty());
    }

    #[test]
    fn an_answer_with_its_targets_offset_to_a_request_that_was_given_up_ends_no_other() {
        let mut awaited = Awaited::default();
        awaited.asked(2, 0, &put(Some(7), 1), None);
        awaited.asked(2, 0, &put(Some(7), 2), None);
        assert!(awaited.forget(2, 0, &put(Some(7), 1)));
        let late = awaited.answered(2, 0, &ack_at(&put(Some(7), 1), 4096), 0);
        assert!(matches!(late, Answered::Over), "{late:?}");
        let own = ack_at(&put(Some(7), 2), 4104);
        assert_eq!(ended(awaited.answered(2, 0, &own, 0)), Some(2));
    }

    /// Which of them was given up, an answer does not say.
    #[test]
    fn of_equal_requests_as_many_end_as_were_made() {
        let mut awaited = Awaited::default();
        let (request, mut ends) = (put(Some(7), 1), 0);
        for _ in 0..3 {
            awaited.asked(2, 0, &request, None);
        }
        ends += u32::from(awaited.forget(2, 0, &request));
        for n in 0..3 {
            let answered = awaited.answered(2, 0, &ack_at(&request, 16), 0);
            ends += u32::from(ended(answered).is_some());
            assert_eq!(matches!(answered, Answered::Over), n == 2);
        }
        assert_eq!(ends, 3);
    }

    /// A target that has given its answer up says it again.
    #[test]
    fn an_answer_that_comes_again_ends_no_other() {
        for offset in [16, 4096] {
            let mut awaited = Awaited::default();
            let other = ack_at(&put(Some(7), 1), 0);
            for bits in 1..3 {
                awaited.asked(2, 0, &put(Some(7), bits), None);
            }
            let mut further = put(Some(7), 1);
            if let Body::Put { remote_offset, .. } = &mut further.body {
                *remote_offset = 0;
            }
            awaited.asked(2, 0, &further, None);
            let answer = ack_at(&put(Some(7), 1), offset);
            let first = awaited.answered(2, 0, &answer, 0);
            assert_eq!(ended(first), Some(1));
            for _ in 0..3 {
                let again = awaited.answered(2, 0, &answer, header::AGAIN);
                assert!(matches!(again, Answered::Over), "{again:?}");
            }
            for (bits, own) in [(1, other), (2, ack_at(&put(Some(7), 2), 16))] {
                assert_eq!(ended(awaited.answered(2, 0, &own, 0)), Some(bits));
            }
        }
    }

    /// The first was lost, or is on its way still.
    #[test]
    fn an_answer_that_comes_only_again_ends_its_request_once() {
        let mut awaited = Awaited::default();
        awaited.asked(2, 0, &put(Some(7), 1), None);
        let answer = ack_at(&put(Some(7), 1), 4096);
        let again = awaited.answered(2, 0, &answer, header::AGAIN);
        assert_eq!(ended(again), Some(1));
        let first = awaited.answered(2, 0, &answer, 0);
        assert!(matches!(first, Answered::Over), "{first:?}");
    }

    /// Of a request that is not remembered any more.
    #[test]
    fn an_answer_that_comes_again_ends_nothing_by_its_descriptor_alone() {
        let mut awaited = Awaited::default();
        awaited.asked(2, 0, &put(Some(7), 1), None);
        let old = ack_at(&put(Some(7), 9), 16);
        let again = awaited.answered(2, 0, &old, header::AGAIN);
        assert!(matches!(again, Answered::Over), "{again:?}");
        assert_eq!(ended(awaited.answered(2, 0, &old, 0)), Some(1));
    }

    /// Also in the hands of a kernel that has taken the process over, and of a node that has failed.
    #[test]
    fn what_was_given_up_stays_so() {
        let (mut awaited, mut kernel) = (Awaited::default(), Awaited::default());
        awaited.asked(2, 0, &put(Some(7), 1), None);
        assert!(awaited.forget(2, 0, &put(Some(7), 1)));
        awaited.asked(2, 0, &put(Some(7), 2), None);
        kernel.inherit(5, &mut awaited);
        let lost = kernel.lost(2, |_| false);
        assert_eq!((lost.len(), lost[0].process), (1, 5));
        kernel.asked(2, 5, &put(Some(7), 3), None);
        for bits in 1..3 {
            let answered = kernel.answered(2, 5, &ack_at(&put(Some(7), bits), 16), 0);
            assert!(matches!(answered, Answered::Over), "{answered:?}");
        }
        let answer = ack_at(&put(Some(7), 3), 16);
        assert_eq!(ended(kernel.answered(2, 5, &answer, 0)), Some(3));
    }

    /// The send of a request ends first; an operation's number may have been another request's before.
    #[test]
    fn of_a_node_that_has_failed_a_request_is_awaited_until_it_is_being_sent() {
        let mut awaited = Awaited::default();
        for op in [1, 1, 2] {
            awaited.asked(2, 0, &put(Some(7), 1), Some(OpId(op)));
        }
        let lost = awaited.lost(2, |request| request.op == Some(OpId(1)));
        let ops: Vec<_> = lost.iter().map(|request| request.op).collect();
        assert_eq!(ops, [Some(OpId(1)), Some(OpId(2))]);
        assert!(awaited.forget(2, 0, &put(Some(7), 1)));
        assert!(!awaited.forget(2, 0, &put(Some(7), 1)));
    }

    /// A request that was never sent leaves no trace.
    #[test]
    fn a_request_that_was_withdrawn_is_not_answered() {
        let mut awaited = Awaited::default();
        awaited.asked(2, 0, &put(Some(7), 1), None);
        awaited.withdrawn(2, 0, &put(Some(7), 1));
        let answered = awaited.answered(2, 0, &ack_at(&put(Some(7), 1), 16), 0);
        assert!(matches!(answered, Answered::Unknown), "{answered:?}");
    }

    #[test]
    fn requests_that_nobody_answers_do_not_pile_up() {
        let mut awaited = Awaited::default();
        for bits in 0..MOST as u64 + 10 {
            awaited.asked(2, 0, &put(Some(7), bits), None);
        }
        let left = awaited.lost(2, |_| false);
        assert_eq!((left.len(), left[0].header.match_bits), (MOST, 10));
        for bits in 0..10 {
            awaited.asked(2, 0, &put(Some(7), bits), None);
            assert!(awaited.forget(2, 0, &put(Some(7), bits)));
        }
        assert_eq!(awaited.nodes[&2].given_up.len(), MOST);
    }
}
