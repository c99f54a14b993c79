//! Requests whose answer has not come, kept by whoever holds the Portals state of a process: the
//! kernel of a node or its firmware.

use std::collections::{BTreeMap, VecDeque};

use portals_core::{Body, Header, OpId};

use crate::answer::{answers, answers_exactly};

/// Most requests that are remembered of one node; the oldest have been dropped by their target.
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

/// What awaits answers, by node.
#[derive(Debug, Default)]
pub struct Awaited(BTreeMap<u32, VecDeque<Request>>);

/// Whether anything will answer `request`.
fn awaits(request: &Body) -> bool {
    match request {
        Body::Put { ack_md, .. } => ack_md.is_some(),
        Body::Get { .. } | Body::GetPut { .. } => true,
        Body::Ack { .. } | Body::Reply { .. } => false,
    }
}

impl Awaited {
    /// A message is sent to `node`; remembered if it awaits an answer.
    pub fn asked(&mut self, node: u32, process: usize, header: &Header, op: Option<OpId>) {
        if awaits(&header.body) {
            let requests = self.0.entry(node).or_default();
            if requests.len() >= MOST {
                requests.pop_front();
            }
            requests.push_back(Request {
                process,
                header: *header,
                op,
            });
        }
    }

    /// An answer of `node` has come: the request that it is for, if that is still awaited.
    ///
    /// One that says `failed` names the bytes as they were asked for. A target that manages its offsets
    /// answers with its own instead; then it is for the oldest request of the descriptor.
    pub fn answered(
        &mut self,
        node: u32,
        process: usize,
        answer: &Header,
        failed: bool,
    ) -> Option<Request> {
        let requests = self.0.get_mut(&node)?;
        let mine = |r: &&Request| r.process == process;
        let exact = |r: &Request| mine(&r) && answers_exactly(answer, &r.header);
        let fits = |r: &Request| mine(&r) && !failed && answers(&answer.body, &r.header.body);
        let at = requests.iter().position(exact);
        let at = at.or_else(|| requests.iter().position(fits))?;
        requests.remove(at)
    }

    /// This request was not delivered; whether it was remembered.
    pub fn forget(&mut self, node: u32, process: usize, header: &Header) -> bool {
        let Some(requests) = self.0.get_mut(&node) else {
            return false;
        };
        let at = requests
            .iter()
            .position(|r| r.process == process && r.header == *header);
        at.and_then(|at| requests.remove(at)).is_some()
    }

    /// All that is awaited, by node; nothing is any more.
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, Request)> {
        std::mem::take(&mut self.0)
            .into_iter()
            .flat_map(|(node, requests)| requests.into_iter().map(move |r| (node, r)))
    }

    /// `node` has failed: everything that was awaited of it.
    pub fn lost(&mut self, node: u32) -> VecDeque<Request> {
        self.0.remove(&node).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::refusal;
    use portals_core::{MdHandle, ProcessId};

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
            awaited.answered(2, 1, &answer, true).is_none(),
            "another process's"
        );
        assert!(
            awaited.answered(3, 0, &answer, true).is_none(),
            "another node's"
        );
        let first = awaited.answered(2, 0, &answer, true).unwrap();
        assert_eq!(first.header.match_bits, 1);
        assert!(awaited.forget(2, 0, &put(Some(7), 3)));
        assert!(!awaited.forget(2, 0, &put(Some(7), 3)));
        let left = awaited.lost(2);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].header.match_bits, 2);
        assert!(awaited.lost(2).is_empty());
        assert!(refusal(&put(None, 0)).is_none());
    }

    /// A request that its target dropped is never answered; the next of the same bytes is.
    #[test]
    fn an_answer_names_its_request_by_target_and_bits() {
        let mut awaited = Awaited::default();
        awaited.asked(2, 0, &put(Some(7), 1), None);
        awaited.asked(2, 0, &put(Some(7), 2), None);
        let answer = refusal(&put(Some(7), 2)).unwrap();
        let found = awaited.answered(2, 0, &answer, false).unwrap();
        assert_eq!(found.header.match_bits, 2);
    }

    #[test]
    fn requests_that_nobody_answers_do_not_pile_up() {
        let mut awaited = Awaited::default();
        for bits in 0..MOST as u64 + 10 {
            awaited.asked(2, 0, &put(Some(7), bits), None);
        }
        let left = awaited.lost(2);
        assert_eq!((left.len(), left[0].header.match_bits), (MOST, 10));
    }
}
