//! The fabric of an endpoint: connections that follow its book.
//!
//! Whatever comes in looks first whether the book has changed. In a job nothing does, so that its operations cost what they
//! did before there were endpoints.

use super::super::verbs::Verbs;
use super::contact::Means;
use super::vector::AddressVector;
use fabric_api::address::AddressBook;
use fabric_api::call::{Paths, RemoteKey, Target};
use fabric_api::nal::{Armed, Awaiting, Direction, Look, Nal, Outcome, Schedule, Waiter};
use fabric_api::op::{Capabilities, Put};
use portals_core::{Error, Landing, MdHandle, Ni, OpId, ProcessId, ReadyPut, Transmit};
use std::sync::Arc;

/// Connections to the peers in a book, and to inbound ones.
#[derive(Debug)]
pub(crate) struct EndpointNal {
    pub(crate) verbs: Verbs,
    book: AddressBook,
}

impl EndpointNal {
    pub(super) fn new(mut verbs: Verbs, book: AddressBook, means: Means, most: usize) -> Self {
        book.ring_when_removed(Arc::clone(&verbs.conn.bell));
        let vector = AddressVector::new(book.clone(), means, most);
        verbs.conn.vector = Some(Box::new(vector));
        Self { verbs, book }
    }

    pub(crate) fn book(&self) -> &AddressBook {
        &self.book
    }

    #[inline]
    fn is_followed(&self) -> bool {
        let vector = self.verbs.conn.vector.as_ref();
        vector.is_none_or(|v| v.follows(self.book.generation()))
    }

    #[inline]
    fn follow(&mut self, ni: &mut Ni) -> bool {
        !self.is_followed() && self.verbs.follow_book(ni)
    }
}

impl Nal for EndpointNal {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        self.follow(ni);
        self.verbs.send(ni, tx, key);
    }

    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        match self.is_followed() {
            true => self.verbs.put(ni, ready, put),
            false => Outcome::Declined,
        }
    }

    fn begun(&mut self, number: u64, op: OpId) {
        self.verbs.begun(number, op);
    }

    fn get(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        self.is_followed() && self.verbs.get(ni, md, region, from)
    }

    fn transfer(&mut self, way: Direction, local: &Landing, remote: &Target) -> bool {
        self.is_followed() && self.verbs.transfer(way, local, remote)
    }

    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        let gone = self.follow(ni);
        let (awaiting, any) = self.verbs.await_end(ni);
        (awaiting, any | gone)
    }

    fn unawait(&mut self, ni: &mut Ni) {
        self.verbs.unawait(ni);
    }

    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool {
        self.follow(ni) | self.verbs.progress(ni, look)
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        self.follow(ni) | self.verbs.attend(ni)
    }

    fn schedule(&self) -> Schedule {
        self.verbs.schedule()
    }

    fn waiter(&self) -> Waiter {
        self.verbs.waiter()
    }

    fn arm(&mut self) -> Armed {
        self.verbs.arm()
    }

    fn publish(&mut self, ni: &mut Ni) {
        self.verbs.publish(ni);
    }

    fn withdraw(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.follow(ni);
        self.verbs.withdraw(ni, md)
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        self.verbs.remote_key(ni, md)
    }

    fn capabilities(&self) -> Capabilities {
        self.verbs.capabilities()
    }

    /// Everybody else is on another node.
    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.book.own().id() {
            return Some(0);
        }
        self.book.find(to).map(|_| 1)
    }

    fn statistics(&self) -> Paths {
        self.verbs.statistics()
    }

    fn close(&mut self, ni: &mut Ni) {
        self.follow(ni);
        self.verbs.close(ni);
    }
}
