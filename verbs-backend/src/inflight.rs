//! Buffers that posted requests own, until their completions are polled.
//!
//! A request that owns its buffer has a *ticket* as its id, which says where the buffer is kept:
//!
//! ```text
//!   63  62                              16 15          0
//!  ┌───┬──────────────────────────────────┬─────────────┐
//!  │ 1 │ sequence number of the process   │ slot        │
//!  └───┴──────────────────────────────────┴─────────────┘
//! ```
//!
//! Sequence numbers are not used twice (47 bits last four years at a million requests a second), so that a completion
//! that was kept, or that belongs to another queue, finds nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::buffer::Buffer;

/// Ids with this bit are tickets; callers' own ids must not have it.
pub(crate) const TICKET: u64 = 1 << 63;
const SLOT_BITS: u32 = 16;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// Is `id` a ticket?
#[inline]
pub(crate) fn is_ticket(id: u64) -> bool {
    id & TICKET != 0
}

/// The buffers in flight of one queue, each with the caller's tag.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Slot {
    ticket: u64,
    held: Option<(Buffer, u64)>,
}

impl Inflight {
    /// Keeps `buffer`; gives its ticket, or the buffer back if 65,536 are in flight.
    #[inline]
    pub(crate) fn insert(&mut self, buffer: Buffer, tag: u64) -> Result<u64, Buffer> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => match u16::try_from(self.slots.len()) {
                Ok(slot) => {
                    self.slots.push(Slot {
                        ticket: 0,
                        held: None,
                    });
                    slot
                }
                Err(_) => return Err(buffer),
            },
        };
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed) << SLOT_BITS;
        let ticket = TICKET | sequence | u64::from(slot);
        self.slots[usize::from(slot)] = Slot {
            ticket,
            held: Some((buffer, tag)),
        };
        Ok(ticket)
    }

    /// Gives back what `ticket` stands for, once.
    #[inline]
    pub(crate) fn take(&mut self, ticket: u64) -> Option<(Buffer, u64)> {
        let [low, high, ..] = ticket.to_le_bytes();
        let index = u16::from_le_bytes([low, high]);
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.ticket != ticket {
            return None;
        }
        let held = slot.held.take()?;
        self.free.push(index);
        Some(held)
    }

    /// All that are in flight, in the order in which they were given.
    pub(crate) fn take_all(&mut self) -> Vec<(Buffer, u64)> {
        let mut slots: Vec<Slot> = std::mem::take(&mut self.slots);
        self.free.clear();
        slots.sort_by_key(|slot| slot.ticket);
        slots.into_iter().filter_map(|slot| slot.held).collect()
    }

    /// How many are in flight.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_in_its_own_queue() {
        let pool = crate::buffer::BufferPool::unregistered(4, 64);
        let (mut one, mut other) = (Inflight::default(), Inflight::default());
        let first = one.insert(pool.take().unwrap(), 7).unwrap();
        let second = other.insert(pool.take().unwrap(), 8).unwrap();
        assert!(is_ticket(first) && is_ticket(second));
        assert!(one.take(second).is_none());
        assert!(one.take(first & !TICKET).is_none());
        assert_eq!(one.take(first).map(|(_, tag)| tag), Some(7));
        assert!(one.take(first).is_none());
        let again = one.insert(pool.take().unwrap(), 9).unwrap();
        assert!(
            one.take(first).is_none(),
            "the slot is used again, the ticket is not"
        );
        assert_eq!(one.len(), 1);
        assert_eq!(one.take(again).map(|(_, tag)| tag), Some(9));
    }

    #[test]
    fn a_full_table_gives_the_buffer_back() {
        let pool = crate::buffer::BufferPool::unregistered(65_537, 1);
        let mut table = Inflight::default();
        for _ in 0..65_536 {
            table.insert(pool.take().unwrap(), 0).unwrap();
        }
        assert!(table.insert(pool.take().unwrap(), 0).is_err());
    }
}
