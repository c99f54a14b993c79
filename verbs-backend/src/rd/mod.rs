//! Reliable datagrams: messages between any two processes of a job over an unreliable wire, exactly once and in order,
//! with one pair of queue pairs however many peers there are.
//!
//! A state machine without a clock and without I/O: [`Endpoint::handle_datagram`] takes what has arrived,
//! [`Endpoint::poll_transmit`] gives what is to be sent, [`Endpoint::poll_event`] what has happened, and
//! [`Endpoint::next_timeout`] when to call [`Endpoint::handle_timeout`]. Time is an argument, nanoseconds from any origin.
//!
//! ```text
//!   send, put ─▶ queue of the peer ─▶ ready list ─▶ poll_transmit ─▶ command or data channel
//!                                        ▲  segment: number, hotel room, place in the window
//!                    acked, or lost ─────┘
//!   handle_datagram ─▶ check ─▶ window ─▶ in order: handed up where it lies
//!                                     └─▶ ahead: chunks to their fragment, puts to their landing, the rest kept
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `wire.rs` | the bytes of a datagram, its check |
//! | `config.rs` | what an endpoint is made with |
//! | `peer.rs` | what is kept of a peer, idle and active |
//! | `fragment.rs` | what goes before what; fragments into pieces |
//! | `window.rs` | which numbers are unacked, how each segment stands |
//! | `credits.rs` | what is with the adapter |
//! | `send.rs` | what the user sends; what a peer is owed |
//! | `transmit.rs` | which segment goes next, on which channel |
//! | `ack.rs` | what an ack ends; timers that run out |
//! | `receive.rs` | what a datagram does |
//! | `order.rs` | which numbers are here, what is kept, acks that are due |
//! | `share.rs` | what each sender may have under way to this process |
//! | `reassembly.rs` | fragments in chunks, landings of puts |
//! | `pace.rs` | retransmission time, congestion window |
//! | `list.rs` | peers whose turn is to come |
//! | `hotel.rs` | timers |
//! | `stats.rs` | what is counted |
//!
//! # Words
//!
//! A *fragment* is what the user sends or puts, of any size; a *segment* is what one datagram carries of it; a *chunk* is
//! a segment of a fragment that needs several. The *command* channel is for acks and tiny fragments, the *data* channel for
//! the rest; each has its own longest datagram and its own depth.
//!
//! # Invariants
//!
//! * **Exactly once, in order.** Fragments of a peer are handed up in the order in which they were sent (urgent ones in
//!   that in which they were first transmitted), each once. A segment is acked only when it and all before it are here.
//! * **Always in one state.** A segment is in a queue of its fragment (not numbered), under way with a room in the hotel, or
//!   lost and in the list of those to be sent again; once acked it is gone. Nothing else holds it. Types with private fields
//!   hold each peer's part of this, with their own invariants (`peer.rs`).
//! * **The window.** No number is sent that is [`Config::window`] or more after the oldest unacked one, so that 16 bits name
//!   every segment that can be on its way; what is older is told apart by the check (`wire.rs`).
//! * **Every gap is closed by somebody's timer**: each unacked segment has a room, or is in a list that
//!   `poll_transmit` works off, or its peer has been given up.
//! * **Memory is bounded**: by the window for what is sent, by [`Config::hold`] for each peer and
//!   [`Config::reassembly`] in all for what has arrived out of order. The next segment in order never needs any of the
//!   former, so that the bound stops nobody. Urgent fragments that wait for a peer are bounded by [`Config::owed`] and what the
//!   peer had under way then: nothing more is taken from it (`send.rs`). Others are for the user to bound.
//! * **Nothing that arrives is trusted**: what cannot be meant is counted ([`Stats`]) and dropped.
//! * The two channels may overtake each other by [`Config::cross`] segments at most, fewer than it takes to believe in a
//!   loss.

mod ack;
mod config;
mod credits;
mod fragment;
mod hotel;
mod list;
mod order;
mod pace;
mod peer;
mod reassembly;
mod receive;
mod send;
mod share;
mod stats;
mod transmit;
mod window;
mod wire;

pub use config::{Channel, ChannelConfig, Config, Congestion, Retransmit, Time};
pub use fragment::{Priority, Source};
pub use peer::IDLE_PEER_BYTES;
pub use send::SendError;
pub use stats::Stats;
pub use transmit::Transmit;
pub use wire::HEAD;

use credits::Posted;
use fragment::{Fragment, Fragments};
use hotel::Hotel;
use list::List;
use peer::{Active, Keys, Peer};
use std::collections::VecDeque;
use window::{Segment, Segments};

/// A peer of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(u32);

impl PeerId {
    /// Its place, in the order in which peers were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a datagram had for the user, where it lies. More may wait for [`Endpoint::poll_event`], which is to be asked
/// before the next datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Nothing.
    Nothing,
    /// A whole fragment.
    Fragment {
        /// The sender.
        peer: PeerId,
        /// Its data.
        data: &'a [u8],
    },
    /// Data of a put, to be placed by the user.
    Place {
        /// The sender.
        peer: PeerId,
        /// See [`Endpoint::open`].
        landing: u32,
        /// Where in the landing.
        offset: u64,
        /// The data.
        data: &'a [u8],
        /// Nothing is missing; the landing has closed.
        complete: bool,
    },
}

/// Something has happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A fragment of a message; see [`Received::Fragment`].
    Fragment {
        /// The sender.
        peer: PeerId,
        /// Its data; see [`Endpoint::recycle`].
        data: Vec<u8>,
    },
    /// Data of a put; see [`Received::Place`].
    Place {
        /// The sender.
        peer: PeerId,
        /// See [`Endpoint::open`].
        landing: u32,
        /// Where in the landing.
        offset: u64,
        /// The bytes of the segment; see [`Endpoint::recycle`].
        data: Vec<u8>,
        /// Nothing is missing; the landing has closed.
        complete: bool,
    },
    /// The peer has all of a fragment or put; its source is not needed any more.
    Acked {
        /// The receiver.
        peer: PeerId,
        /// What the user called it.
        tag: u64,
    },
    /// A fragment or put will not arrive, or nobody knows whether it did: its peer is gone.
    Failed {
        /// The receiver.
        peer: PeerId,
        /// What the user called it.
        tag: u64,
    },
    /// A peer has been given up, or has said farewell; nothing can be sent to it any more.
    Gone {
        /// Which.
        peer: PeerId,
        /// It said so.
        said: bool,
        /// Fragments sent by [`Endpoint::send`] that were not urgent and not acked: the last ones of these.
        unacked: u32,
    },
}

/// One process's end.
#[derive(Debug)]
pub struct Endpoint<S> {
    config: Config,
    number: u32,
    token: u64,
    peers: Vec<Peer>,
    /// Peers by their number in the job; [`NOBODY`] for those not added.
    by_number: Vec<u32>,
    fragments: Fragments<S>,
    segments: Segments,
    /// Of segments.
    timers: Hotel,
    /// Of acks that are due, by peer.
    ack_timers: Hotel,
    /// Peers with something that may be sent.
    ready: List,
    /// Peers with lost segments that may be sent again.
    again: List,
    /// Peers to be told what has arrived.
    acks: List,
    /// Peers that have segments kept which are in order.
    deliverable: List,
    byes: VecDeque<u32>,
    posted: Posted,
    events: VecDeque<Event>,
    /// Bytes of unfinished fragments.
    assembling: usize,
    buffers: Vec<Vec<u8>>,
    spare_active: peer::Spare,
    crowd: share::Crowd,
    stats: Stats,
}

const NOBODY: u32 = u32::MAX;
/// Buffers kept for reuse.
const SPARE: usize = 64;

/// Bytes of an entry of a slab, which is an item or the key of another free one.
const fn entry_bytes<T>() -> usize {
    size_of::<Result<T, usize>>()
}

impl<S: Source> Endpoint<S> {
    /// The end of the process that is `number` in its job, and has a secret of its own. Values of `config` that make no
    /// sense are cut to what does.
    pub fn new(config: Config, number: u32, token: u64) -> Self {
        let mut config = config;
        config.window = config.window.clamp(1, 4096);
        config.reorder = config.reorder.max(1);
        for channel in [&mut config.command, &mut config.data] {
            channel.mtu = channel.mtu.clamp(64, 1 << 16);
            channel.depth = channel.depth.max(1);
        }
        config.peer_credits = config.peer_credits.max(1);
        config.command.mtu = config.command.mtu.min(config.data.mtu);
        Self {
            config,
            number,
            token,
            peers: Vec::new(),
            by_number: Vec::new(),
            fragments: Fragments::new(),
            segments: Segments::new(),
            timers: Hotel::new(),
            ack_timers: Hotel::new(),
            ready: List::default(),
            again: List::default(),
            acks: List::default(),
            deliverable: List::default(),
            byes: VecDeque::new(),
            posted: Posted::default(),
            events: VecDeque::new(),
            assembling: 0,
            buffers: Vec::new(),
            spare_active: Vec::new(),
            crowd: share::Crowd::default(),
            stats: Stats::default(),
        }
    }

    /// Adds the process that is `number` in the job and has this secret; nothing is sent by that. A number that was
    /// added gives the same peer again.
    pub fn add_peer(&mut self, number: u32, token: u64) -> PeerId {
        if let Some(known) = self.find(number) {
            return known;
        }
        let id = PeerId(self.peers.len() as u32);
        let keys = Keys {
            out: wire::pair_key(self.token, token),
            back: wire::pair_key(token, self.token),
        };
        self.peers.push(Peer::new(&self.config, number, keys));
        let at = number as usize;
        if self.by_number.len() <= at {
            self.by_number.resize(at + 1, NOBODY);
        }
        self.by_number[at] = id.0;
        id
    }

    /// The peer with this number in the job.
    pub fn find(&self, number: u32) -> Option<PeerId> {
        let id = *self.by_number.get(number as usize)?;
        (id != NOBODY).then_some(PeerId(id))
    }

    /// The number in the job of a peer.
    pub fn number(&self, peer: PeerId) -> Option<u32> {
        self.peers.get(peer.index()).map(|p| p.number)
    }

    /// Whom a datagram says that it is from; it may be anybody.
    pub fn claimed_sender(datagram: &[u8]) -> Option<u32> {
        wire::sender(datagram)
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What was counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The smoothed round trip to a peer, nanoseconds; 0 if it is not known.
    pub fn round_trip(&self, peer: PeerId) -> Time {
        self.peers
            .get(peer.index())
            .map_or(0, |p| p.pace.round_trip())
    }

    /// Whether everything sent to a peer has been acked, and all acks have been sent; also if it is gone.
    pub fn is_drained(&self, peer: PeerId) -> bool {
        self.peers.get(peer.index()).is_none_or(Peer::is_drained)
    }

    /// Whether that holds for all peers.
    pub fn is_idle(&self) -> bool {
        (0..self.peers.len() as u32).all(|p| self.is_drained(PeerId(p)))
    }

    /// Whether a peer can be sent to.
    pub fn is_gone(&self, peer: PeerId) -> bool {
        self.peers.get(peer.index()).is_none_or(|p| p.dead)
    }

    /// When [`Endpoint::handle_timeout`] is to be called; `None` if nothing is waited for.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.timers.next(), self.ack_timers.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Gives a buffer of an event back, so that the next one needs no allocation.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.buffers.len() < SPARE && buffer.capacity() <= self.config.data.mtu {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// Bytes of memory for a peer with which nothing is under way, and more for one with a message of one segment under way
    /// in each direction.
    pub fn memory_of_peers(&self) -> (usize, usize) {
        let idle = size_of::<Peer>() + 4 + hotel::ROOM;
        let segment = entry_bytes::<Segment>() + entry_bytes::<Fragment<S>>() + hotel::ROOM;
        (idle, size_of::<Active>() + segment + peer::FEW)
    }

    /// Bytes of memory that the endpoint has for its peers: all of it, without the sources of what is being sent.
    pub fn memory(&self) -> usize {
        let active = |a: &Active| size_of::<Active>() + a.bytes();
        self.peers.capacity() * size_of::<Peer>()
            + self.by_number.capacity() * 4
            + self.segments.capacity() * entry_bytes::<Segment>()
            + self.fragments.capacity() * entry_bytes::<Fragment<S>>()
            + self.timers.bytes()
            + self.ack_timers.bytes()
            + self
                .peers
                .iter()
                .filter_map(|p| p.active.as_deref())
                .map(active)
                .sum::<usize>()
            + self.spare_active.iter().map(|a| active(a)).sum::<usize>()
            + self.buffers.iter().map(Vec::capacity).sum::<usize>()
            + self.assembling
    }
}

#[cfg(test)]
mod tests;
