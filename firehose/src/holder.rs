//! The side that transfers: which units of which peer this rank may reach, because it holds a firehose there.
//!
//! ```text
//!              asked for                answered                last use ends
//!   (none) ────────────────► Pending ─────────────► Held, used ──────────────► Held, idle
//!     ▲                         │ refused                ▲                        │    │
//!     │◄────────────────────────┘                        └────── asked for ───────┘    │
//!     │         answered                                                               │ room is needed, or
//!     └──────────────────────────────────────── Leaving ◄──────────────────────────────┘ the owner wants it
//! ```
//!
//! A unit in *Leaving* is named as old in a request that was not answered. It is not asked for again before the
//! answer: requests may overtake each other, and a second one that arrived first would be undone by the first.

use crate::message::{Move, Moved, Refusal};
use crate::stats::Counts;
use crate::table::{Slot, Table};
use crate::{Limits, Span, Unit};
use std::collections::VecDeque;

/// The caller's name of a transfer.
pub type Ticket = u32;

/// A unit that a transfer holds; good until it is released by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grip(Slot);

/// What becomes of a transfer that asked for units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It has them, and releases them when it is over.
    Ready,
    /// [`Holder::poll_outcome`] will tell.
    Waits,
}

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whose.
    pub ticket: Ticket,
    /// The units are held; or the first that could not be pinned, and then none is.
    pub result: Result<(), (Unit, Refusal)>,
}

/// Units that cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no such rank.
    #[error("rank {peer} of {nodes}")]
    Nobody {
        /// Whom it was about.
        peer: u32,
        /// Ranks.
        nodes: u32,
    },
    /// More than a rank may ever hold, or than a message carries.
    #[error("a transfer of {count} units where {most} may be held")]
    TooMany {
        /// Units asked for.
        count: u32,
        /// Most at a time.
        most: u32,
    },
}

/// A reply that no owner of this job gives. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MovedError {
    /// To no request of ours.
    #[error("request {number} was not made, or was answered")]
    Number {
        /// The reply's.
        number: u32,
    },
    /// It does not answer for each unit.
    #[error("{answers} answers for {units} units")]
    Answers {
        /// In the reply.
        answers: usize,
        /// In the request.
        units: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State<K> {
    Pending,
    Held(K),
    Leaving,
}

#[derive(Clone, Debug)]
pub(crate) struct Hose<K> {
    pub(crate) state: State<K>,
    /// Transfers that use it or wait for its answer.
    pub(crate) users: u32,
    /// The owner wants it back after the last use.
    pub(crate) recalled: bool,
}

/// A transfer whose units are all asked for, or that waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) ticket: Ticket,
    pub(crate) span: Span,
}

/// What a request named.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) new: Vec<Unit>,
    pub(crate) old: Vec<Unit>,
    /// Places that are free once it is answered: more were given back than taken.
    pub(crate) freed: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Peer<K> {
    /// Its units; those idle stand in the queue.
    pub(crate) table: Table<Hose<K>>,
    /// Places taken of the share: pending, held, or to be free when a request is answered.
    pub(crate) taken: u32,
    pub(crate) flights: Vec<Option<Flight>>,
    /// Transfers whose units are all held or pending.
    pub(crate) started: Vec<Want>,
    /// Transfers that wait for room, in order.
    pub(crate) waiting: VecDeque<Want>,
}

/// What this rank may reach of all others.
#[derive(Clone, Debug)]
pub struct Holder<K> {
    pub(crate) peers: Vec<Peer<K>>,
    pub(crate) outbox: VecDeque<(u32, Move)>,
    pub(crate) outcomes: VecDeque<Outcome>,
    limits: Limits,
    counts: Counts,
}

impl<K: Clone> Holder<K> {
    /// No firehose is held anywhere.
    #[must_use]
    pub fn new(limits: Limits, nodes: u32) -> Self {
        let peer = || Peer {
            table: Table::default(),
            taken: 0,
            flights: Vec::new(),
            started: Vec::new(),
            waiting: VecDeque::new(),
        };
        Self {
            peers: (0..nodes).map(|_| peer()).collect(),
            outbox: VecDeque::new(),
            outcomes: VecDeque::new(),
            limits,
            counts: Counts::default(),
        }
    }

    /// What happened since the start.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Units held or asked for of all peers.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.peers.iter().map(|p| u64::from(p.taken)).sum()
    }

    /// The key of a unit that a transfer holds.
    #[must_use]
    pub fn key(&self, peer: u32, unit: Unit) -> Option<&K> {
        self.held_by(peer, unit).map(|(_, key)| key)
    }

    /// The key of a unit that a transfer holds, and what to release it by.
    #[must_use]
    pub fn held_by(&self, peer: u32, unit: Unit) -> Option<(Grip, &K)> {
        let table = &self.peers.get(peer as usize)?.table;
        let slot = table.find(unit)?;
        match &table.at(slot)?.state {
            State::Held(key) => Some((Grip(slot), key)),
            _ => None,
        }
    }

    /// [`Holder::ask`] for one unit that is held, if nobody waits; the caller releases it.
    #[inline(always)]
    pub fn hit(&mut self, peer: u32, unit: Unit) -> Option<(Grip, &K)> {
        let p = self.peers.get_mut(peer as usize)?;
        let slot = p.table.find(unit).filter(|_| p.waiting.is_empty())?;
        let hose = p.table.at_mut(slot)?;
        if hose.recalled || !matches!(hose.state, State::Held(_)) {
            return None;
        }
        hose.users += 1;
        self.counts.hits += 1;
        p.table.unqueue(slot);
        match &p.table.at(slot)?.state {
            State::Held(key) => Some((Grip(slot), key)),
            _ => None,
        }
    }

    /// A transfer needs the units of `span` at `peer`. Transfers that find no room wait in order, and nobody
    /// overtakes them: those before them end, so everybody's turn comes.
    ///
    /// # Errors
    /// See [`AskError`].
    pub fn ask(&mut self, peer: u32, span: Span, ticket: Ticket) -> Result<Asked, AskError> {
        let nodes = self.peers.len() as u32;
        let p = self
            .peers
            .get_mut(peer as usize)
            .ok_or(AskError::Nobody { peer, nodes })?;
        let most = self.limits.most();
        if span.count > most {
            let count = span.count;
            return Err(AskError::TooMany { count, most });
        }
        p.waiting.push_back(Want { ticket, span });
        let waited = self.outcomes.len();
        self.resume(peer);
        // Nobody else's wait can have ended: whoever was before it still is, or there was nobody.
        if self.outcomes.len() > waited && self.outcomes.back().is_some_and(|o| o.ticket == ticket)
        {
            self.outcomes.pop_back();
            return Ok(Asked::Ready);
        }
        let p = &self.peers[peer as usize];
        self.counts.waits += u64::from(p.waiting.back().is_some_and(|w| w.ticket == ticket));
        Ok(Asked::Waits)
    }

    /// Starts transfers that wait, as long as there is room.
    fn resume(&mut self, peer: u32) {
        while let Some(p) = self.peers.get_mut(peer as usize)
            && let Some(want) = p.waiting.front().copied()
        {
            let Some((new, old)) = p.plan(want.span, self.limits.share) else {
                return;
            };
            p.waiting.pop_front();
            let hits = u64::from(want.span.count) - new.len() as u64;
            self.counts.hits += hits;
            self.counts.misses += new.len() as u64;
            self.counts.evictions += old.len() as u64;
            p.take(want.span, &new);
            if !new.is_empty() {
                self.send(peer, new, old);
            }
            self.peers[peer as usize].started.push(want);
            self.settle(peer, want);
        }
    }

    /// A started transfer is over with waiting if all its units are held.
    fn settle(&mut self, peer: u32, want: Want) {
        let p = &mut self.peers[peer as usize];
        let held = |u| {
            p.table
                .get(u)
                .is_some_and(|h| matches!(h.state, State::Held(_)))
        };
        if want.span.units().all(held) {
            p.started.retain(|w| w.ticket != want.ticket);
            self.outcomes.push_back(Outcome {
                ticket: want.ticket,
                result: Ok(()),
            });
        }
    }

    fn send(&mut self, peer: u32, new: Vec<Unit>, old: Vec<Unit>) {
        let p = &mut self.peers[peer as usize];
        for unit in &old {
            if let Some(slot) = p.table.find(*unit) {
                p.table.unqueue(slot);
                if let Some(hose) = p.table.at_mut(slot) {
                    hose.state = State::Leaving;
                }
            }
        }
        let freed = (old.len() as u32).saturating_sub(new.len() as u32);
        p.taken = p.taken + new.len() as u32 - (old.len() as u32 - freed);
        let flight = Some(Flight {
            new: new.clone(),
            old: old.clone(),
            freed,
        });
        let number = match p.flights.iter().position(Option::is_none) {
            Some(free) => {
                p.flights[free] = flight;
                free
            }
            None => {
                p.flights.push(flight);
                p.flights.len() - 1
            }
        } as u32;
        self.counts.moves += 1;
        self.outbox.push_back((peer, Move { number, new, old }));
    }

    /// A transfer is over: gives back what it held. What nobody uses stays held, and idle.
    pub fn release(&mut self, peer: u32, span: Span) {
        for unit in span.units().rev() {
            self.leave(peer, unit);
        }
        self.resume(peer);
    }

    /// Releases one unit; see [`Holder::release`].
    #[inline(always)]
    pub fn release_one(&mut self, peer: u32, Grip(slot): Grip) {
        self.leave_slot(peer, slot);
        if self
            .peers
            .get(peer as usize)
            .is_some_and(|p| !p.waiting.is_empty())
        {
            self.resume(peer);
        }
    }

    fn leave(&mut self, peer: u32, unit: Unit) {
        let p = self.peers.get(peer as usize);
        if let Some(slot) = p.and_then(|p| p.table.find(unit)) {
            self.leave_slot(peer, slot);
        }
    }

    #[inline(always)]
    fn leave_slot(&mut self, peer: u32, slot: Slot) {
        let Some(p) = self.peers.get_mut(peer as usize) else {
            return;
        };
        let Some(hose) = p.table.at_mut(slot).filter(|h| h.users > 0) else {
            return;
        };
        hose.users -= 1;
        if hose.users > 0 || !matches!(hose.state, State::Held(_)) {
            return;
        }
        if hose.recalled {
            return self.give_back(peer, slot);
        }
        p.table.queue(slot);
    }

    #[cold]
    fn give_back(&mut self, peer: u32, slot: Slot) {
        let unit = self
            .peers
            .get(peer as usize)
            .and_then(|p| p.table.unit(slot));
        if let Some(unit) = unit {
            self.send(peer, Vec::new(), vec![unit]);
        }
    }

    /// The owner's reply.
    ///
    /// # Errors
    /// See [`MovedError`].
    pub fn handle_moved(&mut self, peer: u32, moved: Moved<K>) -> Result<(), MovedError> {
        let number = moved.number;
        let p = self
            .peers
            .get_mut(peer as usize)
            .ok_or(MovedError::Number { number })?;
        let slot = p
            .flights
            .get_mut(number as usize)
            .ok_or(MovedError::Number { number })?;
        let flight = slot.as_ref().ok_or(MovedError::Number { number })?;
        let (answers, units) = (moved.answers.len(), flight.new.len());
        if answers != units {
            return Err(MovedError::Answers { answers, units });
        }
        let Some(flight) = slot.take() else {
            return Err(MovedError::Number { number });
        };
        while p.flights.last().is_some_and(Option::is_none) {
            p.flights.pop();
        }
        for unit in &flight.old {
            p.table.remove(*unit);
        }
        p.taken -= flight.freed;
        let mut refused = Vec::new();
        for (unit, answer) in flight.new.iter().zip(moved.answers) {
            match answer {
                Ok(key) => {
                    if let Some(hose) = p.table.get_mut(*unit) {
                        hose.state = State::Held(key);
                    }
                }
                Err(why) => {
                    p.table.remove(*unit);
                    p.taken -= 1;
                    refused.push((*unit, why));
                }
            }
        }
        self.counts.refused += refused.len() as u64;
        for want in self.peers[peer as usize].started.clone() {
            let bad = refused.iter().find(|(u, _)| want.span.contains(*u));
            match bad {
                None => self.settle(peer, want),
                Some(bad) => {
                    self.peers[peer as usize]
                        .started
                        .retain(|w| w.ticket != want.ticket);
                    self.outcomes.push_back(Outcome {
                        ticket: want.ticket,
                        result: Err(*bad),
                    });
                    for unit in want.span.units() {
                        self.leave(peer, unit);
                    }
                }
            }
        }
        // A unit that only failed transfers had asked for is held by nobody.
        for unit in &flight.new {
            self.leave_idle(peer, *unit);
        }
        self.resume(peer);
        Ok(())
    }

    /// Queues a unit that was answered when nobody wanted it any more.
    fn leave_idle(&mut self, peer: u32, unit: Unit) {
        let p = &mut self.peers[peer as usize];
        let Some(slot) = p.table.find(unit) else {
            return;
        };
        let Some(hose) = p.table.at(slot) else {
            return;
        };
        if hose.users > 0 || !matches!(hose.state, State::Held(_)) || p.table.is_queued(slot) {
            return;
        }
        if hose.recalled {
            self.send(peer, Vec::new(), vec![unit]);
        } else {
            p.table.queue(slot);
        }
    }

    /// The owner wants a unit back. What is not held (any more, or yet another time) is given back already, or will
    /// be when its answer is there; a unit that comes too late for its own time costs one request more.
    pub fn handle_recall(&mut self, peer: u32, unit: Unit) {
        let Some(p) = self.peers.get_mut(peer as usize) else {
            return;
        };
        let Some(hose) = p.table.get_mut(unit) else {
            return;
        };
        match hose.state {
            State::Held(_) if hose.users == 0 => self.send(peer, Vec::new(), vec![unit]),
            State::Leaving => {}
            _ => hose.recalled = true,
        }
    }

    /// What is held of a unit is less than there is of it now: it is given back after its last use, and whoever asks
    /// for it from here on asks the owner anew.
    pub fn renew(&mut self, peer: u32, unit: Unit) {
        self.handle_recall(peer, unit);
    }

    /// Gives back every unit of `peer` that no transfer uses.
    pub fn let_go(&mut self, peer: u32) {
        let most = self.limits.per_message.max(1) as usize;
        while let Some(p) = self.peers.get(peer as usize) {
            let old: Vec<Unit> = p.table.queue_order().take(most).collect();
            if old.is_empty() {
                return;
            }
            self.send(peer, Vec::new(), old);
        }
    }

    /// A request to send to a peer.
    pub fn poll_move(&mut self) -> Option<(u32, Move)> {
        self.outbox.pop_front()
    }

    /// Whether [`Holder::poll_move`] has one.
    #[must_use]
    #[inline(always)]
    pub fn has_moves(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether [`Holder::poll_outcome`] has one.
    #[must_use]
    #[inline(always)]
    pub fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty()
    }

    /// A transfer that need not wait any more.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Requests to `peer` that are not answered.
    #[must_use]
    pub fn unanswered(&self, peer: u32) -> usize {
        let peer = self.peers.get(peer as usize);
        peer.map_or(0, |p| p.flights.iter().flatten().count())
    }
}

impl<K> Peer<K> {
    /// What a transfer has to ask for and what it has to give up for it; `None`: there is no room, or it must wait
    /// for a unit that is leaving.
    fn plan(&self, span: Span, share: u32) -> Option<(Vec<Unit>, Vec<Unit>)> {
        let mut new = Vec::new();
        for unit in span.units() {
            match self.table.get(unit) {
                None => new.push(unit),
                Some(h) if h.recalled || matches!(h.state, State::Leaving) => return None,
                Some(_) => {}
            }
        }
        let short = (new.len() as u32).saturating_sub(share - self.taken) as usize;
        let idle = self.table.queue_order().filter(|u| !span.contains(*u));
        let old: Vec<Unit> = idle.take(short).collect();
        (old.len() == short).then_some((new, old))
    }

    /// Counts a transfer on its units; those asked for get records.
    fn take(&mut self, span: Span, new: &[Unit]) {
        for unit in new {
            self.table.insert(
                *unit,
                Hose {
                    state: State::Pending,
                    users: 0,
                    recalled: false,
                },
            );
        }
        for unit in span.units() {
            if let Some(slot) = self.table.find(unit) {
                self.table.unqueue(slot);
                if let Some(h) = self.table.at_mut(slot) {
                    h.users += 1;
                }
            }
        }
    }
}
