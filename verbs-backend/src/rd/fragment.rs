//! What the user sends or puts, until all of it is acked; and those of a peer that wait to be cut into segments.

use super::window::{KEEP, Piece};
use super::wire::{EXTRA, HEAD, Kind};
use slab::Slab;
use std::collections::VecDeque;

/// Where the data of a fragment is until it is acked.
pub trait Source {
    /// Copies the bytes from `offset` on to `to`, all of which the fragment has.
    fn fill(&self, offset: u64, to: &mut [u8]);
}

impl<T: AsRef<[u8]>> Source for T {
    fn fill(&self, offset: u64, to: &mut [u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(from) = self.as_ref().get(start..).and_then(|d| d.get(..to.len())) {
            to.copy_from_slice(from);
        }
    }
}

/// What goes before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// After all that was sent before and is not urgent.
    InOrder,
    /// Before those that wait and are not urgent, after urgent ones.
    Urgent,
    /// After all that was sent before, urgent or not.
    Last,
}

/// How a fragment travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// In one datagram.
    Whole,
    /// In chunks, as the fragment of this id.
    Chunks(u32),
    /// In pieces that belong to this landing.
    Put(u32),
}

/// What the user sends or puts.
///
/// # Invariants
///
/// `left` segments of the first `cut` bytes are not acked. Once all is cut, no segment is added; with the last one that is acked the
/// fragment has ended.
#[derive(Debug)]
pub(super) struct Fragment<S> {
    source: S,
    tag: u64,
    len: u64,
    /// What has been cut into segments so far.
    cut: u64,
    /// Segments not acked.
    left: u32,
    form: Form,
    priority: Priority,
}

/// All fragments of an endpoint.
pub(super) type Fragments<S> = Slab<Fragment<S>>;

/// What was sent or put, and is not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) tag: u64,
    /// One by [`Endpoint::send`](super::Endpoint::send) that was not urgent.
    pub(super) in_order: bool,
}

impl<S> Fragment<S> {
    fn new(source: S, len: u64, tag: u64, form: Form, priority: Priority) -> Self {
        Self {
            source,
            tag,
            len,
            cut: 0,
            left: 0,
            form,
            priority,
        }
    }

    /// A message whose datagrams have at most `mtu` bytes. `ids` give it one if it needs several.
    pub(super) fn message(
        source: S,
        len: u64,
        tag: u64,
        priority: Priority,
        mtu: usize,
        ids: &mut Ids,
    ) -> Self {
        let form = if len <= (mtu - HEAD) as u64 {
            Form::Whole
        } else {
            Form::Chunks(ids.fragment())
        };
        Self::new(source, len, tag, form, priority)
    }

    /// A put.
    pub(super) fn put(landing: u32, source: S, len: u64, tag: u64, priority: Priority) -> Self {
        Self::new(source, len, tag, Form::Put(landing), priority)
    }

    /// What the user calls it, if nothing is to be sent of it: it is an empty put.
    pub(super) fn is_nothing(&self) -> Option<u64> {
        let nothing = matches!(self.form, Form::Put(_)) && self.len == 0;
        nothing.then_some(self.tag)
    }

    pub(super) fn priority(&self) -> Priority {
        self.priority
    }

    /// Whether it is a message that fits a datagram of `mtu` bytes.
    #[inline]
    pub(super) fn is_tiny(&self, mtu: usize) -> bool {
        !matches!(self.form, Form::Put(_)) && self.len <= (mtu - HEAD) as u64
    }

    /// Whether there is nothing more to be cut.
    pub(super) fn is_cut(&self) -> bool {
        // Of an empty one its only segment tells.
        self.cut >= self.len && (self.len > 0 || self.left > 0)
    }

    /// Cuts the next piece for datagrams of at most `mtu` bytes off this fragment, whose key is `key`.
    pub(super) fn cut(&mut self, key: u32, mtu: usize) -> Piece {
        let offset = self.cut;
        let (kind, head) = match self.form {
            Form::Whole => (Kind::Fragment, HEAD),
            Form::Chunks(id) => {
                let (size, offset) = (self.len as u32, offset as u32);
                (Kind::Chunk { id, size, offset }, HEAD + EXTRA)
            }
            Form::Put(landing) => (Kind::Put { landing, offset }, HEAD + EXTRA),
        };
        let len = (self.len - offset).min((mtu - head) as u64);
        self.cut += len;
        self.left += 1;
        Piece {
            fragment: key,
            offset,
            len: len as u32,
            kind,
        }
    }

    /// A segment of it is gone; whether that was the last one.
    #[inline]
    pub(super) fn segment_gone(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && self.cut >= self.len
    }

    pub(super) fn ended(&self) -> Ended {
        Ended {
            tag: self.tag,
            in_order: !matches!(self.form, Form::Put(_)) && self.priority != Priority::Urgent,
        }
    }
}

impl<S: Source> Fragment<S> {
    /// Copies the bytes from `offset` on.
    #[inline]
    pub(super) fn fill(&self, offset: u64, to: &mut [u8]) {
        self.source.fill(offset, to);
    }
}

/// Numbers for what is sent to a peer, and for what it is to put.
///
/// # Invariants
///
/// Each is another one until 32 bits come round. No landing has the number 0.
#[derive(Debug)]
pub(super) struct Ids {
    fragment: u32,
    landing: u32,
}

impl Default for Ids {
    fn default() -> Self {
        Self {
            fragment: 1,
            landing: 1,
        }
    }
}

impl Ids {
    fn fragment(&mut self) -> u32 {
        let id = self.fragment;
        self.fragment = id.wrapping_add(1);
        id
    }

    pub(super) fn landing(&mut self) -> u32 {
        let landing = self.landing;
        self.landing = landing.wrapping_add(1).max(1);
        landing
    }
}

/// Fragments of a peer with something that was not sent yet.
///
/// # Invariants
///
/// * Each queue is in the order in which its fragments were sent by the user.
/// * `overtaken` urgent ones have gone before the first that is not; it is 0 while none such waits.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    in_order: VecDeque<u32>,
    urgent: VecDeque<u32>,
    overtaken: u8,
}

impl Waiting {
    /// Adds a fragment.
    pub(super) fn push(&mut self, key: u32, priority: Priority) {
        if priority == Priority::Urgent {
            self.urgent.push_back(key);
        } else {
            self.in_order.push_back(key);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.in_order.is_empty() && self.urgent.is_empty()
    }

    /// Urgent ones.
    #[inline]
    pub(super) fn urgent(&self) -> u32 {
        self.urgent.len() as u32
    }

    /// The fragment whose turn it is, if `overtake` urgent ones may go before one that is not [`Priority::Last`].
    #[inline]
    pub(super) fn next<S>(&self, fragments: &Fragments<S>, overtake: u8) -> Option<u32> {
        let next = self.in_order.front();
        let next_is_last = || {
            let next = next.and_then(|key| fragments.get(*key as usize));
            next.is_none_or(|fragment| fragment.priority == Priority::Last)
        };
        let pass = self.overtaken < overtake || next_is_last();
        let urgent = self.urgent.front();
        urgent.filter(|_| pass).or(next).or(urgent).copied()
    }

    /// All of a fragment whose turn it was has been cut.
    pub(super) fn pop(&mut self, key: u32) {
        if self.urgent.front() == Some(&key) {
            self.urgent.pop_front();
            if !self.in_order.is_empty() {
                self.overtaken = self.overtaken.saturating_add(1);
            }
        } else {
            self.in_order.pop_front();
            self.overtaken = 0;
        }
    }

    /// Takes all of them, urgent ones first, of a peer that is gone.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u32> {
        self.overtaken = 0;
        self.urgent.drain(..).chain(self.in_order.drain(..))
    }

    /// Bytes behind it.
    pub(super) fn bytes(&self) -> usize {
        (self.in_order.capacity() + self.urgent.capacity()) * 4
    }

    pub(super) fn shrink(&mut self) {
        self.in_order.shrink_to(KEEP);
        self.urgent.shrink_to(KEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: usize = 64;

    fn message(ids: &mut Ids, len: u64, priority: Priority) -> Fragment<Vec<u8>> {
        Fragment::message(vec![7; len as usize], len, 5, priority, MTU, ids)
    }

    /// Cuts all of it: the kind, offset and length of each piece.
    fn pieces(fragment: &mut Fragment<Vec<u8>>) -> Vec<(Kind, u64, u32)> {
        let mut all = Vec::new();
        while !fragment.is_cut() {
            let Piece {
                fragment: key,
                offset,
                len,
                kind,
            } = fragment.cut(9, MTU);
            assert_eq!(key, 9);
            all.push((kind, offset, len));
        }
        all
    }

    #[test]
    fn what_fits_is_one_piece_and_what_does_not_is_chunks_of_one_id() {
        let mut ids = Ids::default();
        for len in [0, 1, 48] {
            let mut fits = message(&mut ids, len, Priority::InOrder);
            assert_eq!(pieces(&mut fits), [(Kind::Fragment, 0, len as u32)]);
        }
        for id in [1, 2] {
            let mut long = message(&mut ids, 49, Priority::InOrder);
            let chunk = |offset| Kind::Chunk {
                id,
                size: 49,
                offset,
            };
            assert_eq!(pieces(&mut long), [(chunk(0), 0, 36), (chunk(36), 36, 13)]);
        }
    }

    #[test]
    fn a_put_has_the_room_of_a_chunk_and_an_empty_one_is_nothing() {
        let put = |len| Fragment::put(3, vec![1; len], len as u64, 5, Priority::Urgent);
        let piece = |offset| Kind::Put { landing: 3, offset };
        assert_eq!(
            pieces(&mut put(40)),
            [(piece(0), 0, 36), (piece(36), 36, 4)]
        );
        assert_eq!((put(0).is_nothing(), put(1).is_nothing()), (Some(5), None));
        assert!(!put(1).is_tiny(MTU));
        let empty = message(&mut Ids::default(), 0, Priority::InOrder);
        assert_eq!(empty.is_nothing(), None);
        assert!(empty.is_tiny(HEAD));
    }

    #[test]
    fn a_fragment_ends_with_its_last_segment_and_not_while_some_is_to_be_cut() {
        let mut long = message(&mut Ids::default(), 100, Priority::InOrder);
        long.cut(0, MTU);
        assert!(!long.segment_gone(), "64 bytes are to be cut");
        long.cut(0, MTU);
        long.cut(0, MTU);
        assert!(!long.segment_gone());
        assert!(long.segment_gone());
        assert_eq!(
            long.ended(),
            Ended {
                tag: 5,
                in_order: true
            }
        );
        let urgent = message(&mut Ids::default(), 1, Priority::Urgent);
        assert!(!urgent.ended().in_order);
    }

    #[test]
    fn landings_never_have_the_number_0() {
        let mut ids = Ids {
            fragment: u32::MAX,
            landing: u32::MAX,
        };
        assert_eq!([ids.landing(), ids.landing()], [u32::MAX, 1]);
        assert_eq!([ids.fragment(), ids.fragment()], [u32::MAX, 0]);
    }

    /// Takes `count` fragments of a byte in their turn: their keys.
    fn turns(
        waiting: &mut Waiting,
        all: &Fragments<Vec<u8>>,
        overtake: u8,
        count: usize,
    ) -> Vec<u32> {
        let next = || {
            let key = waiting.next(all, overtake)?;
            waiting.pop(key);
            Some(key)
        };
        std::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn so_many_urgent_ones_go_before_one_that_is_not() {
        let (mut all, mut waiting) = (Fragments::new(), Waiting::default());
        let mut ids = Ids::default();
        for n in 0..8 {
            let urgent = n >= 2;
            let priority = [Priority::InOrder, Priority::Urgent][usize::from(urgent)];
            let key = all.insert(message(&mut ids, 1, priority)) as u32;
            waiting.push(key, priority);
        }
        assert_eq!(waiting.urgent(), 6);
        assert_eq!(turns(&mut waiting, &all, 2, 6), [2, 3, 0, 4, 5, 1]);
        assert_eq!(waiting.overtaken, 0);
        assert_eq!(turns(&mut waiting, &all, 2, 6), [6, 7]);
        assert!(waiting.is_empty());
        assert_eq!(waiting.overtaken, 0, "nothing was overtaken by those");
    }

    #[test]
    fn the_last_one_waits_for_all_urgent_ones() {
        let (mut all, mut waiting) = (Fragments::new(), Waiting::default());
        let mut ids = Ids::default();
        for priority in [Priority::Last, Priority::Urgent, Priority::Urgent] {
            let key = all.insert(message(&mut ids, 1, priority)) as u32;
            waiting.push(key, priority);
        }
        assert_eq!(turns(&mut waiting, &all, 1, 6), [1, 2, 0]);
        let urgent = all.insert(message(&mut ids, 1, Priority::Urgent)) as u32;
        waiting.push(urgent, Priority::Urgent);
        assert_eq!(turns(&mut waiting, &all, 0, 1), [urgent], "it is alone");
        waiting.push(0, Priority::Last);
        waiting.push(urgent, Priority::Urgent);
        assert_eq!(waiting.drain().collect::<Vec<_>>(), [urgent, 0]);
    }
}
