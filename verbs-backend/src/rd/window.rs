//! The sending window of a peer: which numbers are unacked, and how the segment of each stands.
//!
//! ```text
//!   number ─▶ Lost (not sent yet) ─▶ UnderWay ─▶ acked: gone
//!                ▲                      │ ╲
//!                └── overtaken, expired ┘  ─▶ Arrived, beyond a gap ─▶ acked: gone
//! ```
//!
//! Numbers and counts are in [`SendWindow`], which a peer always has. The segments are in [`Unacked`], which it has while
//! something is under way; whatever moves a segment on takes both.

use super::config::Time;
use super::wire::Kind;
use slab::Slab;
use std::collections::VecDeque;

/// Timers that a segment which has not left yet gets, before it is sent again all the same.
const RENEWALS: u8 = 3;
/// Entries that an idle peer's queues keep room for.
pub(super) const KEEP: usize = 64;

/// How a numbered segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    Lost,
    Arrived,
}

/// A numbered segment; its key is its room in the hotel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    peer: u32,
    fragment: u32,
    seq: u64,
    offset: u64,
    len: u32,
    state: State,
    kind: Kind,
    /// Number of its latest transmission to the peer.
    order: u64,
    sent_at: Time,
    sends: u8,
    renewals: u8,
    /// Is still with the adapter.
    posted: bool,
}

/// What a segment carries: `len` bytes of a fragment from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) fragment: u32,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) kind: Kind,
}

/// All segments of an endpoint.
pub(super) type Segments = Slab<Segment>;

impl Segment {
    pub(super) const fn peer(&self) -> u32 {
        self.peer
    }

    pub(super) const fn seq(&self) -> u64 {
        self.seq
    }

    pub(super) const fn piece(&self) -> Piece {
        Piece {
            fragment: self.fragment,
            offset: self.offset,
            len: self.len,
            kind: self.kind,
        }
    }

    /// It was sent more than once.
    pub(super) const fn is_repeated(&self) -> bool {
        self.sends > 1
    }

    /// The round trip, if an ack that arrives at `now` answers its only transmission.
    pub(super) fn round_trip(&self, now: Time) -> Option<Time> {
        let only = self.state == State::UnderWay && self.sends == 1;
        only.then(|| now.saturating_sub(self.sent_at))
    }

    /// The adapter has sent it.
    pub(super) const fn left(&mut self) {
        self.posted = false;
    }

    /// Its timer has run out: whether it gets another one, since it has not left yet.
    pub(super) const fn renew(&mut self) -> bool {
        let renews = self.posted && self.renewals < RENEWALS;
        self.renewals += renews as u8;
        renews
    }
}

/// What an ack's number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckNumber {
    /// Nothing that can be: it was never sent.
    Wrong,
    /// Less than is known.
    Old,
    /// That so many more have arrived.
    News(u64),
}

/// What a timer that has run out means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Nothing: the segment is not under way.
    None,
    /// The segment is lost; the event was counted.
    Same,
    /// The segment is lost, the first one of an event: those sent before this moment that run out later belong to it.
    First,
}

/// The numbers of a peer's window.
///
/// # Invariants
///
/// * `acked` is not after `next`, and as many segments are in [`Unacked`] as lie between them.
/// * `under_way` is how many of these are in that state: sent, not acked, not taken for lost, not beyond a gap.
/// * Transmissions are counted up, and `newest`, one that has arrived, is one of them.
#[derive(Debug)]
pub(super) struct SendWindow {
    /// The next number to be sent, and the oldest unacked one.
    next: u64,
    acked: u64,
    /// Transmissions so far, and the latest of which is known that it arrived.
    order: u64,
    newest: u64,
    /// Expiries of transmissions up to this one belong to one event.
    expired_until: u64,
    under_way: u32,
}

impl SendWindow {
    pub(super) const fn new(first: u64) -> Self {
        Self {
            next: first,
            acked: first,
            order: 0,
            newest: 0,
            expired_until: 0,
            under_way: 0,
        }
    }

    /// The next number to be sent.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// The oldest number that is not acked.
    #[inline]
    pub(super) const fn acked(&self) -> u64 {
        self.acked
    }

    /// Segments that are under way.
    #[inline]
    pub(super) const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Transmissions so far.
    #[inline]
    pub(super) const fn transmissions(&self) -> u64 {
        self.order
    }

    /// Whether one more number may be sent in a window of so many.
    #[inline]
    pub(super) fn is_open(&self, window: u16) -> bool {
        self.next - self.acked < u64::from(window)
    }

    /// Whether all is acked.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.next == self.acked
    }

    /// What an ack says that expects `number` next.
    #[inline]
    pub(super) const fn judge(&self, number: u64) -> AckNumber {
        if number > self.next {
            AckNumber::Wrong
        } else if number < self.acked {
            AckNumber::Old
        } else {
            AckNumber::News(number - self.acked)
        }
    }

    /// Gives a piece for a peer the next number; the segment is to be sent.
    pub(super) fn number(
        &mut self,
        unacked: &mut Unacked,
        segments: &mut Segments,
        peer: u32,
        piece: Piece,
    ) -> u32 {
        let segment = Segment {
            peer,
            fragment: piece.fragment,
            seq: self.next,
            offset: piece.offset,
            len: piece.len,
            state: State::Lost,
            kind: piece.kind,
            order: 0,
            sent_at: 0,
            sends: 0,
            renewals: 0,
            posted: false,
        };
        self.next += 1;
        let at = segments.insert(segment) as u32;
        unacked.sent.push_back(at);
        at
    }

    /// A segment goes to the adapter.
    #[inline]
    pub(super) const fn transmit(&mut self, now: Time, segment: &mut Segment) {
        self.order += 1;
        self.under_way += 1;
        segment.order = self.order;
        segment.state = State::UnderWay;
        segment.sent_at = now;
        segment.sends = segment.sends.saturating_add(1);
        segment.renewals = 0;
        segment.posted = true;
    }

    /// The oldest number is acked: its segment, which is to be removed.
    #[inline]
    pub(super) fn ack_first(&mut self, unacked: &mut Unacked) -> Option<u32> {
        let at = unacked.sent.pop_front()?;
        self.acked += 1;
        if self.is_empty() {
            unacked.lost.clear();
        }
        Some(at)
    }

    /// That segment has arrived; whether that was not known.
    #[inline]
    pub(super) fn acknowledge(&mut self, segment: &Segment) -> bool {
        match segment.state {
            State::UnderWay => {
                self.under_way -= 1;
                self.newest = self.newest.max(segment.order);
                true
            }
            // It was not lost after all.
            State::Lost => true,
            State::Arrived => false,
        }
    }

    /// A segment has arrived beyond a gap; whether that was not known.
    pub(super) fn arrive(&mut self, segment: &mut Segment) -> bool {
        match segment.state {
            State::UnderWay => self.under_way -= 1,
            State::Lost => {}
            State::Arrived => return false,
        }
        segment.state = State::Arrived;
        self.newest = self.newest.max(segment.order);
        true
    }

    /// Takes segments for lost that `limit` later transmissions have overtaken, and says which.
    pub(super) fn find_lost(
        &mut self,
        unacked: &mut Unacked,
        segments: &mut Segments,
        limit: u64,
        mut found: impl FnMut(u32),
    ) {
        for &at in &unacked.sent {
            let Some(segment) = segments.get_mut(at as usize) else {
                continue;
            };
            if segment.state != State::UnderWay {
                continue;
            }
            if segment.order + limit > self.newest {
                // Those behind one that was sent once were all sent after it.
                if segment.sends == 1 {
                    break;
                }
                continue;
            }
            segment.state = State::Lost;
            self.under_way -= 1;
            insert(&mut unacked.lost, segment.seq);
            found(at);
        }
    }

    /// The timer of a segment has run out for good.
    pub(super) fn expire(
        &mut self,
        unacked: Option<&mut Unacked>,
        segment: &mut Segment,
    ) -> Expiry {
        if segment.state != State::UnderWay {
            return Expiry::None;
        }
        segment.state = State::Lost;
        self.under_way -= 1;
        if let Some(unacked) = unacked {
            insert(&mut unacked.lost, segment.seq);
        }
        if segment.order <= self.expired_until {
            return Expiry::Same;
        }
        self.expired_until = self.order;
        Expiry::First
    }

    /// Nothing is waited for any more; whoever calls this drains [`Unacked`].
    pub(super) const fn end(&mut self) {
        self.under_way = 0;
        self.acked = self.next;
    }
}

/// The segments of a window.
///
/// # Invariants
///
/// * Segments stand in the order of their numbers, from [`SendWindow::acked`] on without a gap.
/// * Every lost segment that was sent before is in the list of these, in the order of their numbers. Of those in the list, some may
///   have arrived since.
#[derive(Debug, Default)]
pub(super) struct Unacked {
    sent: VecDeque<u32>,
    lost: VecDeque<u64>,
}

/// Adds a lost number. The earliest goes first: all others wait for it, and it is the one that the receiver has always
/// room for.
fn insert(lost: &mut VecDeque<u64>, seq: u64) {
    let place = match lost.back() {
        Some(last) if *last > seq => lost.partition_point(|s| *s < seq),
        _ => lost.len(),
    };
    lost.insert(place, seq);
}

impl Unacked {
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The segment that is so many after the oldest.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<u32> {
        self.sent.get(place).copied()
    }

    /// The segment of a number.
    #[inline]
    pub(super) fn find(&self, window: &SendWindow, seq: u64) -> Option<u32> {
        self.get(seq.checked_sub(window.acked)? as usize)
    }

    /// The next segment to be sent again; it leaves the list of lost ones.
    pub(super) fn pop_lost(&mut self, window: &SendWindow, segments: &Segments) -> Option<u32> {
        while let Some(seq) = self.lost.pop_front() {
            if let Some(at) = self.find(window, seq)
                && segments
                    .get(at as usize)
                    .is_some_and(|segment| segment.state == State::Lost)
            {
                return Some(at);
            }
        }
        None
    }

    /// Takes all segments, of a peer that is gone.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u32> {
        self.sent.drain(..)
    }

    /// Bytes behind it.
    pub(super) fn bytes(&self) -> usize {
        self.sent.capacity() * 4 + self.lost.capacity() * 8
    }

    pub(super) fn shrink(&mut self) {
        self.sent.shrink_to(KEEP);
        self.lost.shrink_to(KEEP);
    }
}

#[cfg(test)]
mod tests;
