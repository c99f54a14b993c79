//! What is kept of a peer.
//!
//! Of each peer that was ever met a [`Peer`]: numbers, keys, pace. What it takes to send and to sort what arrives is in
//! [`Active`], which a peer has only while something is under way; it goes back to a pool when all is acked and handed
//! up, so that memory follows what happens at a time and not the size of the job.

use super::pace::Pace;
use super::reassembly::{Landing, Partial};
use super::wire;
use super::{Config, Endpoint, Source, Time};
use std::collections::VecDeque;

/// Most bytes of a peer with which nothing is under way, everything counted.
pub const IDLE_PEER_BYTES: usize = 256;

/// A peer, as far as it is always there.
#[derive(Debug)]
pub(super) struct Peer {
    /// In the job.
    pub(super) number: u32,
    /// Of what is sent, and of what arrives.
    pub(super) key: u64,
    pub(super) key_back: u64,

    /// The next number to be sent, and the oldest unacked one.
    pub(super) next_seq: u64,
    pub(super) acked: u64,
    /// Under way: sent, not acked, not taken for lost.
    pub(super) under_way: u32,
    /// Transmissions so far, and the latest of which is known that it arrived.
    pub(super) order: u64,
    pub(super) newest: u64,
    /// Expiries of segments before this number belong to one event.
    pub(super) expired_until: u64,
    /// When the peer last acked something new or said that it takes nothing yet, or something was first sent to it.
    pub(super) heard: Time,
    pub(super) pace: Pace,
    /// What the peer wants to have under way to it.
    pub(super) share: u16,
    /// Posted and not reported, on both channels; on the data channel alone.
    pub(super) posted: u16,
    pub(super) posted_data: u16,
    /// Segments that have gone past those on the data channel.
    pub(super) crossed: u16,
    /// Urgent fragments that have gone before the first that is not.
    pub(super) overtaken: u8,

    /// The next number expected.
    pub(super) next_in: u64,
    /// The next one to be handed up; before [`Peer::next_in`] only until events have been polled.
    pub(super) handed: u64,
    /// Segments received since the last ack was sent.
    pub(super) unacked_receives: u16,
    /// Segments that have arrived twice, modulo 256; and what the peer has said of these.
    pub(super) repeats: u8,
    pub(super) repeated: u8,
    /// Last epoch in which it sent something.
    pub(super) epoch: u32,
    pub(super) next_fragment: u32,
    pub(super) next_landing: u32,

    pub(super) in_ready: bool,
    pub(super) in_again: bool,
    pub(super) in_acks: bool,
    pub(super) in_deliverable: bool,
    pub(super) dead: bool,
    pub(super) active: Option<Box<Active>>,
}

// With its place in the table of numbers, its room for acks, and what vectors have to spare.
const _: () = assert!(size_of::<Peer>() + 8 + 24 <= IDLE_PEER_BYTES);

/// A segment that has arrived out of order.
#[derive(Debug)]
pub(super) enum Slot {
    Empty,
    /// Nothing is left to be done: it has been placed.
    Placed,
    /// A chunk of so many bytes, in the unfinished fragment of this id.
    Chunk {
        id: u32,
        len: u32,
    },
    Fragment(Vec<u8>),
    Put {
        landing: u32,
        offset: u64,
        data: Vec<u8>,
    },
}

impl Slot {
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Fragment(data) | Self::Put { data, .. } => data.capacity(),
            _ => 0,
        }
    }
}

/// What a peer has while something is under way.
#[derive(Debug, Default)]
pub(super) struct Active {
    /// Fragments with something not yet sent for the first time.
    pub(super) queue: VecDeque<u32>,
    pub(super) urgent: VecDeque<u32>,
    /// Unacked segments, from [`Peer::acked`] on.
    pub(super) sent: VecDeque<u32>,
    /// Numbers taken for lost.
    pub(super) lost: VecDeque<u64>,
    /// What has arrived, from [`Peer::handed`] on.
    pub(super) slots: VecDeque<Slot>,
    /// Bytes in `slots`.
    pub(super) held: usize,
    pub(super) partials: Vec<Partial>,
    pub(super) landings: Vec<Landing>,
}

/// Those that no peer needs, each in the box in which a peer will have it.
pub(super) type Spare = Vec<Box<Active>>;

/// Entries that an idle [`Active`] keeps room for.
const KEEP: usize = 64;
/// Idle ones kept.
const POOL: usize = 64;

impl Peer {
    /// Urgent fragments that wait for it.
    #[inline]
    pub(super) fn waiting_for_it(&self) -> u32 {
        let active = self.active.as_deref();
        active.map_or(0, |active| active.urgent.len() as u32)
    }
}

impl Active {
    /// That of a peer, from the pool if it has none.
    #[inline]
    pub(super) fn of<'a>(place: &'a mut Option<Box<Self>>, spare: &mut Spare) -> &'a mut Self {
        place.get_or_insert_with(|| spare.pop().unwrap_or_default())
    }

    pub(super) fn sends_nothing(&self) -> bool {
        self.queue.is_empty() && self.urgent.is_empty() && self.sent.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.sends_nothing()
            && self.lost.is_empty()
            && self.slots.is_empty()
            && self.partials.is_empty()
            && self.landings.is_empty()
    }

    /// Bytes behind it.
    pub(super) fn bytes(&self) -> usize {
        (self.queue.capacity() + self.urgent.capacity() + self.sent.capacity()) * 4
            + self.lost.capacity() * 8
            + self.slots.capacity() * size_of::<Slot>()
            + self.slots.iter().map(Slot::bytes).sum::<usize>()
            + self.partials.capacity() * size_of::<Partial>()
            + self.landings.capacity() * size_of::<Landing>()
    }

    fn shrink(&mut self) {
        self.queue.shrink_to(KEEP);
        self.urgent.shrink_to(KEEP);
        self.sent.shrink_to(KEEP);
        self.lost.shrink_to(KEEP);
        self.slots.shrink_to(KEEP);
        self.partials.shrink_to(KEEP);
        self.landings.shrink_to(KEEP);
    }
}

impl Peer {
    pub(super) fn new(config: &Config, number: u32, key: u64, key_back: u64) -> Self {
        let (out, back) = (wire::first_seq(key), wire::first_seq(key_back));
        Self {
            number,
            key,
            key_back,
            next_seq: out,
            acked: out,
            under_way: 0,
            order: 0,
            newest: 0,
            expired_until: 0,
            heard: 0,
            pace: Pace::new(config.congestion, config.window),
            share: u16::MAX,
            posted: 0,
            posted_data: 0,
            crossed: 0,
            overtaken: 0,
            next_in: back,
            handed: back,
            unacked_receives: 0,
            repeats: 0,
            repeated: 0,
            epoch: 0,
            next_fragment: 1,
            next_landing: 1,
            in_ready: false,
            in_again: false,
            in_acks: false,
            in_deliverable: false,
            dead: false,
            active: None,
        }
    }
}

impl<S: Source> Endpoint<S> {
    /// After something has been acked or handed up: gives back what an idle peer does not need.
    #[inline]
    pub(super) fn settle(&mut self, peer: u32) {
        let Some(peer) = self.peers.get_mut(peer as usize) else {
            return;
        };
        if peer.active.as_ref().is_some_and(|a| a.is_empty())
            && let Some(mut active) = peer.active.take()
            && self.spare_active.len() < POOL
        {
            active.shrink();
            self.spare_active.push(active);
        }
    }
}
