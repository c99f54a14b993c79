//! Operations that the client will synchronise with: explicit handles, and the implicit ones.
//!
//! A message names its operation by slot index, 16 bits of its match bits. Counters grow when a
//! message is about to be injected, never after, so that a completion cannot overtake its start.

/// An operation to synchronise with; take it to `wait` or `try_sync` exactly once.
///
/// A handle that is dropped keeps its slot, one of 65535, until the job ends. An explicit operation that finds none is
/// complete when its call returns.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an operation must be synchronised"]
pub struct Handle(pub(crate) Option<Key>);

impl Handle {
    /// The handle of an operation that was complete when it started.
    pub const DONE: Self = Self(None);

    /// A number that is never 0 for an operation under way, and 0 for [`Handle::DONE`].
    #[inline]
    pub fn into_raw(self) -> u64 {
        self.0.map_or(0, |k| {
            1 << 63 | u64::from(k.generation) << 16 | u64::from(k.index)
        })
    }

    /// The handle of a number of [`Handle::into_raw`]. A number used twice, or made up, names an
    /// operation that counts as complete.
    #[inline]
    pub fn from_raw(raw: u64) -> Self {
        Self((raw != 0).then_some(Key {
            index: raw as u16,
            generation: (raw >> 16) as u32,
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Messages started and not complete.
    puts: u64,
    gets: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    used: bool,
    implicit: bool,
    /// It counts a thread's implicit operations outside of access regions, and is never freed.
    base: bool,
    counts: Counts,
}

#[derive(Debug)]
pub(crate) struct Ops {
    slots: Vec<Slot>,
    /// Free ones of those that have been used and are below [`EXPLICIT`].
    free: Vec<u16>,
    /// Free ones of those that have been used, from [`EXPLICIT`] on.
    spare: Vec<u16>,
    /// What implicit operations count on.
    implicit: Implicit,
    /// Messages of puts whose caller waits for their local completion.
    awaited: u32,
}

/// The implicit operations of one thread of the client.
///
/// Exactly one is in `Ops`; a client of several threads puts that of the thread that calls there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implicit {
    /// Slot of the operations outside of access regions.
    base: u16,
    /// Slot of those that start next: `base`, or that of the access region.
    current: u16,
    region: bool,
}

/// Slot of the implicit operations of the first thread.
const IMPLICIT: u16 = 0;

/// Explicit operations that are left unsynchronised have slots below this. Those from here on are for what ends within its
/// call, for access regions and for threads, so that none of these fails because of a program that waits late.
const EXPLICIT: u16 = u16::MAX - 1024;

impl Ops {
    pub(crate) fn new() -> Self {
        let first = Slot {
            generation: 0,
            used: true,
            implicit: true,
            base: true,
            counts: Counts::default(),
        };
        Self {
            slots: vec![first],
            free: Vec::new(),
            spare: Vec::new(),
            implicit: Implicit {
                base: IMPLICIT,
                current: IMPLICIT,
                region: false,
            },
            awaited: 0,
        }
    }

    /// A message of a put begins whose caller waits for its local completion.
    pub(crate) fn await_local_completion(&mut self) {
        self.awaited += 1;
    }

    /// Such a message is locally complete: it has left, and its memory is free.
    pub(crate) fn locally_complete(&mut self) {
        self.awaited = self.awaited.saturating_sub(1);
    }

    /// Whether all messages are that somebody awaits.
    pub(crate) fn all_locally_complete(&self) -> bool {
        self.awaited == 0
    }

    /// Implicit operations of one more thread; `None` when slots are out.
    pub(crate) fn new_implicit(&mut self) -> Option<Implicit> {
        let base = self.reserve(true)?.index;
        self.slots[usize::from(base)].base = true;
        Some(Implicit {
            base,
            current: base,
            region: false,
        })
    }

    /// Implicit operations count on `other` from here on, which becomes what they counted on.
    pub(crate) fn swap_implicit(&mut self, other: &mut Implicit) {
        std::mem::swap(&mut self.implicit, other);
    }

    /// A slot below [`EXPLICIT`].
    #[inline(always)]
    fn allocate(&mut self, implicit: bool) -> Option<Key> {
        let index = match self.free.pop() {
            Some(i) => i,
            None if self.slots.len() < usize::from(EXPLICIT) => self.grow(),
            None => return None,
        };
        Some(self.occupy(index, implicit))
    }

    /// Any slot.
    fn reserve(&mut self, implicit: bool) -> Option<Key> {
        if let Some(key) = self.allocate(implicit) {
            return Some(key);
        }
        let index = match self.spare.pop() {
            Some(i) => i,
            // The index 0xffff names no operation.
            None if self.slots.len() < usize::from(u16::MAX) => self.grow(),
            None => return None,
        };
        Some(self.occupy(index, implicit))
    }

    fn grow(&mut self) -> u16 {
        let i = self.slots.len() as u16;
        self.slots.push(Slot {
            generation: 0,
            used: false,
            implicit: false,
            base: false,
            counts: Counts::default(),
        });
        i
    }

    #[inline(always)]
    fn occupy(&mut self, index: u16, implicit: bool) -> Key {
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        slot.used = true;
        slot.implicit = implicit;
        slot.counts = Counts::default();
        Key {
            index,
            generation: slot.generation,
        }
    }

    /// The slot of an explicit operation that begins next, if it is a used one.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// A new explicit operation; `None` when the program has left so many unsynchronised that there is no slot.
    #[inline(always)]
    pub(crate) fn explicit(&mut self) -> Option<Key> {
        self.allocate(false)
    }

    /// A new explicit operation where [`Ops::explicit`] has none. Its call does not return before it is complete.
    pub(crate) fn within_call(&mut self) -> Option<Key> {
        self.reserve(false)
    }

    /// Whether the call that started the operation waits for it.
    #[inline]
    pub(crate) fn ends_in_call(key: Key) -> bool {
        key.index >= EXPLICIT
    }

    /// The operation that implicit puts and gets count on now.
    pub(crate) fn implicit(&self) -> Key {
        Key {
            index: self.implicit.current,
            generation: self.slots[usize::from(self.implicit.current)].generation,
        }
    }

    /// Later implicit operations count on a new slot; `None` when one is open or slots are out.
    pub(crate) fn begin_region(&mut self) -> Option<()> {
        if self.implicit.region {
            return None;
        }
        self.implicit.current = self.reserve(true)?.index;
        self.implicit.region = true;
        Some(())
    }

    /// Whether an access region is open.
    pub(crate) fn in_region(&self) -> bool {
        self.implicit.region
    }

    /// The slot of the region that ends.
    pub(crate) fn end_region(&mut self) -> Option<Key> {
        if !self.implicit.region {
            return None;
        }
        let key = self.implicit();
        self.implicit.current = self.implicit.base;
        self.implicit.region = false;
        Some(key)
    }

    /// The access region, if one is open, is nobody's any more; its slot is lost.
    pub(crate) fn abandon_region(&mut self) {
        self.end_region();
    }

    pub(crate) fn is_implicit(&self, key: Key) -> bool {
        self.slots
            .get(usize::from(key.index))
            .is_some_and(|s| s.implicit)
    }

    /// A message of the operation is about to start.
    pub(crate) fn begin(&mut self, key: Key, get: bool) {
        if let Some(s) = self.slots.get_mut(usize::from(key.index)) {
            *(if get {
                &mut s.counts.gets
            } else {
                &mut s.counts.puts
            }) += 1;
        }
    }

    /// A message is complete; `None` if no such message was started.
    pub(crate) fn complete(&mut self, index: u16, get: bool) -> Option<()> {
        let s = self.slots.get_mut(usize::from(index)).filter(|s| s.used)?;
        let count = if get {
            &mut s.counts.gets
        } else {
            &mut s.counts.puts
        };
        *count = count.checked_sub(1)?;
        Some(())
    }

    /// Whether every message is complete; then the slot is free again. Stale keys are complete.
    #[inline]
    pub(crate) fn finish(&mut self, key: Key) -> bool {
        match self.slots.get_mut(usize::from(key.index)) {
            Some(s) if s.used && s.generation == key.generation && !s.base => {
                if s.counts.puts + s.counts.gets > 0 {
                    return false;
                }
                s.used = false;
                match key.index {
                    i if i < EXPLICIT => self.free.push(i),
                    i => self.spare.push(i),
                }
                true
            }
            _ => true,
        }
    }

    /// Whether an explicit operation has this key that was not found complete yet.
    pub(crate) fn is_open(&self, key: Key) -> bool {
        let slot = self.slots.get(usize::from(key.index));
        slot.is_some_and(|s| s.used && s.generation == key.generation && !s.base)
    }

    /// Whether no implicit put (or get) outside access regions is under way.
    pub(crate) fn implicit_done(&self, puts: bool, gets: bool) -> bool {
        self.base_done(self.base(), puts, gets)
    }

    /// The slot of the implicit operations that count now, outside of access regions.
    pub(crate) fn base(&self) -> u16 {
        self.implicit.base
    }

    /// Whether the implicit operations of a slot are complete that [`Ops::base`] gave at an earlier time.
    pub(crate) fn base_done(&self, base: u16, puts: bool, gets: bool) -> bool {
        let counts = self.slots.get(usize::from(base)).map(|s| s.counts);
        counts.is_none_or(|c| !(puts && c.puts > 0 || gets && c.gets > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_done_when_all_its_messages_are() {
        let mut ops = Ops::new();
        let k = ops.explicit().unwrap();
        ops.begin(k, false);
        ops.begin(k, true);
        assert!(!ops.finish(k));
        ops.complete(k.index, false).unwrap();
        assert!(!ops.finish(k));
        ops.complete(k.index, true).unwrap();
        assert_eq!(ops.complete(k.index, true), None);
        assert!(ops.finish(k));
        let again = ops.explicit().unwrap();
        assert_eq!(again.index, k.index);
        ops.begin(again, false);
        assert!(ops.finish(k), "a stale key names nothing");
        assert!(!ops.finish(again));
    }

    #[test]
    fn regions_count_apart_and_do_not_nest() {
        let mut ops = Ops::new();
        let outer = ops.implicit();
        ops.begin(outer, false);
        ops.begin_region().unwrap();
        assert_eq!(ops.begin_region(), None);
        let inner = ops.implicit();
        ops.begin(inner, false);
        let key = ops.end_region().unwrap();
        assert_eq!(ops.end_region(), None);
        ops.complete(outer.index, false).unwrap();
        assert!(ops.implicit_done(true, true));
        assert!(!ops.finish(key));
        ops.complete(key.index, false).unwrap();
        assert!(ops.finish(key));
    }

    #[test]
    fn threads_count_their_implicit_operations_apart() {
        let mut ops = Ops::new();
        let mut other = ops.new_implicit().unwrap();
        ops.begin_region().unwrap();
        ops.swap_implicit(&mut other);
        let theirs = ops.implicit();
        ops.begin(theirs, true);
        assert!(!ops.implicit_done(true, true) && !ops.in_region());
        assert!(ops.finish(theirs), "a base slot is nobody's handle");
        ops.swap_implicit(&mut other);
        assert!(ops.implicit_done(true, true) && ops.in_region());
        assert_ne!(ops.implicit().index, theirs.index);
    }

    #[test]
    fn what_ends_in_its_call_has_a_slot_when_the_others_are_out() {
        let mut ops = Ops::new();
        let held: Vec<Key> = std::iter::from_fn(|| ops.explicit()).collect();
        assert_eq!(held.len(), 64_510);
        assert!(!held.iter().any(|k| Ops::ends_in_call(*k)));
        let short = ops.within_call().unwrap();
        assert!(Ops::ends_in_call(short));
        ops.begin_region().unwrap();
        let region = ops.end_region().unwrap();
        assert!(ops.new_implicit().is_some());
        assert!(ops.finish(short) && ops.finish(region));
        assert_eq!(ops.explicit(), None, "a spare slot is no explicit one");
        assert_eq!(ops.within_call().map(|k| k.index), Some(region.index));
        assert!(ops.finish(held[7]));
        assert_eq!(ops.explicit().map(|k| k.index), Some(held[7].index));
        while ops.within_call().is_some() {}
        assert_eq!(ops.slots.len(), usize::from(u16::MAX), "0xffff names none");
    }

    #[test]
    fn an_abandoned_region_is_nobodys() {
        let mut ops = Ops::new();
        ops.begin_region().unwrap();
        let inner = ops.implicit();
        ops.begin(inner, false);
        ops.abandon_region();
        assert!(!ops.in_region() && ops.implicit_done(true, true));
        ops.complete(inner.index, false).unwrap();
        assert!(ops.begin_region().is_some());
        ops.abandon_region();
        ops.abandon_region();
    }

    #[test]
    fn raw_handles_come_back() {
        let mut ops = Ops::new();
        let k = ops.explicit().unwrap();
        let raw = Handle(Some(k)).into_raw();
        assert_ne!(raw, 0);
        assert_eq!(Handle::from_raw(raw), Handle(Some(k)));
        assert_eq!(Handle::DONE.into_raw(), 0);
        assert_eq!(Handle::from_raw(0), Handle::DONE);
    }
}
