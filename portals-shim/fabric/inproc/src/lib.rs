//! Interfaces of one process joined by queues: every message is copied once into a mailbox and
//! once out of it. The plainest possible fabric, used to test what lies above.

use fabric_api::call::RemoteKey;
use fabric_api::delivery::{self, Message, Messages};
use fabric_api::nal::{Look, Nal, Outcome};
use fabric_api::op::{Mode, Put};
use fabric_api::place::Placement;
use fabric_api::region::{LocalCopy, Trust};
use portals_core::{Header, Ni, NiFail, ProcessId, ReadyPut, Transmit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Mailbox {
    waiting: Mutex<Messages>,
    /// Something waits; changed with the lock, and looked at without.
    any: AtomicBool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    fn add(&self, one: impl FnOnce(&mut Messages)) {
        let mut waiting = self.lock();
        one(&mut waiting);
        self.any.store(true, Ordering::Release);
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

    fn progress(&mut self, ni: &mut Ni, _: Look) -> bool {
        let Some(mailbox) = self.hub.boxes.get(self.own as usize) else {
            return false;
        };
        let mut any = false;
        while mailbox.any.load(Ordering::Acquire) {
            any = true;
            let mut waiting = mailbox.lock();
            mailbox.any.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *waiting, &mut self.read);
            drop(waiting);
            for message in self.read.iter() {
                let (header, data) = (&message.header, &message.data);
                if let Some(h) = delivery::deliver(self.memory, ni, header, data, &mut self.answer)
                    && !self.hub.pass(&h, &mut self.answer)
                {
                    self.answer.clear();
                }
            }
            self.read.clear();
        }
        any
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        let own = self.hub.ids.get(self.own as usize)?;
        self.hub.rank(to).map(|_| u64::from(to.nid != own.nid))
    }
}
