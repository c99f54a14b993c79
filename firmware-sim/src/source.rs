//! Source structures: what the firmware remembers of each peer, and the go-back-n between the two.
//!
//! A pure state machine: it is told the time and says what to send.
//!
//! ```text
//!  window, oldest first                      numbers run up, 16 bits, wrapping
//!  ┌────────┬────────┬────────┬────────┐
//!  │ sent   │ sent   │ active │ queued │     next: the number after the last
//!  └────────┴────────┴────────┴────────┘
//!   ACK n    everything before n leaves the window
//!   NACK n   everything before n leaves it, n and all behind it are queued again
//! ```
//!
//! # Rules
//!
//! 1. A message gets its number when it is queued, and keeps it.
//! 2. It leaves the window when its peer has acknowledged it and the engine has done with it.
//! 3. A peer takes numbers in order. It answers what it cannot take with one NACK of the number it
//!    expects and throws away what comes behind, until that number comes.
//! 4. A message that cannot be sent any more (its memory is gone) is replaced by SKIP.
//! 5. While a peer has no room only the first message of the window is tried again, with growing
//!    pauses; the others follow when it has been taken.
//! 6. A NACK outside the window means that the peer does not know of messages that were given up, or has
//!    forgotten all (it has booted): SYNC tells it the first number of the window.
//! 7. A number is taken once. SYNC n says that what is before n will not come; who has taken n already
//!    stays where it is. The NACK behind a SYNC may have been on its way when the peer was told before.
//!    To tell before from behind, fewer than half of all numbers are given up between two words of a peer.

use std::collections::{BTreeMap, VecDeque};

use nic_model::defs::context::{self, PeerContext};
use nic_model::defs::packet::{control, reason};
use nic_model::{DmaSegment, NodeId, ProtocolParams, SimDuration, SimTime};

/// Who waits for the end of a transmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A transmit pending of a process.
    Pending {
        /// Index of the process.
        process: usize,
        /// The pending.
        pending: u16,
        /// Whether its end interrupts the host.
        interrupt: bool,
    },
}

/// Where a header packet's bytes are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Packet {
    /// In host memory, by physical address.
    Host {
        /// First byte.
        address: u64,
        /// Bytes.
        length: u8,
    },
    /// In SRAM: the firmware has built it.
    Built {
        /// The bytes.
        bytes: [u8; 64],
        /// How many count.
        length: u8,
    },
}

/// What is to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) header: Packet,
    pub(crate) segments: Vec<DmaSegment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Active,
    Sent,
}

#[derive(Debug)]
struct Entry {
    owner: Option<Owner>,
    /// `None`: not to be sent any more.
    body: Option<Body>,
    state: State,
    /// It has one of the engines' slots.
    slot: bool,
    /// Refused while it was at the engine.
    again: bool,
    sent_before: bool,
}

/// What is next for the engine.
#[derive(Debug)]
pub(crate) enum Next {
    /// A message; whether it has been sent before.
    Message {
        sequence: u16,
        body: Body,
        owner: Option<Owner>,
        again: bool,
        slot: bool,
    },
    /// Say this, and ask again.
    Control(u8, u16),
    /// Nothing now.
    Nothing,
}

/// What an answer of the peer leads to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answered {
    /// Transmits that have ended well, in order.
    pub(crate) done: Vec<Owner>,
    /// How many messages are queued again at once.
    pub(crate) queued: usize,
    /// After this the messages that are queued again may go.
    pub(crate) wait: Option<SimDuration>,
    /// The peer has refused for too long: give up.
    pub(crate) hopeless: bool,
}

/// What the end of a message's time at the engine leads to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Its owner, to be told that it failed.
    pub(crate) failed: Option<Owner>,
    /// Transmits that have ended well: they were acknowledged while the engine was at them.
    pub(crate) done: Vec<Owner>,
    /// Messages that are queued again.
    pub(crate) queued: usize,
}

/// What the receiving side makes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The one expected.
    Next,
    /// One that has been taken already: acknowledge again.
    Again,
    /// One is missing before it; whether to say so.
    Gap(bool),
}

/// Messages that have not been acknowledged.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) messages: usize,
    /// Those of them that have one of the engines' slots.
    pub(crate) slots: usize,
}

/// One peer.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Number of the next message to it.
    tx_next: u16,
    window: VecDeque<Entry>,
    /// Entries of the window that have a slot.
    slots: usize,
    /// The last acknowledgement.
    acked: Option<u16>,
    /// The peer is to be told the first number of the window.
    sync: bool,
    /// Refused messages wait.
    blocked: bool,
    /// The peer had no room: only the first message of the window goes, until it is taken.
    trying: bool,
    backoff: SimDuration,
    /// When the window last moved, or was filled.
    progress: SimTime,
    /// When the peer was last heard, asked or sent to.
    heard: SimTime,
    /// Number of its next message.
    rx_next: u16,
    /// One of its messages has been taken, or skipped.
    rx_any: bool,
    /// It has been told that a number is missing.
    rx_nacked: bool,
    /// An acknowledgement is on its way through the processor.
    pub(crate) ack_queued: bool,
    /// When it was last asked for, as [`Sources`] counts.
    used: u64,
}

/// `a` is before `b`, as numbers that wrap.
fn before(a: u16, b: u16) -> bool {
    (a.wrapping_sub(b) as i16) < 0
}

impl Source {
    fn first(&self) -> u16 {
        self.tx_next.wrapping_sub(self.window.len() as u16)
    }

    fn entry(&mut self, sequence: u16) -> Option<&mut Entry> {
        let index = sequence.wrapping_sub(self.first());
        self.window.get_mut(usize::from(index))
    }

    /// Messages not yet acknowledged.
    pub(crate) fn in_flight(&self) -> usize {
        self.window.len()
    }

    /// The same, and how many of them have a slot.
    pub(crate) fn load(&self) -> Load {
        Load {
            messages: self.window.len(),
            slots: self.slots,
        }
    }

    /// Whether no further message may be numbered: half the numbers are in use.
    pub(crate) fn is_full(&self) -> bool {
        self.window.len() >= 0x4000
    }

    /// Queues a message, which has a slot of the engines or not.
    pub(crate) fn push(&mut self, now: SimTime, owner: Owner, body: Body, slot: bool) {
        if self.window.is_empty() {
            self.progress = now;
            self.heard = now;
        }
        self.tx_next = self.tx_next.wrapping_add(1);
        self.slots += usize::from(slot);
        self.window.push_back(Entry {
            owner: Some(owner),
            body: Some(body),
            state: State::Queued,
            slot,
            again: false,
            sent_before: false,
        });
    }

    /// The next thing for the engine.
    pub(crate) fn next(&mut self, now: SimTime) -> Next {
        if self.blocked {
            return Next::Nothing;
        }
        let first = self.first();
        if self.sync && !self.window.is_empty() {
            self.sync = false;
            return Next::Control(control::SYNC, first);
        }
        let queued = |e: &Entry| e.state == State::Queued;
        let reach = if self.trying { 1 } else { self.window.len() };
        let Some(index) = self.window.iter().take(reach).position(queued) else {
            return Next::Nothing;
        };
        self.heard = now;
        let sequence = first.wrapping_add(index as u16);
        let entry = &mut self.window[index];
        let Some(body) = entry.body.clone() else {
            entry.state = State::Sent;
            return Next::Control(control::SKIP, sequence);
        };
        entry.state = State::Active;
        Next::Message {
            sequence,
            body,
            owner: entry.owner,
            slot: entry.slot,
            again: std::mem::replace(&mut entry.sent_before, true),
        }
    }

    /// The engine has done with a message. `fault`: its memory could not be read; the owner is
    /// to be told so and the message is never sent again. `reached`: the peer may have seen it.
    pub(crate) fn sent(&mut self, now: SimTime, sequence: u16, fault: bool, reached: bool) -> Sent {
        let Some(entry) = self.entry(sequence).filter(|e| e.state == State::Active) else {
            return Sent::default();
        };
        let again = std::mem::take(&mut entry.again) || (fault && !reached);
        entry.state = if again { State::Queued } else { State::Sent };
        let mut failed = None;
        if fault {
            entry.body = None;
            failed = entry.owner.take();
        }
        self.heard = now;
        let (done, more) = match self.acked {
            Some(n) if self.knows(n) => self.acknowledge(now, n),
            _ => (Vec::new(), 0),
        };
        Sent {
            failed,
            done,
            queued: usize::from(again) + more,
        }
    }

    /// Takes what is before `n` out of the window, as far as the engine has done with it.
    ///
    /// Returns the owners, and how many messages may go again because the peer has room again.
    fn acknowledge(&mut self, now: SimTime, n: u16) -> (Vec<Owner>, usize) {
        let mut done = Vec::new();
        let (before_all, mut again) = (self.window.len(), 0);
        while before(self.first(), n)
            && let Some(entry) = self.window.front()
            && entry.state != State::Active
        {
            let entry = self.window.pop_front();
            self.slots -= usize::from(entry.as_ref().is_some_and(|e| e.slot));
            done.extend(entry.and_then(|e| e.owner));
            self.progress = now;
            self.backoff = SimDuration::ZERO;
        }
        if self.trying && self.window.len() < before_all {
            self.trying = false;
            again = self.queued();
        }
        (done, again)
    }

    fn queued(&self) -> usize {
        let queued = |e: &&Entry| e.state == State::Queued;
        self.window.iter().filter(queued).count()
    }

    /// Whether `n` is the number of a message in the window, or the one after them.
    fn knows(&self, n: u16) -> bool {
        usize::from(n.wrapping_sub(self.first())) <= self.window.len()
    }

    pub(crate) fn ack(&mut self, now: SimTime, n: u16) -> Answered {
        self.heard = now;
        if !self.knows(n) {
            return Answered::default();
        }
        self.acked = Some(n);
        let (done, queued) = self.acknowledge(now, n);
        Answered {
            done,
            queued,
            ..Answered::default()
        }
    }

    pub(crate) fn nack(
        &mut self,
        now: SimTime,
        n: u16,
        why: u8,
        limits: &ProtocolParams,
    ) -> Answered {
        self.heard = now;
        let mut answered = Answered::default();
        let mut from = n;
        if why == reason::SOURCE {
            // The peer remembers nothing of this side: it has taken nothing.
            from = self.first();
        } else if self.knows(n) {
            self.acked = Some(n);
            (answered.done, answered.queued) = self.acknowledge(now, n);
        } else {
            if self.window.is_empty() {
                return answered;
            }
            from = self.first();
            self.sync = true;
        }
        let skip = usize::from(from.wrapping_sub(self.first()));
        for entry in self.window.iter_mut().skip(skip) {
            match entry.state {
                State::Sent => {
                    entry.state = State::Queued;
                    answered.queued += 1;
                }
                State::Active => entry.again = true,
                State::Queued => {}
            }
        }
        if why != reason::SEQUENCE && !self.window.is_empty() {
            self.trying = true;
            self.backoff = match self.backoff {
                SimDuration::ZERO => limits.backoff_min,
                last => (last * 2).min(limits.backoff_max),
            };
            if !self.blocked {
                self.blocked = true;
                answered.wait = Some(self.backoff);
            }
        }
        answered
    }

    /// The back-off is over: how many messages may go, or how long to wait on, or that the peer
    /// has refused for too long.
    pub(crate) fn unblock(&mut self, now: SimTime, limits: &ProtocolParams) -> Answered {
        let mut answered = Answered::default();
        if self.window.iter().any(|e| e.state == State::Active) {
            // It will be refused too; nothing can be given up or sent before.
            answered.wait = Some(self.backoff.max(limits.backoff_min));
            return answered;
        }
        self.blocked = false;
        answered.hopeless = !self.window.is_empty() && now.since(self.progress) >= limits.give_up;
        answered.queued = self.queued();
        answered
    }

    /// A look at a silent peer: what to ask it, and whether it has been silent for too long.
    pub(crate) fn watch(&mut self, now: SimTime, limits: &ProtocolParams) -> (Option<u16>, bool) {
        if self.window.is_empty() {
            return (None, false);
        }
        // While one is tried the others are queued.
        let watched = if self.trying { 1 } else { self.window.len() };
        let sent = |e: &Entry| e.state == State::Sent;
        let waits = !self.blocked && self.window.iter().take(watched).all(sent);
        let hopeless = waits && now.since(self.progress) >= limits.give_up;
        if waits && now.since(self.heard) >= limits.probe_after {
            return (Some(self.tx_next), hopeless);
        }
        (None, hopeless)
    }

    /// Gives every message up, none of which is at the engine; the owners to tell.
    pub(crate) fn give_up(&mut self) -> Vec<Owner> {
        // The numbers are gone with their messages; the peer, if it ever comes back, is told.
        self.sync = true;
        self.blocked = false;
        self.trying = false;
        self.backoff = SimDuration::ZERO;
        self.acked = None;
        self.slots = 0;
        self.window.drain(..).filter_map(|e| e.owner).collect()
    }

    // ---- while it is idle ----

    /// Whether nothing is under way but an acknowledgement: what is left fits a [`PeerContext`].
    fn is_idle(&self) -> bool {
        self.window.is_empty() && !self.blocked
    }

    fn context(&self) -> PeerContext {
        let flag = |set: bool, flag| if set { flag } else { 0 };
        PeerContext {
            tx_next: self.tx_next.into(),
            rx_next: self.rx_next.into(),
            flags: (flag(self.rx_any, context::flags::TAKEN)
                | flag(self.rx_nacked, context::flags::NACKED)
                | flag(self.sync, context::flags::SYNC))
            .into(),
        }
    }

    fn of(context: &PeerContext) -> Self {
        let flags = context.flags.get();
        Self {
            tx_next: context.tx_next.get(),
            rx_next: context.rx_next.get(),
            rx_any: flags & context::flags::TAKEN != 0,
            rx_nacked: flags & context::flags::NACKED != 0,
            sync: flags & context::flags::SYNC != 0,
            ..Self::default()
        }
    }

    // ---- the receiving side ----

    pub(crate) fn expected(&self) -> u16 {
        self.rx_next
    }

    /// What to do with a message of this number.
    pub(crate) fn arrival(&mut self, sequence: u16) -> Arrival {
        if sequence == self.rx_next {
            Arrival::Next
        } else if before(sequence, self.rx_next) {
            Arrival::Again
        } else {
            Arrival::Gap(!std::mem::replace(&mut self.rx_nacked, true))
        }
    }

    /// The expected message has been taken.
    pub(crate) fn taken(&mut self) {
        self.rx_next = self.rx_next.wrapping_add(1);
        self.rx_any = true;
        self.rx_nacked = false;
    }

    /// The expected message has been refused.
    pub(crate) fn refused(&mut self) {
        self.rx_nacked = true;
    }

    /// The answer to a question about everything before `n`: what to say.
    pub(crate) fn question(&mut self, n: u16) -> u8 {
        if before(self.rx_next, n) {
            self.rx_nacked = true;
            control::NACK
        } else {
            control::ACK
        }
    }

    /// What the peer has before `n` will not come. Numbers that have been taken do not come back.
    pub(crate) fn synchronise(&mut self, n: u16) {
        if !self.rx_any || before(self.rx_next, n) {
            self.rx_next = n;
            self.rx_nacked = false;
        }
    }
}

/// The peers that have a source structure, at most as many as SRAM has room for.
#[derive(Debug)]
pub(crate) struct Sources {
    limit: usize,
    known: BTreeMap<u16, Source>,
    /// Structures asked for so far.
    uses: u64,
    /// One has left: a peer without a structure may have had one.
    left: bool,
}

impl Sources {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            known: BTreeMap::new(),
            uses: 0,
            left: false,
        }
    }

    /// The structure of `nid`, taken from the free list at first sight; `None` when all are taken.
    pub(crate) fn entry(&mut self, nid: NodeId) -> Option<&mut Source> {
        if self.known.len() >= self.limit && !self.known.contains_key(&nid.0) {
            return None;
        }
        self.uses += 1;
        let source = self.known.entry(nid.0).or_default();
        source.used = self.uses;
        Some(source)
    }

    /// The structure of a peer that has one.
    pub(crate) fn known(&mut self, nid: NodeId) -> Option<&mut Source> {
        self.known.get_mut(&nid.0)
    }

    pub(crate) fn is_known(&self, nid: NodeId) -> bool {
        self.known.contains_key(&nid.0)
    }

    /// Whether messages to the peer are under way.
    pub(crate) fn sends(&self, nid: NodeId) -> bool {
        let source = self.known.get(&nid.0);
        source.is_some_and(|source| !source.window.is_empty())
    }

    /// How many peers may be sent to at once when structures are used again: one structure is left for
    /// those that send, or nodes that all send would refuse one another for ever.
    pub(crate) fn most_senders(&self) -> usize {
        self.limit.saturating_sub(1).max(1)
    }

    /// Whether a structure has been taken from a peer: the peer that is not known may be one.
    pub(crate) fn have_left(&self) -> bool {
        self.left
    }

    /// Of the idle peers the one whose structure was asked for longest ago.
    pub(crate) fn idle(&self) -> Option<NodeId> {
        let idle = self.known.iter().filter(|(_, source)| source.is_idle());
        let oldest = idle.min_by_key(|(_, source)| source.used);
        oldest.map(|(nid, _)| NodeId(*nid))
    }

    /// Takes the structure of an idle peer, and gives what is to be kept of it.
    pub(crate) fn take(&mut self, nid: NodeId) -> Option<PeerContext> {
        let context = self.known.get(&nid.0).filter(|source| source.is_idle())?;
        let context = context.context();
        self.known.remove(&nid.0);
        self.left = true;
        Some(context)
    }

    /// Gives a peer that has none a structure again, if one is free.
    pub(crate) fn restore(&mut self, nid: NodeId, context: &PeerContext) {
        if self.known.len() < self.limit {
            self.known
                .entry(nid.0)
                .or_insert_with(|| Source::of(context));
        }
    }

    /// Structures left.
    pub(crate) fn free(&self) -> u32 {
        self.limit.saturating_sub(self.known.len()) as u32
    }

    /// All that are in use, by node.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut Source)> {
        self.known.iter_mut().map(|(nid, s)| (NodeId(*nid), s))
    }
}

#[cfg(test)]
mod tests;
