//! Interfaces of one process joined by queues: every message is copied once into a mailbox and
//! once out of it. The plainest possible fabric, used to test what lies above.
//!
//! A rank that waits polls for a while and then sleeps at its mailbox: the thread of a peer may wait for the same processor.

use fabric_api::call::RemoteKey;
use fabric_api::delivery::{self, Message, Messages};
use fabric_api::nal::{Armed, Look, Nal, Nap, Outcome, Schedule, Waiter};
use fabric_api::op::{Mode, Put};
use fabric_api::place::Placement;
use fabric_api::region::{LocalCopy, Trust};
use host::processors::are_crowded;
use portals_core::{Header, Ni, NiFail, ProcessId, ReadyPut, Transmit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the lock of a mailbox guards.
#[derive(Debug, Default)]
struct Inbox {
    messages: Messages,
    /// The rank has armed, and nobody has rung since.
    armed: bool,
}

#[derive(Debug, Default)]
struct Mailbox {
    inbox: Mutex<Inbox>,
    /// There are messages; changed with the lock, and looked at without.
    any: AtomicBool,
    rung: Condvar,
}

impl Mailbox {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn add(&self, one: impl FnOnce(&mut Messages)) {
        let mut inbox = self.lock();
        one(&mut inbox.messages);
        self.any.store(true, Ordering::Release);
        if inbox.armed {
            self.ring(inbox);
        }
    }

    /// Wakes whoever sleeps here.
    #[cold]
    fn ring(&self, mut inbox: MutexGuard<'_, Inbox>) {
        inbox.armed = false;
        drop(inbox);
        self.rung.notify_all();
    }
}

/// The mailbox of one process, as what its threads sleep on.
#[derive(Debug)]
struct Wakeup {
    hub: Hub,
    own: usize,
}

impl Nap for Wakeup {
    fn sleep(&self, until: Option<Instant>) {
        let Some(mailbox) = self.hub.boxes.get(self.own) else {
            return;
        };
        let mut inbox = mailbox.lock();
        while inbox.armed {
            inbox = match until.map(|at| at.saturating_duration_since(Instant::now())) {
                None => mailbox
                    .rung
                    .wait(inbox)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return,
                Some(left) => {
                    let woken = mailbox.rung.wait_timeout(inbox, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn wake(&self) {
        if let Some(mailbox) = self.hub.boxes.get(self.own) {
            mailbox.ring(mailbox.lock());
        }
    }
}

/// The wire between processes.
#[derive(Clone, Debug)]
pub struct Hub {
    boxes: Arc<[Mailbox]>,
    ids: Arc<[ProcessId]>,
    place: Placement,
}

impl Hub {
    /// A hub for the processes `ids`, whose nodes are those of `place`.
    pub fn new(ids: Vec<ProcessId>, place: Placement) -> Self {
        Self {
            boxes: ids.iter().map(|_| Mailbox::default()).collect(),
            ids: ids.into(),
            place,
        }
    }

    /// Which of the processes `to` is.
    #[inline]
    fn rank(&self, to: ProcessId) -> Option<usize> {
        self.place.find(to, |rank| self.ids.get(rank) == Some(&to))
    }

    /// Delivers a message to its target; `false` when there is no such process.
    pub fn deliver(&self, mut message: Message) -> bool {
        self.pass(&message.header, &mut message.data)
    }

    /// Delivers a message, and takes the bytes of `data`.
    #[inline]
    fn pass(&self, header: &Header, data: &mut Vec<u8>) -> bool {
        let Some(rank) = self.rank(header.target) else {
            return false;
        };
        self.boxes[rank].add(|waiting| waiting.push(header, data));
        true
    }
}

/// One process's end of a [`Hub`].
#[derive(Debug)]
pub struct InProc {
    hub: Hub,
    own: u32,
    memory: LocalCopy,
    /// Messages taken out of the mailbox; empty between calls.
    read: Messages,
    /// For the bytes of an answer; empty between messages.
    answer: Vec<u8>,
}

impl InProc {
    /// The end of process `own`, for an [`Ni`] of the caller's; see [`Trust`].
    pub fn new(hub: Hub, own: u32, trust: Trust) -> Self {
        Self {
            hub,
            own,
            memory: LocalCopy::of(trust),
            read: Messages::default(),
            answer: Vec::new(),
        }
    }

    /// Delivers what is in the mailbox, and what comes meanwhile.
    fn take_all(&mut self, ni: &mut Ni) {
        let Some(mailbox) = self.hub.boxes.get(self.own as usize) else {
            return;
        };
        loop {
            let mut inbox = mailbox.lock();
            mailbox.any.store(false, Ordering::Relaxed);
            std::mem::swap(&mut inbox.messages, &mut self.read);
            drop(inbox);
            for message in self.read.iter() {
                let (header, data) = (&message.header, &message.data);
                if let Some(h) = delivery::deliver(self.memory, ni, header, data, &mut self.answer)
                    && !self.hub.pass(&h, &mut self.answer)
                {
                    self.answer.clear();
                }
            }
            self.read.clear();
            if !mailbox.any.load(Ordering::Acquire) {
                break;
            }
        }
    }
}

impl Nal for InProc {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, _: Option<&RemoteKey>) {
        let fail = match self.hub.rank(tx.header.target) {
            Some(rank) => {
                self.hub.boxes[rank]
                    .add(|waiting| waiting.put(self.memory, &tx.header, &tx.payload));
                NiFail::OK
            }
            None => NiFail::FAIL,
        };
        if let Some(op) = tx.op {
            ni.send_end(op, fail);
        }
    }

    #[inline]
    fn put(&mut self, _: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        match self.hub.rank(ready.header.target) {
            Some(rank) if matches!(put.mode, Mode::Standard | Mode::AtOnce) => {
                self.hub.boxes[rank]
                    .add(|waiting| waiting.put(self.memory, &ready.header, &ready.payload));
                Outcome::Taken
            }
            _ => Outcome::Declined,
        }
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni, _: Look) -> bool {
        // Most looks find nothing, and make no call to find that.
        let mailbox = self.hub.boxes.get(self.own as usize);
        let any = mailbox.is_some_and(|mailbox| mailbox.any.load(Ordering::Acquire));
        if any {
            self.take_all(ni);
        }
        any
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            // Polls would only keep the peers from their processors.
            spin: are_crowded(self.hub.boxes.len()).then_some(Duration::ZERO),
            ..Schedule::NEVER
        }
    }

    fn waiter(&self) -> Waiter {
        Waiter::Memory(Arc::new(Wakeup {
            hub: self.hub.clone(),
            own: self.own as usize,
        }))
    }

    fn arm(&mut self) -> Armed {
        if let Some(mailbox) = self.hub.boxes.get(self.own as usize) {
            mailbox.lock().armed = true;
        }
        Armed::ringing(true)
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        let own = self.hub.ids.get(self.own as usize)?;
        self.hub.rank(to).map(|_| u64::from(to.nid != own.nid))
    }
}
