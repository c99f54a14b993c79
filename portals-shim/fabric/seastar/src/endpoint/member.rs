//! The calls of an endpoint: those of a rank, and what its address book says of its peers.

use super::super::proto::Question;
use super::super::rank::{Client, has_threads};
use fabric_api::address::AddressBook;
use fabric_api::bridge::{Bridge, Caller, ClockKind};
use fabric_api::call::{Answer, Call, Wait};
use fabric_api::op::Capabilities;
use fabric_api::region::Region;
use portals_core::{Error, EventKind, NiFail, ProcessId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// An endpoint in an open simulation.
#[derive(Debug)]
pub(super) struct Member {
    client: Client,
    book: AddressBook,
    peers: Mutex<Peers>,
}

/// What the simulation knows of the endpoint's peers.
#[derive(Debug, Default)]
struct Peers {
    /// The state of the book that it is of.
    generation: u64,
    /// Those that operations have been for, and since when the book has each.
    used: BTreeMap<ProcessId, u64>,
    /// Those that an event has come from and that the book does not have: they are answered. One that has left is none of them.
    senders: BTreeSet<ProcessId>,
}

impl Peers {
    /// An event names a process that the book does not have. What has arrived of it shows that it is there, and so does an
    /// answer; any other failure that is not of this process's own memory tells that it has left.
    fn note_sender(&mut self, id: ProcessId, kind: EventKind, fail: NiFail) {
        let arrived = matches!(
            kind,
            EventKind::PutStart
                | EventKind::PutEnd
                | EventKind::GetStart
                | EventKind::GetEnd
                | EventKind::GetPutStart
                | EventKind::GetPutEnd
        );
        if arrived || fail == NiFail::OK {
            self.senders.insert(id);
        } else if fail != NiFail::SEGV {
            self.senders.remove(&id);
        }
    }
}

impl Member {
    pub(super) fn new(client: Client, book: AddressBook) -> Self {
        Self {
            client,
            book,
            peers: Mutex::default(),
        }
    }

    /// Tells the simulation what has changed in the book. Returns whether the process that an operation is for is known.
    fn catch_up(&self, to: Option<ProcessId>) -> Result<bool, Error> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.book.generation();
        if generation != peers.generation {
            if peers.generation == 0 {
                self.client.ask(Question::Enter)?;
            }
            let since = |id| self.book.entry(id).map(|entry| entry.since);
            let used = peers.used.iter();
            let forgotten: Vec<ProcessId> = used
                .filter_map(|(id, was)| (since(*id) != Some(*was)).then_some(*id))
                .collect();
            for id in forgotten {
                self.client.ask(Question::Forget(id))?;
                peers.used.remove(&id);
            }
            // One that has been inserted is in reach until it is removed.
            peers.senders.retain(|id| self.book.entry(*id).is_none());
            peers.generation = generation;
        }
        let Some(id) = to.filter(|id| *id != self.book.own().id()) else {
            return Ok(true);
        };
        let entry = self.book.entry(id);
        if let Some(entry) = &entry {
            peers.used.insert(id, entry.since);
        }
        Ok(entry.is_some() || peers.senders.contains(&id))
    }

    /// Takes note of who an event has come from.
    fn note_sender(&self, answer: &Answer) {
        let Answer::Polled(Some(polled)) = answer else {
            return;
        };
        let id = polled.event.initiator;
        if id == self.book.own().id() || self.book.entry(id).is_some() {
            return;
        }
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.note_sender(id, polled.event.kind, polled.event.ni_fail);
    }
}

impl Bridge for Member {
    fn capabilities(&self) -> Capabilities {
        self.client.capabilities()
    }

    fn call_with(&self, call: Call, region: Option<&Region>) -> Result<Answer, Error> {
        if matches!(call, Call::Close) {
            return self.client.call_with(call, region);
        }
        if let Call::EqPoll { eqs, wait } = &call
            && *wait != Wait::No
            && has_threads()
        {
            // Another thread may change the book meanwhile.
            let between = || self.catch_up(None).map(|_| ());
            let answer = self.client.wait_in_slices(eqs, *wait, between)?;
            self.note_sender(&answer);
            return Ok(answer);
        }
        let answer = match self.catch_up(call.target())? {
            true => self.client.call_with(call, region)?,
            false => self.client.ask(Question::Strayed(call))?,
        };
        self.note_sender(&answer);
        Ok(answer)
    }

    fn now(&self) -> u64 {
        self.client.now()
    }

    fn clock(&self) -> ClockKind {
        self.client.clock()
    }

    fn caller(&self) -> Caller {
        self.client.caller()
    }

    fn leave(&self) -> Result<(), Error> {
        self.client.leave()
    }

    fn rejoin(&self) -> Result<(), Error> {
        self.client.rejoin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes come and go: those that have left take no memory.
    #[test]
    fn a_sender_that_has_left_is_forgotten() {
        let [one, other] = [ProcessId::new(1, 128), ProcessId::new(2, 128)];
        let mut peers = Peers::default();
        for id in [one, other, one] {
            peers.note_sender(id, EventKind::PutEnd, NiFail::OK);
        }
        peers.note_sender(one, EventKind::SendEnd, NiFail::FAIL);
        assert_eq!(peers.senders, BTreeSet::from([other]));
    }

    #[test]
    fn a_failure_of_own_memory_and_a_damaged_message_say_nothing_against_the_sender() {
        let one = ProcessId::new(1, 128);
        let mut peers = Peers::default();
        for (kind, fail) in [
            (EventKind::PutEnd, NiFail::OK),
            (EventKind::PutEnd, NiFail::SEGV),
            (EventKind::GetEnd, NiFail::SEGV),
            (EventKind::PutEnd, NiFail::FAIL),
            (EventKind::SendEnd, NiFail::SEGV),
            (EventKind::Ack, NiFail::SEGV),
        ] {
            peers.note_sender(one, kind, fail);
            assert_eq!(peers.senders, BTreeSet::from([one]), "{kind:?} {fail:?}");
        }
        peers.note_sender(one, EventKind::Ack, NiFail::FAIL);
        assert_eq!(peers.senders, BTreeSet::new());
    }
}
