//! What is known of each peer: how much it may be sent, what waits for that, and how much it is owed.
//!
//! A peer may be sent as many messages as it has granted; each takes the place of one until the peer has handled it. So what
//! messages land in never overflows, whatever others send. Messages beyond that wait here, in order.

use crate::completion::Op;
use crate::core::MOST_PENDING;
use crate::landing::Landed;
use crate::matching::Body;
use crate::memory::Buffer;
use crate::notes::Notes;
use crate::order::Order;
use crate::pool::BufferPool;
use crate::queue::Queue;
use crate::wire::{Kind, Said};
use portals_shim::{Link, ProcessId};
use std::collections::{BTreeMap, BTreeSet};

/// What is kept of a peer's messages that nobody has asked for.
///
/// An honest peer is told to send envelopes alone when more than [`Backlog::MARKS`] bytes are kept, and has at most its window of
/// messages under way by then; a second window may be granted if it begins anew. An envelope is kept while its message waits at
/// the sender, which has at most [`MOST_PENDING`] of them, and forgets them if it takes this side for lost. Twice
/// that is the bound of each. A peer with more has left the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Bytes of messages that are here.
    pub(crate) bytes: u64,
    /// Envelopes of messages that are at the sender.
    pub(crate) envelopes: usize,
}

impl Backlog {
    /// Bytes from which on a peer is asked to send envelopes alone, and at which again no longer.
    pub(crate) const MARKS: (u64, u64) = (1 << 20, 1 << 19);
    /// Bytes that a message takes at least, however short it is.
    const LEAST: u64 = 128;

    pub(crate) fn add(&mut self, body: &Body) {
        match body {
            Body::Here(bytes) => self.bytes += Self::LEAST.max(bytes.len() as u64),
            Body::There(..) => self.envelopes += 1,
        }
    }

    pub(crate) fn remove(&mut self, body: &Body) {
        match body {
            Body::Here(bytes) => self.bytes -= Self::LEAST.max(bytes.len() as u64).min(self.bytes),
            Body::There(..) => self.envelopes = self.envelopes.saturating_sub(1),
        }
    }

    /// Whether it is more than an honest peer sends.
    pub(crate) fn overflows(&self) -> bool {
        self.bytes > 2 * Self::MARKS.0 || self.envelopes > 2 * MOST_PENDING
    }
}

/// What a message sends.
#[derive(Debug)]
pub(crate) enum Load {
    /// The program's memory.
    Lent(Buffer),
    /// The same, until the call that sends it returns.
    Injected(Buffer),
    /// A copy.
    Copied(Vec<u8>),
}

impl Load {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Lent(buffer) | Self::Injected(buffer) => buffer.len(),
            Self::Copied(bytes) => bytes.len() as u64,
        }
    }

    /// What stays when the call that sends it has returned.
    pub(crate) fn keep(self, pool: &mut BufferPool) -> Self {
        match self {
            Self::Injected(buffer) => {
                let mut bytes = pool.take();
                buffer.append_to(&mut bytes);
                Self::Copied(bytes)
            }
            other => other,
        }
    }

    /// Shows the bytes.
    #[inline]
    pub(crate) fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Lent(buffer) | Self::Injected(buffer) => buffer.with_bytes(look),
            Self::Copied(bytes) => look(bytes),
        }
    }

    /// Copies it to where it is sent from.
    #[inline]
    pub(crate) fn copy_to(&self, to: &mut [u8]) {
        match self {
            Self::Lent(buffer) | Self::Injected(buffer) => buffer.copy_to(to),
            Self::Copied(bytes) => {
                let len = bytes.len().min(to.len());
                to[..len].copy_from_slice(&bytes[..len]);
            }
        }
    }
}

/// Memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Bytes from its beginning.
    pub offset: u64,
    /// Its key.
    pub key: u64,
}

/// What a peer is sent.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Message {
        tagged: bool,
        tag: u64,
        data: Option<u32>,
        load: Load,
        op: Op,
    },
    Write {
        to: Remote,
        load: Load,
        data: Option<u64>,
        op: Op,
    },
    Read {
        from: Remote,
        into: Buffer,
        op: Op,
    },
    /// A write with this data has had its effect. It ends when that has left, so that whoever ends next loses no note.
    Written {
        data: u64,
        op: Op,
        len: u64,
    },
    /// An atomic operation: its request and operands, and who waits for its end.
    Atomic {
        bytes: Vec<u8>,
        result: Option<Buffer>,
        len: u64,
        op: Op,
    },
    /// The end of the peer's atomic operation of this number; without bytes if it could not be made.
    AtomicDone(u64, Option<Vec<u8>>),
    /// The bytes of the peer's message of this key have been read where they are, or cannot be.
    Fetched(u64, bool),
    /// The bytes of the message of this key are exposed.
    Exposed(u64),
}

impl Outgoing {
    /// Whether it takes the place of a message that the peer has granted.
    pub(crate) fn costs(&self) -> bool {
        !matches!(self, Self::Write { .. } | Self::Read { .. })
    }

    /// Whether it ends an operation of the peer's.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::AtomicDone(..) | Self::Fetched(..) | Self::Exposed(_)
        )
    }

    /// What stays when the call that sends it has returned.
    pub(crate) fn keep(self, pool: &mut BufferPool) -> Self {
        match self {
            Self::Message {
                tagged,
                tag,
                data,
                load,
                op,
            } => Self::Message {
                tagged,
                tag,
                data,
                load: load.keep(pool),
                op,
            },
            Self::Write { to, load, data, op } => Self::Write {
                to,
                load: load.keep(pool),
                data,
                op,
            },
            other => other,
        }
    }

    /// Whether its program may hold it for sent when the call has returned: its bytes were copied.
    pub(crate) fn is_copy(&self) -> bool {
        match self {
            Self::Message { load, .. } | Self::Write { load, .. } => !matches!(load, Load::Lent(_)),
            Self::Atomic { result, op, .. } => result.is_none() && !op.told,
            Self::Written { .. } => true,
            Self::Read { .. } | Self::AtomicDone(..) | Self::Fetched(..) | Self::Exposed(_) => {
                false
            }
        }
    }

    /// Whether its program may be told to try again; what continues an operation has to wait.
    pub(crate) fn is_new(&self) -> bool {
        self.op().is_some() && !matches!(self, Self::Written { .. })
    }

    pub(crate) fn op(&self) -> Option<&Op> {
        match self {
            Self::Message { op, .. }
            | Self::Write { op, .. }
            | Self::Read { op, .. }
            | Self::Written { op, .. }
            | Self::Atomic { op, .. } => Some(op),
            Self::AtomicDone(..) | Self::Fetched(..) | Self::Exposed(_) => None,
        }
    }
}

/// How far the two have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquaintance {
    New,
    /// This side has said hello.
    Greeted,
    Open,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: ProcessId,
    pub(crate) state: Acquaintance,
    /// Messages that it may be sent.
    pub(crate) credits: u32,
    /// Messages that it may be told to send.
    pub(crate) owed: u32,
    /// Messages that it was granted.
    pub(crate) window: u32,
    /// It wants envelopes alone.
    pub(crate) envelopes: bool,
    /// It was told that it may send envelopes alone.
    pub(crate) told: bool,
    pub(crate) backlog: Backlog,
    pub(crate) notes: Notes,
    pub(crate) order: Order<Landed>,
    pub(crate) queue: Queue,
    /// Where frames go, and come from, if it shares memory with this process.
    pub(crate) link: Option<Box<Link>>,
    /// It reads long messages where they are.
    pub(crate) reads: bool,
    /// How often it has left the protocol.
    pub(crate) departures: u32,
}

impl Peer {
    fn new(id: ProcessId, window: u32) -> Self {
        Self {
            id,
            state: Acquaintance::New,
            credits: 0,
            owed: 0,
            window,
            envelopes: false,
            told: false,
            backlog: Backlog::default(),
            notes: Notes::default(),
            order: Order::default(),
            queue: Queue::default(),
            link: None,
            reads: false,
            departures: 0,
        }
    }

    /// Grants it its whole window, so that it is owed nothing.
    pub(crate) fn grant(&mut self) -> u32 {
        self.owed = 0;
        self.notes.forget_credits();
        self.window
    }

    /// What a message of this kind says, if it is the next one.
    #[inline]
    pub(crate) fn say(&self, kind: Kind, data: Option<u32>) -> Said {
        Said {
            kind,
            data,
            credits: self.owed.min(255) as u8,
            envelopes: self.told,
            number: self.order.next(),
        }
    }

    /// The message that says so has been sent.
    #[inline]
    pub(crate) fn said(&mut self, said: Said) {
        self.order.sent();
        self.owed -= u32::from(said.credits).min(self.owed);
        self.credits = self.credits.saturating_sub(1);
    }

    /// Whether a message may leave now, and nothing waits before it.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.state == Acquaintance::Open && self.credits > 0 && self.queue.len() == (0, 0)
    }

    /// Whether the next message may leave.
    pub(crate) fn may_send(&self, next: &Outgoing) -> bool {
        !next.costs() || (self.state == Acquaintance::Open && self.credits > 0)
    }

    /// Whether it is to send envelopes alone, by what nobody has asked for.
    pub(crate) fn is_to_send_envelopes(&self) -> bool {
        let (from, to) = Backlog::MARKS;
        self.backlog.bytes > if self.told { to } else { from }
    }
}

/// All peers, by number.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    all: Vec<Peer>,
    index: BTreeMap<ProcessId, usize>,
    /// Numbers that another peer may have, the smallest first: these are granted most.
    free: BTreeSet<usize>,
    latest: usize,
}

impl Peers {
    pub(crate) fn get(&mut self, at: usize) -> &mut Peer {
        &mut self.all[at]
    }

    #[inline]
    pub(crate) fn link(&self, at: usize) -> Option<&Link> {
        self.all.get(at)?.link.as_deref()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn find(&mut self, id: ProcessId) -> Option<usize> {
        if self.all.get(self.latest).is_some_and(|peer| peer.id == id) {
            return Some(self.latest);
        }
        self.latest = *self.index.get(&id)?;
        Some(self.latest)
    }

    /// The number of a peer, which is a new one if it is not known.
    pub(crate) fn number(&mut self, id: ProcessId) -> usize {
        if let Some(at) = self.find(id) {
            return at;
        }
        let at = self.free.pop_first().unwrap_or(self.all.len());
        // Many peers share what messages land in.
        let window = match at {
            0..16 => 64,
            16..128 => 16,
            _ => 4,
        };
        let peer = Peer::new(id, window);
        match self.all.get_mut(at) {
            Some(place) => *place = peer,
            None => self.all.push(peer),
        }
        self.index.insert(id, at);
        self.latest = at;
        at
    }

    /// The peer of a number has ended, and nothing names it: the next one has its number, and what messages land in.
    pub(crate) fn vacate(&mut self, at: usize) {
        let Some(peer) = self.all.get_mut(at) else {
            return;
        };
        if self.index.remove(&peer.id).is_some() {
            *peer = Peer::new(ProcessId::ANY, peer.window);
            self.free.insert(at);
            self.latest = usize::MAX;
        }
    }

    /// Messages that all may send at once.
    pub(crate) fn granted(&self) -> u64 {
        self.all.iter().map(|peer| u64::from(peer.window)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_have_numbers_and_share_what_there_is() {
        let mut peers = Peers::default();
        for nid in 1..=200 {
            let id = ProcessId::new(nid, 1);
            assert_eq!(peers.find(id), None);
            let at = peers.number(id);
            assert_eq!((peers.number(id), peers.find(id)), (at, Some(at)));
        }
        assert_eq!(
            (peers.len(), peers.granted()),
            (200, 16 * 64 + 112 * 16 + 72 * 4)
        );
    }

    #[test]
    fn who_comes_after_others_have_ended_has_their_numbers_and_windows() {
        let mut peers = Peers::default();
        let id = |nid| ProcessId::new(nid, 1);
        for nid in 1..=20 {
            peers.number(id(nid));
        }
        let granted = peers.granted();
        for at in [17, 3, 3] {
            peers.get(at).backlog.bytes = 9;
            peers.vacate(at);
        }
        assert_eq!(
            (peers.find(id(4)), peers.find(ProcessId::ANY)),
            (None, None)
        );
        assert_eq!([30, 31, 32].map(|nid| peers.number(id(nid))), [3, 17, 20]);
        assert_eq!(peers.granted(), granted + 16);
        assert_eq!(peers.get(3).backlog, Backlog::default());
        assert_eq!((peers.get(3).window, peers.get(17).window), (64, 16));
    }

    #[test]
    fn a_message_leaves_at_once_with_a_credit_and_nothing_before_it() {
        let mut peers = Peers::default();
        let at = peers.number(ProcessId::new(1, 1));
        let peer = peers.get(at);
        peer.credits = 1;
        assert!(!peer.is_free(), "it has not answered");
        peer.state = Acquaintance::Open;
        assert!(peer.is_free());
        peer.queue.push(Outgoing::Written {
            data: 1,
            op: Op::default(),
            len: 0,
        });
        assert!(!peer.is_free(), "another waits");
        peer.queue.pop(false);
        peer.credits = 0;
        assert!(!peer.is_free());
    }

    #[test]
    fn envelopes_are_asked_for_between_two_marks() {
        let mut peers = Peers::default();
        let at = peers.number(ProcessId::new(1, 1));
        let peer = peers.get(at);
        peer.backlog.bytes = Backlog::MARKS.0;
        assert!(!peer.is_to_send_envelopes());
        peer.backlog.bytes += 1;
        assert!(peer.is_to_send_envelopes());
        peer.told = true;
        peer.backlog.bytes = Backlog::MARKS.1 + 1;
        assert!(peer.is_to_send_envelopes());
        peer.backlog.bytes -= 1;
        assert!(!peer.is_to_send_envelopes());
    }
}
