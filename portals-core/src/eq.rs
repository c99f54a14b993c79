//! Event queues: bounded, never refusing, oldest event lost first (rules 53, 54).

use crate::event::{Event, NiFail};
use crate::handle::{EqHandle, Handle};
use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct EventQueue {
    /// Its name, which tells it from queues that had its slot before.
    pub(crate) handle: EqHandle,
    /// A ring, which grows to `capacity` places as they are first needed.
    ring: Vec<Event>,
    capacity: usize,
    /// The place of the oldest event.
    first: usize,
    len: usize,
    next_sequence: u32,
    /// Events were lost since the last one was taken.
    gap: bool,
    /// Operations whose END is still to come here; `MDUpdate` must not see the queue as empty
    /// (rule 47).
    pub(crate) promised: u32,
    /// MDs that name this queue.
    pub(crate) users: u32,
    /// A process was given up, and nothing here has said so.
    pub(crate) lost: bool,
    /// The events are kept by the interface's owner, who has taken those before this number.
    taken: Option<u32>,
}

impl EventQueue {
    /// `count` events fit. The first sequence number is `-capacity`, so that wrap-around happens
    /// early in every program's life.
    /// `None` when there is no memory for them.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let mut ring = Vec::new();
        ring.try_reserve_exact(count).ok()?;
        Some(Self {
            handle: EqHandle(Handle::INVALID),
            ring,
            capacity: count,
            first: 0,
            len: 0,
            next_sequence: (count as u32).wrapping_neg(),
            gap: false,
            promised: 0,
            users: 0,
            lost: false,
            taken: None,
        })
    }

    /// A queue of `count` events that the interface's owner keeps.
    pub(crate) fn exported(count: usize) -> Self {
        let next_sequence = (count as u32).wrapping_neg();
        Self {
            handle: EqHandle(Handle::INVALID),
            ring: Vec::new(),
            capacity: count,
            first: 0,
            len: 0,
            next_sequence,
            gap: false,
            promised: 0,
            users: 0,
            lost: false,
            taken: Some(next_sequence),
        }
    }

    /// The owner has taken the events before `next`.
    pub(crate) fn taken(&mut self, next: u32) {
        if let Some(taken) = &mut self.taken {
            *taken = next;
        }
    }

    /// Keeps events here from now on.
    pub(crate) fn keep(&mut self, events: Vec<Event>, gap: bool) {
        let lost = events.len().saturating_sub(self.capacity);
        self.ring = events;
        self.ring.drain(..lost);
        self.first = 0;
        self.len = self.ring.len();
        self.gap = gap || lost > 0;
        self.taken = None;
    }

    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// The number of the next event, which is the caller's.
    #[inline]
    pub(crate) fn stamp(&mut self) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        sequence
    }

    /// Stores an event that has its number; the oldest makes room.
    pub(crate) fn store(&mut self, event: Event) {
        *self.place() = event;
    }

    /// One more event makes the oldest go.
    #[inline(always)]
    pub(crate) fn is_at_capacity(&self) -> bool {
        self.len == self.capacity
    }

    /// The place of one more event, which holds something old. Part of each caller, so that the event is made
    /// where it stays.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> &mut Event {
        if self.is_at_capacity() {
            self.first = self.wrap(self.first + 1);
            self.len -= 1;
            self.gap = true;
        }
        let at = self.wrap(self.first + self.len);
        self.len += 1;
        if at == self.ring.len() {
            self.grow();
        }
        &mut self.ring[at]
    }

    #[cold]
    fn grow(&mut self) {
        self.ring.push(Event::BLANK);
    }

    #[inline]
    fn wrap(&self, at: usize) -> usize {
        if at >= self.capacity {
            at - self.capacity
        } else {
            at
        }
    }

    /// Takes the oldest event, which lies where it is until the next one is stored, and whether
    /// events before it were lost.
    #[inline]
    pub(crate) fn get(&mut self) -> Option<(&Event, bool)> {
        if self.len == 0 {
            return None;
        }
        let oldest = self.first;
        self.len -= 1;
        // A queue that is read as fast as it fills stays in the cache, however large it is.
        self.first = if self.len == 0 {
            0
        } else {
            self.wrap(self.first + 1)
        };
        let gap = core::mem::take(&mut self.gap);
        self.ring.get(oldest).map(|event| (event, gap))
    }

    /// Takes events, from the oldest on, as long as `take` says so of each; how many. None when events before the oldest
    /// were lost.
    #[inline]
    pub(crate) fn take_while(&mut self, take: &mut dyn FnMut(&Event) -> bool) -> usize {
        let mut taken = 0;
        while self.len > 0 && !self.gap && self.ring.get(self.first).is_some_and(&mut *take) {
            self.len -= 1;
            self.first = self.wrap(self.first + 1);
            taken += 1;
        }
        if self.len == 0 {
            self.first = 0;
        }
        taken
    }

    /// Events that [`EventQueue::get`] gives, one after the other.
    #[inline]
    pub(crate) fn unread(&self) -> usize {
        self.len
    }

    pub(crate) fn peek(&self) -> Option<(Event, bool)> {
        if self.len == 0 {
            return None;
        }
        Some((*self.ring.get(self.first)?, self.gap))
    }

    /// Whether an event that is here tells of a failure.
    fn has_failure(&self) -> bool {
        let mut unread = (0..self.len).filter_map(|n| self.ring.get(self.wrap(self.first + n)));
        unread.any(|event| event.ni_fail != NiFail::OK)
    }

    /// A process was given up.
    pub(crate) fn handle_lost(&mut self) {
        self.lost = !self.has_failure();
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self.taken {
            Some(taken) => taken == self.next_sequence,
            None => self.len == 0,
        }
    }
}
