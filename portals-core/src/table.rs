//! Slots for objects that handles name, and for operations under way.

use alloc::vec::Vec;

const MIN_SLOTS: usize = 256;
const MAX_SLOTS: usize = 1 << crate::handle::SLOT_BITS;

/// Slots with generations, reused in first-in first-out order.
///
/// A slot is reused only after [`MIN_SLOTS`] slots exist and all earlier freed ones were reused, so
/// a stale handle stays recognisable for at least `MIN_SLOTS × GENERATIONS` allocations, 262,144.
///
/// Whoever frees objects comes to use all of these slots, so the first one that is freed makes room for [`MIN_SLOTS`]:
/// no object needs memory after that, until more exist at a time.
///
/// Generations stand apart from the values: whoever knows that a slot is current ([`Table::at`])
/// touches the value alone, and a value may fill a cache line.
#[derive(Debug)]
pub(crate) struct Table<T> {
    values: Vec<Option<T>>,
    generations: Vec<u16>,
    /// Of a free slot: the one that was freed after it, if there is such a one.
    after: Vec<u32>,
    /// Of the free slots the one that was freed first and the one that was freed last; they mean nothing while all are taken.
    first_free: u32,
    last_free: u32,
    len: usize,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self {
            values: Vec::new(),
            generations: Vec::new(),
            after: Vec::new(),
            first_free: 0,
            last_free: 0,
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// `None` when all 131,072 slots are taken.
    pub(crate) fn insert(&mut self, value: T) -> Option<(u32, u16)> {
        self.insert_with(|| value)
    }

    /// Inserts what `make` makes, where it stays.
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce() -> T) -> Option<(u32, u16)> {
        let slots = self.values.len();
        let slot = if slots >= MIN_SLOTS && self.len < slots {
            let slot = self.first_free;
            self.first_free = *self.after.get(slot as usize)?;
            slot
        } else {
            self.grow()?
        };
        let place = self.values.get_mut(slot as usize)?;
        *place = Some(make());
        self.len += 1;
        Some((slot, self.generation(slot)))
    }

    /// A slot that never held anything.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        let slot = self.values.len();
        if slot == MAX_SLOTS {
            return None;
        }
        self.values.push(None);
        self.generations.push(0);
        self.after.push(0);
        Some(slot as u32)
    }

    #[inline]
    fn is_current(&self, key: (u32, u16)) -> bool {
        self.generations.get(key.0 as usize) == Some(&key.1)
    }

    #[inline]
    pub(crate) fn get(&self, key: (u32, u16)) -> Option<&T> {
        self.is_current(key).then(|| self.at(key.0)).flatten()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: (u32, u16)) -> Option<&mut T> {
        self.is_current(key).then(|| self.at_mut(key.0)).flatten()
    }

    /// The value in a slot that the caller knows to be the current one.
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<&T> {
        self.values.get(slot as usize)?.as_ref()
    }

    /// The value in a slot that is in use, to be changed; see [`Table::at`].
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.values.get_mut(slot as usize)?.as_mut()
    }

    /// All values.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().flatten()
    }

    /// The generation of a slot, 0 for one that does not exist.
    #[inline]
    pub(crate) fn generation(&self, slot: u32) -> u16 {
        self.generations.get(slot as usize).copied().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: (u32, u16)) -> Option<T> {
        if !self.is_current(key) {
            return None;
        }
        let value = self.values.get_mut(key.0 as usize)?.take()?;
        self.let_go(key.0);
        Some(value)
    }

    /// Removes the value in a slot that the caller knows to be in use, for whoever has no use for it any
    /// more.
    #[inline(always)]
    pub(crate) fn free(&mut self, slot: u32) {
        if let Some(value) = self.values.get_mut(slot as usize) {
            *value = None;
            self.let_go(slot);
        }
    }

    /// The slot, whose value is gone, is free.
    #[inline(always)]
    fn let_go(&mut self, slot: u32) {
        let generation = &mut self.generations[slot as usize];
        *generation = (*generation + 1) % crate::handle::GENERATIONS;
        if self.after.capacity() < MIN_SLOTS {
            self.make_room();
        }
        if self.len == self.values.len() {
            self.first_free = slot;
        } else {
            self.after[self.last_free as usize] = slot;
        }
        self.last_free = slot;
        self.len -= 1;
    }

    /// For so many slots as there will be.
    #[cold]
    fn make_room(&mut self) {
        let missing = MIN_SLOTS.saturating_sub(self.values.len());
        self.values.reserve_exact(missing);
        self.generations.reserve_exact(missing);
        self.after.reserve_exact(missing);
    }

    /// The place of what is kept beside the value of `slot`, in its column, which has room for as many as the table; with
    /// something old there, or `blank`.
    #[inline(always)]
    pub(crate) fn beside<'a, U>(
        &self,
        column: &'a mut Vec<U>,
        slot: u32,
        blank: fn() -> U,
    ) -> Option<&'a mut U> {
        if slot as usize >= column.len() {
            self.lengthen(column, blank);
        }
        column.get_mut(slot as usize)
    }

    /// Slots come to be used one after the other.
    #[cold]
    fn lengthen<U>(&self, column: &mut Vec<U>, blank: fn() -> U) {
        column.reserve_exact(self.values.capacity() - column.len());
        column.push(blank());
    }

    pub(crate) fn clear(&mut self) {
        for slot in 0..self.values.len() as u32 {
            self.remove((slot, self.generation(slot)));
        }
    }
}

/// Slots that are reused at once, so that they stay in the cache; for keys that come back exactly
/// once. A key is recognised as stale until its slot has been reused [`Pool::LIVES`] times.
///
/// Values are written where they stay ([`Pool::take`]) and left there when they are freed.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    slots: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    life: u16,
    used: bool,
    value: T,
}

impl<T> Pool<T> {
    /// What fits beside the bits of a slot in 32 bits.
    const LIVES: u16 = 1 << (32 - crate::handle::SLOT_BITS);

    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The largest [`Pool::len`] so far.
    pub(crate) fn most(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= MAX_SLOTS
    }

    /// A key and the place of its value, which holds something old or `blank`; `None` when all
    /// 131,072 slots are taken.
    pub(crate) fn take(&mut self, blank: fn() -> T) -> Option<(u32, &mut T)> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.grow(blank)?,
        };
        let place = self.slots.get_mut(slot as usize)?;
        place.used = true;
        let key = u32::from(place.life) << crate::handle::SLOT_BITS | slot;
        Some((key, &mut place.value))
    }

    #[cold]
    fn grow(&mut self, blank: fn() -> T) -> Option<u32> {
        let slot = self.slots.len();
        (slot < MAX_SLOTS).then(|| {
            self.slots.push(Place {
                life: 0,
                used: false,
                value: blank(),
            });
            slot as u32
        })
    }

    fn place(&self, key: u32) -> Option<&Place<T>> {
        let place = self.slots.get(key as usize % MAX_SLOTS)?;
        let current = u32::from(place.life) == key >> crate::handle::SLOT_BITS;
        (place.used && current).then_some(place)
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        self.place(key).map(|place| &place.value)
    }

    /// The slot of a key that [`Pool::get`] knows is free again.
    pub(crate) fn remove(&mut self, key: u32) {
        let slot = key % MAX_SLOTS as u32;
        if let Some(place) = self.slots.get_mut(slot as usize) {
            place.life = (place.life + 1) % Self::LIVES;
            place.used = false;
            self.free.push(slot);
        }
    }

    pub(crate) fn clear(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].used {
                self.remove(slot as u32);
            }
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

    fn put<T: Default>(p: &mut Pool<T>, value: T) -> Option<u32> {
        let (key, place) = p.take(T::default)?;
        *place = value;
        Some(key)
    }

    #[test]
    fn a_key_of_a_pool_is_good_once() {
        let mut p = Pool::new();
        let first = put(&mut p, 1u8).unwrap();
        let other = put(&mut p, 2).unwrap();
        p.remove(first);
        assert_eq!((p.len(), p.most(), p.get(first)), (1, 2, None));
        for _ in 1..Pool::<u8>::LIVES {
            let next = put(&mut p, 3).unwrap();
            assert_ne!(next, first);
            assert_eq!((p.get(next), p.get(first)), (Some(&3), None));
            p.remove(next);
        }
        assert_eq!(p.get(other), Some(&2));
        p.clear();
        assert_eq!((p.len(), p.get(other)), (0, None));
    }

    #[test]
    fn a_pool_holds_exactly_131072() {
        let mut p = Pool::new();
        for i in 0..131_072u32 {
            assert!(!p.is_full());
            assert_eq!(put(&mut p, i), Some(i));
        }
        assert!(p.is_full() && put(&mut p, 0).is_none());
        p.remove(7);
        assert_eq!(put(&mut p, 0), Some(1 << crate::handle::SLOT_BITS | 7));
    }
}
