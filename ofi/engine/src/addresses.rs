//! The peers of an address vector: numbers of the program's for processes.

use portals_shim::ProcessId;
use portals_shim::endpoint::{Address, AddressError};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct State {
    all: Vec<Option<Address>>,
    /// By process: the first of its numbers.
    numbers: HashMap<ProcessId, u64>,
    /// The one that was asked for last: most programs hear of a peer several times in a row.
    latest: Option<(ProcessId, u64)>,
}

/// Peers by number, in the order in which they were inserted. Any thread may call every method.
#[derive(Debug, Default)]
pub struct Addresses(Mutex<State>);

impl Addresses {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts an address; one that is there already gets another number, and messages of that peer keep the first.
    ///
    /// # Errors
    /// The bytes are no address.
    pub fn insert(&self, bytes: &[u8]) -> Result<(u64, Address), AddressError> {
        let address = Address::from_bytes(bytes)?;
        let mut state = self.state();
        let number = state.all.len() as u64;
        state.all.push(Some(address));
        state.numbers.entry(address.id()).or_insert(number);
        Ok((number, address))
    }

    /// Forgets a number; the address is given if no other number means it.
    pub fn remove(&self, number: u64) -> Option<Address> {
        let mut state = self.state();
        let removed = state.all.get_mut(usize::try_from(number).ok()?)?.take()?;
        state.latest = None;
        let other = state.all.iter().position(|a| *a == Some(removed));
        match other {
            Some(other) => {
                state.numbers.insert(removed.id(), other as u64);
                None
            }
            None => {
                state.numbers.remove(&removed.id());
                Some(removed)
            }
        }
    }

    /// The process of a number.
    pub fn process(&self, number: u64) -> Option<ProcessId> {
        self.address(number).map(|address| address.id())
    }

    /// The address of a number.
    pub fn address(&self, number: u64) -> Option<Address> {
        *self.state().all.get(usize::try_from(number).ok()?)?
    }

    /// The number of a process.
    pub fn number(&self, id: ProcessId) -> Option<u64> {
        let mut state = self.state();
        if let Some((latest, number)) = state.latest
            && latest == id
        {
            return Some(number);
        }
        let number = *state.numbers.get(&id)?;
        state.latest = Some((id, number));
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

    #[test]
    fn numbers_follow_the_order_of_insertion() {
        let address = |nid| Address::new(FabricKind::Shm, ProcessId::new(nid, 1), b"x").unwrap();
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
}
