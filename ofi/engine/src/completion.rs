//! Completions: what an operation's end tells the program, by a queue, by a counter, or not at all.

use crate::addresses::{Addresses, Numbered};
use crate::capacity::CAPACITY;
use crate::wait::WaitObject;
use portals_shim::{NiFail, ProcessId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A source that nobody knows (`FI_ADDR_NOTAVAIL`).
pub const NO_ADDRESS: u64 = u64::MAX;

/// Flags of completions, with the values of libfabric.
pub mod flags {
    /// A message (`FI_MSG`).
    pub const MSG: u64 = 1 << 1;
    /// Remote memory (`FI_RMA`).
    pub const RMA: u64 = 1 << 2;
    /// A message with a tag (`FI_TAGGED`).
    pub const TAGGED: u64 = 1 << 3;
    /// A read (`FI_READ`).
    pub const READ: u64 = 1 << 8;
    /// A write (`FI_WRITE`).
    pub const WRITE: u64 = 1 << 9;
    /// A receive (`FI_RECV`).
    pub const RECV: u64 = 1 << 10;
    /// A send (`FI_SEND`).
    pub const SEND: u64 = 1 << 11;
    /// A peer's write that carries data (`FI_REMOTE_WRITE`).
    pub const REMOTE_WRITE: u64 = 1 << 13;
    /// The buffer of a multi-receive is given back (`FI_MULTI_RECV`).
    pub const MULTI_RECV: u64 = 1 << 16;
    /// The data of the completion is a peer's (`FI_REMOTE_CQ_DATA`).
    pub const REMOTE_CQ_DATA: u64 = 1 << 17;
}

/// Why an operation failed; the numbers are libfabric's (`fi_errno.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(i32)]
#[expect(missing_docs, reason = "the text of each says what it is")]
pub enum Failure {
    #[error("the peer cannot be reached, or has ended")]
    Unreachable = 113,
    #[error("the receive was cancelled")]
    Canceled = 125,
    #[error("the message is longer than the receive")]
    Truncated = 265,
    #[error("no message is there")]
    NoMessage = 42,
    #[error("no memory has this key at the peer, or it may not be accessed so")]
    Key = 129,
    #[error("the fabric has failed")]
    Fabric = 5,
    #[error("memory of this process cannot be read or written")]
    Memory = 14,
}

impl Failure {
    /// Every one.
    pub const ALL: &[Self] = &[
        Self::Unreachable,
        Self::Canceled,
        Self::Truncated,
        Self::NoMessage,
        Self::Key,
        Self::Fabric,
        Self::Memory,
    ];

    /// What the failure of an event means for the operation that it ends; `None` where it has succeeded.
    pub(crate) fn of(fail: NiFail) -> Option<Self> {
        match fail {
            NiFail::OK => None,
            NiFail::SEGV => Some(Self::Memory),
            _ => Some(Self::Unreachable),
        }
    }
}

/// An entry of a completion queue, as libfabric lays it out (`fi_cq_tagged_entry`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The program's own value.
    pub context: usize,
    /// What has ended.
    pub flags: u64,
    /// Bytes.
    pub len: usize,
    /// Where the data is.
    pub buf: usize,
    /// The peer's data.
    pub data: u64,
    /// The tag.
    pub tag: u64,
}

/// A failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// The same as of one that has not failed.
    pub entry: Entry,
    /// Bytes that found no room.
    pub missing: usize,
    /// Why.
    pub why: Failure,
    /// Who sent it.
    pub source: u64,
}

#[derive(Debug, Default)]
struct State {
    done: VecDeque<(Entry, u64)>,
    /// How many of them have been taken.
    taken: u64,
    failed: VecDeque<Failed>,
}

#[derive(Debug)]
struct Failed {
    entry: ErrorEntry,
    /// The counter that has counted it.
    counted: Weak<Counter>,
    /// How many others had ended before it, of all that ever did.
    behind: u64,
}

/// A completion queue. Any thread may call every method.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    /// Entries of both kinds, read without the lock.
    len: AtomicUsize,
    /// Entries that the program has asked for room for.
    size: usize,
    wait: Arc<WaitObject>,
}

impl Queue {
    /// Entries of any queue that programs may leave there before peers' writes wait.
    pub const LEAST: usize = CAPACITY;

    /// A queue that is awaited by this. Peers' writes fill it with as many entries as `size` says, or [`Queue::LEAST`].
    pub fn new(wait: WaitObject, size: usize) -> Self {
        Self {
            wait: Arc::new(wait),
            size,
            ..Self::default()
        }
    }

    /// What a program sleeps on until there is an entry.
    pub const fn wait_object(&self) -> &Arc<WaitObject> {
        &self.wait
    }

    #[inline]
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lock back. Who has it is alone in changing the length.
    #[inline]
    fn leave(&self, state: MutexGuard<'_, State>) {
        let len = state.done.len() + state.failed.len();
        self.len.store(len, Ordering::Release);
    }

    fn done(&self, entry: Entry, source: u64) {
        let mut state = self.state();
        state.done.push_back((entry, source));
        self.leave(state);
        self.wait.notify();
    }

    fn failed(&self, entry: ErrorEntry, counted: Weak<Counter>) {
        let mut state = self.state();
        let behind = state.taken + state.done.len() as u64;
        state.failed.push_back(Failed {
            entry,
            counted,
            behind,
        });
        self.leave(state);
        self.wait.notify();
    }

    /// Whether peers' writes are to wait until the program has taken entries.
    pub(crate) fn is_full(&self) -> bool {
        self.len.load(Ordering::Acquire) >= self.size.max(Self::LEAST)
    }

    /// Whether anything is there.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    /// Whether somebody who waits for so many entries has them, or a failure, which ends a wait.
    pub fn satisfies(&self, count: usize) -> bool {
        let len = self.len.load(Ordering::SeqCst);
        len >= count.max(1) || (len > 0 && !self.state().failed.is_empty())
    }

    /// Arms the wait object ([`WaitObject::arm`]).
    pub fn arm(&self) -> bool {
        self.wait.arm(|| !self.is_empty())
    }

    /// Takes completions, oldest first, up to the first failure; `Err` if that has to be taken first. So who learns that a receive has
    /// failed knows of all that had come before.
    pub fn take(&self, most: usize, mut take: impl FnMut(&Entry, u64)) -> Result<usize, HasFailed> {
        if self.is_empty() {
            return Ok(0);
        }
        let mut state = self.state();
        let mut count = most.min(state.done.len());
        if let Some(first) = state.failed.front() {
            match first.behind.saturating_sub(state.taken) {
                0 => return Err(HasFailed),
                before => count = count.min(before as usize),
            }
        }
        state.taken += count as u64;
        for (entry, source) in state.done.drain(..count) {
            take(&entry, source);
        }
        self.leave(state);
        Ok(count)
    }

    /// Takes the oldest failure, which the program knows of from now on.
    pub fn take_failed(&self) -> Option<ErrorEntry> {
        let mut state = self.state();
        let failed = state.failed.pop_front()?;
        self.leave(state);
        if let Some(counter) = failed.counted.upgrade() {
            counter.know_one();
        }
        Some(failed.entry)
    }
}

/// A failure is in the queue (`FI_EAVAIL`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasFailed;

/// A counter of operations. Any thread may call every method.
#[derive(Debug, Default)]
pub struct Counter {
    done: AtomicU64,
    failed: AtomicU64,
    /// Failures that the program knows of, by a read, by a wait that ended for them, or by a completion queue.
    known: AtomicU64,
    /// What a program was last told of, of both.
    told: [AtomicU64; 2],
    wait: Arc<WaitObject>,
}

impl Counter {
    /// A counter that is awaited by this.
    pub fn new(wait: WaitObject) -> Self {
        Self {
            wait: Arc::new(wait),
            ..Self::default()
        }
    }

    /// What a program sleeps on until the counter has changed.
    pub const fn wait_object(&self) -> &Arc<WaitObject> {
        &self.wait
    }

    /// Operations that have succeeded.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Operations that have failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// Operations that have failed, for a program that asks: it knows of them from now on.
    pub fn read_failed(&self) -> u64 {
        let failed = self.failed();
        self.known.store(failed, Ordering::SeqCst);
        failed
    }

    /// A completion queue has told the program of one of them.
    fn know_one(&self) {
        let failed = self.failed();
        let more = |known| Some(failed.min(known + 1));
        let _ = self
            .known
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    }

    /// The number of failures that the program knows of.
    pub fn known_failed(&self) -> u64 {
        self.known.load(Ordering::SeqCst)
    }

    /// So many more have succeeded.
    pub fn add(&self, count: u64) {
        self.done.fetch_add(count, Ordering::SeqCst);
        self.wait.notify();
    }

    /// So many more have failed.
    pub fn add_failed(&self, count: u64) {
        self.failed.fetch_add(count, Ordering::SeqCst);
        self.wait.notify();
    }

    /// The number of successes is this from now on.
    pub fn set(&self, count: u64) {
        self.done.store(count, Ordering::SeqCst);
        self.wait.notify();
    }

    /// The number of failures is this from now on, and the program knows so.
    pub fn set_failed(&self, count: u64) {
        self.failed.store(count, Ordering::SeqCst);
        self.known.store(count, Ordering::SeqCst);
        self.wait.notify();
    }

    /// Arms the wait object ([`WaitObject::arm`]). A change that nobody was told of is told here, by `false`.
    pub fn arm(&self) -> bool {
        let now = || [self.done(), self.failed()];
        let told = || self.told.each_ref().map(|t| t.load(Ordering::SeqCst));
        let armed = self.wait.arm(|| now() != told());
        if !armed {
            for (told, now) in self.told.iter().zip(now()) {
                told.store(now, Ordering::SeqCst);
            }
        }
        armed
    }
}

/// Whom operations of one kind tell of their ends.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// Where completions go.
    pub queue: Option<Arc<Queue>>,
    /// Counts ends.
    pub counter: Option<Arc<Counter>>,
    /// Which peers are known by which number.
    pub addresses: Option<Arc<Addresses>>,
}

/// The [`Reports`] of an endpoint's operations, by the number that [`Endpoint::report_to`](crate::Endpoint::report_to) gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportsId(usize);

/// How far a message has come at its end (fi_cq(3), "Completion event semantics").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Its memory is free (`FI_INJECT_COMPLETE`).
    #[default]
    Injected,
    /// It arrives though its sender serves its endpoint no more (`FI_TRANSMIT_COMPLETE`).
    Transmitted,
    /// The peer has it (`FI_DELIVERY_COMPLETE`).
    Delivered,
    /// A receive has taken it (`FI_MATCH_COMPLETE`).
    Matched,
}

impl Level {
    /// Whether a message that goes by Portals has to be acknowledged for it.
    pub(crate) fn is_acked(self) -> bool {
        self != Self::Injected
    }
}

/// What an operation tells of its end, and whom. It has no part in anything that is shared, so that an operation costs no
/// reference count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Op {
    /// The program's own value.
    pub context: usize,
    /// The kind of operation.
    pub flags: u64,
    /// Its end is a completion; a failure is one in any case.
    pub told: bool,
    /// How far a message, or the data beside a write, has come when the end is told. Other operations have always been made by then.
    pub level: Level,
    /// Of the endpoint that makes it; nobody is told without.
    pub reports: Option<ReportsId>,
}

/// What an operation's end says beside the operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Bytes.
    pub len: u64,
    /// Where they are.
    pub buf: usize,
    /// What the peer has sent beside them.
    pub data: Option<u64>,
    /// The tag.
    pub tag: u64,
    /// Who sent it.
    pub source: Option<ProcessId>,
    /// More flags.
    pub flags: u64,
    /// The number of the multi-receive into whose buffer the message comes, or 0.
    pub(crate) multi: u64,
}

#[derive(Debug, Default)]
struct Told {
    reports: Reports,
    /// The number of the last source: most programs hear of a peer several times in a row.
    latest: Option<Numbered>,
}

impl Told {
    fn entry(&mut self, op: &Op, end: &End) -> (Entry, u64) {
        let with_data = if end.data.is_some() {
            flags::REMOTE_CQ_DATA
        } else {
            0
        };
        let entry = Entry {
            context: op.context,
            flags: op.flags | end.flags | with_data,
            len: end.len as usize,
            buf: end.buf,
            data: end.data.unwrap_or_default(),
            tag: end.tag,
        };
        let source = self.reports.addresses.as_ref().zip(end.source);
        let source = source.and_then(|(all, id)| all.number_after(id, &mut self.latest));
        (entry, source.unwrap_or(NO_ADDRESS))
    }

    #[inline]
    fn tell(&mut self, op: &Op, end: &End) {
        if op.told && self.reports.queue.is_some() {
            let (entry, source) = self.entry(op, end);
            if let Some(queue) = &self.reports.queue {
                queue.done(entry, source);
            }
        }
    }

    fn tell_failed(
        &mut self,
        op: &Op,
        why: Failure,
        end: &End,
        missing: u64,
        counted: Weak<Counter>,
    ) {
        let (entry, source) = self.entry(op, end);
        let Some(queue) = &self.reports.queue else {
            return tracing::debug!(%why, "an operation whose end no queue is told of");
        };
        let failed = ErrorEntry {
            entry,
            missing: missing as usize,
            why,
            source,
        };
        queue.failed(failed, counted);
    }
}

/// Tells programs of the ends of an endpoint's operations.
#[derive(Debug, Default)]
pub(crate) struct Reporter(Vec<Told>);

impl Reporter {
    /// Operations may name these from now on.
    pub(crate) fn add(&mut self, reports: Reports) -> ReportsId {
        self.0.push(Told {
            reports,
            latest: None,
        });
        ReportsId(self.0.len() - 1)
    }

    #[inline]
    fn of(&mut self, op: &Op) -> Option<&mut Told> {
        self.0.get_mut(op.reports?.0)
    }

    /// Whether the queue that is told of this operation's end has no room for ends that peers make.
    pub(crate) fn is_full(&mut self, op: &Op) -> bool {
        let told = self.of(op).filter(|_| op.told);
        told.is_some_and(|told| told.reports.queue.as_ref().is_some_and(|q| q.is_full()))
    }

    /// An operation has ended.
    pub(crate) fn done(&mut self, op: &Op, end: &End) {
        let Some(told) = self.of(op) else {
            return;
        };
        if let Some(counter) = &told.reports.counter {
            counter.add(1);
        }
        told.tell(op, end);
    }

    /// A look at what has come has ended. Counters count messages, and none was received.
    pub(crate) fn looked(&mut self, op: &Op, end: &End) {
        if let Some(told) = self.of(op) {
            told.tell(op, end);
        }
    }

    /// A look has found no message.
    pub(crate) fn found_none(&mut self, op: &Op, tag: u64) {
        let end = End {
            tag,
            ..End::default()
        };
        if let Some(told) = self.of(op) {
            told.tell_failed(op, Failure::NoMessage, &end, 0, Weak::new());
        }
    }

    /// A message of this length and match bits has been sent, or has failed.
    pub(crate) fn sent(&mut self, op: &Op, failure: Option<Failure>, len: u64, bits: u64) {
        let end = End {
            len,
            tag: if op.flags & flags::TAGGED == 0 {
                0
            } else {
                bits
            },
            ..End::default()
        };
        match failure {
            None => self.done(op, &end),
            Some(why) => self.failed(op, why, &end, 0),
        }
    }

    /// An operation has failed; `missing` bytes found no room.
    #[cold]
    pub(crate) fn failed(&mut self, op: &Op, why: Failure, end: &End, missing: u64) {
        let Some(told) = self.of(op) else {
            return tracing::debug!(%why, "an operation whose end nobody asks for");
        };
        let counter = told.reports.counter.as_ref();
        if let Some(counter) = counter {
            counter.add_failed(1);
        }
        let counted = counter.map(Arc::downgrade).unwrap_or_default();
        told.tell_failed(op, why, end, missing, counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(context: usize) -> Entry {
        Entry {
            context,
            ..Entry::default()
        }
    }

    fn fail(queue: &Queue, context: usize) {
        let failed = ErrorEntry {
            entry: entry(context),
            missing: 0,
            why: Failure::Canceled,
            source: NO_ADDRESS,
        };
        queue.failed(failed, Weak::new());
    }

    #[test]
    fn a_failure_is_told_of_behind_what_had_ended_before_it() {
        let queue = Queue::default();
        for most in [1, 2, 100] {
            for context in 0..12 {
                match context % 4 {
                    0 | 3 => fail(&queue, context),
                    _ => queue.done(entry(context), NO_ADDRESS),
                }
            }
            let mut order = Vec::new();
            while !queue.is_empty() {
                if queue.take(most, |e, _| order.push(e.context)).is_err() {
                    order.push(queue.take_failed().unwrap().entry.context);
                }
            }
            assert!(order.into_iter().eq(0..12));
        }
    }

    #[test]
    fn a_failure_may_be_taken_before_what_had_ended_before_it() {
        let queue = Queue::default();
        queue.done(entry(1), NO_ADDRESS);
        fail(&queue, 2);
        queue.done(entry(3), NO_ADDRESS);
        assert_eq!(queue.take_failed().unwrap().entry, entry(2));
        assert_eq!(queue.take(9, |_, _| {}).ok(), Some(2));
    }
}
