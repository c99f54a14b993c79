//! Counting what peers do with registered memory (`FI_RMA_EVENT`).
//!
//! Memory whose accesses somebody counts has a descriptor with an event queue, of its own, since no grant bounds how often peers
//! access memory. Other memory has none, and costs its owner nothing. Atomic operations are counted where they are made.

use crate::capacity::CAPACITY;
use crate::completion::Counter;
use crate::core::{Core, Life, Refused, Registered};
use crate::landing::ACCESS;
use crate::memory::Buffer;
use crate::remote::Access;
use portals_shim::{Brief, EqHandle, EventKind, MdOptions, MdSpec, NiFail};
use std::sync::Arc;

/// Accesses that may have ended while the program makes no progress. Each takes the room of an event.
const EVENTS: u64 = CAPACITY as u64;

/// Who counts what peers do.
///
/// An atomic operation that fetches and modifies is a read to an endpoint (`fi_endpoint(3)`), and a write, too, to the memory that it
/// modifies (`fi_mr(3)`): OpenSHMEM waits for it there.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Reads, and atomic operations that fetch (`FI_REMOTE_READ`).
    pub read: Option<Arc<Counter>>,
    /// Writes, and atomic operations that do not fetch, or of memory those that modify it (`FI_REMOTE_WRITE`).
    pub write: Option<Arc<Counter>>,
}

/// What a peer's operation does with memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    /// Its initiator is given what was there.
    pub(crate) fetches: bool,
    pub(crate) modifies: bool,
}

impl Counts {
    const fn is_empty(&self) -> bool {
        self.read.is_none() && self.write.is_none()
    }

    /// Counts it as one operation of an endpoint.
    fn add_of_endpoint(&self, effect: Effect) {
        let counter = match effect.fetches {
            true => &self.read,
            false => &self.write,
        };
        counter.iter().for_each(|counter| counter.add(1));
    }

    /// Counts what it does with memory; once, where one counter counts both.
    fn add_of_memory(&self, effect: Effect) {
        let write = self.write.as_ref().filter(|_| effect.modifies);
        let read = self
            .read
            .as_ref()
            .filter(|read| effect.fetches && write.is_none_or(|write| !Arc::ptr_eq(read, write)));
        write
            .into_iter()
            .chain(read)
            .for_each(|counter| counter.add(1));
    }

    /// Others count from now on, of what these say.
    fn update(&mut self, with: Self) {
        self.read = with.read.or(self.read.take());
        self.write = with.write.or(self.write.take());
    }
}

/// What an endpoint knows of its peers' accesses.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    /// Made when somebody counts.
    eq: Option<EqHandle>,
    /// Of all memory.
    of_endpoint: Counts,
}

impl Core {
    /// The event queues, and how many there are: the one of accesses is the second.
    pub(crate) fn queues(&self) -> ([EqHandle; 2], usize) {
        match self.accesses.eq {
            None => ([self.eq; 2], 1),
            Some(accesses) => ([self.eq, accesses], 2),
        }
    }

    /// The descriptor of registered memory.
    pub(crate) fn memory_spec(
        &mut self,
        buffer: &Buffer,
        access: Access,
        counts: &Counts,
    ) -> Result<MdSpec, Refused> {
        let mut options = MdOptions::MANAGE_REMOTE;
        if access.read {
            options |= MdOptions::OP_GET;
        }
        if access.write {
            options |= MdOptions::OP_PUT;
        }
        let eq = if counts.is_empty() && self.accesses.of_endpoint.is_empty() {
            None
        } else {
            options |= MdOptions::EVENT_START_DISABLE | MdOptions::EVENT_AUTO_UNLINK_DISABLE;
            Some(self.queue_of_accesses()?)
        };
        Ok(MdSpec {
            memory: buffer.memory(),
            threshold: -1,
            max_size: 0,
            options,
            user_ptr: ACCESS,
            eq,
        })
    }

    fn queue_of_accesses(&mut self) -> Result<EqHandle, Refused> {
        let eq = match self.accesses.eq {
            Some(eq) => eq,
            None => self.ni.eq_alloc(EVENTS)?,
        };
        self.accesses.eq = Some(eq);
        Ok(eq)
    }

    /// Accesses to all memory are counted from now on.
    pub(crate) fn count_all(&mut self, counts: Counts) -> Result<(), Refused> {
        if self.life != Life::Open {
            return Ok(());
        }
        self.accesses.of_endpoint.update(counts);
        let keys: Vec<u64> = self.memory.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.renew(key))
    }

    /// Accesses to the memory of this key are counted from now on.
    pub(crate) fn count_of(&mut self, key: u64, counts: Counts) -> Result<(), Refused> {
        if self.life != Life::Open {
            return Ok(());
        }
        let registered = self.memory.get_mut(&key).ok_or(Refused::Invalid)?;
        registered.counts.update(counts);
        self.renew(key)
    }

    /// Gives the descriptor of a key what its counts and rights are now.
    pub(crate) fn renew(&mut self, key: u64) -> Result<(), Refused> {
        let registered = self.memory.get(&key).ok_or(Refused::Invalid)?;
        let Registered {
            md, buffer, access, ..
        } = registered;
        let (md, buffer, access) = (*md, buffer.clone(), *access);
        let counts = registered.counts.clone();
        let spec = self.memory_spec(&buffer, access, &counts)?;
        self.ni.md_update(md, spec, None)?;
        Ok(())
    }

    /// A peer's access has ended.
    pub(crate) fn accessed(&self, event: &Brief) {
        let (fetches, modifies) = match event.kind {
            EventKind::PutEnd => (false, true),
            EventKind::GetEnd => (true, false),
            _ => return,
        };
        if event.ni_fail == NiFail::OK {
            let effect = Effect { fetches, modifies };
            self.count_access(event.match_bits, effect);
        }
    }

    /// A peer has accessed the memory of this key.
    pub(crate) fn count_access(&self, key: u64, effect: Effect) {
        if let Some(registered) = self.memory.get(&key) {
            registered.counts.add_of_memory(effect);
        }
        self.accesses.of_endpoint.add_of_endpoint(effect);
    }

    /// More accesses have ended than there is room for: whoever waits for one of them learns that.
    pub(crate) fn lost_accesses(&self) {
        tracing::error!("accesses of peers were not counted: more than {EVENTS} without progress");
        let of_keys = self.memory.values().map(|registered| &registered.counts);
        for counts in of_keys.chain([&self.accesses.of_endpoint]) {
            for counter in counts.read.iter().chain(&counts.write) {
                counter.add_failed(1);
            }
        }
    }
}
