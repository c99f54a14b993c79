//! The address vector: which peer has which index, and what is known of it.

use super::super::handshake::Card;
use super::contact::{Contact, Means};
use super::words::Session;
use fabric_api::address::{Address, AddressBook, Entry};
use portals_core::ProcessId;
use std::collections::BTreeMap;

/// A peer that has an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) entry: Entry,
    pub(super) session: Session,
}

/// The peers of an endpoint by index, and by process. Index 0 is the endpoint itself.
#[derive(Debug)]
pub(crate) struct AddressVector {
    pub(super) book: AddressBook,
    pub(super) means: Means,
    /// Peers at a time.
    pub(super) most: usize,
    /// By index.
    known: Vec<Option<Known>>,
    index: BTreeMap<ProcessId, usize>,
    free: Vec<usize>,
    /// Number of the last session, to whomever; never 0.
    sessions: u32,
    /// The generation of the book that was followed.
    followed: u64,
}

impl AddressVector {
    pub(super) fn new(book: AddressBook, means: Means, most: usize) -> Self {
        Self {
            book,
            means,
            most,
            known: vec![None],
            index: BTreeMap::new(),
            free: Vec::new(),
            sessions: 0,
            followed: 0,
        }
    }

    /// Whether all that has changed in the book up to this generation has had its effect.
    #[inline]
    pub(super) fn follows(&self, generation: u64) -> bool {
        generation == self.followed
    }

    /// The peers that have left the book since the last time.
    pub(super) fn gone(&mut self) -> Vec<usize> {
        let generation = self.book.generation();
        if self.follows(generation) {
            return Vec::new();
        }
        self.followed = generation;
        let gone = |index: &usize| self.known(*index).is_some_and(|k| !self.is_in_book(k));
        self.indices().into_iter().filter(gone).collect()
    }

    fn next_session(&mut self) -> Session {
        self.sessions = self.sessions.wrapping_add(1).max(1);
        let own = self.sessions;
        Session { own, theirs: 0 }
    }

    /// The index of a process.
    pub(crate) fn find(&self, id: ProcessId) -> Option<usize> {
        self.index.get(&id).copied()
    }

    pub(super) fn known(&self, index: usize) -> Option<&Known> {
        self.known.get(index)?.as_ref()
    }

    pub(super) fn known_mut(&mut self, index: usize) -> Option<&mut Known> {
        self.known.get_mut(index)?.as_mut()
    }

    /// Whether nothing but its own request has made a peer known.
    pub(super) fn is_inbound(&self, index: usize) -> bool {
        let known = self.known(index);
        known.is_some_and(|known| self.book.is_inbound(known.entry.address.id()))
    }

    /// All that have an index.
    pub(super) fn indices(&self) -> Vec<usize> {
        let given = |(index, known): (usize, &Option<Known>)| known.as_ref().map(|_| index);
        self.known.iter().enumerate().filter_map(given).collect()
    }

    /// Where a peer takes words, and its token.
    pub(crate) fn contact(&self, index: usize) -> Option<Contact> {
        Contact::of(&self.known(index)?.entry.address)
    }

    pub(super) fn is_full(&self) -> bool {
        self.index.len() >= self.most
    }

    /// Gives a peer an index; `None` if there are as many as there may be.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let index = self.free.pop().unwrap_or(self.known.len());
        if index == self.known.len() {
            self.known.push(None);
        }
        let session = self.next_session();
        self.known[index] = Some(Known { entry, session });
        self.index.insert(entry.address.id(), index);
        Some(index)
    }

    /// What was said to this peer and by it is over.
    pub(super) fn renew(&mut self, index: usize) {
        let session = self.next_session();
        if let Some(known) = self.known_mut(index) {
            known.session = session;
        }
    }

    /// Takes an index back.
    pub(super) fn remove(&mut self, index: usize) -> Option<Known> {
        let known = self.known.get_mut(index)?.take()?;
        self.index.remove(&known.entry.address.id());
        self.free.push(index);
        Some(known)
    }

    /// Whether the book has this peer, and has had it ever since it got its index.
    pub(super) fn is_in_book(&self, known: &Known) -> bool {
        self.book.entry(known.entry.address.id()) == Some(known.entry)
    }

    /// The process with this address.
    pub(super) fn address(&self, id: ProcessId, card: &Card) -> Option<Address> {
        let contact = Contact {
            means: self.means,
            address: card.address,
            token: card.token,
        };
        contact.address_of(id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::contact::reachable;
    use super::*;
    use verbs_backend::{DatagramAddress, Gid};

    fn contact(number: u32) -> Contact {
        let address = DatagramAddress {
            qpn: number,
            qkey: 1,
            lid: 0,
            gid: Gid([1; 16]),
        };
        Contact {
            means: Means::Ethernet,
            address,
            token: number.into(),
        }
    }

    fn address(number: u32) -> Address {
        let id = ProcessId::new(number, 7);
        contact(number).address_of(id).unwrap()
    }

    fn vector(most: usize) -> AddressVector {
        let book = AddressBook::new(address(1000), reachable);
        AddressVector::new(book, Means::Ethernet, most)
    }

    fn meet(v: &mut AddressVector, number: u32) -> Option<usize> {
        let id = v.book.insert(&address(number)).unwrap();
        let entry = v.book.entry(id).unwrap();
        v.insert(entry)
    }

    #[test]
    fn the_book_has_contacts_and_the_vector_grows_with_who_is_talked_to() {
        let mut v = vector(100);
        for number in 1..=50 {
            v.book.insert(&address(number)).unwrap();
        }
        assert_eq!(v.known.len(), 1, "being in the book costs nothing here");
        let (a, b) = (meet(&mut v, 9).unwrap(), meet(&mut v, 3).unwrap());
        assert_eq!((a, b, v.known.len()), (1, 2, 3));
        assert_eq!(v.find(ProcessId::new(9, 7)), Some(1));
        assert_eq!(v.find(ProcessId::new(5, 7)), None);
        assert_eq!(v.contact(2), Some(contact(3)));
        assert_eq!((v.contact(0), v.contact(3)), (None, None));
        assert_eq!(v.indices(), [1, 2]);
    }

    #[test]
    fn an_index_is_given_out_again_and_sessions_are_not() {
        let mut v = vector(2);
        let mut seen = std::collections::BTreeSet::new();
        for number in 1..=100 {
            let index = meet(&mut v, number).unwrap();
            assert!(index <= 2 && seen.insert(v.known(index).unwrap().session.own));
            v.renew(index);
            let session = v.known(index).unwrap().session;
            assert!(session.theirs == 0 && seen.insert(session.own));
            if number % 2 == 0 {
                assert_eq!(meet(&mut v, 200), None, "it is full");
                for index in v.indices() {
                    v.remove(index).unwrap();
                    assert!(v.remove(index).is_none() && v.known(index).is_none());
                }
            }
        }
        assert_eq!(v.known.len(), 3);
        assert!(!seen.contains(&0));
        v.sessions = u32::MAX;
        assert_eq!(v.next_session().own, 1);
    }

    #[test]
    fn a_peer_that_was_removed_and_inserted_again_is_another_one() {
        let mut v = vector(2);
        let index = meet(&mut v, 4).unwrap();
        let known = *v.known(index).unwrap();
        assert!(v.is_in_book(&known));
        v.book.insert(&address(5)).unwrap();
        assert!(v.is_in_book(&known));
        assert!(v.gone().is_empty() && v.follows(v.book.generation()));
        let id = known.entry.address.id();
        v.book.remove(id);
        assert!(!v.is_in_book(&known) && !v.follows(v.book.generation()));
        v.book.insert(&known.entry.address).unwrap();
        assert!(!v.is_in_book(&known));
        assert_eq!(v.gone(), [index]);
        assert!(v.gone().is_empty(), "it is asked once");
    }
}
