//! Where the adapter puts what has come, and the end of what was asked of it.
//!
//! # Invariants
//!
//! * A receive buffer is posted, or being handled, or in `spare`.
//! * There are receives for `connections` connections, and the completion queue has room for them.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use verbs_backend::cq::CqError;
use verbs_backend::{Buffer, BufferPool, Completion, Cq, QpOptions, Srq};

/// Completions taken in one go.
pub(crate) const BATCH: usize = 16;
/// Receive buffers kept back before they are posted again; credits for them are kept back too.
const REPOST_AT: usize = 16;

/// The completion queue and the shared receive queue of a rank.
#[derive(Debug)]
pub(crate) struct Queues {
    cq: Cq,
    srq: Srq,
    /// Where completions are polled into.
    slots: Box<[Completion; BATCH]>,
    /// Receive buffers to be given back to the queue.
    spare: Vec<Buffer>,
    /// Polls that found the completion queue empty, modulo 2^32; and how many there had been when it was last armed.
    empty_polls: u32,
    armed_at: Option<u32>,
    /// When connections were last looked at for forgotten requests, and the empty polls up to then.
    looked: (Instant, u32),
    connections: u32,
}

impl Queues {
    /// Queues with no receives.
    pub(crate) fn new(cq: Cq, srq: Srq) -> Self {
        Self {
            cq,
            srq,
            slots: Box::new([Completion::EMPTY; BATCH]),
            spare: Vec::new(),
            empty_polls: 0,
            armed_at: None,
            looked: (Instant::now(), 0),
            connections: 0,
        }
    }

    /// Takes up to a batch of completions; how many.
    #[inline(always)]
    pub(crate) fn poll(&mut self) -> Result<usize, CqError> {
        let count = self.cq.poll(&mut self.slots[..])?.len();
        if count == 0 {
            self.empty_polls = self.empty_polls.wrapping_add(1);
        }
        Ok(count)
    }

    /// One of those taken last.
    #[inline(always)]
    pub(crate) fn completion(&self, at: usize) -> &Completion {
        &self.slots[at % BATCH]
    }

    /// What a queue pair is made with.
    pub(crate) fn options(&self) -> QpOptions<'_> {
        let mut options = QpOptions::new(&self.cq);
        options.srq = Some(&self.srq);
        options
    }

    /// The buffer of a receive that has ended.
    pub(crate) fn received(&self, completion: &Completion) -> Option<Buffer> {
        self.srq.take(completion)
    }

    /// A receive buffer that was handled.
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }

    /// The buffer of a receive that failed, or is nobody's, goes back.
    pub(crate) fn recycle(&mut self, completion: &Completion) {
        let buffer = self.srq.take(completion);
        self.spare.extend(buffer);
    }

    /// Buffers that were handled and are not posted again.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// It is time to post them again.
    #[inline(always)]
    pub(crate) fn wants_repost(&self) -> bool {
        self.spare.len() >= REPOST_AT
    }

    /// Posts again what was handled; the reason if that is refused, and it is kept.
    pub(crate) fn repost(&mut self) -> Result<(), String> {
        if let Err(error) = self.srq.post_recv(self.spare.drain(..)) {
            let why = error.to_string();
            self.spare.extend(error.returned);
            return Err(why);
        }
        Ok(())
    }

    /// Whether there are receives for one connection more.
    pub(crate) fn has_receives(&self, connections: usize) -> bool {
        connections as u64 <= u64::from(self.connections)
    }

    /// Receives for one connection more.
    pub(crate) fn add_receives(&mut self, pool: &BufferPool, each: u32) -> Result<(), String> {
        let buffers = std::iter::from_fn(|| pool.take()).take(each as usize);
        self.srq.post_recv(buffers).map_err(|e| e.to_string())?;
        self.connections += 1;
        Ok(())
    }

    /// Asks for an event at the next completion; whether there will be one.
    pub(crate) fn arm(&mut self) -> bool {
        let armed = self.cq.drain_events().and_then(|_| self.cq.arm(false));
        self.armed_at = armed.is_ok().then_some(self.empty_polls);
        armed.is_ok()
    }

    /// Waits for the event, which it takes.
    pub(crate) fn wait(&mut self, longest: Duration) -> Result<bool, CqError> {
        self.armed_at = None;
        self.cq.wait(Some(longest))
    }

    /// What is readable once there is an event.
    pub(crate) fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.event_fd().ok()
    }

    /// Whether there is an event that nobody has taken.
    #[cfg(test)]
    pub(crate) fn has_event(&self) -> bool {
        self.cq.has_event().unwrap()
    }

    /// When connections were last looked at.
    pub(crate) fn looked(&self) -> Instant {
        self.looked.0
    }

    /// Connections are looked at; whether no completion lies in the queue that came before the last look.
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        let polled = self.empty_polls != self.looked.1;
        // Armed, then found empty: whatever came later has made an event.
        let rests = || {
            self.armed_at.is_some_and(|at| at != self.empty_polls)
                && self.cq.has_event().is_ok_and(|event| !event)
        };
        let sure = polled || rests();
        self.looked = (now, self.empty_polls);
        sure
    }
}
