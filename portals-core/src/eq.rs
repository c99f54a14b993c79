//! Event queues: bounded, never refusing, oldest event lost first (rules 53, 54).

use crate::event::Event;
use alloc::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct EventQueue {
    events: VecDeque<Event>,
    capacity: usize,
    next_sequence: u32,
    /// Events were lost since the last one was taken.
    gap: bool,
    /// Operations whose END is still to come here; `MDUpdate` must not see the queue as empty
    /// (rule 47).
    pub(crate) promised: u32,
    /// MDs that name this queue.
    pub(crate) users: u32,
}

impl EventQueue {
    /// `count` events fit. The first sequence number is `-capacity`, so that wrap-around happens
    /// early in every program's life.
    /// `None` when there is no memory for them.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let mut events = VecDeque::new();
        events.try_reserve_exact(count).ok()?;
        Some(Self {
            events,
            capacity: count,
            next_sequence: (count as u32).wrapping_neg(),
            gap: false,
            promised: 0,
            users: 0,
        })
    }

    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// Stamps and stores the event; returns its sequence number.
    pub(crate) fn post(&mut self, mut event: Event) -> u32 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        event.sequence = sequence;
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.gap = true;
        }
        self.events.push_back(event);
        sequence
    }

    /// The oldest event, and whether events before it were lost.
    pub(crate) fn get(&mut self) -> Option<(Event, bool)> {
        let event = self.events.pop_front()?;
        Some((event, core::mem::take(&mut self.gap)))
    }

    pub(crate) fn peek(&self) -> Option<(Event, bool)> {
        self.events.front().map(|e| (*e, self.gap))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
