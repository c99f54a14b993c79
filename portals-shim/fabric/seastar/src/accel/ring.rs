//! Event queues in host memory: the firmware writes 128-byte records, the process reads them and
//! tells nobody.
//!
//! ```text
//!   n-th event of a queue of c ──► entry n mod c, with sequence number first + n
//!
//!   the reader's entry holds  the number it expects   an event
//!                             an older one, or none   no event yet
//!                             a later one             it was lapped: the oldest event left is the
//!                                                     first entry, going on from there, that does
//!                                                     not continue the numbers
//! ```

use super::super::memory::NodeMemory;
use firmware_sim::accel::wire;
use nic_model::defs::accel::{EVENT_LEN, EventRecord};
use portals_core::{EqHandle, Event, UnreadEvents};
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// An event, and whether events before it were lost.
pub(super) type Seen = Option<(Event, bool)>;

/// One queue as its reader knows it.
#[derive(Clone, Copy, Debug)]
struct Ring {
    base: u64,
    count: u64,
    /// Sequence number of entry 0 of the first round.
    first: u32,
    /// Events read or lost.
    read: u64,
    /// Nobody may read it any more.
    retired: bool,
}

impl Ring {
    fn number(&self, n: u64) -> u32 {
        self.first.wrapping_add(n as u32)
    }

    fn entry(&self, n: u64, memory: &mut NodeMemory) -> Option<Event> {
        let at = self.base + EVENT_LEN * (n % self.count);
        let bytes = memory.area(at, EVENT_LEN as usize)?;
        wire::event_of(&EventRecord::read_from_bytes(bytes).ok()?)
    }

    /// Events that came after the reader's entry and before the oldest one left.
    fn lost(&self, memory: &mut NodeMemory) -> u64 {
        let Some(here) = self.entry(self.read, memory) else {
            return 0;
        };
        let ahead = here.sequence.wrapping_sub(self.number(self.read));
        if ahead == 0 || ahead.cast_signed() < 0 {
            return 0;
        }
        // Entries from here on continue the numbers up to the newest event; the next one is the
        // oldest. The newest is `last` entries further.
        let (mut low, mut high) = (0, self.count);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let continues = self
                .entry(self.read + middle, memory)
                .is_some_and(|event| event.sequence == here.sequence.wrapping_add(middle as u32));
            if continues {
                low = middle;
            } else {
                high = middle;
            }
        }
        // The newest event has number here + low; the queue holds the last `count`.
        u64::from(ahead) + low + 1 - self.count
    }

    fn peek(&self, memory: &mut NodeMemory) -> (u64, Seen) {
        let lost = self.lost(memory);
        let at = self.read + lost;
        let event = self
            .entry(at, memory)
            .filter(|event| event.sequence == self.number(at));
        (lost, event.map(|event| (event, lost > 0)))
    }
}

/// All queues of a process.
#[derive(Debug, Default)]
pub(super) struct Rings(BTreeMap<EqHandle, Ring>);

impl Rings {
    /// A queue has been made.
    pub(super) fn insert(&mut self, eq: EqHandle, base: u64, count: u64, first: u32) {
        let ring = Ring {
            base,
            count,
            first,
            read: 0,
            retired: false,
        };
        self.0.insert(eq, ring);
    }

    /// A queue has been freed; where it was.
    pub(super) fn remove(&mut self, eq: EqHandle) -> Option<u64> {
        self.0.remove(&eq).map(|ring| ring.base)
    }

    /// A queue is to be none, and the firmware still has it.
    pub(super) fn retire(&mut self, eq: EqHandle) {
        if let Some(ring) = self.0.get_mut(&eq) {
            ring.retired = true;
        }
    }

    /// Whether the handle names a queue.
    pub(super) fn is_queue(&self, eq: EqHandle) -> bool {
        self.0.get(&eq).is_some_and(|ring| !ring.retired)
    }

    /// The oldest event; the outer `None` for a queue that is not one.
    pub(super) fn peek(&self, eq: EqHandle, memory: &mut NodeMemory) -> Option<Seen> {
        let ring = self.0.get(&eq).filter(|ring| !ring.retired)?;
        Some(ring.peek(memory).1)
    }

    /// The same, and the event is read.
    pub(super) fn take(&mut self, eq: EqHandle, memory: &mut NodeMemory) -> Option<Seen> {
        let ring = self.0.get_mut(&eq).filter(|ring| !ring.retired)?;
        let (lost, seen) = ring.peek(memory);
        if seen.is_some() {
            ring.read += lost + 1;
        }
        Some(seen)
    }

    /// Number of the first event that has not been read.
    pub(super) fn next(&self, eq: EqHandle) -> Option<u32> {
        self.0.get(&eq).map(|ring| ring.number(ring.read))
    }

    /// Everything that has not been read, for the keeper of the queues from now on.
    pub(super) fn unread(&mut self, memory: &mut NodeMemory) -> Vec<UnreadEvents> {
        let eqs: Vec<EqHandle> = self.0.keys().copied().collect();
        let mut all = Vec::new();
        for eq in eqs {
            let (mut events, mut lost) = (Vec::new(), false);
            while let Some(Some((event, dropped))) = self.take(eq, memory) {
                events.push(event);
                lost |= dropped;
            }
            all.push(UnreadEvents { eq, events, lost });
        }
        all
    }

    /// Where all of them are.
    pub(super) fn areas(&self) -> impl Iterator<Item = u64> {
        self.0.values().map(|ring| ring.base)
    }
}
