//! Datagrams first, connections to the peers that are worth one: both fabrics of a device below one interface.
//!
//! ```text
//!   request to a rank ──► how far is the pair?  ├─ on datagrams: datagram/, counted; chatty? OFFER
//!                                               ├─ moving: waits here
//!                                               └─ connected: link.rs, send.rs, onesided.rs
//!   answer ──► the way its request came
//!   progress: both
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `moves.rs` | when a pair moves, and how |
//! | `open.rs` | the start |
//! | this one | carries that out |
//!
//! # Invariants
//!
//! * **Order.** A request goes the way that `Moves::way` says when it is made, or waits in `Auto::held` and goes
//!   before any later one. What the words of a move say of the stream of datagrams holds because they are fragments of it,
//!   and because an ack leaves only when what it acknowledges has been handled.
//! * **One end.** A peer that is gone on one way is gone on both, and what waited for it fails.
//! * **No wait of one way holds up the other**: connections' waits for confirmations make progress on datagrams too, so
//!   that peers which wait for acks meanwhile do not take this process for dead.

mod moves;
mod open;

#[cfg(test)]
pub(super) use moves::State;
#[cfg(test)]
pub(super) use open::in_parts;
pub(crate) use open::{Directory, Unconnected, key};
pub use open::{Tuning, in_threads};

use super::datagram::{DatagramNal, News};
use super::proto::select::{self, Protocol};
use super::verbs::Verbs;
use fabric_api::call::RemoteKey;
use fabric_api::call::{Channels, Paths, Target};
use fabric_api::delivery;
use fabric_api::nal::{Armed, Look, Nal, Outcome, Schedule, Waiter};
use fabric_api::op::{Capabilities, Put};
use host::awake::Awake;
use moves::{Moves, Todo, Way, Word};
use portals_core::{Body, Error, Header, MdHandle, Ni, OpId, ProcessId, ReadyPut, Transmit};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The fabric below one interface.
#[derive(Debug)]
pub struct Auto {
    rank: usize,
    connections: Verbs,
    datagrams: DatagramNal,
    moves: Moves,
    /// By rank: requests that wait for the end of a move.
    held: BTreeMap<usize, VecDeque<Transmit>>,
}

/// Whether the data of a request is more than travels with a header over a connection, there or back.
fn is_long(header: &Header) -> bool {
    let length = match header.body {
        Body::Get { length, .. } => length,
        _ => header.payload_len(),
    };
    select::by_message(length) == Protocol::RndvRead
}

impl Auto {
    fn way(&self, to: ProcessId) -> Option<(usize, Way)> {
        let rank = self.connections.rank_of(to)?;
        Some((rank, self.moves.way(rank)))
    }

    #[inline]
    fn is_connected(&self, to: ProcessId) -> bool {
        matches!(self.way(to), Some((_, Way::Connection)))
    }

    fn say(&mut self, rank: usize, word: Option<Word>) {
        if let Some(word) = word {
            self.datagrams.say(rank, word.code(), word == Word::Done);
        }
    }

    /// Offers a connection to those that have become chatty. Apart from their requests, since it takes its time.
    #[cold]
    fn offer(&mut self) {
        while let Some(rank) = self.moves.next_wanted() {
            let ready = self.connections.prepare(rank);
            let word = self.moves.offer(rank, ready);
            self.say(rank, word);
        }
    }

    /// What waited for a move goes.
    fn release(&mut self, ni: &mut Ni, rank: usize) {
        for mut tx in self.held.remove(&rank).unwrap_or_default() {
            self.connections.send(ni, &mut tx, None);
        }
    }

    fn heard(&mut self, ni: &mut Ni, rank: usize, code: u8) {
        let now = self.datagrams.now();
        let Some(word) = Word::from_code(code) else {
            return self.moves.odd();
        };
        let todo = self.moves.handle(rank, word, now);
        tracing::debug!(peer = rank, ?word, ?todo, "word");
        match todo {
            Todo::Nothing => {}
            Todo::Say(word) => self.say(rank, Some(word)),
            Todo::Prepare => {
                let ready = self.connections.prepare(rank);
                let word = self.moves.answer(rank, ready, now);
                self.say(rank, word);
            }
            Todo::Discard => self.connections.discard(rank),
            Todo::Connect => {
                self.connections.connect(ni, rank);
                self.release(ni, rank);
            }
        }
    }

    /// A peer is gone: what waited for it fails.
    fn gone(&mut self, ni: &mut Ni, rank: usize) {
        self.moves.gone(rank);
        for tx in self.held.remove(&rank).unwrap_or_default() {
            delivery::refuse(ni, &tx);
        }
    }

    /// What one way has found out concerns the other.
    #[inline]
    fn settle(&mut self, ni: &mut Ni) {
        if self.datagrams.has_news()
            || self
                .connections
                .conn
                .lost
                .as_ref()
                .is_some_and(|l| !l.is_empty())
        {
            self.settle_news(ni);
        }
    }

    fn settle_news(&mut self, ni: &mut Ni) {
        loop {
            if let Some(news) = self.datagrams.next_news() {
                match news {
                    News::Word { rank, word } => self.heard(ni, rank, word),
                    News::Arrived { rank } => {
                        if self.moves.arrived(rank) {
                            self.release(ni, rank);
                        }
                    }
                    News::Gone { rank, said } => {
                        self.gone(ni, rank);
                        self.connections.end_peer(ni, rank, said);
                    }
                }
            } else if let Some(rank) = self.connections.conn.lost.as_mut().and_then(Vec::pop) {
                self.gone(ni, rank);
                let said = self.connections.has_left(rank);
                self.datagrams.drop_peer(ni, rank, said);
            } else {
                return;
            }
        }
    }

    /// A device that has gone has gone for both.
    fn share_device(&mut self, ni: &mut Ni) {
        let why = "it was taken away or has failed";
        match (self.connections.gone, self.datagrams.has_gone()) {
            (true, false) => self.datagrams.device_gone(ni, &why),
            (false, true) => self.connections.device_gone(ni, &why),
            _ => {}
        }
        self.settle(ni);
    }

    /// Says again what was not answered.
    fn repeat(&mut self) -> bool {
        let mut any = false;
        while let Some((rank, word)) = self.moves.handle_timeout(self.datagrams.now()) {
            any = true;
            self.say(rank, Some(word));
        }
        any
    }

    /// Shows the portals of this set to the peers that are connected, as they are.
    #[inline]
    pub(crate) fn tell_peers(&mut self, ni: &mut Ni, portals: u64) {
        let datagrams = &mut self.datagrams;
        let mut beside = |ni: &mut Ni| {
            datagrams.attend(ni);
        };
        self.connections.tell_peers(ni, portals, &mut beside);
        self.settle(ni);
    }

    /// Whether the device does not work any more.
    fn has_gone(&self) -> bool {
        self.connections.gone && self.datagrams.has_gone()
    }

    /// Whether nothing is under way to others.
    pub(crate) fn is_drained(&mut self) -> bool {
        self.held.is_empty() && self.connections.is_drained() && self.datagrams.is_drained()
    }

    /// How long a close may wait for that.
    pub(crate) fn closing_time(&self) -> Duration {
        self.connections.closing_time()
    }

    /// How far the pair with a peer is.
    #[cfg(test)]
    pub(super) fn state(&self, rank: usize) -> State {
        self.moves.state(rank)
    }

    /// How many requests to a peer wait for the end of a move.
    #[cfg(test)]
    pub(super) fn waiting(&self, rank: usize) -> usize {
        self.held.get(&rank).map_or(0, VecDeque::len)
    }

    #[cfg(test)]
    pub(super) fn datagrams(&mut self) -> &mut DatagramNal {
        &mut self.datagrams
    }

    fn channels(&self) -> Channels {
        let counts = self.moves.counts();
        let known = self.datagrams.peer_count() as u64;
        let elsewhere = u64::from(counts.connected) + counts.gone;
        Channels {
            on_datagrams: known.saturating_sub(elsewhere),
            on_connections: u64::from(counts.connected),
            moves: counts.moved,
            stays: counts.stayed,
            declined: counts.declined,
        }
    }
}

// Out of the way of connections alone, whose calls are part of their callers.
impl Nal for Auto {
    #[inline(never)]
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        match self.way(tx.header.target) {
            Some((_, Way::Connection)) => self.connections.send(ni, tx, key),
            Some((rank, Way::Waits)) => {
                self.held.entry(rank).or_default().push_back(tx.clone());
            }
            Some((rank, Way::Datagrams)) => {
                self.datagrams.send(ni, tx, None);
                let now = self.datagrams.now();
                self.moves.count(rank, now, is_long(&tx.header));
            }
            // Refused there.
            None => self.datagrams.send(ni, tx, None),
        }
        self.settle(ni);
    }

    #[inline(never)]
    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        if !self.is_connected(ready.header.target) {
            return Outcome::Declined;
        }
        self.connections.put(ni, ready, put)
    }

    fn begun(&mut self, number: u64, op: OpId) {
        self.connections.begun(number, op);
    }

    #[inline(never)]
    fn get(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        self.is_connected(from.process) && self.connections.get(ni, md, region, from)
    }

    #[inline(never)]
    fn progress(&mut self, ni: &mut Ni, _: Look) -> bool {
        let any = self.datagrams.progress(ni, Look::All);
        let any = self.connections.progress(ni, Look::All) | any;
        self.settle(ni);
        if self.moves.has_wanted() {
            // Who is about to sleep arms for the answer again.
            self.offer();
            return true;
        }
        any
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        let any = self.datagrams.attend(ni);
        let any = self.connections.attend(ni) | any;
        self.settle(ni);
        self.share_device(ni);
        self.repeat() | any
    }

    fn schedule(&self) -> Schedule {
        let word = self.moves.next_timeout();
        let word = word.and_then(|at| self.datagrams.time_of(at));
        let (one, other) = (self.connections.schedule(), self.datagrams.schedule());
        Schedule {
            due: [one.due, other.due, word].into_iter().flatten().min(),
            busy: one.busy || other.busy,
            gone: self.has_gone(),
            ..one
        }
    }

    fn waiter(&self) -> Waiter {
        let (one, other) = (self.connections.waiter(), self.datagrams.waiter());
        match (one, other) {
            (Waiter::Descriptors(mut both), Waiter::Descriptors(datagrams)) => {
                both.alarm.extend(datagrams.alarm);
                both.control.extend(datagrams.control);
                Waiter::Descriptors(both)
            }
            _ => Waiter::Poll,
        }
    }

    fn arm(&mut self) -> Armed {
        // Repetitions are the attendant's while the program sleeps.
        if self.moves.next_timeout().is_some() {
            self.datagrams.bell().ring();
        }
        let (other, one) = (self.datagrams.arm(), self.connections.arm());
        Armed {
            rings: one.rings && other.rings,
            ..one
        }
    }

    #[inline(never)]
    fn publish(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        self.tell_peers(ni, portals);
    }

    fn withdraw(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        let datagrams = &mut self.datagrams;
        let mut beside = |ni: &mut Ni| {
            datagrams.attend(ni);
        };
        let withdrawn = self.connections.withdraw_beside(ni, md, &mut beside);
        self.settle(ni);
        withdrawn
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        self.connections.remote_key(ni, md)
    }

    fn capabilities(&self) -> Capabilities {
        self.connections.capabilities()
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        self.connections.distance(to)
    }

    fn statistics(&self) -> Paths {
        let (one, other) = (self.connections.statistics(), self.datagrams.statistics());
        Paths {
            channels: self.channels(),
            ..one.and(other)
        }
    }

    /// Waits until what was sent has left by either way, then says farewell on both.
    fn close(&mut self, ni: &mut Ni) {
        self.moves.close();
        let mut left = Awake::new(self.closing_time());
        while !self.is_drained() && !self.has_gone() && !left.is_over() {
            let any = self.progress(ni, Look::All);
            if !(self.attend(ni) | any) {
                std::thread::yield_now();
            }
        }
        let channels = self.channels();
        // A farewell over the one way ends both. That of connections says what was done, and is said once; the other one
        // is said several times.
        self.connections.farewell(ni);
        self.datagrams.close(ni);
        self.connections.end(ni);
        while let Some((rank, _)) = self.held.first_key_value() {
            self.gone(ni, *rank);
        }
        tracing::info!(?channels, "datagrams and connections");
        if std::env::var_os("PORTOLAN_DATAGRAM_STATS").is_some() {
            host::say(format_args!("rank {}: {channels:?}", self.rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_testing::message;
    use portals_core::MdHandle;

    #[test]
    fn a_request_is_long_if_its_data_does_not_travel_with_a_header() {
        for (length, long) in [(0, false), (8192, false), (8193, true), (u64::MAX, true)] {
            let put = Body::Put {
                length,
                remote_offset: 0,
                hdr_data: 0,
                ac_index: 0,
                ack_md: None,
            };
            let get = Body::Get {
                length,
                remote_offset: 0,
                ac_index: 0,
                reply_md: MdHandle::from_raw(0),
                reply_offset: 0,
            };
            assert_eq!(is_long(&message(put)), long, "put of {length}");
            assert_eq!(is_long(&message(get)), long, "get of {length}");
        }
    }
}
