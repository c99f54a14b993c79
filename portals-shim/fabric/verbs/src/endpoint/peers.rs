//! Who comes to an endpoint, who goes, and whose word counts.
//!
//! # Invariants
//!
//! * A peer has an index from the first message to it, or the first word of it, to the end of the session: it is not in
//!   the book any more, it or this side disconnects, or its place is needed by another one after it was given up.
//! * With an index goes all that was under way: nothing is left that a later peer with the same one would inherit
//!   ([`Verbs::fail_peer`]).
//! * An inbound peer, which no program here has connected to, leaves the book with its index, so that strangers do not fill it.

use super::super::handshake::{self, Card, Message, Refusal, Stage, Word};
use super::super::link::NOWHERE;
use super::super::peer::Peer;
use super::super::verbs::{NOBODY, Verbs};
use super::words::{BYTES, Belongs, Sender, Session, Tail, belongs};
use crate::contact::Contact;
use fabric_api::address::{Address, Entry};
use portals_core::{Ni, ProcessId, Transmit};
use std::collections::VecDeque;
use std::fmt::Display;

impl Verbs {
    /// The index of a process that an endpoint talks to.
    #[cold]
    pub(crate) fn index_of(&self, id: ProcessId) -> Option<usize> {
        self.conn.vector.as_ref()?.find(id)
    }

    /// An index for a process that the book has and nobody has talked to.
    #[cold]
    pub(crate) fn assign_index(&mut self, ni: &mut Ni, id: ProcessId) -> Option<usize> {
        let vector = self
            .conn
            .vector
            .as_ref()
            .filter(|_| !self.closed && !self.gone)?;
        let entry = vector.book.entry(id)?;
        let index = self.admit(ni, entry);
        if index.is_none() {
            let (nid, pid) = (id.nid, id.pid);
            tracing::error!(nid, pid, "the operation fails: {}", self.no_place());
        }
        index
    }

    fn no_place(&self) -> String {
        let most = self.conn.vector.as_ref().map_or(0, |v| v.most);
        let device = self.adapter.device().name();
        format!(
            "the endpoint has its {most} peers, for whom it has queues on {device}: one must be disconnected first"
        )
    }

    /// Gives a peer an index, if need be that of one that was given up.
    fn admit(&mut self, ni: &mut Ni, entry: Entry) -> Option<usize> {
        if !self.has_place() {
            return None;
        }
        if self.conn.vector.as_ref()?.is_full()
            && let Some(useless) = self.useless()
        {
            self.part(ni, useless, &"its place is needed");
        }
        let index = self.conn.vector.as_mut()?.insert(entry)?;
        self.peers.name(index, entry.address.id())?;
        Some(index)
    }

    /// Whether there is a place for one more peer. If not, those that seem idle have to show that they are there, so that the
    /// places of dead ones are free later.
    fn has_place(&mut self) -> bool {
        let full = self.conn.vector.as_ref().is_some_and(|v| v.is_full());
        if !full || self.useless().is_some() {
            return true;
        }
        self.peers.each(|peer| {
            if peer.is_unused() && peer.is_open() {
                peer.sq.probe();
            }
        });
        false
    }

    /// A peer that was given up, or that nothing is known of but its address.
    fn useless(&self) -> Option<usize> {
        let is = |index: &usize| match self.peers.get(*index) {
            Some(peer) => {
                let idle = peer.session.stage() == Stage::Idle
                    && peer.sq.qp().is_none()
                    && peer.is_unused();
                peer.is_failed() || idle
            }
            None => true,
        };
        self.conn.vector.as_ref()?.indices().into_iter().find(is)
    }

    /// Forgets what was said between a peer and this side; its operations fail.
    fn forget(&mut self, ni: &mut Ni, index: usize, why: &dyn Display) {
        self.fail_peer(ni, index, why);
        self.peers.forget(index);
        self.count_pending();
    }

    /// The session with a peer is over, and its index is free.
    fn part(&mut self, ni: &mut Ni, index: usize, why: &dyn Display) {
        self.forget(ni, index, why);
        self.peers.unname(index);
        let Some(vector) = &mut self.conn.vector else {
            return;
        };
        if let Some(known) = vector.remove(index)
            && vector.is_in_book(&known)
        {
            vector.book.remove_inbound(known.entry.address.id());
        }
    }

    /// Lets go whom the book has not any more; whether there was somebody.
    #[cold]
    pub(crate) fn follow_book(&mut self, ni: &mut Ni) -> bool {
        let Some(vector) = self
            .conn
            .vector
            .as_mut()
            .filter(|_| !self.closed && !self.gone)
        else {
            return false;
        };
        let gone = vector.gone();
        for index in &gone {
            if self.peer(*index).is_some_and(|p| !p.is_failed()) {
                let word = self.datagram(*index, Word::Disconnect, 0, NOWHERE);
                self.tell_peer(*index, &word.to_bytes());
            }
            self.say_left(*index);
            self.part(ni, *index, &"it was disconnected");
        }
        !gone.is_empty()
    }

    /// The end of the session is no loss, since somebody wants it.
    fn say_left(&mut self, index: usize) {
        if let Some(peer) = self.peer(index) {
            peer.session.said_bye = true;
        }
    }

    /// A peer has disconnected, or knows nothing of the session.
    pub(crate) fn peer_disconnected(&mut self, ni: &mut Ni, index: usize) {
        let answered =
            |p: &&mut Peer| p.session.stage() == Stage::Answered && p.requests.sent() == 0;
        if let Some(peer) = self.peer(index).filter(answered) {
            // Its request was an old one, and nothing has been sent: what waits for it goes another time.
            let held = std::mem::take(&mut peer.held);
            if !held.is_empty() {
                return self.ask_again(ni, index, held);
            }
        }
        // What it sent before has arrived, and counts.
        while self.poll_once(ni) > 0 {}
        self.take_ring(ni, index);
        self.say_left(index);
        self.part(ni, index, &"it has disconnected");
    }

    /// Begins anew with a peer that these operations wait for.
    fn ask_again(&mut self, ni: &mut Ni, index: usize, held: VecDeque<Transmit>) {
        self.say_left(index);
        self.begin_anew(ni, index, &"its request was an old one");
        if let Some(peer) = self.meet(index) {
            peer.held = held;
        }
        self.dial(ni, index);
    }

    /// What was said between a peer and this side is over, and its index stays.
    fn begin_anew(&mut self, ni: &mut Ni, index: usize, why: &dyn Display) {
        self.forget(ni, index, why);
        if let Some(vector) = &mut self.conn.vector {
            vector.renew(index);
        }
    }

    /// A peer wants no connection. In a job that is for good; an endpoint may ask anew.
    pub(crate) fn peer_refused(&mut self, ni: &mut Ni, index: usize, why: Refusal) {
        match self.conn.vector {
            Some(_) => self.part(ni, index, &why),
            None => self.fail_peer(ni, index, &why),
        }
    }

    /// A peer has closed in good order: an inbound one is not remembered.
    pub(crate) fn forget_inbound(&mut self, ni: &mut Ni, index: usize) {
        let vector = self.conn.vector.as_ref();
        if vector.is_some_and(|vector| vector.is_inbound(index)) {
            self.part(ni, index, &"it has closed");
        }
    }

    /// Where a peer takes words, and the token that they must carry.
    pub(crate) fn contact_of(&mut self, index: usize) -> Result<Contact, String> {
        let Some(vector) = &self.conn.vector else {
            return self.conn.directory.find(index as u32);
        };
        let contact = vector.contact(index).map(|c| (c.address, c.token));
        contact.ok_or_else(|| "it is not in the book".to_owned())
    }

    /// How a word names this process, or a peer: node and process, in a job the rank.
    pub(crate) fn name_of(&self, index: usize) -> (u32, u32) {
        match &self.conn.vector {
            None => (index as u32, 0),
            Some(_) => {
                let id = self.peers.id(index).unwrap_or(NOBODY);
                (id.nid, id.pid)
            }
        }
    }

    /// The peer with this name that `is`; of endpoints half a name is known.
    pub(crate) fn named(&self, name: usize, is: impl Fn(usize) -> bool) -> Option<usize> {
        match &self.conn.vector {
            None => Some(name),
            Some(vector) => {
                let mut all = vector.indices().into_iter();
                all.find(|index| self.name_of(*index).0 as usize == name && is(*index))
            }
        }
    }

    /// A word to a peer of an endpoint, as it travels.
    pub(crate) fn with_tail(
        &self,
        index: usize,
        word: &[u8; handshake::BYTES],
    ) -> Option<[u8; BYTES]> {
        let known = self.conn.vector.as_ref()?.known(index)?;
        let tail = Tail::between(self.id, known.entry.address.id(), known.session);
        Some(tail.after(word))
    }

    /// A word of a peer was taken that says how it numbers the session.
    pub(crate) fn heard(&mut self, index: usize, session: u32) {
        let vector = self.conn.vector.as_mut();
        if let Some(known) = vector.and_then(|v| v.known_mut(index)) {
            known.session.theirs = session;
        }
    }

    /// Whose word this is. It has the token of this process.
    pub(crate) fn sender(&mut self, ni: &mut Ni, message: &Message, bytes: &[u8]) -> Sender {
        let Some(vector) = &self.conn.vector else {
            let (from, to) = (message.from as usize, message.to as usize);
            return match to == self.peers.own()
                && from != self.peers.own()
                && from < self.peers.len()
            {
                true => Sender::Peer(from, 0),
                false => Sender::Nobody,
            };
        };
        let Some(tail) = Tail::of(bytes) else {
            return Sender::Nobody;
        };
        let from = ProcessId::new(message.from, tail.from_pid);
        let to = ProcessId::new(message.to, tail.to_pid);
        let address = vector.address(from, &message.card);
        let Some(address) = address.filter(|_| to == self.id && from != self.id) else {
            return Sender::Nobody;
        };
        match vector.find(from) {
            Some(index) => self.known_sender(ni, index, &address, message, tail.session),
            None => self.unknown_sender(ni, &address, message, tail.session),
        }
    }

    fn known_sender(
        &mut self,
        ni: &mut Ni,
        index: usize,
        address: &Address,
        message: &Message,
        said: Session,
    ) -> Sender {
        let known = self.conn.vector.as_ref().and_then(|v| v.known(index));
        let known = known.filter(|known| known.entry.address == *address);
        let Some(session) = known.map(|known| known.session) else {
            return Sender::Nobody;
        };
        let failed = self.peer(index).is_some_and(|p| p.is_failed());
        let accepts = message.word == Word::Accept;
        match belongs(message.word, said, session, failed) {
            Belongs::Here if failed && accepts => self.disown(address, message, said),
            Belongs::Here => Sender::Peer(index, said.own),
            Belongs::Anew => {
                self.begin_anew(ni, index, &"it has begun anew");
                Sender::Peer(index, said.own)
            }
            Belongs::Over => self.refuse_sender(address, message, Refusal::Forgotten),
            Belongs::Nowhere if accepts => self.disown(address, message, said),
            Belongs::Nowhere => Sender::Done,
        }
    }

    /// A word of somebody without an index. A request of a connection makes an inbound peer.
    fn unknown_sender(
        &mut self,
        ni: &mut Ni,
        address: &Address,
        message: &Message,
        said: Session,
    ) -> Sender {
        if message.word == Word::Accept {
            return self.disown(address, message, said);
        }
        if message.word != Word::Connect || said.own == 0 {
            return Sender::Done;
        }
        if said.theirs != 0 {
            return self.refuse_sender(address, message, Refusal::Forgotten);
        }
        let Some(book) = self.conn.vector.as_ref().map(|v| v.book.clone()) else {
            return Sender::Nobody;
        };
        if !self.has_place() {
            tracing::debug!("an inbound peer is refused: {}", self.no_place());
            return self.refuse_sender(address, message, Refusal::Full);
        }
        let inserted = book.insert_inbound(address);
        if let Err(why) = &inserted {
            tracing::debug!(%why, "an inbound peer is not taken");
            return Sender::Nobody;
        }
        // It may have gone again.
        let entry = book.entry(address.id());
        match entry.and_then(|entry| self.admit(ni, entry)) {
            Some(index) => Sender::Peer(index, said.own),
            None => Sender::Done,
        }
    }

    /// Refuses somebody who need not have an index.
    fn refuse_sender(&mut self, address: &Address, request: &Message, why: Refusal) -> Sender {
        self.reply_to(address, request, Word::Refuse(why), Session::default())
    }

    /// Disconnects a process that has accepted an old request: the session is over.
    fn disown(&mut self, address: &Address, accept: &Message, said: Session) -> Sender {
        let over = Session {
            own: said.theirs,
            theirs: said.own,
        };
        self.reply_to(address, accept, Word::Disconnect, over)
    }

    /// Answers somebody who need not have an index.
    fn reply_to(
        &mut self,
        address: &Address,
        request: &Message,
        word: Word,
        session: Session,
    ) -> Sender {
        let (to, own) = (address.id(), self.id);
        let card = Card {
            uid: self.conn.who.0,
            jid: self.conn.who.1,
            attempts: self.conn.attempts,
            received: 0,
            credits: self.conn.plan.credits,
            address: self.conn.mail.address(),
            token: self.conn.token,
        };
        let answer = Message {
            word,
            from: own.nid,
            to: to.nid,
            token: request.card.token,
            attempt: request.attempt,
            card,
            endpoint: NOWHERE,
        };
        let tail = Tail::between(own, to, session);
        let way = self.conn.mail.resolve(&request.card.address);
        let sent = way.and_then(|way| self.conn.mail.send(&way, &tail.after(&answer.to_bytes())));
        if let Err(why) = sent {
            tracing::debug!(why, "an answer is not sent");
        }
        Sender::Done
    }
}
