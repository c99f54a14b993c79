//! What an endpoint does with its operations and with what arrives; all of it under one lock.

use crate::accesses::{Accesses, Counts};
use crate::capacity::CAPACITY;
use crate::completion::{End, Failure, Level, Op, Reporter};
use crate::frames::{self, Frames};
use crate::landing::{CONTROL, EAGER, Landing, MESSAGES, NUMBER, RoomError, Slots};
use crate::matching::Lists;
use crate::memory::Buffer;
use crate::multi_receives::MultiReceives;
use crate::peers::{Acquaintance, Load, Outgoing, Peers};
use crate::pool::BufferPool;
use crate::remote::Access;
use crate::removed::Removed;
use crate::rendezvous::Shown;
use crate::wire::{Kind, Said, TAKES_FRAMES, note};
use portals_shim::{
    AckRequest, ClockKind, EqHandle, Error, EventKind, Interface, MdHandle, MdMemory, MdOptions,
    MdSpec, MeHandle, NiFail, Posted, ProcessId, Put, Target, Unlink,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Events that may be there at once: several for each message that may land, and for each operation.
const EVENTS: u64 = CAPACITY as u64;
/// Operations with a descriptor of their own that may be under way: each has an event at its end, or two.
pub(crate) const MOST_PENDING: usize = EVENTS as usize / 4;
/// Operations that may wait for peers before a program is told to try again.
const MOST_QUEUED: usize = CAPACITY;

/// What a slot is sent for.
#[derive(Debug)]
pub(crate) enum Use {
    /// A message.
    Message { op: Op, len: u64, tag: u64 },
    /// The envelope of what this operation exposes.
    Envelope(u64),
    /// A write to a peer's memory, and what the peer is told of it.
    Write {
        op: Op,
        len: u64,
        told: Option<(usize, u64)>,
    },
    /// The request of this atomic operation.
    Asked(u64),
    /// What a peer is told of this write, which ends by that.
    Note { op: Op, len: u64 },
    /// Bytes of which nobody waits for the end.
    Nothing,
}

impl Use {
    /// The event that ends it.
    pub(crate) fn last_event(&self) -> EventKind {
        match self {
            Self::Write { .. } => EventKind::Ack,
            Self::Message { op, .. } | Self::Note { op, .. } if op.level.is_acked() => {
                EventKind::Ack
            }
            _ => EventKind::SendEnd,
        }
    }
}

/// What the end of a descriptor of its own ends.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A long message, until the peer has fetched it.
    Exposed {
        peer: usize,
        shown: Shown,
        op: Op,
        len: u64,
        tag: u64,
        /// The bytes, if they are not the program's.
        _copy: Option<Copied>,
    },
    /// A long message whose bytes cannot be read where they are, until they are exposed.
    Awaited {
        peer: usize,
        key: u64,
        into: Buffer,
        op: Op,
        end: End,
        missing: u64,
    },
    /// A long message that is being fetched.
    Fetch { op: Op, end: End, missing: u64 },
    /// An atomic operation that the peer makes.
    Atomic {
        peer: usize,
        op: Op,
        len: u64,
        result: Option<Buffer>,
    },
    /// A write to a peer's memory, or a read.
    Remote {
        md: MdHandle,
        op: Op,
        len: u64,
        told: Option<(usize, u64)>,
        _copy: Option<Copied>,
    },
}

/// Memory that peers reach by a key.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) me: MeHandle,
    pub(crate) md: MdHandle,
    pub(crate) counts: Counts,
    pub(crate) buffer: Buffer,
    pub(crate) access: Access,
}

/// Bytes that a descriptor names.
pub(crate) type Copied = portals_shim::Region;

/// Whether an operation can be taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not before others have ended.
    #[error("too many operations are under way; try again after progress")]
    Again,
    /// There is no such peer.
    #[error("the address vector has no peer of this number")]
    NoPeer,
    /// Not while accesses of peers are under way there.
    #[error("peers' accesses to the memory are still under way")]
    InUse,
    /// Portals refuses it.
    #[error("Portals refuses it: {0}")]
    Portals(Error),
    /// The arguments cannot be meant.
    #[error("the arguments cannot be meant")]
    Invalid,
    /// No message was claimed so.
    #[error("no message was claimed with this context")]
    NoMessage,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSpace => Self::Again,
            Error::MeInUse | Error::MdInUse => Self::InUse,
            error => Self::Portals(error),
        }
    }
}

/// How far the close of an endpoint is, which other threads may still have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Open,
    /// Nothing is taken or begun any more, but peers may reach registered memory until the interface has closed.
    Closing,
    /// The program may have freed all that it had lent.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) ni: Interface,
    pub(crate) life: Life,
    pub(crate) eq: EqHandle,
    pub(crate) landing: Landing,
    pub(crate) slots: Slots,
    /// By slot: which peer it was sent to, and what for.
    pub(crate) uses: Vec<Option<(usize, Use)>>,
    control: MdHandle,
    pub(crate) reporter: Reporter,
    pub(crate) frames: Frames,
    pub(crate) peers: Peers,
    /// The numbers of peers that have ended, until others have them.
    pub(crate) departed: Vec<usize>,
    /// Peers that are in no address vector any more.
    pub(crate) removed: Removed,
    /// Of messages without a tag, and of those with one.
    pub(crate) lists: [Lists; 2],
    pub(crate) multi_receives: MultiReceives,
    /// By numbers of this side: no peer chooses a key, so that their hash needs no secret.
    pub(crate) pending: FxHashMap<u64, Pending>,
    pub(crate) pool: BufferPool,
    last: u64,
    /// Operations and answers that wait for peers.
    pub(crate) queued: usize,
    /// The answers among them.
    answers: usize,
    /// Writes and reads of peers' memory that are under way by Portals.
    pub(crate) remote: usize,
    /// The fabric may take bytes from where they are.
    packs: bool,
    /// Time is simulated: a look that finds nothing costs what a wait costs, and a wait lets time pass.
    pub(crate) simulated: bool,
    /// Looks in a row that have found nothing.
    pub(crate) idle: u32,
    /// There is room again, for which queues of peers may wait.
    pub(crate) woken: bool,
    /// Whom a write that carries data is told to.
    pub(crate) on_written: Option<Op>,
    /// Credits of such notes are held, as nobody takes the completions.
    pub(crate) notes_held: bool,
    pub(crate) memory: BTreeMap<u64, Registered>,
    pub(crate) accesses: Accesses,
}

pub(crate) fn target(
    process: ProcessId,
    pt_index: u32,
    match_bits: u64,
    remote_offset: u64,
) -> Target {
    Target {
        process,
        pt_index,
        ac_index: 0,
        match_bits,
        remote_offset,
    }
}

impl Core {
    pub(crate) fn new(ni: Interface) -> Result<Self, RoomError> {
        let simulated = ni.clock() == ClockKind::Virtual;
        let packs = ni.capabilities().packs;
        let eq = ni.eq_alloc(EVENTS)?;
        let slots = Slots::new(&ni, eq)?;
        let control = MdSpec {
            memory: MdMemory::Empty,
            threshold: -1,
            max_size: 0,
            // A peer that is given up is told of by an event of this descriptor.
            options: MdOptions::EVENT_START_DISABLE
                | MdOptions::EVENT_END_DISABLE
                | MdOptions::EVENT_FAILURE_ENABLE,
            user_ptr: CONTROL,
            eq: Some(eq),
        };
        let control = ni.md_bind(control, Unlink::Retain)?;
        let mut landing = Landing::new(eq);
        landing.reserve(&ni, 0)?;
        let uses = std::iter::repeat_with(|| None).take(64).collect();
        let core = Self {
            frames: Frames::new(ni.links()),
            ni,
            life: Life::Open,
            eq,
            landing,
            slots,
            uses,
            control,
            reporter: Reporter::default(),
            peers: Peers::default(),
            departed: Vec::new(),
            removed: Removed::default(),
            lists: Default::default(),
            multi_receives: MultiReceives::default(),
            pending: FxHashMap::default(),
            pool: BufferPool::default(),
            last: 0,
            queued: 0,
            answers: 0,
            remote: 0,
            packs,
            simulated,
            idle: 0,
            woken: false,
            on_written: None,
            notes_held: false,
            memory: BTreeMap::new(),
            accesses: Accesses::default(),
        };
        core.refuse_the_rest()?;
        Ok(core)
    }

    /// Operations under way have no end any more, and nothing that was lent is touched.
    pub(crate) fn close(&mut self) {
        self.life = Life::Closing;
        // Nobody is told any more, so what was told may close next, whoever still has the endpoint.
        self.reporter = Reporter::default();
        self.accesses = Accesses::default();
        self.memory.clear();
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.last = (self.last + 1) & NUMBER;
        self.last
    }

    /// Sends now what can be sent now, and the rest later, in order.
    pub(crate) fn submit(&mut self, to: ProcessId, what: Outgoing) -> Result<(), Refused> {
        let at = self.number(to);
        let room = self.has_room(&what);
        let peer = self.peers.get(at);
        if room && peer.queue.lets_pass(&what) && peer.may_send(&what) {
            return Ok(self.go(at, what)?);
        }
        // An answer waits however many others do: its peer has asked for it.
        if self.queued - self.answers >= MOST_QUEUED && what.is_new() {
            return Err(Refused::Again);
        }
        self.answers += usize::from(what.is_answer());
        self.queued += 1;
        peer.queue.push(what.keep(&mut self.pool));
        if peer.queue.overflows() {
            self.expel(at, "it grants no credits for answers that it has asked for");
            return Ok(());
        }
        self.greet(at);
        Ok(())
    }

    /// Whether something waits that its program holds for sent, or something is under way by Portals.
    pub(crate) fn is_busy(&mut self) -> bool {
        let mut all = 0..self.peers.len();
        let copies = self.queued > 0 && all.any(|at| self.peers.get(at).queue.holds_copies());
        copies || self.remote > 0 || self.uses.iter().any(Option::is_some)
    }

    /// Says hello to a peer that has not been spoken to.
    pub(crate) fn greet(&mut self, at: usize) {
        let peer = self.peers.get(at);
        if peer.state != Acquaintance::New {
            return;
        }
        peer.state = Acquaintance::Greeted;
        let window = peer.grant();
        if let Err(error) = self.landing.reserve(&self.ni, self.peers.granted()) {
            tracing::error!(%error, "a peer cannot be answered");
        }
        self.say(at, Kind::Hello, window);
    }

    /// A message of nothing but its header.
    pub(crate) fn say(&mut self, at: usize, kind: Kind, credits: u32) {
        self.say_by(at, kind, credits, true);
    }

    /// The same, in a frame only if it may be one.
    pub(crate) fn say_by(&mut self, at: usize, kind: Kind, credits: u32, framed: bool) {
        let peer = self.peers.get(at);
        let said = Said {
            kind,
            data: (kind.begins() && self.frames.are_taken()).then_some(TAKES_FRAMES),
            credits: u8::try_from(credits).unwrap_or(u8::MAX),
            envelopes: peer.told,
            number: peer.order.next(),
        };
        let to = target(peer.id, MESSAGES, 0, 0);
        let link = peer.link.as_ref().filter(|_| framed);
        if link.is_some_and(|link| frames::send(link, said, 0, &[])) {
            if !kind.begins() {
                peer.order.sent();
            }
            return;
        }
        // Of a hello that does not arrive there is an event.
        let ack = match kind {
            Kind::Hello => AckRequest::Ack,
            _ => AckRequest::NoAck,
        };
        let put = Put::new(self.control, to).region(0, 0).ack(ack);
        match self.ni.post_put(put.hdr_data(said.encode()).silent()) {
            Ok(_) if kind.begins() => {}
            Ok(_) => peer.order.sent(),
            Err(error) => tracing::error!(%error, "a message to a peer"),
        }
    }

    /// Puts a message. After an error nothing has happened, but that the slot is free.
    pub(crate) fn tell(
        &mut self,
        (at, slot): (usize, usize),
        (load, level): (&Load, Level),
        (kind, bits, data): (Kind, u64, Option<u32>),
        used: Use,
    ) -> Result<(), Error> {
        let peer = self.peers.get(at);
        let said = peer.say(kind, data);
        let id = peer.id;
        let link = self.peers.link(at);
        let link = link.filter(|_| self.fits_frame(load.len(), level));
        let framed = |link| load.with_bytes(|bytes| frames::send(link, said, bits, bytes));
        if link.is_some_and(framed) {
            self.slots.give_back(slot);
            self.used(used, NiFail::OK, load.len());
        } else {
            let to = target(id, MESSAGES, bits, 0);
            self.put(
                (at, slot),
                (load, level.is_acked()),
                to,
                said.encode(),
                used,
            )?;
        }
        self.peers.get(at).said(said);
        Ok(())
    }

    /// Whether there is a slot for it, if it needs one, and an event for its end, if anybody waits for that.
    fn has_room(&self, what: &Outgoing) -> bool {
        let slot = !what.costs() || !self.slots.is_empty();
        slot && (what.is_answer() || self.pending.len() < MOST_PENDING)
    }

    /// Sends what waits, as far as it may be sent.
    pub(crate) fn pump(&mut self, at: usize) {
        loop {
            let held = self.pending.len() >= MOST_PENDING;
            let peer = self.peers.get(at);
            let Some(next) = peer.queue.next(held) else {
                return;
            };
            if !peer.may_send(next) {
                return self.greet(at);
            }
            if next.costs() && self.slots.is_empty() {
                return;
            }
            let Some(next) = peer.queue.pop(held) else {
                return;
            };
            self.queued -= 1;
            self.answers -= usize::from(next.is_answer());
            let op = next.op().copied();
            if let Err(error) = self.go(at, next) {
                tracing::warn!(%error, "an operation that waited");
                if let Some(op) = op {
                    self.reporter
                        .failed(&op, Failure::Fabric, &End::default(), 0);
                }
            }
        }
    }

    /// Sends something that may be sent; after an error nothing has happened.
    fn go(&mut self, at: usize, what: Outgoing) -> Result<(), Error> {
        match what {
            Outgoing::Message {
                tagged,
                tag,
                data,
                load,
                op,
            } => {
                // A short message travels without its match, so one that awaits that is announced.
                let short = load.len() <= EAGER as u64 && op.level != Level::Matched;
                let eager = short && !self.peers.get(at).envelopes;
                let kind = Kind::of(tagged, eager);
                let slot = self.slots.take().ok_or(Error::NoSpace)?;
                if eager {
                    let len = load.len();
                    let used = Use::Message { op, len, tag };
                    let sent = self.tell((at, slot), (&load, op.level), (kind, tag, data), used);
                    self.recycle(load);
                    sent
                } else {
                    self.announce((at, slot), kind, (tag, data), load, op)
                }
            }
            Outgoing::Write { to, load, data, op } => self.write(at, to, load, data, op),
            Outgoing::Read { from, into, op } => self.read(at, from, into, op),
            Outgoing::Atomic {
                bytes,
                result,
                len,
                op,
            } => {
                let number = self.next();
                let pending = Pending::Atomic {
                    peer: at,
                    op,
                    len,
                    result,
                };
                self.pending.insert(number, pending);
                let sent =
                    self.send_bytes(at, Kind::Atomic, (number, None), bytes, Use::Asked(number));
                if sent.is_err() {
                    self.pending.remove(&number);
                }
                sent
            }
            Outgoing::AtomicDone(number, bytes) => {
                let made = u32::from(bytes.is_some());
                let bytes = bytes.unwrap_or_default();
                self.send_bytes(
                    at,
                    Kind::AtomicDone,
                    (number, Some(made)),
                    bytes,
                    Use::Nothing,
                )
            }
            Outgoing::Fetched(key, read) => {
                let said = (key, Some(read.into()));
                self.send_bytes(at, Kind::Fetched, said, Vec::new(), Use::Nothing)
            }
            Outgoing::Exposed(key) => {
                self.send_bytes(at, Kind::Exposed, (key, None), Vec::new(), Use::Nothing)
            }
            Outgoing::Written { data, op, len } => {
                let slot = self.slots.take().ok_or(Error::NoSpace)?;
                let (bits, data) = note(len, data);
                let said = (Kind::Written, bits, data);
                let nothing = Load::Copied(Vec::new());
                let used = Use::Note { op, len };
                self.tell((at, slot), (&nothing, op.level), said, used)
            }
        }
    }

    /// Sends bytes of the engine's own.
    fn send_bytes(
        &mut self,
        at: usize,
        kind: Kind,
        (number, data): (u64, Option<u32>),
        bytes: Vec<u8>,
        used: Use,
    ) -> Result<(), Error> {
        let slot = self.slots.take().ok_or(Error::NoSpace)?;
        let load = Load::Copied(bytes);
        let sent = self.tell(
            (at, slot),
            (&load, Level::Injected),
            (kind, number, data),
            used,
        );
        self.recycle(load);
        sent
    }

    /// Keeps the memory of a message that has left.
    #[inline]
    pub(crate) fn recycle(&mut self, load: Load) {
        if let Load::Copied(bytes) = load {
            self.pool.give_back(bytes);
        }
    }

    /// Copies a short message into its slot.
    pub(crate) fn fill(&self, slot: usize, load: &Load) {
        let (region, at) = self.slots.memory(slot);
        let filled = match load {
            Load::Lent(buffer) | Load::Injected(buffer) => buffer.load(region, at),
            Load::Copied(bytes) => region.write(at, bytes),
        };
        if let Err(error) = filled {
            tracing::error!(%error, "a message does not fit its slot");
        }
    }

    /// Puts bytes by the descriptor of a slot: from where they are, if the fabric takes them at once, or else from the slot.
    pub(crate) fn put(
        &mut self,
        (at, slot): (usize, usize),
        (load, acked): (&Load, bool),
        to: Target,
        word: u64,
        used: Use,
    ) -> Result<(), Error> {
        let ack = if acked {
            AckRequest::Ack
        } else {
            AckRequest::NoAck
        };
        let (md, len) = (self.slots.md(slot), load.len());
        let put = || {
            let put = Put::new(md, to).region(0, len).ack(ack);
            put.hdr_data(word).silent()
        };
        let mut posted = Ok(Posted::Declined);
        if self.packs {
            let mut pack = |to: &mut [u8]| load.copy_to(to);
            posted = self.ni.post_put(put().pack(&mut pack));
        }
        if matches!(posted, Ok(Posted::Declined)) {
            self.fill(slot, load);
            posted = self.ni.post_put(put());
        }
        match posted {
            Ok(posted) if posted.is_taken() && !acked => {
                self.slots.give_back(slot);
                self.used(used, NiFail::OK, len);
                Ok(())
            }
            Ok(_) => {
                self.uses[slot] = Some((at, used));
                Ok(())
            }
            Err(error) => {
                self.slots.give_back(slot);
                Err(error)
            }
        }
    }

    /// What was sent from a slot has left, or has arrived.
    pub(crate) fn used(&mut self, used: Use, fail: NiFail, mlength: u64) {
        let failure = Failure::of(fail);
        match (used, failure) {
            (Use::Message { op, len, tag }, _) => self.reporter.sent(&op, failure, len, tag),
            (Use::Note { op, len }, _) => self.reporter.sent(&op, failure, len, 0),
            (Use::Envelope(number), Some(why)) => self.unexpose(number, why),
            (Use::Asked(number), Some(why)) => self.unanswered(number, why),
            (Use::Write { op, len, told }, _) => self.written(op, len, told, fail, mlength),
            (Use::Envelope(_) | Use::Asked(_) | Use::Nothing, _) => {}
        }
    }

    /// A message to a peer was lost. The peer is asked to go on with the next one, and gone if it does not hear that.
    pub(crate) fn restart(&mut self, at: usize) {
        let peer = self.peers.get(at);
        if peer.state == Acquaintance::Open {
            (peer.state, peer.credits) = (Acquaintance::New, 0);
            self.greet(at);
        }
    }

    /// A peer has left the protocol: it is given up, and what is kept of it and for it is dropped. It may begin anew.
    #[cold]
    pub(crate) fn expel(&mut self, at: usize, why: &str) {
        let peer = self.peers.get(at);
        let id = peer.id;
        peer.departures = peer.departures.saturating_add(1);
        if peer.departures == 1 {
            tracing::error!(?id, why, "a peer has left the protocol and is given up");
        }
        for list in &mut self.lists {
            for message in list.forget(id) {
                self.peers.get(at).backlog.remove(&message.body);
            }
        }
        self.lose(id);
    }

    /// The fabric has given a peer up.
    pub(crate) fn gone(&mut self, id: ProcessId) {
        self.removed.lost(id);
        let known = self.peers.find(id);
        if let Some(at) = known {
            self.unlink(at);
        }
        self.lose(id);
        if let Some(at) = known {
            self.departs(at);
        }
    }

    /// Peers that were removed and have ended; the fabric may forget them.
    pub(crate) fn ended(&mut self) -> Vec<ProcessId> {
        let peers = &mut self.peers;
        // One that the fabric gave up may have come back.
        let is_back = |id| {
            let at = peers.find(id);
            at.is_some_and(|at| peers.get(at).state != Acquaintance::New)
        };
        self.removed.ended(is_back)
    }

    /// A peer is gone: what waits for it fails.
    pub(crate) fn lose(&mut self, id: ProcessId) {
        let Some(at) = self.peers.find(id) else {
            return;
        };
        let peer = self.peers.get(at);
        (peer.state, peer.credits, peer.owed) = (Acquaintance::New, 0, 0);
        (peer.envelopes, peer.told, peer.reads) = (false, false, false);
        peer.notes.forget_credits();
        peer.order.forget_early();
        let queue = std::mem::take(&mut peer.queue);
        let (operations, answers) = queue.len();
        self.queued -= operations + answers;
        self.answers -= answers;
        for what in queue.into_operations() {
            if let Some(op) = what.op() {
                self.reporter
                    .failed(op, Failure::Unreachable, &End::default(), 0);
            }
        }
        let of_peer = |pending: &Pending| match pending {
            Pending::Exposed { peer, .. }
            | Pending::Awaited { peer, .. }
            | Pending::Atomic { peer, .. } => *peer == at,
            // The fabric ends these.
            Pending::Fetch { .. } | Pending::Remote { .. } => false,
        };
        let numbers = self.pending.iter().filter(|(_, p)| of_peer(p));
        let mut numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
        // In the order in which they began. The map has none, and a simulation is the same in every run.
        numbers.sort_unstable();
        for number in numbers {
            self.unexpose(number, Failure::Unreachable);
            self.unanswered(number, Failure::Unreachable);
            self.not_exposed(number);
        }
        for list in 0..self.lists.len() {
            for receive in self.lists[list].take_back(id) {
                self.end_receive(receive, Failure::Unreachable);
            }
        }
    }
}

/// The memory of a long message; a copy where the program may use its own.
pub(crate) fn memory_of(load: &Load) -> Result<(MdMemory, Option<Copied>), Error> {
    let len = load.len() as usize;
    let copied = match load {
        Load::Lent(buffer) => return Ok((buffer.memory(), None)),
        _ if len == 0 => return Ok((MdMemory::Empty, None)),
        Load::Injected(_) | Load::Copied(_) => Copied::new(len).map_err(|_| Error::NoSpace)?,
    };
    let filled = match load {
        Load::Lent(buffer) | Load::Injected(buffer) => buffer.load(&copied, 0),
        Load::Copied(bytes) => copied.write(0, bytes),
    };
    filled.map_err(|_| Error::Fail)?;
    let memory = MdMemory::Region {
        region: copied.clone(),
        offset: 0,
        len,
    };
    Ok((memory, Some(copied)))
}
