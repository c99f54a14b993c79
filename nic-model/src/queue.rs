//! The event queue: earliest first, and among equals in the order they were scheduled.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::time::SimTime;
use crate::topology::NodeId;

/// What happens at an instant. Packets and posted writes are named by their slab index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet's head is at the input of a router.
    Router { node: NodeId, packet: u32 },
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
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    time: SimTime,
    seq: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed, so that the heap's greatest entry is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.seq).cmp(&(self.time, self.seq))
    }
}

/// The queue; `seq` makes the order total, so that equal times never depend on the heap's shape.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    next_seq: u64,
}

impl EventQueue {
    pub(crate) fn push(&mut self, time: SimTime, event: Event) {
        self.heap.push(Entry {
            time,
            seq: self.next_seq,
            event,
        });
        self.next_seq += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(SimTime, Event)> {
        self.heap.pop().map(|entry| (entry.time, entry.event))
    }

    pub(crate) fn next_time(&self) -> Option<SimTime> {
        self.heap.peek().map(|entry| entry.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
