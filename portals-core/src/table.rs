//! Slots with generations, reused in first-in first-out order.
//!
//! A slot is reused only after [`MIN_SLOTS`] slots exist and all earlier freed ones were reused, so
//! a stale handle stays recognisable for at least `MIN_SLOTS × GENERATIONS` allocations, 262,144.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

const MIN_SLOTS: usize = 256;
const MAX_SLOTS: usize = 1 << crate::handle::SLOT_BITS;

#[derive(Debug)]
struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    len: usize,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: VecDeque::new(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// `None` when all 131,072 slots are taken.
    pub(crate) fn insert(&mut self, value: T) -> Option<(u32, u16)> {
        let fresh = self.slots.len() < MIN_SLOTS || self.free.is_empty();
        let slot = if fresh && self.slots.len() < MAX_SLOTS {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        } else {
            self.free.pop_front()?
        };
        let s = &mut self.slots[slot as usize];
        s.value = Some(value);
        self.len += 1;
        Some((slot, s.generation))
    }

    pub(crate) fn get(&self, key: (u32, u16)) -> Option<&T> {
        let s = self.slots.get(key.0 as usize)?;
        if s.generation == key.1 {
            s.value.as_ref()
        } else {
            None
        }
    }

    pub(crate) fn get_mut(&mut self, key: (u32, u16)) -> Option<&mut T> {
        let s = self.slots.get_mut(key.0 as usize)?;
        if s.generation == key.1 {
            s.value.as_mut()
        } else {
            None
        }
    }

    /// The value in a slot that the caller knows to be the current one.
    pub(crate) fn at(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    /// As [`Table::at`].
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// The generation of a slot, 0 for one that does not exist.
    pub(crate) fn generation(&self, slot: u32) -> u16 {
        self.slots.get(slot as usize).map_or(0, |s| s.generation)
    }

    pub(crate) fn remove(&mut self, key: (u32, u16)) -> Option<T> {
        let s = self.slots.get_mut(key.0 as usize)?;
        if s.generation != key.1 {
            return None;
        }
        let value = s.value.take()?;
        s.generation = (s.generation + 1) % crate::handle::GENERATIONS;
        self.free.push_back(key.0);
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn clear(&mut self) {
        for i in 0..self.slots.len() {
            let generation = self.slots[i].generation;
            self.remove((i as u32, generation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_names_nothing_after_ten_thousand_new_objects() {
        let mut t = Table::new();
        let old = t.insert(0u32).unwrap();
        t.remove(old);
        for i in 0..10_000 {
            let k = t.insert(i).unwrap();
            assert_ne!(k, old);
            assert!(t.get(old).is_none());
            t.remove(k);
        }
        assert_eq!(t.len(), 0);
    }

    #[test]
    fn holds_exactly_131072() {
        let mut t = Table::new();
        for i in 0..131_072u32 {
            assert!(t.insert(i).is_some());
        }
        assert!(t.insert(0).is_none());
        t.remove((7, 0));
        assert_eq!(t.insert(0), Some((7, 1)));
    }
}
