//! What waits to be posted to one peer, and how many answers are among it.
//!
//! ```text
//!   own requests ──┐
//!                  ├──► items, in their order ──(room, credit)──► posted
//!   answers ───────┘
//!        │
//!        └─ ANSWERS rings' worth of them wait: the peer gets back one credit for each frame that leaves (`credits.rs`)
//! ```
//!
//! A peer that asks and gives no credits would have its answers fill this process's memory. Everything leaves in its order,
//! so an answer cannot overtake: what is bounded is what the peer may send meanwhile.
//!
//! # Invariants
//!
//! * `answers` is the number of frames in `items` that the peer has caused.

use crate::frame;
use crate::memory::Transfer;
use std::collections::VecDeque;
use verbs_backend::Remote;

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
    fn is_answer(&self) -> bool {
        match self {
            Self::Frame { bytes } => frame::is_answer(bytes),
            Self::Transfer { .. } | Self::Inline { .. } => false,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    items: VecDeque<Queued>,
    answers: usize,
}

impl Waiting {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Frames that the peer has caused.
    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    pub(super) fn front(&self) -> Option<&Queued> {
        self.items.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Queued> {
        self.items.iter()
    }

    pub(super) fn push_back(&mut self, item: Queued) {
        self.answers += usize::from(item.is_answer());
        self.items.push_back(item);
    }

    pub(super) fn push_front(&mut self, item: Queued) {
        self.answers += usize::from(item.is_answer());
        self.items.push_front(item);
    }

    pub(super) fn pop_front(&mut self) -> Option<Queued> {
        let item = self.items.pop_front()?;
        self.answers -= usize::from(item.is_answer());
        Some(item)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All of it, in its order.
    pub(super) fn take(&mut self) -> VecDeque<Queued> {
        std::mem::take(self).items
    }
}

impl From<VecDeque<Queued>> for Waiting {
    fn from(items: VecDeque<Queued>) -> Self {
        let answers = items.iter().filter(|item| item.is_answer()).count();
        Self { items, answers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, SLOT, Writer};
    use fabric_testing::message;
    use portals_core::{Body, MdHandle};

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
                Body::Ack {
                    md,
                    offset: 0,
                    rlength: 8,
                    mlength: 8,
                },
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

    #[test]
    fn answers_are_counted_wherever_they_come_and_go() {
        let answer = || frame(Kind::AckToSend, |w| w.token(1));
        let request = || frame(Kind::ReadRequest, |w| w.token(1));
        let mut waiting = Waiting::default();
        waiting.push_back(request());
        waiting.push_back(answer());
        waiting.push_front(answer());
        assert_eq!((waiting.len(), waiting.answers()), (3, 2));
        assert!(waiting.pop_front().is_some_and(|item| item.is_answer()));
        assert_eq!(waiting.answers(), 1);
        let taken = waiting.take();
        assert_eq!((waiting.len(), waiting.answers()), (0, 0));
        assert_eq!(Waiting::from(taken).answers(), 1);
        waiting.push_back(answer());
        waiting.clear();
        assert_eq!((waiting.is_empty(), waiting.answers()), (true, 0));
    }
}
