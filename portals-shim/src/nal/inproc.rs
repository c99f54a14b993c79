//! Interfaces of one process joined by queues: every message is copied once into a mailbox and
//! once out of it. The plainest possible fabric, used to test what lies above.

use super::Nal;
use crate::delivery::{self, Message};
use crate::region::LocalCopy;
use portals_core::{Header, Ni, NiFail, ProcessId, Transmit};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Mailbox = Mutex<VecDeque<Message>>;

/// The wire between `n` processes; process `i` has node id `i`.
#[derive(Clone, Debug)]
pub struct Hub {
    boxes: Arc<[Mailbox]>,
    pid: u32,
}

fn lock(mailbox: &Mailbox) -> MutexGuard<'_, VecDeque<Message>> {
    mailbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// A hub for `n` processes that all have process id `pid`.
    pub fn new(n: u32, pid: u32) -> Self {
        Self {
            boxes: (0..n).map(|_| Mailbox::default()).collect(),
            pid,
        }
    }

    /// Delivers a message to its target; `false` when there is no such process.
    pub fn deliver(&self, message: Message) -> bool {
        let to = message.header.target;
        match self
            .boxes
            .get(to.nid as usize)
            .filter(|_| to.pid == self.pid)
        {
            Some(mailbox) => {
                lock(mailbox).push_back(message);
                true
            }
            None => false,
        }
    }
}

/// One process's end of a [`Hub`].
#[derive(Debug)]
pub struct InProc {
    hub: Hub,
    own: u32,
}

impl InProc {
    /// The end of process `own`.
    pub fn new(hub: Hub, own: u32) -> Self {
        Self { hub, own }
    }

    fn post(&self, header: Header, data: Vec<u8>) -> bool {
        self.hub.deliver(Message { header, data })
    }
}

impl Nal for InProc {
    fn send(&mut self, ni: &mut Ni, tx: Transmit) {
        let mut data = Vec::new();
        LocalCopy::gather(&tx.payload, &mut data);
        let fail = if self.post(tx.header, data) {
            NiFail::OK
        } else {
            NiFail::FAIL
        };
        if let Some(op) = tx.op {
            ni.send_end(op, fail);
        }
    }

    fn progress(&mut self, ni: &mut Ni) -> bool {
        let Some(mailbox) = self.hub.boxes.get(self.own as usize) else {
            return false;
        };
        let mut any = false;
        loop {
            let next = lock(mailbox).pop_front();
            let Some(message) = next else { return any };
            any = true;
            if let Some(answer) = delivery::deliver(ni, &message.header, &message.data) {
                self.post(answer.header, answer.data);
            }
        }
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        ((to.nid as usize) < self.hub.boxes.len() && to.pid == self.hub.pid)
            .then_some(u64::from(to.nid != self.own))
    }
}
