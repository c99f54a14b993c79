//! The fabric of an endpoint: connections that follow its book.
//!
//! Whatever comes in looks first whether the book has changed. In a job nothing does, so that its operations cost what they
//! did before there were endpoints.

use super::super::Verbs;
use super::contact::Means;
use super::vector::AddressVector;
use fabric_api::address::AddressBook;
use fabric_api::call::{Paths, RemoteKey, Target};
use fabric_api::nal::{Attendance, Awaiting, Nal};
use portals_core::{Error, Header, Landing, MdHandle, Ni, OpId, ProcessId, Segment, Transmit};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections to the peers in a book, and to inbound ones.
#[derive(Debug)]
pub(crate) struct EndpointNal {
    pub(crate) verbs: Verbs,
    book: AddressBook,
}

impl EndpointNal {
    pub(super) fn new(mut verbs: Verbs, book: AddressBook, means: Means, most: usize) -> Self {
        book.ring_when_removed(Arc::clone(&verbs.bell));
        let vector = AddressVector::new(book.clone(), means, most);
        verbs.vector = Some(Box::new(vector));
        Self { verbs, book }
    }

    pub(crate) fn book(&self) -> &AddressBook {
        &self.book
    }

    #[inline]
    fn is_followed(&self) -> bool {
        let vector = self.verbs.vector.as_ref();
        vector.is_none_or(|v| v.follows(self.book.generation()))
    }

    #[inline]
    fn follow(&mut self, ni: &mut Ni) -> bool {
        !self.is_followed() && self.verbs.follow_book(ni)
    }
}

impl Nal for EndpointNal {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        self.follow(ni);
        self.verbs.send(ni, tx);
    }

    fn send_now(&mut self, header: &Header, payload: &[Segment]) -> bool {
        self.is_followed() && self.verbs.send_now(header, payload)
    }

    fn lend_now(&mut self, header: &Header, payload: &[Segment], md: MdHandle) -> Option<u64> {
        let followed = self.is_followed();
        followed.then(|| self.verbs.lend_now(header, payload, md))?
    }

    fn begun(&mut self, number: u64, op: OpId) {
        self.verbs.begun(number, op);
    }

    fn makes_puts(&self) -> bool {
        self.verbs.makes_puts()
    }

    fn send_made(&mut self, header: &Header, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.is_followed() && self.verbs.send_made(header, fill)
    }

    fn writes_ahead(&self, header: &Header, payload: &[Segment]) -> bool {
        self.is_followed() && self.verbs.writes_ahead(header, payload)
    }

    fn write_ahead(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        self.follow(ni);
        self.verbs.write_ahead(ni, tx);
    }

    fn fetch_now(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        self.is_followed() && self.verbs.fetch_now(ni, md, region, from)
    }

    fn fetch_awaited(&mut self, landing: &Landing, from: &Target) -> bool {
        self.is_followed() && self.verbs.fetch_awaited(landing, from)
    }

    fn send_awaited(&mut self, source: &Landing, to: &Target) -> bool {
        self.is_followed() && self.verbs.send_awaited(source, to)
    }

    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        let gone = self.follow(ni);
        let (awaiting, any) = self.verbs.await_end(ni);
        (awaiting, any | gone)
    }

    fn unawait(&mut self, ni: &mut Ni) {
        self.verbs.unawait(ni);
    }

    fn progress(&mut self, ni: &mut Ni) -> bool {
        self.follow(ni) | self.verbs.progress(ni)
    }

    fn glance(&mut self, ni: &mut Ni) -> bool {
        self.follow(ni) | self.verbs.glance(ni)
    }

    fn lists_changed(&mut self, ni: &mut Ni) {
        self.verbs.lists_changed(ni);
    }

    fn retire(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.follow(ni);
        self.verbs.retire(ni, md)
    }

    fn attendance(&self) -> Option<Attendance> {
        self.verbs.attendance()
    }

    fn looks(&self) -> u32 {
        self.verbs.looks()
    }

    fn arm(&mut self) -> bool {
        self.verbs.arm()
    }

    fn longest(&self) -> Option<Duration> {
        self.verbs.longest()
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        self.follow(ni) | self.verbs.attend(ni)
    }

    fn due(&self) -> Option<Instant> {
        self.verbs.due()
    }

    fn is_busy(&self) -> bool {
        self.verbs.is_busy()
    }

    fn is_gone(&self) -> bool {
        self.verbs.is_gone()
    }

    /// Everybody else is on another node.
    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.book.own().id() {
            return Some(0);
        }
        self.book.find(to).map(|_| 1)
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        self.verbs.remote_key(ni, md)
    }

    fn aim(&mut self, key: Option<RemoteKey>) {
        self.verbs.aim(key);
    }

    fn pins(&self) -> bool {
        self.verbs.pins()
    }

    fn pinnable(&self) -> Option<u64> {
        self.verbs.pinnable()
    }

    fn exposable(&self) -> Option<u64> {
        self.verbs.exposable()
    }

    fn paths(&self) -> Paths {
        self.verbs.paths()
    }

    fn close(&mut self, ni: &mut Ni) {
        self.follow(ni);
        self.verbs.close(ni);
    }
}
