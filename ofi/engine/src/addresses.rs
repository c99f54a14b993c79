//! The peers of an address vector: numbers of the program's for processes.

use portals_shim::ProcessId;
use portals_shim::endpoint::{Address, AddressError};
use smallvec::SmallVec;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    all: Vec<Option<Address>>,
    /// Numbers that mean nobody any more, each of which is given again, the smallest first.
    free: BTreeSet<usize>,
    /// By process: its numbers, in the order in which it got them.
    numbers: BTreeMap<ProcessId, SmallVec<[u64; 2]>>,
}

/// A process in 64 bits. [`ProcessId::ANY`] is none.
fn pack(id: Option<ProcessId>) -> u64 {
    let id = id.unwrap_or(ProcessId::ANY);
    u64::from(id.nid) << 32 | u64::from(id.pid)
}

fn unpack(word: u64) -> Option<ProcessId> {
    let id = ProcessId::new((word >> 32) as u32, word as u32);
    (id != ProcessId::ANY).then_some(id)
}

/// Peers by number, in the order in which they were inserted. Any thread may call every method.
///
/// Whoever sends asks for a process by its number, and takes no lock for it.
#[derive(Debug, Default)]
pub struct Addresses {
    /// By number, [packed](pack).
    processes: boxcar::Vec<AtomicU64>,
    /// Removals so far: what number a process has may be another after one, and after nothing else.
    removals: AtomicU64,
    state: Mutex<State>,
}

/// The number of a process, as it was after so many removals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    id: ProcessId,
    number: u64,
    removals: u64,
}

impl Addresses {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts an address; one that is there already gets another number, and messages of that peer keep the first. The number is the
    /// next one, or one that was removed: what a program inserts and removes again and again takes no more room.
    ///
    /// # Errors
    /// The bytes are no address.
    pub fn insert(&self, bytes: &[u8]) -> Result<(u64, Address), AddressError> {
        let address = Address::from_bytes(bytes)?;
        let mut state = self.state();
        let process = pack(Some(address.id()));
        let again = state.free.pop_first();
        let at = again.unwrap_or(state.all.len());
        match (again, self.processes.get(at)) {
            (Some(_), Some(word)) => {
                state.all[at] = Some(address);
                word.store(process, Ordering::Release);
            }
            _ => {
                // The lock makes the two lists grow alike.
                state.all.push(Some(address));
                self.processes.push(AtomicU64::new(process));
            }
        }
        let number = at as u64;
        state.numbers.entry(address.id()).or_default().push(number);
        Ok((number, address))
    }

    /// Forgets a number; the address is given if no other number means it.
    pub fn remove(&self, number: u64) -> Option<Address> {
        let at = usize::try_from(number).ok()?;
        let mut state = self.state();
        let removed = state.all.get_mut(at)?.take()?;
        self.processes.get(at)?.store(pack(None), Ordering::Release);
        state.free.insert(at);
        let mut is_last = true;
        if let Entry::Occupied(mut entry) = state.numbers.entry(removed.id()) {
            entry.get_mut().retain(|other| *other != number);
            is_last = entry.get().is_empty();
            if is_last {
                entry.remove();
            }
        }
        self.removals.fetch_add(1, Ordering::Release);
        is_last.then_some(removed)
    }

    /// The process of a number.
    pub fn process(&self, number: u64) -> Option<ProcessId> {
        let process = self.processes.get(usize::try_from(number).ok()?)?;
        unpack(process.load(Ordering::Acquire))
    }

    /// The address of a number.
    pub fn address(&self, number: u64) -> Option<Address> {
        *self.state().all.get(usize::try_from(number).ok()?)?
    }

    /// The number of a process.
    pub fn number(&self, id: ProcessId) -> Option<u64> {
        self.state().numbers.get(&id)?.first().copied()
    }

    /// The same for who has asked before, which takes a lock only for another process or after a removal.
    pub(crate) fn number_after(&self, id: ProcessId, latest: &mut Option<Numbered>) -> Option<u64> {
        // Before the look: a removal meanwhile has the next one look again.
        let removals = self.removals.load(Ordering::Acquire);
        let known = latest.filter(|known| known.id == id && known.removals == removals);
        if let Some(known) = known {
            return Some(known.number);
        }
        let number = self.number(id)?;
        *latest = Some(Numbered {
            id,
            number,
            removals,
        });
        Some(number)
    }

    /// All that are known.
    pub fn all(&self) -> Vec<Address> {
        self.state().all.iter().flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portals_shim::fabric::FabricKind;

    fn address(nid: u32) -> Address {
        Address::new(FabricKind::Shm, ProcessId::new(nid, 1), b"x").unwrap()
    }

    #[test]
    fn numbers_follow_the_order_of_insertion() {
        let book = Addresses::default();
        for (number, nid) in [(0, 5), (1, 6), (2, 5)] {
            let (got, _) = book.insert(&address(nid).to_bytes()).unwrap();
            assert_eq!(got, number);
        }
        assert_eq!(book.number(ProcessId::new(5, 1)), Some(0));
        assert_eq!(book.process(2), Some(ProcessId::new(5, 1)));
        assert_eq!(book.remove(0), None, "number 2 means it too");
        assert_eq!(book.number(ProcessId::new(5, 1)), Some(2));
        assert_eq!(book.remove(2), Some(address(5)));
        assert_eq!(book.number(ProcessId::new(5, 1)), None);
        assert_eq!((book.process(0), book.process(9)), (None, None));
        assert!(book.insert(b"short").is_err());
        assert_eq!(book.all(), [address(6)]);
    }

    #[test]
    fn what_comes_and_goes_takes_no_more_numbers() {
        let book = Addresses::default();
        let id = |nid| ProcessId::new(nid, 1);
        book.insert(&address(1).to_bytes()).unwrap();
        for nid in 2..1000 {
            let (number, _) = book.insert(&address(nid).to_bytes()).unwrap();
            assert_eq!((number, book.process(1)), (1, Some(id(nid))));
            assert_eq!(book.number(id(nid)), Some(1));
            assert_eq!(book.remove(number), Some(address(nid)));
            assert_eq!(book.remove(number), None);
            assert_eq!((book.number(id(nid)), book.process(1)), (None, None));
        }
        for number in [0, 3, 2, 1] {
            book.remove(number);
        }
        let [first, second, third] =
            [7, 8, 7].map(|nid| book.insert(&address(nid).to_bytes()).unwrap().0);
        assert_eq!((first, second, third), (0, 1, 2));
        // The first of the numbers is the one that a peer got first, and not the smallest.
        book.remove(first);
        assert_eq!(book.insert(&address(7).to_bytes()).unwrap().0, 0);
        assert_eq!(book.number(id(7)), Some(2));
    }

    #[test]
    fn what_was_asked_before_is_asked_again_after_a_removal() {
        let book = Addresses::default();
        let (id, other) = (ProcessId::new(5, 1), ProcessId::new(6, 1));
        let mut latest = None;
        assert_eq!(book.number_after(id, &mut latest), None);
        for nid in [5, 6, 5] {
            book.insert(&address(nid).to_bytes()).unwrap();
        }
        assert_eq!(book.number_after(id, &mut latest), Some(0));
        assert_eq!(book.number_after(other, &mut latest), Some(1));
        assert_eq!(book.number_after(id, &mut latest), Some(0));
        book.remove(0);
        assert_eq!(book.number_after(id, &mut latest), Some(2));
        book.remove(2);
        assert_eq!(book.number_after(id, &mut latest), None);
    }
}
