//! The event queue: earliest first, and among equals in the order they were scheduled.
//!
//! A wheel of 4096 slots of 1.024 ns holds the next 4.2 µs, where nearly everything happens; what
//! is later waits in a heap and moves to the wheel as the wheel turns.
//!
//! ```text
//!              cursor                    cursor + 4096
//!   present ──────┬──┬──┬──┬──┬──┬──┬──┬──────┐
//!   (sorted)      │  │  │▓▓│  │▓ │  │  │ slots │   far: heap by (time, order)
//!                 └──┴──┴──┴──┴──┴──┴──┴──────┘
//! ```
//!
//! # Invariants
//!
//! * `present` holds the events of the slot under the cursor, sorted by time; equal times in the
//!   order of their scheduling. Only it is read.
//! * A slot's list holds events of that slot's turn only, in the order of their scheduling.
//! * No event in `far` is within the wheel: whenever the cursor moves, those it brings within
//!   reach are moved before anything new can be scheduled. Hence an event scheduled directly is
//!   always behind those of equal time that waited in `far`.
//! * `next_time` is the earliest time of all, [`SimTime::NEVER`] when there is none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::SimTime;
use crate::topology::NodeId;

/// What happens at an instant. Packets and posted writes are named by their slab index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet's head is at the crossbar of a router, from an input queue.
    Router {
        node: NodeId,
        input: u8,
        packet: u32,
    },
    /// An output of a router may have something to send.
    Output { node: NodeId, port: u8 },
    /// A packet has come through the node port.
    Delivered { node: NodeId, packet: u32 },
    /// The transmit engine has its next burst.
    TxStep { node: NodeId },
    /// The receive engine has finished a packet.
    RxStep { node: NodeId },
    /// A doorbell has crossed HyperTransport.
    Doorbell {
        node: NodeId,
        mailbox: u32,
        index: u32,
    },
    /// The embedded processor has finished a piece of work.
    Work { node: NodeId },
    /// A timer of the firmware.
    Alarm { node: NodeId, token: u64 },
    /// A posted write has crossed HyperTransport.
    HostWrite { node: NodeId, write: u32 },
    /// An interrupt message has crossed HyperTransport.
    Interrupt { node: NodeId },
    /// A stopped node's silence has lasted long enough.
    NodeFailed { node: NodeId },
}

const SLOT_BITS: u32 = 10;
const SLOTS: u64 = 4096;
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    time: SimTime,
    event: Event,
    /// The next of its slot, or of the free list.
    next: u32,
}

/// Time, order of scheduling, entry: what is beyond the wheel.
type Far = Reverse<(SimTime, u64, u32)>;

/// The queue.
#[derive(Debug)]
pub(crate) struct EventQueue {
    entries: Vec<Entry>,
    free: u32,
    /// First and last entry of each slot.
    slots: Box<[(u32, u32)]>,
    /// A bit for each slot that is not empty.
    occupied: [u64; (SLOTS / 64) as usize],
    /// A bit for each word of `occupied` that is not zero.
    summary: u64,
    /// The slot that `present` is of, counted from time zero.
    cursor: u64,
    /// Latest first.
    present: Vec<(SimTime, u32, Event)>,
    far: BinaryHeap<Far>,
    far_order: u64,
    next_time: SimTime,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            slots: vec![(NONE, NONE); SLOTS as usize].into_boxed_slice(),
            occupied: [0; (SLOTS / 64) as usize],
            summary: 0,
            cursor: 0,
            present: Vec::new(),
            far: BinaryHeap::new(),
            far_order: 0,
            next_time: SimTime::NEVER,
        }
    }
}

impl EventQueue {
    /// Schedules an event, not earlier than the last that was taken.
    pub(crate) fn push(&mut self, time: SimTime, event: Event) {
        self.next_time = self.next_time.min(time);
        let slot = time.0 >> SLOT_BITS;
        if slot <= self.cursor {
            // Latest first, and behind (that is, before in the list) those of equal time.
            let at = self.present.partition_point(|e| e.0 > time);
            self.present.insert(at, (time, 0, event));
        } else {
            let index = self.entry(time, event);
            if slot - self.cursor < SLOTS {
                self.append(slot, index);
            } else {
                self.far.push(Reverse((time, self.far_order, index)));
                self.far_order += 1;
            }
        }
    }

    fn entry(&mut self, time: SimTime, event: Event) -> u32 {
        let entry = Entry {
            time,
            event,
            next: NONE,
        };
        if self.free == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.entries[index as usize].next;
            self.entries[index as usize] = entry;
            index
        }
    }

    fn append(&mut self, slot: u64, index: u32) {
        let at = (slot % SLOTS) as usize;
        let (first, last) = self.slots[at];
        if first == NONE {
            self.slots[at] = (index, index);
            self.occupied[at / 64] |= 1 << (at % 64);
            self.summary |= 1 << (at / 64);
        } else {
            self.entries[last as usize].next = index;
            self.slots[at].1 = index;
        }
    }

    /// Takes the earliest event.
    pub(crate) fn pop(&mut self) -> Option<(SimTime, Event)> {
        if self.present.is_empty() {
            self.turn()?;
        }
        let (time, _, event) = self.present.pop()?;
        self.next_time = match self.present.last() {
            Some(next) => next.0,
            None => self.earliest_beyond(),
        };
        Some((time, event))
    }

    /// When the next event happens.
    pub(crate) fn next_time(&self) -> Option<SimTime> {
        (self.next_time != SimTime::NEVER).then_some(self.next_time)
    }

    /// The first slot after the cursor that is not empty.
    fn next_slot(&self) -> Option<u64> {
        if self.summary == 0 {
            return None;
        }
        let start = (self.cursor + 1) % SLOTS;
        let (word, bit) = ((start / 64) as usize, start % 64);
        let here = self.occupied[word] & (u64::MAX << bit);
        let at = if here != 0 {
            word as u64 * 64 + u64::from(here.trailing_zeros())
        } else {
            // Words behind this one, then round to the words up to and including it.
            let behind = self.summary & u64::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
            let words = if behind != 0 { behind } else { self.summary };
            let word = words.trailing_zeros() as usize;
            word as u64 * 64 + u64::from(self.occupied[word].trailing_zeros())
        };
        Some(self.cursor + 1 + (at + SLOTS - start) % SLOTS)
    }

    /// The earliest time in the wheel or beyond it.
    fn earliest_beyond(&self) -> SimTime {
        let Some(slot) = self.next_slot() else {
            return match self.far.peek() {
                Some(Reverse((time, _, _))) => *time,
                None => SimTime::NEVER,
            };
        };
        let mut index = self.slots[(slot % SLOTS) as usize].0;
        let mut earliest = SimTime::NEVER;
        while index != NONE {
            let entry = &self.entries[index as usize];
            earliest = earliest.min(entry.time);
            index = entry.next;
        }
        earliest
    }

    /// Moves the cursor to the next slot that is not empty, and its events to `present`.
    fn turn(&mut self) -> Option<()> {
        let slot = match self.next_slot() {
            Some(slot) => slot,
            None => self.far.peek()?.0.0.0 >> SLOT_BITS,
        };
        self.cursor = slot;
        while let Some(&Reverse((time, _, index))) = self.far.peek() {
            let far = time.0 >> SLOT_BITS;
            if far - self.cursor >= SLOTS {
                break;
            }
            self.far.pop();
            self.append(far, index);
        }
        let at = (slot % SLOTS) as usize;
        let mut index = self.slots[at].0;
        self.slots[at] = (NONE, NONE);
        self.occupied[at / 64] &= !(1 << (at % 64));
        if self.occupied[at / 64] == 0 {
            self.summary &= !(1 << (at / 64));
        }
        let mut order = 0;
        let mut sorted = true;
        while index != NONE {
            let entry = &mut self.entries[index as usize];
            let next = entry.next;
            entry.next = self.free;
            self.free = index;
            let (time, event) = (entry.time, entry.event);
            sorted &= self.present.last().is_none_or(|last| last.0 <= time);
            self.present.push((time, order, event));
            order += 1;
            index = next;
        }
        if sorted {
            self.present.reverse();
        } else {
            self.present
                .sort_unstable_by_key(|&(time, order, _)| Reverse((time, order)));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::SplitMix;

    #[test]
    fn equal_times_keep_their_order() {
        let mut queue = EventQueue::default();
        for node in 0..100u16 {
            queue.push(
                SimTime(u64::from(node % 3)),
                Event::Work { node: NodeId(node) },
            );
        }
        let mut last = (SimTime::ZERO, None);
        while let Some((time, Event::Work { node })) = queue.pop() {
            assert!((time, Some(node)) > last);
            last = (time, Some(node));
        }
        assert_eq!(last, (SimTime(2), Some(NodeId(98))));
    }

    #[test]
    fn agrees_with_a_sorted_list_seed_1_to_20() {
        for seed in 1..=20 {
            let mut random = SplitMix::new(seed);
            let mut queue = EventQueue::default();
            let mut list: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for token in 0..20_000u64 {
                // Bursts of equal times, near and far ones, and gaps of idle time.
                if random.below(100) < 52 || list.is_empty() {
                    let delay = match random.below(6) {
                        0 => 0,
                        1 => random.below(2_000),
                        2 => 27_000,
                        3 => random.below(60) * 1_000,
                        4 => random.below(9_000_000),
                        _ => 55_000,
                    } * if random.below(500) == 0 { 1_000 } else { 1 };
                    let node = NodeId(0);
                    queue.push(SimTime(now + delay), Event::Alarm { node, token });
                    list.push((now + delay, token));
                } else {
                    let at = (0..list.len()).min_by_key(|&n| list[n]).unwrap();
                    let (time, token) = list.remove(at);
                    assert_eq!(queue.next_time(), Some(SimTime(time)), "seed {seed}");
                    let node = NodeId(0);
                    assert_eq!(
                        queue.pop(),
                        Some((SimTime(time), Event::Alarm { node, token })),
                        "seed {seed}"
                    );
                    now = time;
                }
            }
        }
    }
}
