//! Short messages between endpoints that share memory, past Portals: written to where the peer looks, without a descriptor, a
//! match and an event.
//!
//! ```text
//!   frame   header data u64 │ match bits u64 │ the bytes of the message
//! ```
//!
//! A frame is a message like any other: it has the next number, takes a credit and is handled in its turn ([`Order`]). Whatever finds no
//! room in a frame, or is to be acknowledged, goes by Portals.
//!
//! # Invariants
//!
//! * A peer is sent frames only after it has said, in its hello or its answer, that it looks for them.
//! * A hello that begins a connection anew, and its answer, are frames where the messages before and after them are: nothing orders
//!   frames with messages of Portals, and what a hello grants must not be counted twice. There is a cell for one at any time, as a lane
//!   has more of them than a peer has credits.
//! * A message that follows a write is no frame before the write has ended, since nothing orders the two (`FI_ORDER_SAW`).
//! * What a peer has sent before it was given up is handled before it is forgotten.
//!
//! [`Order`]: crate::order::Order

use crate::completion::{Level, Op};
use crate::core::Core;
use crate::endpoint::Message;
use crate::landing::Landed;
use crate::memory::Buffer;
use crate::peers::Peers;
use crate::wire::{Kind, Said, words};
use portals_shim::{FRAME, Lane, Link, Links, ProcessId};

/// Bytes before those of the message.
pub(crate) const HEAD: usize = 16;
/// The longest message that is a frame.
const LONGEST: u64 = (FRAME - HEAD) as u64;
/// Frames of one peer that are handled in one look: as many as it may have under way.
const MOST: u32 = 64;
/// Looks in a row that have found frames, after which Portals is looked at too.
const LUCKY: u32 = 16;

/// Who may be sent frames, and where they are looked for.
#[derive(Debug)]
pub(crate) struct Frames {
    /// None where endpoints share no memory.
    links: Option<Links>,
    /// Peers whose frames are looked for.
    linked: Vec<usize>,
    /// Looks in a row that have found some.
    lucky: u32,
    /// Where a message is copied to until it is handled.
    room: Vec<u8>,
    /// Long messages are read where they are, if the kernel lets this process. Tests play a kernel that does not.
    pub(crate) reads: bool,
}

impl Frames {
    pub(crate) fn new(links: Option<Links>) -> Self {
        Self {
            links,
            linked: Vec::new(),
            lucky: 0,
            room: Vec::with_capacity(FRAME),
            reads: true,
        }
    }

    /// Whether this side looks for frames.
    pub(crate) const fn are_taken(&self) -> bool {
        self.links.is_some()
    }

    /// Whether a peer has sent one.
    #[inline]
    pub(crate) fn are_there(&self, peers: &Peers) -> bool {
        let mut links = self.linked.iter().filter_map(|at| peers.link(*at));
        links.any(|link| link.is_ready(Lane::Requests))
    }
}

/// Sends a message as a frame. `false`, and nothing has happened: it is longer than one, or there is no room for it.
#[inline]
pub(crate) fn send(link: &Link, said: Said, bits: u64, bytes: &[u8]) -> bool {
    let head = u128::from(said.encode()) | u128::from(bits) << 64;
    link.try_send(Lane::Requests, 0, &head.to_le_bytes(), bytes)
}

/// Copies the next frame out of where it lies, to `room`; its header data and match bits. One that is too short for these has 0, which
/// no engine says.
#[inline]
fn take(link: &Link, room: &mut Vec<u8>) -> Option<(u64, u64)> {
    let frame = link.take(Lane::Requests)?;
    room.clear();
    room.resize(frame.len(), 0);
    let read = link.read(&frame, 0, room);
    link.release(&frame);
    let head = room.first_chunk().filter(|_| read);
    let head = head.map_or(0, |head| u128::from_le_bytes(*head));
    Some((head as u64, (head >> 64) as u64))
}

impl Core {
    /// A peer has said that it looks for frames, on a connection that may be a new one.
    pub(crate) fn link(&mut self, at: usize) {
        let id = self.peers.get(at).id;
        if let Some(link) = self.frames.links.as_ref().and_then(|links| links.take(id)) {
            self.unlink(at);
            self.peers.get(at).link = Some(Box::new(link));
            self.frames.linked.push(at);
        }
    }

    /// Whether a message of this length may be a frame, which lies where the peer finds it and is not acknowledged. One that follows a
    /// write may not: it comes after what was written (`FI_ORDER_SAW`).
    #[inline]
    pub(crate) const fn fits_frame(&self, len: u64, level: Level) -> bool {
        let lies_there = matches!(level, Level::Injected | Level::Transmitted);
        len <= LONGEST && lies_there && self.remote == 0
    }

    /// Sends a message of the program's as a frame, if it may leave now and its end is that it has left.
    #[inline]
    pub(crate) fn send_at_once(
        &mut self,
        to: ProcessId,
        message: Message,
        buffer: &Buffer,
        op: &Op,
    ) -> bool {
        let len = buffer.len();
        if !self.fits_frame(len, op.level) {
            return false;
        }
        let at = self.number(to);
        let peer = self.peers.get(at);
        let Some(link) = peer
            .link
            .as_deref()
            .filter(|_| !peer.envelopes && peer.is_free())
        else {
            return false;
        };
        let kind = Kind::of(message.tag.is_some(), true);
        let (tag, data) = words(message.tag, message.data);
        let said = peer.say(kind, data);
        let sent = buffer.with_bytes(|bytes| send(link, said, tag, bytes));
        if sent {
            peer.said(said);
            self.reporter.sent(op, None, len, tag);
        }
        sent
    }

    /// The connection with a peer is gone. What it has sent is handled first.
    pub(crate) fn unlink(&mut self, at: usize) {
        self.frames.linked.retain(|linked| *linked != at);
        let Some(link) = self.peers.get(at).link.take() else {
            return;
        };
        while let Some(taken) = take(&link, &mut self.frames.room) {
            self.framed(at, taken);
        }
    }

    /// Handles frames that are there. Returns whether there were any, so that Portals need not be looked at now.
    #[inline]
    pub(crate) fn take_frames(&mut self) -> bool {
        if self.frames.lucky >= LUCKY || !self.frames.are_there(&self.peers) {
            self.frames.lucky = 0;
            return false;
        }
        self.frames.lucky += 1;
        self.ni.found_other();
        let mut next = 0;
        // Whoever is given up meanwhile is no longer in the list.
        while let Some(at) = self.frames.linked.get(next).copied() {
            next += 1;
            self.take_frames_of(at);
        }
        true
    }

    fn take_frames_of(&mut self, at: usize) {
        let mut count = 0;
        while let Some(link) = self.peers.link(at)
            && count < MOST
        {
            let Some(taken) = take(link, &mut self.frames.room) else {
                break;
            };
            count += 1;
            self.framed(at, taken);
        }
        let Some(link) = self.peers.link(at) else {
            return;
        };
        link.tell(Lane::Requests, count == 0);
        if link.dropped() > 0 {
            self.spoiled(at);
        }
    }

    #[cold]
    fn spoiled(&mut self, at: usize) {
        self.frames.linked.retain(|linked| *linked != at);
        self.peers.get(at).link = None;
        self.expel(at, "it has written a frame that makes no sense");
    }

    /// Handles a frame, whose bytes are in their room.
    #[inline]
    fn framed(&mut self, at: usize, (said, bits): (u64, u64)) {
        let Some(said) = Said::decode(said) else {
            return tracing::warn!("a frame that no engine sends");
        };
        if said.kind.begins() {
            return self.begin(at, said, true);
        }
        let from = self.peers.get(at).id;
        let bytes = std::mem::take(&mut self.frames.room);
        let mut landed = Landed::framed(said, from, bits, bytes);
        self.in_turn(at, &mut landed);
        self.frames.room = landed.into_bytes();
    }
}
