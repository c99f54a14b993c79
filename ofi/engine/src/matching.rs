//! Which receive takes which message: both in the order in which they came.

use crate::completion::{End, Op, flags};
use crate::memory::Buffer;
use crate::wire::Envelope;
use portals_shim::ProcessId;
use std::collections::VecDeque;

/// What a receive asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Messages of this process alone.
    pub from: Option<ProcessId>,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

impl Wanted {
    fn takes(&self, from: ProcessId, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.from.is_none_or(|id| id == from)
    }
}

/// A receive that waits for its message.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) wanted: Wanted,
    pub(crate) buffer: Buffer,
    pub(crate) op: Op,
    pub(crate) multi: Option<MultiReceive>,
}

/// What makes a receive a multi-receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MultiReceive {
    /// While so many bytes are left.
    pub(crate) least: u64,
    /// Its number, of this side, which is not 0.
    pub(crate) number: u64,
}

impl Receive {
    /// What its end says if it takes no message any more: a multi-receive gives its buffer back.
    pub(crate) fn end(&self) -> End {
        End {
            tag: self.wanted.tag,
            flags: self.multi.map_or(0, |_| flags::MULTI_RECV),
            ..End::default()
        }
    }
}

/// The bytes of a message that nobody has asked for yet.
#[derive(Debug)]
pub(crate) enum Body {
    Here(Vec<u8>),
    /// At the sender.
    There(Envelope),
}

impl Body {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.len() as u64,
            Self::There(envelope) => envelope.len,
        }
    }
}

/// A message that nobody has asked for yet.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) from: ProcessId,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    pub(crate) body: Body,
    /// Whose it is, by the context of whoever claimed it.
    pub(crate) claimed: Option<usize>,
}

impl Unexpected {
    /// What is told of it without its bytes.
    pub(crate) fn end(&self) -> End {
        End {
            len: self.body.len(),
            data: self.data,
            tag: self.tag,
            source: Some(self.from),
            ..End::default()
        }
    }
}

/// Receives and messages that wait for each other; of tagged messages, or of those without a tag.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    posted: VecDeque<Receive>,
    unexpected: VecDeque<Unexpected>,
}

impl Lists {
    /// The receive that a message is for, which stays if it takes more of them.
    pub(crate) fn receive_for(&mut self, from: ProcessId, tag: u64) -> Option<usize> {
        self.posted.iter().position(|r| r.wanted.takes(from, tag))
    }

    pub(crate) fn posted(&mut self, at: usize) -> Option<&mut Receive> {
        self.posted.get_mut(at)
    }

    pub(crate) fn remove_posted(&mut self, at: usize) -> Option<Receive> {
        self.posted.remove(at)
    }

    pub(crate) fn post(&mut self, receive: Receive) {
        self.posted.push_back(receive);
    }

    pub(crate) fn keep(&mut self, message: Unexpected) {
        self.unexpected.push_back(message);
    }

    /// The oldest message that a receive takes, and nobody has claimed.
    pub(crate) fn find(&self, wanted: &Wanted) -> Option<usize> {
        let takes = |m: &Unexpected| m.claimed.is_none() && wanted.takes(m.from, m.tag);
        self.unexpected.iter().position(takes)
    }

    /// The message that was claimed with this context.
    pub(crate) fn claimed(&self, context: usize) -> Option<usize> {
        let is = |m: &Unexpected| m.claimed == Some(context);
        self.unexpected.iter().position(is)
    }

    /// How many messages nobody has asked for yet.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.unexpected.len()
    }

    pub(crate) fn message(&mut self, at: usize) -> Option<&mut Unexpected> {
        self.unexpected.get_mut(at)
    }

    pub(crate) fn take(&mut self, at: usize) -> Option<Unexpected> {
        self.unexpected.remove(at)
    }

    /// Drops the messages of a process that nobody has claimed, and returns them.
    pub(crate) fn forget(&mut self, from: ProcessId) -> Vec<Unexpected> {
        let of = |m: &Unexpected| m.from == from && m.claimed.is_none();
        let (dropped, left): (Vec<_>, Vec<_>) = self.unexpected.drain(..).partition(of);
        self.unexpected = left.into();
        dropped
    }

    /// Takes back the receives that take messages of this process alone.
    pub(crate) fn take_back(&mut self, from: ProcessId) -> Vec<Receive> {
        let of = |r: &Receive| r.wanted.from == Some(from);
        let (taken, left): (Vec<_>, Vec<_>) = self.posted.drain(..).partition(of);
        self.posted = left.into();
        taken
    }

    /// Takes back the receive with this context.
    pub(crate) fn cancel(&mut self, context: usize) -> Option<Receive> {
        let at = self.posted.iter().position(|r| r.op.context == context)?;
        self.posted.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(nid: u32) -> ProcessId {
        ProcessId::new(nid, 1)
    }

    fn receive(context: usize, from: Option<u32>, tag: u64, ignore: u64) -> Receive {
        Receive {
            wanted: Wanted {
                from: from.map(id),
                tag,
                ignore,
            },
            buffer: Buffer::default(),
            op: Op {
                context,
                ..Op::default()
            },
            multi: None,
        }
    }

    fn message(from: u32, tag: u64) -> Unexpected {
        Unexpected {
            from: id(from),
            tag,
            data: None,
            body: Body::Here(Vec::new()),
            claimed: None,
        }
    }

    #[test]
    fn the_oldest_that_fits_is_taken() {
        let mut lists = Lists::default();
        for r in [
            receive(1, Some(1), 5, 0),
            receive(2, None, 5, 0),
            receive(3, None, 0, u64::MAX),
        ] {
            lists.post(r);
        }
        let mut take = |from, tag| {
            let at = lists.receive_for(id(from), tag)?;
            lists.remove_posted(at).map(|r| r.op.context)
        };
        assert_eq!(take(2, 5), Some(2));
        assert_eq!(take(2, 5), Some(3));
        assert_eq!(take(2, 5), None);
        assert_eq!(take(1, 5), Some(1));
    }

    #[test]
    fn a_claimed_message_is_its_claimants() {
        let mut lists = Lists::default();
        for (from, tag) in [(1, 7), (2, 7), (1, 8)] {
            lists.keep(message(from, tag));
        }
        let any = Wanted {
            from: None,
            tag: 7,
            ignore: 0,
        };
        let at = lists.find(&any).unwrap();
        lists.message(at).unwrap().claimed = Some(42);
        let next = lists.find(&any).unwrap();
        assert_eq!(lists.message(next).unwrap().from, id(2));
        assert_eq!(lists.claimed(41), None);
        let claimed = lists.claimed(42).unwrap();
        assert_eq!(lists.take(claimed).unwrap().from, id(1));
        let one = Wanted {
            from: Some(id(1)),
            tag: 0,
            ignore: 0xff,
        };
        let at = lists.find(&one).unwrap();
        assert_eq!(lists.take(at).unwrap().tag, 8);
    }

    #[test]
    fn a_receive_is_cancelled_once() {
        let mut lists = Lists::default();
        lists.post(receive(9, None, 1, 0));
        assert!(lists.cancel(8).is_none() && lists.cancel(9).is_some());
        assert!(lists.cancel(9).is_none());
    }
}
