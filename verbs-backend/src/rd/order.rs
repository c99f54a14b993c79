//! The receiving window of a peer: which numbers are here, what is kept until its turn comes, and the ack that is due.

use super::window::KEEP;
use std::collections::VecDeque;

/// A segment that has arrived out of order.
#[derive(Debug)]
pub(super) enum Slot {
    Empty,
    /// Nothing is left to be done: it has been placed.
    Placed,
    /// A chunk of so many bytes, in the unfinished fragment of this id.
    Chunk {
        id: u32,
        len: u32,
    },
    Fragment(Vec<u8>),
    Put {
        landing: u32,
        offset: u64,
        data: Vec<u8>,
    },
}

impl Slot {
    const fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// The data that it keeps.
    fn data(&self) -> Option<&Vec<u8>> {
        match self {
            Self::Fragment(data) | Self::Put { data, .. } => Some(data),
            Self::Empty | Self::Placed | Self::Chunk { .. } => None,
        }
    }

    fn len(&self) -> usize {
        self.data().map_or(0, Vec::len)
    }
}

/// Where a number lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Before the window: it was here.
    Before,
    /// So far after the next one that is expected.
    Ahead(u64),
    /// After the window.
    Beyond,
}

/// The numbers of a peer's segments that have arrived.
///
/// # Invariants
///
/// `handed` is not after `next`. All segments between them are in [`Kept`], and the one that is `next` is not.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// The next number expected.
    next: u64,
    /// The next one to be handed up; before `next` only until events have been polled.
    handed: u64,
}

/// Segments of a peer that wait for their turn.
///
/// # Invariants
///
/// * Slots are those of the numbers from [`ReceiveWindow`]'s `handed` on; the last one is not empty.
/// * `bytes` are those of the data in them.
#[derive(Debug, Default)]
pub(super) struct Kept {
    slots: VecDeque<Slot>,
    bytes: usize,
}

impl Kept {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of data that are kept.
    pub(super) const fn held(&self) -> usize {
        self.bytes
    }

    /// Bytes behind it.
    pub(super) fn bytes(&self) -> usize {
        let data = self.slots.iter().filter_map(Slot::data);
        self.slots.capacity() * size_of::<Slot>() + data.map(Vec::capacity).sum::<usize>()
    }

    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to(KEEP);
    }

    fn has(&self, place: usize) -> bool {
        self.slots.get(place).is_some_and(|slot| !slot.is_empty())
    }
}

/// How a segment stands to those that have arrived before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Segments between it and the farthest one so far: they are missing.
    pub(super) missing: u32,
    /// It was missing itself.
    pub(super) fills: bool,
    /// Segments may be handed up now that could not before.
    pub(super) delivers: bool,
}

impl ReceiveWindow {
    pub(super) const fn new(first: u64) -> Self {
        Self {
            next: first,
            handed: first,
        }
    }

    /// The number that is expected next: what an ack says.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Where a number lies in a window of so many.
    #[inline]
    pub(super) fn judge(&self, seq: u64, window: u16) -> Distance {
        match seq.checked_sub(self.next) {
            None => Distance::Before,
            Some(ahead) if ahead >= u64::from(window) => Distance::Beyond,
            Some(ahead) => Distance::Ahead(ahead),
        }
    }

    /// Whether nothing waits to be handed up before the next number.
    #[inline]
    pub(super) const fn is_handed_up(&self) -> bool {
        self.handed == self.next
    }

    /// The next segment is handed up as it arrives; nothing is kept.
    #[inline]
    pub(super) const fn pass(&mut self) {
        self.next += 1;
        self.handed += 1;
    }

    /// Whether the segment of a number after the next is kept.
    #[inline]
    pub(super) fn has(&self, kept: &Kept, seq: u64) -> bool {
        kept.has((seq - self.handed) as usize)
    }

    /// Keeps the segment of a number in the window, which is not here.
    pub(super) fn keep(&mut self, kept: &mut Kept, seq: u64, slot: Slot) -> Arrival {
        let at = (seq - self.handed) as usize;
        let seen = kept.slots.len();
        if seen <= at {
            kept.slots.resize_with(at + 1, || Slot::Empty);
        }
        kept.bytes += slot.len();
        kept.slots[at] = slot;
        // The window moves over all that is here.
        let before = self.next;
        while kept.has((self.next - self.handed) as usize) {
            self.next += 1;
        }
        Arrival {
            missing: at.saturating_sub(seen) as u32,
            fills: at < seen,
            delivers: self.next > before,
        }
    }

    /// The next segment whose turn has come.
    pub(super) fn pop(&mut self, kept: &mut Kept) -> Option<Slot> {
        if self.is_handed_up() {
            return None;
        }
        let slot = kept.slots.pop_front()?;
        kept.bytes -= slot.len();
        self.handed += 1;
        Some(slot)
    }

    /// Writes which segments after the next one are here, a bit each; how many bytes.
    pub(super) fn beyond(&self, kept: &Kept, out: &mut [u8]) -> usize {
        let skip = (self.next - self.handed) as usize + 1;
        let mut len = 0;
        let slots = kept.slots.iter().skip(skip).take(out.len() * 8);
        for (i, slot) in slots.enumerate() {
            let (byte, bit) = (i / 8, i % 8);
            if byte >= len {
                out[len..=byte].fill(0);
                len = byte + 1;
            }
            out[byte] |= u8::from(!slot.is_empty()) << bit;
        }
        len
    }
}

/// When an ack of what has arrived is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckTime {
    /// At once.
    Now,
    /// When something that it can ride on leaves, or a time from now.
    Delayed,
    /// With the one that is due already.
    Due,
}

/// What a peer is to be told of its segments.
///
/// # Invariants
///
/// `received` segments have arrived since the last datagram left that said what is here; one that says nothing new counts, too.
#[derive(Debug, Default)]
pub(super) struct AckDue {
    received: u16,
    /// Segments that have arrived twice, modulo 256.
    repeats: u8,
}

impl AckDue {
    /// Whether the peer is to be told something.
    #[inline]
    pub(super) const fn is_due(&self) -> bool {
        self.received > 0
    }

    /// Segments that have arrived twice, modulo 256.
    #[inline]
    pub(super) const fn repeats(&self) -> u8 {
        self.repeats
    }

    /// A segment has arrived twice.
    #[inline]
    pub(super) const fn repeated(&mut self) {
        self.repeats = self.repeats.wrapping_add(1);
    }

    /// A segment has arrived in its turn, the last one of something long or not.
    #[inline]
    pub(super) const fn receive(&mut self, last: bool, every: u16) -> AckTime {
        self.received = self.received.saturating_add(1);
        if last || self.received >= every {
            AckTime::Now
        } else if self.received == 1 {
            AckTime::Delayed
        } else {
            AckTime::Due
        }
    }

    /// The peer is to be told, whatever has arrived.
    #[inline]
    pub(super) fn demand(&mut self) {
        self.received = self.received.max(1);
    }

    /// A datagram has left that says what is here, or nobody is there to be told.
    #[inline]
    pub(super) const fn sent(&mut self) {
        self.received = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> (ReceiveWindow, Kept) {
        (ReceiveWindow::new(100), Kept::default())
    }

    fn fragment(byte: u8) -> Slot {
        Slot::Fragment(vec![byte; 10])
    }

    /// The first bytes of what is handed up.
    fn handed_up(window: &mut ReceiveWindow, kept: &mut Kept) -> Vec<u8> {
        let next = || window.pop(kept);
        let slots = std::iter::from_fn(next);
        slots
            .map(|slot| slot.data().map_or(0, |data| data[0]))
            .collect()
    }

    #[test]
    fn a_number_lies_before_in_or_after_the_window() {
        let (window, _) = window();
        let judged = [99, 100, 163, 164].map(|seq| window.judge(seq, 64));
        let ahead = Distance::Ahead;
        let expected = [Distance::Before, ahead(0), ahead(63), Distance::Beyond];
        assert_eq!(judged, expected);
    }

    #[test]
    fn segments_are_handed_up_in_order_when_the_gap_is_closed() {
        let (mut window, mut kept) = window();
        for (seq, missing) in [(102, 2), (105, 2), (101, 0)] {
            assert!(!window.has(&kept, seq));
            let arrival = window.keep(&mut kept, seq, fragment(seq as u8));
            assert_eq!((arrival.missing, arrival.delivers), (missing, false));
            assert_eq!(arrival.fills, seq == 101);
            assert!(window.has(&kept, seq));
        }
        assert_eq!((window.next(), kept.held()), (100, 30));
        assert!(window.pop(&mut kept).is_none(), "its turn has not come");
        assert!(window.keep(&mut kept, 100, fragment(100)).delivers);
        assert!(!window.is_handed_up());
        assert_eq!(window.next(), 103);
        assert_eq!(handed_up(&mut window, &mut kept), [100, 101, 102]);
        assert!(window.is_handed_up() && !kept.is_empty());
        assert_eq!(kept.held(), 10);
    }

    #[test]
    fn what_lies_beyond_the_gap_is_told_a_bit_each() {
        let (mut window, mut kept) = window();
        let mut out = [0xff; 4];
        assert_eq!(window.beyond(&kept, &mut out), 0);
        for seq in [101, 103, 110] {
            window.keep(&mut kept, seq, Slot::Placed);
        }
        // Bit 0 is that of number 101.
        assert_eq!(window.beyond(&kept, &mut out), 2);
        assert_eq!(out, [0b101, 0b10, 0xff, 0xff]);
        assert_eq!(window.beyond(&kept, &mut out[..1]), 1);
        // Those before the next number are not told of, handed up or not.
        window.keep(&mut kept, 100, Slot::Placed);
        assert_eq!(window.beyond(&kept, &mut out), 1);
        assert_eq!(out[0], 1 | 1 << 7);
    }

    #[test]
    fn a_segment_in_order_moves_both_numbers() {
        let (mut window, mut kept) = window();
        window.pass();
        assert!(window.is_handed_up());
        assert_eq!(window.judge(100, 64), Distance::Before);
        window.keep(&mut kept, 101, fragment(1));
        assert_eq!(handed_up(&mut window, &mut kept), [1]);
    }

    #[test]
    fn an_ack_waits_for_several_segments_and_not_with_the_last_one() {
        let mut due = AckDue::default();
        let times = [0; 4].map(|_| due.receive(false, 4));
        let (delayed, more, now) = (AckTime::Delayed, AckTime::Due, AckTime::Now);
        assert_eq!(times, [delayed, more, more, now]);
        due.sent();
        assert!(!due.is_due());
        assert_eq!(due.receive(true, 4), now);
        due.sent();
        due.demand();
        assert!(due.is_due());
        assert_eq!(due.receive(false, 4), more, "one is due");
    }

    #[test]
    fn repeated_segments_are_counted_modulo_256() {
        let mut due = AckDue::default();
        for _ in 0..257 {
            due.repeated();
        }
        assert_eq!((due.repeats(), due.is_due()), (1, false));
    }
}
